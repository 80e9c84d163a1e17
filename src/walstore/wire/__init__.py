"""What goes over the wire and into logs: elements, envelopes and every limit by name."""

from walstore.wire.element import Element, read_element
from walstore.wire.envelope import Envelope, Header, Profile

__all__ = ["Element", "Envelope", "Header", "Profile", "read_element"]

"""Ways to a log: in memory today."""

from walstore.net.memory import MemorySnapshots, MemoryTransport

__all__ = ["MemorySnapshots", "MemoryTransport"]

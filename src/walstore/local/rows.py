"""The rows of a local file as values, each under a checksum of its own.

- SQLite notices damage to the structure of a file, not to what is in its rows; the checksum does.
- Text is kept as bytes, so that text that is no Unicode comes back as it was.
- A row that does not match its checksum is damage, never a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

from walstore.canon import Json
from walstore.document.ports import RawElement
from walstore.local.faults import DamageFoundError

Cell: TypeAlias = bytes | int | None


class OutboxBody(NamedTuple):
    """A sealed body on its way into the log.

    Attributes:
        canonical: The text that was signed.
        author: The author key.
        signature: The author's signature.
        link: The link of the element that it becomes.
        session: The session that sealed it.
        seq: Its number in the session.
        header: What stands outside the seal, as JSON text; not looked at here.
        epoch: The key epoch that it is sealed in, as text; not looked at here.
        acknowledged: The `ts` that a relay gave it; None as long as it waits.
    """

    canonical: bytes
    author: str
    signature: str
    link: str
    session: str
    seq: int
    header: str
    epoch: str
    acknowledged: int | None = None


class Recorded(NamedTuple):
    """An edit that is not sealed yet."""

    session: str
    number: int
    packed: bytes


class Pending(NamedTuple):
    """Everything that is on its way into the log, in order."""

    recorded: list[Recorded]
    bodies: list[OutboxBody]

    @property
    def size(self) -> int:
        """How many edits and bodies there are."""
        return len(self.recorded) + len(self.bodies)


class LastSealed(NamedTuple):
    """Where a session stands: the number and the link of its newest body."""

    seq: int
    link: str


class Start(NamedTuple):
    """What takes the place of a log that was read.

    Attributes:
        state: A folded state, and the `ts` up to which it was folded; None if there is none.
        elements: The elements above it.
        stranded: A folded state of what the log has lost, with a `ts`; None if there is none.
        bodies: What goes back among what is on its way, in order.
        marks: How far a reader has been.
        slots: What goes into slots, by name.
    """

    state: tuple[bytes, int] | None
    elements: Sequence[RawElement]
    stranded: tuple[bytes, int] | None
    bodies: Sequence[OutboxBody]
    marks: Json
    slots: Mapping[str, Json]


def to_bytes(text: str) -> bytes:
    """The bytes that a text is kept as."""
    return text.encode("utf-8", "surrogatepass")


def to_text(kept: bytes) -> str:
    """The text that was kept."""
    return kept.decode("utf-8", "surrogatepass")


def checked(*cells: Cell) -> tuple[Cell, ...]:
    """A row with its checksum behind it."""
    return (*cells, _checksum(cells))


def verified(row: Sequence[Any], what: str) -> Sequence[Any]:
    """A row without its checksum.

    Raises:
        DamageFoundError: It does not match its checksum.
    """
    cells = row[:-1]
    if _checksum(cells) != row[-1]:
        raise DamageFoundError(f"a wrong checksum on {what}")
    return cells


def element_row(element: RawElement) -> tuple[Cell, ...]:
    """The row of an element."""
    ts, data, author, signature = element
    return checked(ts, data, to_bytes(author), to_bytes(signature))


def element_of(row: Sequence[Any]) -> RawElement:
    """The element of a row."""
    ts, data, author, signature = verified(row, "an element")
    return RawElement(ts, data, to_text(author), to_text(signature))


def recorded_row(number: int, session: str, packed: bytes) -> tuple[Cell, ...]:
    """The row of a recorded edit."""
    return checked(number, to_bytes(session), packed)


def recorded_of(row: Sequence[Any]) -> Recorded:
    """The recorded edit of a row."""
    number, session, packed = verified(row, "a recorded edit")
    return Recorded(to_text(session), number, packed)


def body_row(place: int, body: OutboxBody) -> tuple[Cell, ...]:
    """The row of a body, less its acknowledgement: that has a row of its own."""
    return checked(
        place,
        body.canonical,
        to_bytes(body.author),
        to_bytes(body.signature),
        to_bytes(body.link),
        to_bytes(body.session),
        body.seq,
        to_bytes(body.header),
        to_bytes(body.epoch),
    )


def body_of(row: Sequence[Any]) -> tuple[int, OutboxBody]:
    """The place and the body of a row."""
    place, canonical, author, signature, link, session, seq, header, epoch = verified(row, "a body")
    return place, OutboxBody(
        canonical,
        to_text(author),
        to_text(signature),
        to_text(link),
        to_text(session),
        seq,
        to_text(header),
        to_text(epoch),
    )


def acknowledged_row(place: int, ts: int) -> tuple[Cell, ...]:
    """The row of an acknowledgement."""
    return checked(place, ts)


def acknowledged_of(row: Sequence[Any]) -> tuple[int, int]:
    """The place of a body, and the `ts` that a relay gave it."""
    place, ts = verified(row, "an acknowledgement")
    return place, ts


def session_row(place: int, session: str, last: LastSealed) -> tuple[Cell, ...]:
    """The row of a session."""
    return checked(place, to_bytes(session), last.seq, to_bytes(last.link))


def session_of(row: Sequence[Any]) -> tuple[int, str, LastSealed]:
    """The place of a session, its name and where it stands."""
    place, session, seq, link = verified(row, "a session")
    return place, to_text(session), LastSealed(seq, to_text(link))


def _checksum(cells: Sequence[Any]) -> int:
    return crc32(b"".join(map(_cell_bytes, cells)))


def _cell_bytes(cell: Any) -> bytes:
    # Each cell says how long it is, so that no bytes can move from one into the next.
    if type(cell) is bytes:
        return b"%d:%b" % (len(cell), cell)
    if type(cell) is int:
        return b"%d;" % cell
    if cell is None:
        return b"-"
    # Only a damaged row holds anything else; its length cannot be below zero.
    return b"-1:"

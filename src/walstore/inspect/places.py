"""A log that is looked at: pages of elements, the snapshot, records, and word of what is new.

- It is read and never written: `Looking`, which a document reads through, refuses to append.
- What passes through is noted line by line: who, when, how large. The newest lines are kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from walstore.canon import parse
from walstore.document.ports import Body, RawElement, StoredRecord, StoredSnapshot
from walstore.errors import MalformedError, UsageError
from walstore.wire.envelope import read_header

# Lines that are kept to be shown, the newest; about 200 bytes each.
LINES_MAX = 200_000


class OnlyLookingError(UsageError):
    """An inspected document is not edited."""

    def __init__(self) -> None:
        super().__init__("this document is only looked at; nothing is written to it")


class Place(Protocol):
    """Where the log of a document is.

    Attributes:
        name: What to call it.
        floor: Elements up to this `ts` are gone; 0 if none is, or if that is not known.
        unsent_from: Elements from this `ts` on are not in the log yet; None if all are.
        recorded: How many edits are there that nobody has signed yet.
        owner: Whose roster counts, if the place knows; None if not.
        keeper: Who has signed its state for themselves, if somebody has; else None.
    """

    name: str
    floor: int
    unsent_from: int | None
    recorded: int
    owner: str | None
    keeper: str | None

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        """A page of elements above a checkpoint; empty if there are none.

        Raises:
            CheckpointTooOldError: Elements above the checkpoint are gone.
            WalStoreError: They cannot be read now.
        """
        ...

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        """The snapshot; None if there is none."""
        ...

    async def read_record(self, document_key: str, name: str) -> StoredRecord | None:
        """A record beside the log; None if there is none."""
        ...

    async def wait(self) -> None:
        """Return when there may be something new; never, where nothing can come."""
        ...


class StillPlace:
    """What places have in common where nothing new can come."""

    def __init__(self, name: str) -> None:
        """Begin with nothing known but a name."""
        self.name = name
        self.floor = 0
        self.unsent_from: int | None = None
        self.recorded = 0
        self.owner: str | None = None
        self.keeper: str | None = None

    async def read_record(self, document_key: str, name: str) -> StoredRecord | None:
        """There are none."""
        return None

    async def wait(self) -> None:
        """Wait for what never comes."""
        await asyncio.Event().wait()


class Line(NamedTuple):
    """An element as it lies in the log.

    Attributes:
        ts: Its place.
        author: Whose key it carries.
        session: Of which session; empty where a peer has none, or it cannot be read.
        seq: Its number in the session; 0 likewise.
        size: Its bytes.
    """

    ts: int
    author: str
    session: str
    seq: int
    size: int


class Looking:
    """A transport and snapshot store that reads a place, and notes what it has read."""

    def __init__(self, place: Place) -> None:
        """Read a place."""
        self._place = place
        self.lines: deque[Line] = deque(maxlen=LINES_MAX)
        self.count = 0
        self.bytes = 0

    async def append(self, document_key: str, body: Body) -> int:
        """Refuse.

        Raises:
            OnlyLookingError: Always.
        """
        raise OnlyLookingError

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        """A page of the place."""
        page = await self._place.pull(document_key, checkpoint)
        for element in page:
            line = line_of(element)
            # A document that starts over reads what was noted already.
            if line is not None and (not self.lines or line.ts > self.lines[-1].ts):
                self.lines.append(line)
                self.count += 1
                self.bytes += line.size
        return page

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        """The snapshot of the place."""
        return await self._place.read(snapshot_key)

    async def write(
        self, snapshot_key: str, document: dict[str, Any], revision: str | None
    ) -> None:
        """Refuse.

        Raises:
            OnlyLookingError: Always.
        """
        raise OnlyLookingError


def line_of(element: object) -> Line | None:
    """The line of an element; None if it has not the shape of one."""
    if not isinstance(element, RawElement):
        return None
    session, seq = _number(element.data)
    return Line(element.ts, element.author, session, seq, len(element.data))


def _number(data: bytes) -> tuple[str, int]:
    try:
        content = parse(data)
        header = read_header(content) if isinstance(content, dict) else None
    except MalformedError:
        return "", 0
    return ("", 0) if header is None else (header.session, header.seq)

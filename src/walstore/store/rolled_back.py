"""How a store goes on with a log that was rolled back, so that nothing that was shown vanishes.

- The log is read anew where it is now; what is kept here is compared with it, not joined to it.
- Everything that comes of it is kept in one step: whoever is killed before it meets the roll-back
  again, whoever is killed after it goes on.
- Own elements are sent again as they were signed, so that everybody has them once.
- Those of others are shown until their authors have sent them. They are never written anew by
  themselves: everybody who had read them would do so, and all of it would be there many times.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from walstore.canon import canonical_bytes
from walstore.document import WalDocument
from walstore.document.ports import (
    Body,
    OtherLogError,
    RawElement,
    SnapshotStore,
    Transport,
)
from walstore.document.rejoining import Rejoined
from walstore.document.stranded import sealed_of
from walstore.local import Start
from walstore.store.high_water import HighWater
from walstore.store.replica import Replica, raw_of
from walstore.store.shelf import kept_body

Tail = Callable[[str, int, int], Awaitable[Sequence[object]]]


@dataclass(frozen=True, slots=True)
class AcceptedRollback:
    """What became of what a log had lost.

    Attributes:
        sent_again: How many own elements are sent again.
        stranded: How many elements of others are shown here, and nowhere else until their authors
            send them again.
    """

    sent_again: int
    stranded: int


class Elsewhere:
    """A log where it is, and what was read of it."""

    def __init__(self, transport: Transport) -> None:
        """Read there alone."""
        self._transport = transport
        # By `ts`: of a log that is pruned meanwhile, the same may be read again.
        self.elements: dict[int, RawElement] = {}
        # The newest elements that its snapshot stands for, as far as they were looked at.
        self.covered: list[RawElement] = []
        # Some logs cannot be read from their end.
        tail: Tail | None = getattr(transport, "tail", None)
        self.tail = None if tail is None else partial(self._read_tail, tail)

    async def append(self, document_key: str, body: Body) -> int:
        """Append to the log."""
        return await self._transport.append(document_key, body)

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        """A page of the log; raises as the transport does."""
        page = await self._transport.pull(document_key, checkpoint)
        self.elements.update((raw.ts, raw) for each in page if (raw := raw_of(each)) is not None)
        return page

    async def _read_tail(
        self, tail: Tail, document_key: str, upto: int, count: int
    ) -> Sequence[object]:
        found = await tail(document_key, upto, count)
        self.covered = [raw for each in found if (raw := raw_of(each)) is not None]
        return found


async def accept_rollback(
    document: WalDocument, replica: Replica, transport: Transport, snapshots: SnapshotStore | None
) -> AcceptedRollback:
    """Go on with a log as it is now; see `WalStore.accept_rollback`."""
    elsewhere = Elsewhere(transport)

    def lost() -> list[RawElement]:
        held = {raw.signature for raw in elsewhere.elements.values()}
        # What was not kept yet is in memory alone, and what was may be at another place here.
        known = chain(replica.elements(), document.elements())
        gone = {raw[1:]: raw for raw in known if raw.signature not in held}
        return sorted(gone.values())

    def keep(rejoined: Rejoined) -> None:
        elements = [raw for _, raw in sorted(elsewhere.elements.items())]
        high_water = HighWater(ts=rejoined.checkpoint, snapshot_ts=rejoined.snapshot_ts)
        # If there is nothing above its snapshot, what is looked for next time is below.
        high_water = high_water.risen(0, elsewhere.covered)
        replica.start_over(_start(rejoined, elements), high_water, rejoined.covered)

    rejoined = await document.rejoin(elsewhere, snapshots, elements=lost, keep=keep)
    return AcceptedRollback(len(rejoined.again), document.stranded)


@contextmanager
def meant(transport: Transport, other: OtherLogError) -> Iterator[None]:
    """Have a key stand for the log that a relay holds under it; for the one before if that fails.

    Raises:
        OtherLogError: The relay does not say which one it holds.
    """
    accept: Callable[[str, str], None] | None = getattr(transport, "accept_log", None)
    if accept is None or other.found is None:
        raise other
    accept(other.document_key, other.found)
    try:
        yield
    except BaseException:
        accept(other.document_key, other.expected)
        raise


def _start(rejoined: Rejoined, elements: Sequence[RawElement]) -> Start:
    stranded = [sealed_of(entry, "") for entry in rejoined.stranded]
    bodies = [kept_body(sealed, "") for sealed in [*stranded, *rejoined.again]]
    return Start(_kept(rejoined.state), elements, _kept(rejoined.fold), bodies, None, {})


def _kept(signed: dict[str, Any] | None) -> tuple[bytes, int] | None:
    return None if signed is None else (canonical_bytes(signed), signed["uptoTs"])

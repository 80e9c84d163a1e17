"""A document under inspection: its whole log, verified, and every version of it.

- The log is folded from its beginning if that is still there, else from the snapshot.
- Questions about a version fold the log anew, which takes its time on a long one: they are asked
  in a thread, one after the other, and never while the log is being read.
- What is noticed is kept, the newest of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from walstore.crdt import Change
from walstore.document import WalDocument
from walstore.document.events import Displaced, Event, Fork, Gap, Rejection, Rollback
from walstore.document.faults import RollbackDetectedError
from walstore.document.history import Blame, Version
from walstore.inspect.places import Line, Looking, Place
from walstore.inspect.trust import Trust
from walstore.signed import Identity

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")

# Events that are kept to be shown.
EVENTS_MAX = 1024

VERIFIED = "verified"
UNSENT = "verified, not sent"
WAITING = "sealed or unproven"


class Subject:
    """One document, open to be looked at.

    Attributes:
        key: The document.
        place: Where its log is.
        trust: Who is believed.
        versions: The elements that count, oldest first.
    """

    def __init__(self, key: str, place: Place, trust: Trust, *, identity: Identity) -> None:
        """Describe it; `open` reads it."""
        self.key = key
        self.place = place
        self.trust = trust
        self.versions: Sequence[Version] = ()
        self._looking = Looking(place)
        self._lock = asyncio.Lock()
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._faults: dict[int, str] = {}
        self._counted: set[int] = set()
        self._start = 0
        self._document = WalDocument(
            key,
            transport=self._looking,
            snapshot_store=self._looking,
            identity=identity,
            writers=trust.writers,
            snapshot_role=trust.producers,
            revoked=trust.revoked,
            encryptor=trust.encryptor,
            posture="re-derive",
            on_author_error="skip",
            on_event=self._noticed,
        )

    async def open(self) -> Subject:
        """Read the log to its end.

        Raises:
            PrunedLogError: Its beginning is gone, and no snapshot that is believed stands for it.
            WalStoreError: It cannot be read now.
        """
        async with self._lock:
            with suppress(RollbackDetectedError):
                await self._document.open()
            self._count()
        return self

    async def refresh(self) -> bool:
        """Read what is new; whether there was anything.

        Raises:
            WalStoreError: It cannot be read now.
        """
        async with self._lock:
            before = (self._looking.count, len(self.versions), len(self._events))
            with suppress(RollbackDetectedError):
                await self._document.pull()
            self._count()
            return before != (self._looking.count, len(self.versions), len(self._events))

    # ── the log ────────────────────────────────────────────────────────────────────────

    @property
    def lines(self) -> Sequence[Line]:
        """The elements as they lie in the log, oldest first; of very many the newest."""
        return self._looking.lines

    @property
    def elements(self) -> int:
        """How many elements were read."""
        return self._looking.count

    @property
    def bytes(self) -> int:
        """How large they are together."""
        return self._looking.bytes

    def verdict(self, line: Line) -> str:
        """What became of an element: `verified`, or why it does not count."""
        if line.ts in self._counted:
            is_sent = self.place.unsent_from is None or line.ts < self.place.unsent_from
            return VERIFIED if is_sent else UNSENT
        return self._faults.get(line.ts, WAITING)

    # ── versions ───────────────────────────────────────────────────────────────────────

    async def at(self, version: int) -> dict[str, Any]:
        """The document as it was after the element with a `ts`."""
        return await self._ask(self._document.at, version)

    async def diff(self, before: int, after: int) -> list[Change]:
        """What changed from one version to another; before the first one there was nothing."""
        return await self._ask(self._document.diff, max(before, self.start), after)

    async def blame(self, name: str, version: int) -> list[Blame]:
        """Who wrote each stretch of something, from verified elements alone."""
        return await self._ask(self._blame, name, version)

    @property
    def start(self) -> int:
        """The `ts` that versions can be read from: of the snapshot, or 0."""
        return self._start

    def kind(self, name: str) -> str | None:
        """What a name stands for now."""
        return self._document.kind(name)

    def names(self) -> list[str]:
        """The names that are there now."""
        return self._document.names()

    def length(self, name: str) -> int:
        """How many elements a list has now."""
        return self._document.length(name)

    # ── what is wrong, and what is gone ────────────────────────────────────────────────

    @property
    def snapshot(self) -> tuple[int, str]:
        """Up to which `ts` the snapshot reaches, 0 without one, and what became of it."""
        return self._document.snapshot_ts, self._document.snapshot_verdict.value

    @property
    def gaps(self) -> Sequence[Gap]:
        """Elements that must be there and are not."""
        return self._document.detected_gaps()

    @property
    def forks(self) -> Sequence[Fork]:
        """Clocks that were used twice."""
        return [event for event in self._events if isinstance(event, Fork)]

    @property
    def rejections(self) -> Sequence[Rejection]:
        """What does not count, and why."""
        return [event for event in self._events if isinstance(event, Rejection)]

    @property
    def rollbacks(self) -> Sequence[Rollback]:
        """What the log has lost while it was looked at."""
        return [event for event in self._events if isinstance(event, Rollback)]

    @property
    def displaced(self) -> Sequence[Displaced]:
        """What hangs on something that was let go of."""
        return [event for event in self._events if isinstance(event, Displaced)]

    @property
    def unreadable(self) -> int:
        """How many elements wait for a key."""
        return self._document.unreadable

    # ── inside ─────────────────────────────────────────────────────────────────────────

    async def _ask(
        self, question: Callable[Asked, Answer], *args: Asked.args, **kwargs: Asked.kwargs
    ) -> Answer:
        await self._lock.acquire()
        work = asyncio.create_task(asyncio.to_thread(question, *args, **kwargs))
        # A thread goes on when nobody wants its answer any more, and so does its turn.
        work.add_done_callback(self._answered)
        return await asyncio.shield(work)

    def _answered(self, work: asyncio.Task[Any]) -> None:
        self._lock.release()
        if not work.cancelled():
            work.exception()

    def _blame(self, name: str, version: int) -> list[Blame]:
        return self._document.blame(name, at=version)

    def _count(self) -> None:
        self.versions = self._document.history()
        self._counted = {version.ts for version in self.versions}
        try:
            self._document.at(0)
            self._start = 0
        except ValueError:
            # It begins with the snapshot.
            self._start = self._document.snapshot_ts

    def _noticed(self, event: Event) -> None:
        self._events.append(event)
        if isinstance(event, Rejection) and event.ts is not None:
            if len(self._faults) >= EVENTS_MAX:
                self._faults.pop(next(iter(self._faults)))
            self._faults[event.ts] = event.reason

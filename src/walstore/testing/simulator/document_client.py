"""One client of the document level: a `WalDocument` on a bad line, which may die at any moment.

- What it keeps on disk is what `WalDocument` asks its owner to keep: marks, keys, who was revoked.
  Edits that are not acknowledged are gone with the process.
- Every call may fail with what its documentation says, and with nothing else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, Literal

from walstore.document import WalDocument
from walstore.document.events import Event
from walstore.document.faults import ReadOnlyError, SnapshotRefusedError
from walstore.document.opening import Marks, Posture
from walstore.document.revoked import Revoked, nobody_revoked
from walstore.document.undoing import Aliases, Step
from walstore.errors import PeerError, TransportError, UsageError
from walstore.sealed.encryptor import Encryptor, PlainEncryptor
from walstore.sealed.keys import ContentKeys
from walstore.sealed.native import NativeEncryptor
from walstore.signed import Identity
from walstore.signed.roster import Counts
from walstore.testing.simulator.edits import Hand
from walstore.testing.simulator.interposing import NODE, Node, System
from walstore.testing.simulator.line import CHANCE, Line
from walstore.testing.simulator.tokens import Tokens
from walstore.testing.simulator.trace import Trace
from walstore.testing.simulator.verdicts import demand

# How often it tries to open before it gives up for now, and how long it waits in between.
_OPENINGS_MAX = 4
_PAUSE_S = 0.2

POSTURES: tuple[Posture, ...] = ("trust", "trust-retain-tail", "re-derive")


class DocumentClient:
    """A client, its process and what it keeps."""

    def __init__(
        self,
        node: Node,
        *,
        line: Line,
        document_key: str,
        identity: Identity,
        writers: Collection[str],
        keys: ContentKeys | None,
        can_revoke: bool,
        postures: Sequence[Posture],
        history_max: int | None,
        tokens: Tokens,
        trace: Trace,
        system: System,
    ) -> None:
        self.node, self.line, self.identity = node, line, identity
        self.name = node.name
        self.document_key, self._writers = document_key, writers
        self.keys = keys
        self.revoked: Mapping[str, Counts] = {}
        self._can_revoke = can_revoke
        self._postures = postures
        self._history_max = history_max
        self._tokens, self._trace, self._system = tokens, trace, system
        # What is on its disk, and what its process has.
        self.marks = Marks()
        self.document: WalDocument | None = None
        self.hand: Hand | None = None
        self.encryptor: Encryptor = PlainEncryptor()
        self.events: list[Event] = []
        self.sessions: list[str] = []
        self.is_out = False
        self._steps: list[Step] = []
        self._aliases = Aliases()
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()

    # ── the process ────────────────────────────────────────────────────────────────────

    def start(
        self, work: Callable[[], Coroutine[Any, Any, None]], chance: Random
    ) -> asyncio.Task[None]:
        """Do something in the process; it ends with it."""

        async def run() -> None:
            NODE.set(self.node)
            CHANCE.set(chance)
            await work()

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def crash(self) -> None:
        """Die: nothing of the process is left."""
        for task in list(self._tasks):
            task.cancel()
        if self.hand is not None:
            self.hand.lost()
        self.document = self.hand = None
        self._opening = asyncio.Lock()
        self._steps, self._aliases = [], Aliases()

    async def finished(self) -> None:
        """Wait until the process does nothing any more."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def opened(self, chance: Random) -> WalDocument | None:
        """The document, opened if it was not; None if that cannot be done now."""
        async with self._opening:
            if self.document is not None:
                return self.document
            document, view = self._new_document(chance), self.line.hub.view(self.name)
            if not await self._open(document):
                return None
            if view is self.line.hub.view(self.name) and view.ends_at is not None:
                is_behind = view.ends_at < self.marks.ts
                demand(document.is_read_only or not is_behind, "a roll-back was not noticed")
            self.document = document
            self.hand = Hand(self._tokens, f"{self.name}#{len(self.sessions)}")
            self.sessions.append(self.hand.session)
            self._trace(self.name, "opened", document.current_checkpoint)
            return document

    async def _open(self, document: WalDocument) -> bool:
        for _ in range(_OPENINGS_MAX):
            self.line.begin()
            try:
                await document.open()
            except TransportError as error:
                self._trace(self.name, "not opened", type(error).__name__)
            except PeerError as error:
                # It is open all the same.
                self._trace(self.name, "opened with", type(error).__name__)
                return True
            else:
                return True
            await asyncio.sleep(_PAUSE_S)
        return False

    def _new_document(self, chance: Random) -> WalDocument:
        if self.keys is not None:
            self.encryptor = NativeEncryptor(self.keys, randomness=os.urandom)
        raising: Literal["throw", "skip"] = "throw" if chance.random() < 0.2 else "skip"
        revoked: Revoked = self._counted if self._can_revoke else nobody_revoked
        return WalDocument(
            self.document_key,
            transport=self.line,
            snapshot_store=self.line,
            identity=self.identity,
            writers=self._writers,
            snapshot_role=self._writers,
            revoked=revoked,
            encryptor=self.encryptor,
            posture=chance.choice(self._postures),
            history_max=self._history_max,
            on_author_error=raising,
            marks=self.marks,
            on_event=self._noticed,
            on_step=self._steps.append,
        )

    def _counted(self, author: str) -> Counts | None:
        """What counts of an author, as far as is known by now."""
        return self.revoked.get(author)

    def _noticed(self, event: Event) -> None:
        self.events.append(event)
        self._trace(self.name, "event", type(event).__name__)

    # ── what it does ───────────────────────────────────────────────────────────────────

    def edit(self, chance: Random) -> None:
        """Edit, if that may be done."""
        if self.document is None or self.hand is None:
            return
        if self.document.is_read_only:
            self._trace(self.name, "read-only")
            return
        self._trace(self.name, f"edit {self.hand.edit(self.document, chance)}")

    def undo(self) -> None:
        """Undo the last edit, if that may be done."""
        if self.document is None or self.hand is None or not self._steps:
            return
        before = self.hand.noticing(self.document)
        try:
            self.document.undo_step(self._steps.pop(), self._aliases)
        except ReadOnlyError:
            return
        self.hand.vanished(self.document, before)
        self._trace(self.name, "undo")

    async def commit(self) -> None:
        """Commit; what was edited before is acknowledged when it returns."""
        document, hand = self.document, self.hand
        if document is None or hand is None:
            return
        unsent = list(hand.unsent)
        ts = await document.commit()
        hand.acknowledged(unsent)
        self._trace(self.name, "committed", ts)

    async def pull(self) -> None:
        """Read what is new, and keep how far that is."""
        if self.document is None:
            return
        document, self.line.has_fallen_behind = self.document, False
        folded = await document.pull()
        is_noticed = document.is_read_only or not self.line.has_fallen_behind
        demand(is_noticed, f"{self.name} was not told that the log was rolled back")
        if self.document is not None:
            self.marks = self.document.marks
        self._trace(self.name, "pulled", folded)

    async def snapshot(self) -> None:
        """Sign a snapshot."""
        if self.document is None:
            return
        stored = await self.document.snapshot()
        self._trace(self.name, "snapshot", stored["uptoTs"])

    async def adopt(self, keys: ContentKeys) -> None:
        """Use the keys of a newer keyring; what is cut short is to be done again later."""
        before, self.keys = self.keys, keys
        if self.document is not None and isinstance(self.encryptor, NativeEncryptor):
            self.encryptor.adopt(keys)
            try:
                opened = await self.document.retry_unreadable()
            except (TransportError, asyncio.CancelledError):
                self.keys = before
                raise
            self._trace(self.name, "keys", f"{keys.current_epoch} {opened}")

    async def exclude(self, revoked: Mapping[str, Counts]) -> None:
        """Learn who was revoked; what cannot be read anew now is to be learned later."""
        before, self.revoked = self.revoked, dict(revoked)
        if self.document is not None:
            try:
                await self.document.reread()
            except (TransportError, asyncio.CancelledError):
                self.revoked = before
                raise
            self._trace(self.name, "reread")

    async def recover(self) -> None:
        """Do what a person does who is told that the relay has lost or hidden something."""
        document = self.document
        if document is None:
            return
        if document.is_read_only:
            document.accept_rollback()
            self._trace(self.name, "accepted")
        await document.reread()


def is_documented(error: BaseException, *, is_hostile: bool) -> bool:
    """Whether an error is one that a call may raise in such a world."""
    if isinstance(error, TransportError):
        return error.retryable or is_hostile
    if isinstance(error, SnapshotRefusedError):
        return True
    return is_hostile and isinstance(error, PeerError | ReadOnlyError) and not _is_bug(error)


def _is_bug(error: BaseException) -> bool:
    return isinstance(error, UsageError) and not isinstance(error, ReadOnlyError)

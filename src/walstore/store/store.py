"""The object that an app holds: its state, read and edited at once, durable here, live elsewhere.

- Reads and edits are synchronous and local. `commit`, `flush` and `pull` are awaited; unless told
  otherwise, edits are committed by themselves a moment after they were made.
- With a path, an edit is on file when its call returns, and a store opens from there at once, with
  or without a network. With a relay, it is live whenever the relay can be reached.
- Changes, own and others', are told after they were folded, once, in order.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager, nullcontext, suppress
from typing import Any, Literal, TypeVar, cast

from walstore import net
from walstore.document import WalDocument
from walstore.document.changed import Changed
from walstore.document.document import Keys
from walstore.document.events import Event, Fork, Rejection
from walstore.document.faults import RollbackDetectedError
from walstore.document.opening import Posture
from walstore.document.ports import OtherLogError, SnapshotStore, Transport
from walstore.errors import StorageError, TransportError, UsageError, WalStoreError
from walstore.local import LocalFile, LocalFileClosedError
from walstore.sealed.encryptor import Encryptor, PlainEncryptor
from walstore.sealed.native import NativeEncryptor
from walstore.signed import Identity
from walstore.signed.card import Card
from walstore.signed.invitation import Invitation
from walstore.store.binding import Binding, Setter, bind
from walstore.store.change import Change, CrdtState, changes_of
from walstore.store.change_stream import ChangeStream
from walstore.store.closing import ClosedMeanwhileError
from walstore.store.editing import StoreEditing
from walstore.store.files import FileBinding, FileStatus
from walstore.store.journal import FileJournal
from walstore.store.lookout import Lookout, RecordsWaiter, SnapshotWaiter
from walstore.store.own_undo import OwnUndo
from walstore.store.presence import PeersWaiter, Presence, PresenceChannel
from walstore.store.refusals import Refusals
from walstore.store.refused import Refused, all_refused
from walstore.store.replica import KeyOverError, NoRelayError, NotLookedError, Replica
from walstore.store.rolled_back import AcceptedRollback, accept_rollback, meant
from walstore.store.selectors import Selector, SelectorView, Tracker, select
from walstore.store.shared import NotSharedError, check_unshared, encryptor_of, share
from walstore.store.sharing import Person, Sharing
from walstore.store.shelf import Shelf
from walstore.store.status import GAPS_MAX, State, StoreStatus
from walstore.store.strangers import Strangers
from walstore.store.subscription import Subscription
from walstore.store.subscriptions import ROUNDS_MAX, Hub
from walstore.store.sync import Syncer, may_pass
from walstore.store.typed import Schema, Typed
from walstore.store.undo import Selected, Undone
from walstore.store.undo_keeping import UndoKeeping
from walstore.store.waiting import BUFFER_DEFAULT
from walstore.store.whole_history import WholeHistory

_logger = logging.getLogger("walstore.store")

V = TypeVar("V")
T = TypeVar("T")

# Edits rest this long before they are committed by themselves, and wait this long at most.
AUTOCOMMIT_MS = 100
_AUTOCOMMIT_MS_MAX = 300

# Elements that an opening may have to read before it takes a snapshot for all.
SNAPSHOT_AFTER = 1000

# Versions that a store knows at least, of those since it was opened: some megabytes.
HISTORY_MAX = 4096

# How long opening waits for a relay where nothing of the document is here yet.
_FIRST_OPEN_S = 5.0

# Elements that may be folded before the state on file is renewed: so many, or this share of what a
# state is folded from. Opening folds no more than that.
_STATE_ELEMENTS_MAX = 256
_STATE_SHARE = 8

# Elements that changed nothing and may be read before those are looked for on file that are there
# already: so many, or the same share. A relay can repeat what there is for ever.
_REPEATS_MAX = 1024

# How long closing waits for what can still be sent.
_CLOSE_S = 5.0

# How long closing waits for callbacks.
_CALLBACKS_S = 0.5

# Forks that are kept to be shown.
_FORKS_MAX = 64


class StoreClosedError(UsageError):
    """The store is not open: use it within `async with`."""

    def __init__(self) -> None:
        super().__init__("the store is not open; use it within `async with`")


class WalStore(StoreEditing):
    """One document, bound to an app."""

    def __init__(
        self,
        key: str,
        *,
        relay: str | Transport | None,
        identity: Identity,
        path: str | os.PathLike[str] | None,
        writers: Keys | None,
        snapshot_role: Keys | None,
        snapshots: SnapshotStore | None,
        encryptor: Encryptor | None,
        wire: Literal["packed", "starfish"],
        posture: Posture,
        autocommit_ms: int | None,
        snapshot_after: int | None,
        history_max: int | None,
        owner: str | None,
        is_sealed: bool,
        on_event: Callable[[Event], None] | None,
    ) -> None:
        """Made by `WalStore.open`."""
        self.key = key
        self.identity = identity
        self._relay = relay
        self._path = path
        self._given_snapshots = snapshots
        self._writers = [identity.public_key] if writers is None else writers
        self._snapshot_role = [identity.public_key] if snapshot_role is None else snapshot_role
        self._encryptor: Encryptor = PlainEncryptor() if encryptor is None else encryptor
        self._owner = owner
        self._is_sealed = is_sealed
        self._sharing: Sharing | None = None
        self._lookout = Lookout(self._look)
        self._strangers: Strangers | None = None
        self._wire = wire
        self._posture: Posture = posture
        self._autocommit_ms = autocommit_ms
        self._snapshot_after = snapshot_after
        self._history_max = history_max
        self._has_caught_up = False
        self._on_event = on_event
        self._stack = AsyncExitStack()
        self._document: WalDocument | None = None
        self._transport: Transport | None = None
        self._snapshots: SnapshotStore | None = None
        self._file: LocalFile | None = None
        self._replica: Replica | None = None
        self._syncer: Syncer | None = None
        self._presence: Presence | None = None
        # What listens to the relay beside the syncer, as long as one connection is followed.
        self._listeners: list[asyncio.Task[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._forks: deque[Fork] = deque(maxlen=_FORKS_MAX)
        self._failure: WalStoreError | None = None
        # What has ended the syncing, and never should.
        self._defect: BaseException | None = None
        # The relay holds another log under this key, as far as it was heard last.
        self._other_log: OtherLogError | None = None
        # Whether the file says which log it is of.
        self._is_log_kept = False
        # What was folded and not told yet.
        self._folded: list[Change] = []
        self._folded_since_state = 0
        self._unfolded = 0
        self._hub = Hub(
            CrdtState(lambda: self.document.crdt),
            self._spawn,
            exception_handler=lambda context: asyncio.get_running_loop().call_exception_handler(
                context
            ),
        )
        self._tracker = Tracker(self._hub)
        self._status_callbacks: dict[object, Callable[[StoreStatus], None]] = {}
        self._told_status: StoreStatus | None = None
        self._is_telling_status = False
        self._members_callbacks: dict[object, Callable[[list[Person]], None]] = {}
        self._was_live = False
        self._undo = OwnUndo(identity.public_key)
        self._refusals: Refusals | None = None

    @classmethod
    def open(
        cls,
        key: str,
        *,
        identity: Identity,
        relay: str | Transport | None = None,
        path: str | os.PathLike[str] | None = None,
        writers: Keys | None = None,
        snapshot_role: Keys | None = None,
        snapshots: SnapshotStore | None = None,
        encryptor: Encryptor | None = None,
        wire: Literal["packed", "starfish"] = "packed",
        posture: Posture = "trust-retain-tail",
        autocommit_ms: int | None = AUTOCOMMIT_MS,
        snapshot_after: int | None = SNAPSHOT_AFTER,
        history_max: int | None = HISTORY_MAX,
        owner: str | None = None,
        is_sealed: bool = False,
        on_event: Callable[[Event], None] | None = None,
    ) -> WalStore:
        """Describe a store; it is open within `async with`.

        Args:
            key: The document.
            identity: Who edits.
            relay: The address of a relay, or a transport; without one the store is local.
            path: The file that edits are kept in; without one they live as long as the store.
            writers: The keys that may write, or a function that knows them; only this identity's
                own if left out.
            snapshot_role: The keys that may sign snapshots; only this identity's own if left out.
            snapshots: Where snapshots are, if not at the relay.
            encryptor: Seals and opens; plain if left out.
            wire: `packed`, or `starfish` for logs that TypeScript peers read.
            posture: What to believe of a snapshot of somebody else's.
            autocommit_ms: How long edits rest before they are committed by themselves; None: they
                are committed when `commit` is called.
            snapshot_after: How many elements an opening may have to read before it takes a snapshot
                for all, if this identity may; None: never.
            history_max: How many versions `history`, `at`, `diff` and `blame` know at least, if
                there were so many since it was opened, and they are not too large; `load_history`
                knows all. None: all of those, and the memory that they take.
            owner: Of a shared document: whose roster names the writers, in place of `writers` and
                `snapshot_role`. This identity's own key to share a document of one's own.
            is_sealed: Whether a shared document is sealed, with a key that its members get.
            on_event: Called with everything that is noticed: gaps, forks, what is rejected.

        Raises:
            UsageError: Both an owner and writers are given, or a seal without an owner.
        """
        if owner is not None and (writers is not None or encryptor is not None):
            raise UsageError("the owner's roster says who writes; give one or the other")
        if is_sealed and owner is None:
            raise UsageError("a sealed document needs an owner, or an `encryptor` of your own")
        return cls(
            key,
            relay=relay,
            identity=identity,
            path=path,
            writers=writers,
            snapshot_role=snapshot_role,
            snapshots=snapshots,
            encryptor=encryptor,
            wire=wire,
            posture=posture,
            autocommit_ms=autocommit_ms,
            snapshot_after=snapshot_after,
            history_max=history_max,
            owner=owner,
            is_sealed=is_sealed,
            on_event=on_event,
        )

    @classmethod
    def join(
        cls,
        invitation: str,
        *,
        identity: Identity,
        path: str | os.PathLike[str] | None = None,
        relay: str | Transport | None = None,
        autocommit_ms: int | None = AUTOCOMMIT_MS,
        history_max: int | None = HISTORY_MAX,
        on_event: Callable[[Event], None] | None = None,
    ) -> WalStore:
        """Describe the store of a document that this identity was invited to.

        Args:
            invitation: The line that the owner has handed out.
            identity: Who was invited.
            path: The file that edits are kept in.
            relay: Where the document is, if not where the invitation says.
            autocommit_ms: As for `open`.
            history_max: As for `open`.
            on_event: As for `open`.

        Raises:
            MalformedError: It is no invitation.
            UsageError: It is somebody else's, or names no relay.
        """
        found = Invitation.read(invitation)
        if found.to != identity.public_key:
            raise UsageError("this invitation is for somebody else")
        if relay is None and found.relay is None:
            raise UsageError("the invitation names no relay; give one")
        return cls.open(
            found.document,
            identity=identity,
            relay=found.relay if relay is None else relay,
            path=path,
            autocommit_ms=autocommit_ms,
            history_max=history_max,
            owner=found.owner,
            is_sealed=found.is_sealed,
            on_event=on_event,
        )

    # ── lifetime ───────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> WalStore:
        """Open from what is here; the network follows.

        Raises:
            LocalFileError: The file cannot be used.
            UsageError: It is open, or was: a store has one life.
            WalStoreError: What is here cannot be opened.
        """
        if self._document is not None or self._hub.is_closed:
            raise UsageError("a store is opened once; `WalStore.open` gives another one")
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            self._tell_strangers([])
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Commit and send what can be sent; what cannot stays on file, if there is one.

        Raises:
            StorageError: Something that was edited could not be kept, and is lost.
        """
        document, self._syncer = self._document, None
        self._hub.close()
        try:
            try:
                # What callbacks still write is sent with the rest.
                await self._end_tasks()
            finally:
                if document is not None:
                    await self._settle(document)
        finally:
            try:
                await self._stack.aclose()
            finally:
                self._tell_strangers([] if document is None else document.rejected())
                self._document = None
                self._tell_status()

    async def _open(self) -> None:
        if self._path is not None:
            author = self.identity.public_key
            self._file = LocalFile.open(self._path, document_key=self.key, author=author)
            self._stack.callback(self._file.close)
        self._transport, self._snapshots = await self._connect()
        # One that is handed over may tell, too, when its connection is another one.
        on_status = getattr(self._transport, "on_status", None)
        if on_status is not None:
            self._was_live = self._network_state == "live"
            self._stack.callback(on_status(lambda _: self._network_changed()).close)
        self._replica = Replica(
            file=self._file, transport=self._transport, snapshots=self._snapshots
        )
        await self._share()
        own = self.identity.public_key
        self._refusals = Refusals(self._file, document_key=self.key, author=own)
        document = self._new_document(self._replica, self._refusals.shelf)
        await self._read(document, self._replica)
        # Not every transport that is handed over says when it is worth trying again.
        self._refusals.attach(document, is_recalled=hasattr(self._transport, "on_status"))
        self._document = document
        if self._sharing is not None:
            keyed = self._encryptor if isinstance(self._encryptor, NativeEncryptor) else None
            self._sharing.attach(document, keyed)
            self._note_outdated()
        self._presence = self._new_presence(document)
        self._stack.callback(self._presence.close)
        self._replica.is_local = False
        self._remember_snapshot(document)
        self._folded_since_state = self._replica.count
        self._keep_state_if_due()
        self._start()

    async def _connect(self) -> tuple[Transport | None, SnapshotStore | None]:
        transport, snapshots = self._relay, self._given_snapshots
        if isinstance(transport, str):
            log_id = None if self._file is None else self._file.log_id
            logs = {} if log_id is None else {self.key: log_id}
            socket = net.WebSocketTransport(transport, identity=self.identity, logs=logs)
            transport = await self._stack.enter_async_context(socket)
            snapshots = snapshots or socket
        return transport, snapshots

    def _new_document(self, replica: Replica, shelf: Shelf) -> WalDocument:
        session = secrets.token_hex(16)
        own, role = self.identity.public_key, self._snapshot_role
        journal = None
        if self._file is not None:
            journal = FileJournal(
                self._file,
                document_key=self.key,
                author=own,
                session=session,
                encryptor=self._encryptor,
                shelf=shelf,
                confirm=replica.confirm,
            )
            keeping = UndoKeeping(
                self._file, document_key=self.key, author=own, encryptor=self._encryptor
            )
            self._undo.keep_in(keeping)
        document = WalDocument(
            self.key,
            transport=replica,
            snapshot_store=replica,
            identity=self.identity,
            writers=self._writers,
            # What is on file was signed by this identity for itself.
            snapshot_role=lambda key: key == own or _holds(role, key),
            marks=replica.marks,
            encryptor=self._encryptor,
            revoked=_nobody if self._sharing is None else self._sharing.membership.revoked,
            session_nonce=session,
            posture=self._posture,
            history_max=self._history_max,
            is_kept=lambda: self._file is not None and not replica.has_hole,
            on_author_error="skip",
            wire=self._wire,
            on_event=self._noticed,
            on_changed=self._changed,
            on_step=self._undo.push,
            journal=journal,
        )
        replica.is_key_over = lambda: document.is_outdated
        return document

    async def _read(self, document: WalDocument, replica: Replica) -> None:
        """Open from what is here, or, the first time, from elsewhere if that can be reached."""
        if not replica.has_something and self._transport is not None:
            replica.is_local = False
            try:
                async with asyncio.timeout(_FIRST_OPEN_S):
                    # What the log has lost is shown; the document is open all the same.
                    with suppress(RollbackDetectedError):
                        await document.open()
                return
            except (TransportError, TimeoutError) as error:
                _logger.info("opening empty, the relay cannot be reached: %s", error)
            finally:
                replica.is_local = True
        await document.open(posture="trust", is_own_state=True)

    def _start(self) -> None:
        if self._transport is None:
            # Nobody can be asked.
            self._tell_strangers(self.document.rejected())
            return
        self._syncer = Syncer(
            self,
            self._transport,
            rest_ms=self._autocommit_ms or 0,
            rest_ms_max=_AUTOCOMMIT_MS_MAX,
            on_failure=self._failed,
            on_followed=self._followed,
        )
        self._stack.push_async_callback(self._end_listeners)
        self._keep_running(self._syncer.run())
        if self._sharing is not None:
            self._keep_running(self._lookout.run())
        self._send_soon()

    def _keep_running(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something until the store is closed."""
        self._stack.push_async_callback(_cancelled, self._watched(work))

    def _watched(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._note_defect)
        return task

    def _note_defect(self, task: asyncio.Task[None]) -> None:
        """Show that something has failed that never should, and goes on no more; closing raises
        it.
        """
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        self._defect = error
        context = {"message": "a store has stopped syncing", "exception": error, "task": task}
        asyncio.get_running_loop().call_exception_handler(context)
        self._tell_status()

    async def _share(self) -> None:
        """Learn who counts, and what the document is sealed with."""
        if self._owner is None:
            check_unshared(self._file)
            return
        sharing = self._sharing = await share(
            self.key,
            identity=self.identity,
            owner=self._owner,
            is_sealed=self._is_sealed,
            file=self._file,
            transport=self._transport,
            relay=self._relay if isinstance(self._relay, str) else None,
        )
        if self._replica is not None:
            self._replica.may_append = self._may_write
            self._replica.is_look_due = lambda: self._lookout.is_due
        sharing.listen(self._members_changed)
        self._strangers = Strangers(sharing.membership.is_writer, self._tell_event)
        self._writers = sharing.membership.is_writer
        self._snapshot_role = sharing.membership.is_producer
        self._encryptor = encryptor_of(sharing, is_sealed=self._is_sealed)

    async def _look_first(self) -> None:
        """Know who counts, and what to seal with, before anything is read or sent."""
        if self._sharing is not None:
            await self._lookout.first(self._sharing.prepare)

    def _tell_strangers(self, rejected: list[Rejection]) -> None:
        if self._strangers is not None:
            self._strangers.tell_all(rejected)

    def _note_outdated(self) -> None:
        if self._sharing is not None and self._sharing.note_outdated():
            self._lookout.suspect()

    async def _look(self) -> bool:
        """See whether the roster or the keyring is another one; whether it is."""
        sharing, document = self.sharing, self.document
        before, unreadable = sharing.version, document.unreadable
        is_answered = True
        try:
            await (sharing.settle() if sharing.is_owner else sharing.refresh())
            self._note_outdated()
            self._keep_state(is_due=sharing.is_state_due)
        except WalStoreError as error:
            is_answered = not may_pass(error)
            _logger.info("the members could not be looked up: %s", error)
        if not is_answered:
            self._lookout.suspect()
        else:
            self._tell_strangers(document.rejected())
        return sharing.version != before or document.unreadable < unreadable

    def _members_changed(self) -> None:
        """Others count, and maybe this identity: go on with what it may do by now."""
        if self._document is None:
            return
        if self._may_write() and self._syncer is not None:
            self.document.retry_refused()
            self._syncer.nudge()
        self._tell_status()
        if self._presence is not None:
            self._presence.look()
        for callback in list(self._members_callbacks.values()):
            self._call(callback, self.sharing.members())

    def _new_presence(self, document: WalDocument) -> Presence:
        channel = self._transport if hasattr(self._transport, "set_presence") else None
        sharing = self._sharing
        return Presence(
            self.key,
            identity=self.identity,
            session=document.session,
            crdt=lambda: document.crdt,
            is_member=document.is_writer if sharing is None else sharing.membership.is_member,
            encryptor=self._encryptor,
            channel=cast("PresenceChannel | None", channel),
        )

    def _followed(self, followed: object) -> None:
        """Follow who else is there, too, and who may write, where that can be done."""
        self._lookout.told()
        for task in self._listeners:
            task.cancel()
        work: list[Coroutine[Any, Any, None]] = []
        if self._presence is not None and hasattr(followed, "wait_peers"):
            work.append(self._follow_people(self._presence, cast("PeersWaiter", followed)))
        if self._sharing is not None and hasattr(followed, "wait_records"):
            work.append(self._listen(cast("RecordsWaiter", followed)))
        if self._sharing is not None and hasattr(followed, "wait_snapshot"):
            work.append(self._await_snapshots(self._sharing, cast("SnapshotWaiter", followed)))
        self._listeners = [self._watched(each) for each in work]

    async def _follow_people(self, presence: Presence, followed: PeersWaiter) -> None:
        with suppress(TransportError):
            await presence.follow(followed)

    async def _listen(self, followed: RecordsWaiter) -> None:
        """Look at the members whenever the relay says that something about them is new."""
        with suppress(TransportError):
            while True:
                await followed.wait_records()
                self._lookout.told()

    async def _await_snapshots(self, sharing: Sharing, followed: SnapshotWaiter) -> None:
        """Look at a new snapshot, if something waits for one."""
        with suppress(TransportError):
            while True:
                await followed.wait_snapshot()
                sharing.snapshot_told()
                if self.document.unreadable:
                    self._lookout.told()

    async def _end_listeners(self) -> None:
        # All of them end, whatever one of them has failed with.
        async with AsyncExitStack() as stack:
            for task in self._listeners:
                stack.push_async_callback(_cancelled, task)

    async def _settle(self, document: WalDocument) -> None:
        """Leave nothing behind that can be sent, and nothing that cannot be opened from."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._commit(document)
        except (WalStoreError, TimeoutError) as error:
            _logger.info("closing with %d unsent: %s", document.unsent, error)
            if isinstance(error, StorageError) and document.has_unkept:
                # What was edited is neither sent nor on file.
                raise
        # A file that was found damaged is closed; whoever found it was told.
        with suppress(LocalFileClosedError):
            is_anew = self._sharing is not None and self._sharing.is_state_due
            self._keep_state(is_due=self._folded_since_state > 0 or is_anew)
            self._undo.tidy()
            if self._file is not None:
                await asyncio.to_thread(self._file.sync)

    async def _end_tasks(self) -> None:
        """Let callbacks that are still at it come to an end, but not for ever."""
        # One of them may be who closes the store.
        tasks = self._tasks - {task for task in self._tasks if task is asyncio.current_task()}
        if not tasks:
            return
        try:
            await asyncio.wait(tasks, timeout=_CALLBACKS_S)
        finally:
            late = [task for task in tasks if not task.done()]
            for task in late:
                task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    # ── the document ────────────────────────────────────────────────────────────────────────

    @property
    def document(self) -> WalDocument:
        """The document underneath.

        Raises:
            StoreClosedError: The store is not open.
        """
        if self._document is None:
            raise StoreClosedError
        return self._document

    @contextmanager
    def batch(self, message: str | None = None) -> Iterator[None]:
        """Make several edits one: one step to undo, and one change for each path, told at the end.

        Args:
            message: What it is about, for the history: the batch is then committed by itself. A
                batch within another one is part of that, and its message is left out. So it is
                if the block raises: what was edited up to there stays, without it.

        Raises:
            UsageError: The message is not a short text; nothing was edited.
        """
        document = self.document
        if self._hub.is_holding:
            yield
            return
        if message is not None:
            document.check_message(message)
            document.seal()
        with self._hub.hold():
            with self._undo.batch():
                yield
            if message is not None:
                document.seal(message=message)

    # ── undoing ────────────────────────────────────────────────────────────────────────

    @property
    def can_undo(self) -> bool:
        """Whether there is an edit of one's own to undo."""
        return self._undo.can_undo

    @property
    def can_redo(self) -> bool:
        """Whether there is something to redo."""
        return self._undo.can_redo

    def undo(self) -> Undone | None:
        """Undo the last edit, or stretch of typing, of one's own; others' edits stay.

        Returns:
            What was selected before it, where that is now; None if there was nothing to undo.
        """
        return self._undo.move(self.document, "undo")

    def redo(self) -> Undone | None:
        """Redo what was undone last.

        Returns:
            What was selected after it, where that is now; None if there was nothing to redo.
        """
        return self._undo.move(self.document, "redo")

    def selected(self, name: str, anchor: int, head: int) -> None:
        """Say what is selected now: undoing the edit that follows brings it back."""
        self._undo.select(self.document.crdt, Selected(name, anchor, head))

    def undo_boundary(self) -> None:
        """Let the next edit be a step of its own, however soon it follows."""
        self._undo.boundary()

    # ── changes ────────────────────────────────────────────────────────────────────────

    def subscribe(
        self,
        pattern: str,
        fn: Callable[[Change], object],
        *,
        owner: object | None = None,
        on_error: Callable[[BaseException, Change], object] | None = None,
    ) -> Subscription[Change]:
        """Call a function with every change of the paths of a pattern from now on.

        Args:
            pattern: A path, `name` or `name/key`; `*` stands for any characters but `/`, `**` for
                any at all.
            fn: The function, sync or async; it may read and write. A bound method is held weakly.
            owner: The subscription ends with it.
            on_error: Called with what the function raised.
        """
        return self._hub.subscribe(pattern, fn, owner=owner, on_error=on_error)

    def changes(
        self,
        pattern: str = "**",
        *,
        buffer: int = BUFFER_DEFAULT,
        overflow: Literal["coalesce", "error"] = "coalesce",
    ) -> ChangeStream:
        """The changes of the paths of a pattern from now on, for `async for`."""
        return self._hub.changes(pattern, buffer=buffer, overflow=overflow)

    def select(
        self, fn: Callable[[SelectorView], V], *, owner: object | None = None
    ) -> Selector[V]:
        """A value that is computed again only when what it has read has changed."""
        return select(fn, self._tracker, owner=owner)

    # ── binding ────────────────────────────────────────────────────────────────────────

    def bind(
        self,
        target: object,
        setter: str | Setter,
        path: str,
        *,
        as_text: bool = False,
        default: Any = None,
        show: Callable[[Any], Any] | None = None,
        listen: Callable[[Callable[[Any], None]], Callable[[], object]] | None = None,
    ) -> Binding:
        """Let an object show what stands at a path, now and after every change; see `bind`."""
        return bind(
            self,
            target,
            setter,
            path,
            as_text=as_text,
            default=default,
            show=show,
            listen=listen,
        )

    def bind_file(
        self,
        path: str | os.PathLike[str],
        *,
        text: str | None = None,
        memory: str | os.PathLike[str] | None = None,
        on_status: Callable[[FileStatus], object] | None = None,
    ) -> FileBinding:
        """Let a file and a text, or the whole document as JSON, follow each other.

        Args:
            path: The file.
            text: The text that it says; the whole document as JSON if left out.
            memory: A file to remember in what both last said, from one time to the next.
            on_status: Called with every new status.

        Returns:
            The binding, which is at work within `async with`.
        """
        return FileBinding(self, path, text=text, memory=memory, on_status=on_status)

    def typed(self, schema: Schema[T]) -> Typed[T]:
        """The document as a value of a class.

        Raises:
            NotWeakError: Values of the class cannot be referenced weakly.
        """
        return Typed(self, schema)

    # ── the network ────────────────────────────────────────────────────────────────────

    async def commit(self) -> int | None:
        """Seal what was edited and send everything that is not acknowledged yet.

        Without a relay it is sealed, to be sent whenever there is one.

        Returns:
            The `ts` of the last element, or None if there was nothing to send, or nowhere.

        Raises:
            TransportError: Something is not known to be stored; it is sent again later.
            KeyringRefusedError: The relay does not keep the owner's keys, so nothing is sent.
        """
        document = self.document
        try:
            with self._unless_closed(document):
                ts = await self._commit(document)
        except OtherLogError as error:
            self._other_log = error
            raise
        finally:
            # Somebody may have closed the store meanwhile.
            if self._document is document:
                self._remember_log()
                if self._refusals is not None:
                    self._refusals.note(document)
                self._tell_status()
        if ts is not None and self._syncer is not None:
            self._syncer.nudge()
        return ts

    async def _commit(self, document: WalDocument) -> int | None:
        self._undo.save()
        if self._transport is None:
            if document.has_unsent:
                document.seal()
            return None
        while True:
            if document.has_unsent:
                await self._look_before_sending(document)
            # There may be another connection by then, or another key.
            with suppress(NotLookedError, KeyOverError):
                return await document.commit()

    async def _look_before_sending(self, document: WalDocument) -> None:
        if self._sharing is not None and self._sharing.is_unkept:
            # What kept it from being stored may have passed, or was settled meanwhile.
            self._lookout.doubt()
        try:
            await self._look_first()
            if self._sharing is not None:
                self._sharing.check_kept()
        except WalStoreError:
            # It is tried again with the next attempt to send.
            self._lookout.doubt()
            if self._document is document:
                document.seal()
            raise

    async def flush(self) -> None:
        """Return once everything that was edited is on disk here, and acknowledged by the relay.

        Raises:
            TransportError: Something is not known to be stored; it is sent again later.
            KeyringRefusedError: The relay does not keep the owner's keys, so nothing is sent.
            StorageError: It is not on disk here.
        """
        document = self.document
        await self.commit()
        if self._file is not None:
            with self._unless_closed(document):
                await asyncio.to_thread(self._file.sync)

    @contextmanager
    def _unless_closed(self, document: WalDocument) -> Iterator[None]:
        """Do something; if the store is closed meanwhile, say that, not what it was closed with."""
        try:
            yield
        except LocalFileClosedError as error:
            if self._document is document:
                raise
            raise ClosedMeanwhileError from error

    async def pull(self) -> int:
        """Read what is new in the log; how many elements were folded.

        Raises:
            TransportError: The log cannot be read now.
        """
        document = self.document
        unreadable, read = document.unreadable, self.elements_read
        try:
            with self._unless_closed(document):
                await self._look_first()
                unreadable = document.unreadable
                folded = await document.pull()
            self._other_log = None
            self._folded_since_state += folded
            self._unfolded += self.elements_read - read - folded
            self._note_outdated()
            self._keep_state_if_due()
            self._drop_repeats_if_due()
        except OtherLogError as error:
            self._other_log = error
            raise
        finally:
            if document.unreadable > unreadable:
                self._lookout.suspect()
            # Somebody may have closed the store meanwhile.
            if self._document is document:
                self._remember_log()
                self._remember_snapshot(document)
                self._tell_status()
        if document.unsent:
            # What was acknowledged and then lost waits again.
            self._send_soon()
        return folded

    async def snapshot(self) -> None:
        """Sign a snapshot for everybody, and store it at the relay.

        Raises:
            SnapshotRefusedError: Something is missing or unreadable.
            TransportError: It is not known to be stored.
        """
        document = self.document
        # Who has not heard of a new member would sign away what they wrote.
        self._lookout.doubt()
        with self._unless_closed(document):
            await self._look_first()
            await document.snapshot()
            self._remember_snapshot(document)

    # ── what the log has lost ──────────────────────────────────────────────────────────

    async def accept_rollback(self) -> AcceptedRollback:
        """Go on with a log that was rolled back, as `status.rollback` says; else do nothing.

        So it is for a relay that has lost everything, and begins another log under the same key.

        Nothing that is shown vanishes. Own elements that the log has lost are sent again, byte for
        byte. Those of others are shown here, and counted as `status.stranded`, until their authors
        have sent them again. It survives `kill -9` at any moment, and holds the next time.

        Returns:
            What became of what was lost.

        Raises:
            NoRelayError: There is none.
            TransportError: The log cannot be read now; nothing has changed.
            StorageError: It cannot be kept here; nothing has changed.
        """
        document, replica, transport = self.document, self._replica, self._transport
        if replica is None or transport is None:
            raise NoRelayError
        other = self._other_log
        if document.rollback is None and other is None:
            return AcceptedRollback(0, document.stranded)
        try:
            with (
                nullcontext() if other is None else meant(transport, other),
                nullcontext() if self._sharing is None else self._sharing.rejoining(),
            ):
                accepted = await accept_rollback(document, replica, transport, self._snapshots)
            self._folded_since_state = document.tail_length
            if other is not None:
                self._failure = self._other_log = None
                if self._file is not None:
                    self._file.log_id = other.found
                    self._is_log_kept = False
        finally:
            self._tell_status()
        if self._syncer is not None:
            self._syncer.nudge()
            self._syncer.look()
        self._lookout.told()
        self._send_soon()
        return accepted

    def rewrite_stranded(self) -> None:
        """Write what others wrote and the log has lost again, as an edit of one's own.

        For when their authors will not come back. If one does, it is all there twice.

        Raises:
            UsageError: A value cannot be written here; nothing has changed.
        """
        with self.batch():
            self.document.rewrite_stranded()
        self._tell_status()

    def drop_stranded(self) -> None:
        """Show what others wrote and the log has lost no longer.

        For when somebody else has rewritten it, so that it shows twice here, or nobody misses it.
        If its author sends it again, it is back.
        """
        self.document.drop_stranded()
        self._tell_status()

    # ── what the log refuses ───────────────────────────────────────────────────────────

    @property
    def refused(self) -> Refused | None:
        """The element that the log does not take, and for good; None if there is none.

        Everything that was edited after it waits behind it, on file, until `set_aside`.
        """
        if self._document is None or self._refusals is None:
            return None
        return self._refusals.shown(self._document)

    async def set_aside(self) -> list[Refused]:
        """Take what is refused out of the queue and put it on the `shelf`; the rest is sent.

        The document then reads as if it had not been edited. What was edited later stays, as edits
        that are made anew. Whose edits are all refused has all that waits taken out.

        Returns:
            What was taken out; nothing if nothing is refused, or the log holds it after all.

        Raises:
            ShelfFullError: So much was set aside before that there is no room for more.
            UnopenedError: Something that waits cannot be opened now, and must not be lost.
            TransportError: The log cannot be read now, to be sure that it does not hold it.
        """
        document = self.document
        assert self._refusals is not None
        aside = await self._refusals.set_aside(document)
        if aside is None:
            return []
        self._undo.rename(aside.aliases)
        self._undo.save()
        if self._syncer is not None:
            self._syncer.nudge()
        self._send_soon()
        self._tell_status()
        return all_refused(aside.refused)

    @property
    def shelf(self) -> Shelf:
        """What was set aside, to be read, exported and discarded.

        Raises:
            StoreClosedError: The store is not open.
        """
        if self._refusals is None:
            raise StoreClosedError
        return self._refusals.shelf

    def _may_write(self) -> bool:
        """Whether the owner's roster, as far as it is known, lets this identity write."""
        if self._sharing is None or self._sharing.membership.roster is None:
            return True
        return self._sharing.membership.may_write(self.identity.public_key)

    # What the syncer does is what a caller would do.

    @property
    def document_key(self) -> str:
        """The document."""
        return self.key

    @property
    def checkpoint(self) -> int:
        """How far the log was read."""
        return self.document.current_checkpoint

    @property
    def elements_read(self) -> int:
        """How many elements of the log were read so far; it grows while the store opens."""
        return 0 if self._replica is None else self._replica.count

    @property
    def opened_at(self) -> int:
        """The `ts` of the newest element that was here when the store was opened, 0 if none."""
        return 0 if self._replica is None else self._replica.opened_at

    async def send(self) -> None:
        """Commit, for the syncer; whoever could not write is asked about once more."""
        if self._refusals is not None and self._refusals.is_of_author(self.document):
            self._lookout.suspect()
            self.document.retry_refused()
        await self.commit()

    async def receive(self) -> int:
        """Pull, for the syncer, and take a snapshot if there was much to read."""
        folded = await self.pull()
        if not self._has_caught_up:
            self._has_caught_up = True
            self._snapshot_if_due()
        return folded

    def _snapshot_if_due(self) -> None:
        """Spare others what this opening had to read; whatever goes wrong with it is harmless."""
        document, limit = self.document, self._snapshot_after
        if limit is None or document.tail_length < limit or document.is_read_only:
            return
        if not _holds(self._snapshot_role, self.identity.public_key):
            return

        async def work() -> None:
            try:
                await self.snapshot()
            except WalStoreError as error:
                _logger.info("no snapshot was taken: %s", error)

        self._spawn(work())

    @property
    def card(self) -> str:
        """What to hand to the owner of a document to be invited: one line, and no secret."""
        return Card.of(self.identity).line

    @property
    def sharing(self) -> Sharing:
        """Who else has part in the document: invite, revoke, members.

        Raises:
            NotSharedError: The store was opened with writers of its own.
        """
        if self._sharing is None:
            raise NotSharedError
        return self._sharing

    def on_members(self, callback: Callable[[list[Person]], None]) -> Callable[[], None]:
        """Call a function with the members whenever they are others; returns what ends it.

        Raises:
            NotSharedError: The store was opened with writers of its own.
        """
        _ = self.sharing
        ticket = object()
        self._members_callbacks[ticket] = callback
        return lambda: self._members_callbacks.pop(ticket, None) and None

    @property
    def presence(self) -> Presence:
        """Who is at the document now: this session, as far as it says so, and the others.

        Raises:
            StoreClosedError: The store is not open.
        """
        if self._presence is None:
            raise StoreClosedError
        return self._presence

    # ── status ─────────────────────────────────────────────────────────────────────────

    @property
    def status(self) -> StoreStatus:
        """How the store stands now."""
        document = self._document
        network = getattr(self._transport, "status", None)
        state = self._network_state
        if self._other_log is not None and state == "live":
            # The relay can be reached, and the document is not there.
            state = "refused"
        if self._defect is not None:
            state = "offline"
        return StoreStatus(
            state="closed" if document is None else state,
            reason=self._reason(state, getattr(network, "reason", "")),
            unsent=0 if document is None else document.unsent + int(document.has_unsealed),
            last_ack_ms=getattr(network, "last_ack_ms", None),
            lag_ms=getattr(network, "lag_ms", None),
            gaps=() if document is None else tuple(document.detected_gaps(count_max=GAPS_MAX)),
            forks=tuple(self._forks),
            rejected=() if document is None else tuple(document.rejected()),
            unreadable=0 if document is None else document.unreadable,
            is_read_only=document is not None and document.is_read_only,
            rollback=self._rollback,
            stranded=0 if document is None else document.stranded,
            refused=self.refused,
            may_write=self._may_write(),
        )

    def on_status(self, callback: Callable[[StoreStatus], None]) -> Callable[[], None]:
        """Call a function with every new status; returns a function that ends it."""
        if not self._status_callbacks:
            self._told_status = self.status
        ticket = object()
        self._status_callbacks[ticket] = callback
        return lambda: self._status_callbacks.pop(ticket, None) and None

    # ── history ────────────────────────────────────────────────────────────────────────

    def name_version(self, name: str) -> None:
        """Give the document as it is now a name in its history, for everybody.

        Raises:
            UsageError: The name is not a short text.
        """
        self.document.seal(message=name)
        self._send_soon()

    async def load_history(self) -> WholeHistory:
        """Read the log from its beginning: all versions, and who wrote what.

        Raises:
            PrunedLogError: The beginning was let go of.
            StoreClosedError: The store is not open.
            TransportError: It is not all here, and cannot be read elsewhere now.
        """
        if self._document is None or self._replica is None:
            raise StoreClosedError
        document = WalDocument(
            self.key,
            transport=self._replica.whole(),
            identity=self.identity,
            writers=self._writers,
            snapshot_role=(),
            encryptor=self._encryptor,
            revoked=_nobody if self._sharing is None else self._sharing.membership.revoked,
            posture="re-derive",
            on_author_error="skip",
        )
        return WholeHistory(await document.open())

    def revert_to(self, version: int) -> None:
        """Make the document read as it did after a version, as edits that can be undone.

        Raises:
            ValueError: The version is older than what `history` knows.
        """
        with self.batch():
            self.document.revert_to(version)

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _changed(self, changed: Changed) -> None:
        """Tell of what was edited here, or has come."""
        document = self._document
        if document is None:
            return
        made: list[Change] = []
        if self._hub.has_listeners:
            made = changes_of(changed, version=document.version, read=self._hub.read)
        origin = self._undo.origin
        if origin is not None and changed.origin == "local":
            made = [change._replace(origin=origin) for change in made]
        self._folded += made
        if changed.has_more:
            # Who edits in answer would count in what was not told yet.
            return
        changes, self._folded = self._folded, []
        if changed.origin == "local":
            self._send_soon()
        self._hub.deliver(changes)
        if changed.origin == "local":
            self._tell_status()

    def _noticed(self, event: Event) -> None:
        if isinstance(event, Fork):
            self._forks.append(event)
        if isinstance(event, Rejection):
            self._lookout.suspect()
        if self._strangers is None or not self._strangers.hold(event):
            self._tell_event(event)

    def _tell_event(self, event: Event) -> None:
        if self._on_event is not None:
            self._call(self._on_event, event)

    @property
    def _network_state(self) -> State:
        network = getattr(self._transport, "status", None)
        return "local" if self._transport is None else getattr(network, "state", "live")

    @property
    def _rollback(self) -> str | None:
        if self._document is None:
            return None
        if self._other_log is not None:
            return "the relay holds another log under its key, and knows nothing of this one"
        return self._document.rollback

    def _reason(self, state: State, network: str) -> str:
        if self._defect is not None:
            return f"syncing has failed: {self._defect!r}; close and open again"
        if self._other_log is not None:
            return f"{self._other_log}; accept_rollback() goes on with it"
        rollback = self._rollback
        if rollback is not None:
            return f"the log was rolled back: {rollback}; accept_rollback() goes on with it"
        # A roll-back that was accepted is no failure, although it was one when it was met.
        if self._failure is not None and not isinstance(self._failure, RollbackDetectedError):
            return str(self._failure)
        return "" if state == "live" else network

    def _failed(self, failure: WalStoreError | None) -> None:
        self._failure = failure
        self._tell_status()

    def _send_soon(self) -> None:
        if self._syncer is None or self._autocommit_ms is None or not self.document.has_unsent:
            return
        self._syncer.edited()

    def _network_changed(self) -> None:
        """What failed is tried again when a connection was made, not whenever something fails."""
        was_live, self._was_live = self._was_live, self._network_state == "live"
        is_new = self._was_live and not was_live
        # Another relay may answer, or one that takes more by now, or one that was put back.
        if is_new and self._replica is not None:
            # Also while the store closes: what it still sends must not hide what is gone there.
            self._replica.doubt()
            self._lookout.doubt()
        if is_new and self._sharing is not None:
            self._sharing.snapshot_told()
        if is_new and self._syncer is not None:
            self._syncer.look()
            self.document.retry_refused()
            self._syncer.nudge()
            self._lookout.told()
        self._tell_status()

    def _tell_status(self) -> None:
        if not self._status_callbacks or self._is_telling_status:
            return
        self._is_telling_status = True
        try:
            # A callback may edit: then everybody is told once more, and the newest one last.
            for _ in range(ROUNDS_MAX):
                status = self.status
                if status == self._told_status:
                    return
                self._told_status = status
                for callback in list(self._status_callbacks.values()):
                    self._call(callback, status)
        finally:
            self._is_telling_status = False

    def _call(self, callback: Callable[[V], object], subject: V) -> None:
        """Call somebody whose failure is nobody else's."""
        try:
            callback(subject)
        except Exception as error:  # noqa: BLE001 - handed on to whoever handles exceptions here
            context = {"message": f"the callback {callback!r} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def _remember_log(self) -> None:
        log_of = getattr(self._transport, "log_of", None)
        if self._file is None or log_of is None or self._is_log_kept:
            return
        log_id = log_of(self.key)
        if log_id is not None:
            if self._file.log_id is None:
                self._file.log_id = log_id
            self._is_log_kept = True

    def _remember_snapshot(self, document: WalDocument) -> None:
        if self._replica is not None:
            self._replica.note_snapshot(document.snapshot_ts)

    def _keep_state_if_due(self) -> None:
        has_hole = self._replica is not None and self._replica.has_hole
        elements_max = max(_STATE_ELEMENTS_MAX, self.document.history_length // _STATE_SHARE)
        self._keep_state(is_due=has_hole or self._folded_since_state >= elements_max)

    def _drop_repeats_if_due(self) -> None:
        unfolded_max = max(_REPEATS_MAX, self.document.history_length // _STATE_SHARE)
        if self._file is not None and self._unfolded >= unfolded_max:
            self._file.drop_repeats()
            self._unfolded = 0

    def _keep_state(self, *, is_due: bool) -> None:
        if not is_due or self._replica is None or self._file is None:
            return
        state = self.document.own_snapshot()
        if state is not None:
            with nullcontext() if self._sharing is None else self._sharing.keeping_state():
                self._replica.keep_state(state, self.document.elements)
            self._folded_since_state = 0

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _holds(role: Keys, key: str) -> bool:
    return role(key) if callable(role) else key in role


def _nobody(_: str) -> None:
    """Of a document without a roster nobody is ever revoked."""


async def _cancelled(task: asyncio.Task[None]) -> None:
    """End a task; whoever is told to end meanwhile does, too."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()

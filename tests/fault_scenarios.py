"""What is done on a disk that fails: programs in steps, of which each is made again if it fails.

- A step returns once it is done, or raises one of the errors that are promised for a failing disk.
- After a step that was refused nothing has changed, where that is promised; where it is not, the
  step may have been carried out all the same, whole.
- What is promised to survive a power cut after a step is named with it.
"""

from __future__ import annotations

import asyncio
import shutil
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from tests.archive_tables import PREFIX, Clock, Source, keys_of, rows_of, writer
from tests.local_writer import AUTHOR, DOCUMENT_KEY, body
from walstore.archive.destination import DestinationError
from walstore.archive.keys import RESERVED
from walstore.archive.local import LocalDestination
from walstore.archive.places import MovedError
from walstore.archive.reader import Archive, ArchiveNotFoundError
from walstore.archive.writer import Writer
from walstore.document.ports import RawElement
from walstore.local import (
    LocalFile,
    LocalFileDamagedError,
    LocalFileFailedError,
    LocalFileFullError,
    LocalFileReadOnlyError,
    Pending,
    Start,
    database,
    read_unsent,
    unsent_files,
)
from walstore.relay import sqlite
from walstore.relay.log import (
    Accepted,
    Conflict,
    Filter,
    LogCorruptError,
    LogError,
    Removal,
    record_revision,
)
from walstore.relay.sqlite import SqliteLog
from walstore.testing.relay_log import ALICE, BOB, NOW_MS, element, elements, snapshot


class Step(NamedTuple):
    """One step of a program.

    Attributes:
        name: What it does.
        run: Does it.
        survivors: What no power cut hurts once it is done, by name.
    """

    name: str
    run: Callable[[], Awaitable[object]]
    survivors: Sequence[str] = ()


# What is there, by what it is.
Content: TypeAlias = dict[str, str]


class Scenario(ABC):
    """A program that uses a directory.

    Attributes:
        refusals: What its steps may raise on a failing disk: these types, and none below them.
        unreadable: What they may also raise where something cannot be read: SQLite says the same
            of that as of damage.
        unopenable: What they may also raise where something cannot be opened: SQLite then opens it
            for reading alone.
        damage: Those of them that say that what was there was moved away; `saved` is what was
            saved of it.
        unsure: When a step that was refused may have been carried out all the same.
        calls_min: How many calls of some kinds there are at least, if it reaches the disk at all.
    """

    refusals: ClassVar[tuple[type[Exception], ...]]
    unreadable: ClassVar[tuple[type[Exception], ...]] = ()
    unopenable: ClassVar[tuple[type[Exception], ...]] = ()
    damage: ClassVar[tuple[type[Exception], ...]] = ()
    unsure: ClassVar[Literal["never", "after a restart", "always"]]
    calls_min: ClassVar[dict[str, int]]

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def prepare(self) -> None:
        """Make what is there before; the process is killed after it."""
        return

    @abstractmethod
    def steps(self) -> list[Step]:
        """What is done."""

    @abstractmethod
    async def open(self) -> None:
        """Open what is there, or make it."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether there is something to look into, and to close."""

    @abstractmethod
    async def content(self) -> Content:
        """Everything that can be read of what is open."""

    async def saved(self) -> str:
        """What was saved when it was moved away."""
        raise NotImplementedError

    @abstractmethod
    async def go_on(self) -> None:
        """Write something new, and see that it is there and nothing else has changed."""

    @abstractmethod
    async def close(self) -> None:
        """Close what is open."""


# ── a local file ───────────────────────────────────────────────────────────────────────


# Above the number of whatever was recorded; an edit that was refused has one, too.
_ALL = 1000


class Local(Scenario):
    """A new local file is made, written to, synced, and opened again."""

    refusals = (LocalFileFailedError, LocalFileFullError)
    unreadable = damage = (LocalFileDamagedError,)
    unopenable = (LocalFileReadOnlyError,)
    unsure = "never"
    calls_min: ClassVar = {"write": 100, "sync": 15, "read": 20, "open": 10, "rename": 1}

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.path = directory / "notes.wal"
        self.file: LocalFile | None = None
        # So small that the log is copied into the file, on a sync and in a call.
        database.CHECKPOINT_BYTES, database.LOG_BYTES_MAX = 60_000, 70_000
        database._CALLS_PER_LOOK = 4

    def steps(self) -> list[Step]:
        sealed = [body("s", seq, [b"%d" % seq * 900]) for seq in range(1, 5)]
        survivors = ["notes.wal", "notes.wal-wal", "."]
        return [
            Step("open", self.open, survivors),
            self._step("record", "s", b"first"),
            self._step("record", "s", b"second"),
            self._step("seal", "s", _ALL, sealed),
            self._step("record", "s", b"third"),
            self._step("acknowledged", "s/2", 77),
            self._step("add_elements", _elements(1, 20), marks={"ts": 19}),
            self._step("sync")._replace(survivors=survivors),
            self._step("put_state", Random(1).randbytes(9_000), 10),
            self._step("put", "undo", ["step"] * 20),
            self._step("confirmed", ["s/1", "s/3"]),
            self._step("sync")._replace(survivors=survivors),
            Step("close", self.close, survivors),
            Step("open", self.open, survivors),
            self._step("record", "t", b"fourth"),
            self._step("drop_elements", 5),
            self._step("put_state", Random(2).randbytes(14_000), 15),
            *(self._step("record", "t", b"%d" % number) for number in range(4)),
            self._step("seal", "t", _ALL, [body("t", 1, [b"y" * 3000])]),
            self._step("start_over", _START),
            self._step("sync")._replace(survivors=survivors),
            Step("close", self.close, survivors),
        ]

    def _step(self, name: str, *values: Any, **named: Any) -> Step:
        async def run() -> None:
            if not self.is_open:
                # It was closed to be set aside, and that failed.
                await self.open()
            getattr(self._opened, name)(*values, **named)

        return Step(name, run)

    @property
    def _opened(self) -> LocalFile:
        assert self.file is not None
        return self.file

    @property
    def is_open(self) -> bool:
        return self.file is not None and self.file._database._connection is not None

    async def open(self) -> None:
        self.file = LocalFile.open(self.path, document_key=DOCUMENT_KEY, author=AUTHOR)

    async def content(self) -> Content:
        file = self._opened
        state, facts = file.state(), (file.log_id, file.marks, file.get("undo"))
        assert file.state_fault is None
        said = None if state is None else (sha256(state[0]).hexdigest(), state[1])
        rest = (file.page(-1, 10_000), said, file.stranded(), facts)
        return {"saved": _said(file.pending()), "rest": repr(rest)}

    async def saved(self) -> str:
        pending = [read_unsent(each).pending for each in unsent_files(self.path)]
        (saved,) = pending or [Pending([], [])]
        return _said(saved)

    async def go_on(self) -> None:
        before = self._opened.pending()
        self._opened.record("later", b"later")
        after = self._opened.pending()
        assert after.bodies == before.bodies
        assert after.recorded[:-1] == before.recorded
        self._opened.sync()
        assert self._opened.pending() == after

    async def close(self) -> None:
        file, self.file = self._opened, None
        file.close()


class LocalKilled(Local):
    """A local file whose last process was killed is opened and written to."""

    calls_min: ClassVar = {"write": 20, "sync": 8, "read": 20, "open": 8}

    async def prepare(self) -> None:
        for step in super().steps()[:12]:
            await step.run()
        self._opened.record("s", b"never synced")

    def steps(self) -> list[Step]:
        survivors = ["notes.wal", "notes.wal-wal", "."]
        return [
            Step("open", self.open, survivors),
            self._step("record", "t", b"fourth"),
            self._step("put_state", Random(2).randbytes(9_000), 15),
            self._step("sync")._replace(survivors=survivors),
            Step("close", self.close, survivors),
        ]


# How many edits and bodies wait in a local file before it is damaged.
_UNSENT = 4


class LocalDamaged(LocalKilled):
    """A damaged local file is set aside, with its unsent edits saved, and another one begun."""

    calls_min: ClassVar = {"write": 40, "sync": 8, "read": 20, "open": 8, "rename": 3}

    async def prepare(self) -> None:
        await super().prepare()
        with self.path.open("rb+") as file:
            file.seek(3)
            file.write(b"\xff")

    def steps(self) -> list[Step]:
        return [Step("open", self.open, ["."]), *super().steps()[1:]]

    async def open(self) -> None:
        """Open it until it is a new one."""
        try:
            await super().open()
        except LocalFileDamagedError as damaged:
            _check_first(damaged)
            await self.open()

    async def content(self) -> Content:
        # What was saved twice is resent twice, and does no harm.
        saved = [read_unsent(each).pending for each in unsent_files(self.path)]
        whole = [each for each in saved if each.size == _UNSENT] or [self._still_there()]
        # So is what was acknowledged, which may be forgotten.
        (set_aside,) = {_said(_waiting(each)) for each in whole}
        return {**await super().content(), "set aside": set_aside}

    async def saved(self) -> str:
        pending = [read_unsent(each).pending for each in unsent_files(self.path)]
        (later,) = [each for each in pending if each.size < _UNSENT] or [Pending([], [])]
        return _said(later)

    def _still_there(self) -> Pending:
        """What can be saved of what was moved, now that the disk is well."""
        with TemporaryDirectory() as directory:
            path = Path(directory) / self.path.name
            for suffix in ("", "-wal"):
                shutil.copy(f"{self.path}.damaged-1{suffix}", f"{path}{suffix}")
            try:
                LocalFile.open(path, document_key=DOCUMENT_KEY, author=AUTHOR)
            except LocalFileDamagedError:
                return read_unsent(unsent_files(path)[0]).pending
            raise AssertionError("it is not damaged")


def _check_first(damaged: LocalFileDamagedError) -> None:
    """See that all was saved of the file that was damaged, unless some of it cannot be read."""
    # Others are new ones that cannot be read, or the -wal alone: the disk failed in between.
    if damaged.damaged is not None and damaged.damaged.name.endswith("-1"):
        assert damaged.saved == _UNSENT or damaged.lost is None, damaged


def _waiting(pending: Pending) -> Pending:
    bodies = [body._replace(acknowledged=None) for body in pending.bodies]
    return pending._replace(bodies=bodies)


def _said(pending: Pending) -> str:
    # Edits are numbered anew when a file is opened.
    return repr(([(edit.session, edit.packed) for edit in pending.recorded], pending.bodies))


def _elements(first: int, end: int) -> list[RawElement]:
    return [RawElement(ts, b"{%d}" % ts * 20, AUTHOR, "s") for ts in range(first, end)]


_START = Start(
    (b"a state", 30),
    _elements(31, 34),
    (b"what was lost", 20),
    [body("u", 1, [b"back again"])],
    {"ts": 33},
    {"undo": []},
)


# ── a relay's log ──────────────────────────────────────────────────────────────────────


class Relay(Scenario):
    """A relay's log is made, written to and compacted."""

    refusals = (LogError,)
    unreadable = (LogCorruptError,)
    unsure = "after a restart"
    calls_min: ClassVar = {"write": 100, "sync": 15, "read": 20, "open": 10, "rename": 1}

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.path = directory / "relay.db"
        self.log: SqliteLog | None = None
        self._opening = AsyncExitStack()
        # So small that the -wal file is moved into the database by some of the changes.
        vars(sqlite)["WAL_PAGES_MAX"] = 24

    def steps(self) -> list[Step]:
        large = [element(f"{n}", "notes/b", data=bytes([n]) * 3_000) for n in range(4)]
        first = snapshot("first", None, NOW_MS + 1, {ALICE: 2})
        return [
            Step("open", self.open, ["relay.db"]),
            self._step("append", elements(7), NOW_MS),
            self._step("append", large, NOW_MS),
            self._step("put_snapshot", first, NOW_MS),
            self._step("put_record", "notes/a", "roster", b'{"one":1}', None),
            self._step("compact", [Removal("notes/b", (), NOW_MS + 2)]),
            self._step("append", [element("last", "notes/b")], NOW_MS + 10),
            Step("close", self.close, ["relay.db"]),
        ]

    def _step(self, name: str, *values: Any) -> Step:
        async def run() -> None:
            answer = await getattr(self._opened, name)(*values)
            assert not isinstance(answer, Conflict), answer

        # A compaction gives space back afterwards, in changes that matter to nobody.
        return Step(name, run, ["."] if name == "compact" else ["relay.db-wal", "."])

    @property
    def _opened(self) -> SqliteLog:
        assert self.log is not None
        return self.log

    @property
    def is_open(self) -> bool:
        return self.log is not None

    async def open(self) -> None:
        self.log = await self._opening.enter_async_context(SqliteLog.open(self.path))

    async def content(self) -> Content:
        log, everything = self._opened, Filter()
        said: list[object] = [
            await log.feed(0, None, everything, count_max=1_000, bytes_max=2**30),
            await log.bootstrap(everything),
            await log.documents("", count_max=100),
            await log.record("notes/a", "roster"),
        ]
        for key in ("notes/a", "notes/b"):
            said += [
                await log.page(key, 0, count_max=1_000, bytes_max=2**30),
                await log.tail(key, NOW_MS + 100, 100),
                await log.snapshot(key),
                await log.snapshots(key),
            ]
        return {"everything": repr(said)}

    async def go_on(self) -> None:
        before = (await self._opened.bootstrap(Filter())).snapshot_seq
        new = [element("later", "notes/later")]
        (place,) = await self._opened.append(new, NOW_MS)
        assert place == Accepted(NOW_MS, before + 1, True, 0)
        (again,) = await self._opened.append(new, NOW_MS)
        assert (again.seq, again.is_new) == (place.seq, False)
        assert len(await self._opened.tail("notes/later", NOW_MS, 10)) == 1

    async def close(self) -> None:
        self.log = None
        await self._opening.aclose()


class RelayKilled(Relay):
    """A relay's log whose process was killed is opened, written to and compacted."""

    calls_min: ClassVar = {"write": 20, "sync": 4, "read": 20, "open": 6}

    async def prepare(self) -> None:
        for step in super().steps()[:5]:
            await step.run()

    def steps(self) -> list[Step]:
        first = snapshot("first", None, 0)
        second = snapshot("second", first.id, NOW_MS + 5, {ALICE: 6}, author=BOB)
        revision = record_revision(b'{"one":1}')
        return [
            Step("open", self.open, ["relay.db"]),
            self._step("append", elements(9), NOW_MS + 20),
            self._step("put_snapshot", second, NOW_MS + 20),
            self._step("compact", [Removal("notes/a", [first.id], NOW_MS + 5)]),
            self._step("put_record", "notes/a", "roster", b'{"two":2}', revision),
            Step("close", self.close, ["relay.db"]),
        ]


# ── an archive ─────────────────────────────────────────────────────────────────────────


class ArchiveWritten(Scenario):
    """Windows are committed to an archive in a directory: bases, diffs, epochs that go."""

    refusals = (DestinationError,)
    unsure = "always"
    calls_min: ClassVar = {
        "write": 8,
        "sync": 20,
        "read": 10,
        "open": 20,
        "create": 10,
        "rename": 8,
        "unlink": 4,
    }

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.place = LocalDestination(directory)
        self.source = Source()
        self.source.happen(Random(3), 40)
        self.clock = Clock()
        self.writer: Writer | None = None

    def steps(self) -> list[Step]:
        ends = {"commit": [(8, False), (12, False), (20, True)], "go on": [(26, False), (40, True)]}
        return [
            Step("open", self.open),
            *(self._commit(*each) for each in ends["commit"]),
            Step("open", self.open),
            *(self._commit(*each) for each in ends["go on"]),
            Step("list", partial(keys_of, self.place)),
        ]

    def _commit(self, to: int, is_base_wanted: bool) -> Step:
        run = partial(self._commit_to, to, is_base_wanted)
        return Step(f"commit to {to}", run, [PREFIX, f"{PREFIX}manifest.json"])

    async def _commit_to(self, to: int, is_base_wanted: bool) -> None:
        self.clock.now_ms += 1
        opened = self._opened
        if opened.head == to:
            return
        window = self.source.window(opened.head, to)
        try:
            await opened.commit(window, is_base_wanted=is_base_wanted)
        except MovedError:
            # It was committed before, and that could not be told.
            await opened.open()
            assert opened.head == to

    @property
    def _opened(self) -> Writer:
        assert self.writer is not None
        return self.writer

    @property
    def is_open(self) -> bool:
        return self.writer is not None

    async def open(self) -> None:
        opened = writer([self.place], clock=self.clock, parts=2, keep_epochs=1)
        await opened.open()
        self.writer = opened

    async def content(self) -> Content:
        try:
            manifest = await Archive(self.place, PREFIX).manifest()
        except ArchiveNotFoundError:
            return {}
        if not manifest.artifacts:
            # It has begun, and has no base yet.
            return {}
        assert await rows_of(self.place) == self.source.rows(manifest.head_position)
        positions = [(each.epoch, each.to_position) for each in manifest.artifacts]
        return {"artifacts": repr(positions)}

    async def go_on(self) -> None:
        opened = self._opened
        head = opened.head
        self.source.events[head:] = []
        self.source.happen(Random(4), 5)
        await opened.commit(self.source.window(head))
        assert await rows_of(self.place) == self.source.rows()
        left = await asyncio.to_thread(list, (self.directory / RESERVED).glob("tmp-*"))
        assert not left, "what was begun is still there"

    async def close(self) -> None:
        self.writer = None


SCENARIOS: dict[str, type[Scenario]] = {
    "a new local file": Local,
    "a local file after a kill": LocalKilled,
    "a damaged local file": LocalDamaged,
    "a new relay": Relay,
    "a relay after a kill": RelayKilled,
    "an archive": ArchiveWritten,
}

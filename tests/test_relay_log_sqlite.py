"""The log in SQLite keeps the promises of the port, and keeps them when things go wrong.

The oracle is always the same: what was answered is there, unchanged, or the call says that it is
not; a call that failed has changed nothing; and things go on when the cause is gone.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from walstore.errors import UsageError
from walstore.relay import sqlite_reads as reads
from walstore.relay.log import (
    Accepted,
    Filter,
    LogCorruptError,
    LogError,
    NewElement,
    ReaderMark,
    RelayLog,
    Removal,
    Row,
)
from walstore.relay.sqlite import SqliteLog
from walstore.testing.relay_log import (
    ALICE,
    BOB,
    NOW_MS,
    RelayLogContract,
    element,
    elements,
    snapshot,
)

LARGE = 2**30
NOBODY = 65_534


class TestSqliteLog(RelayLogContract):
    @pytest.fixture
    async def log(self, tmp_path: Path) -> AsyncIterator[RelayLog]:
        async with SqliteLog.open(tmp_path / "relay.db") as log:
            yield log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "relay.db"


async def rows_of(log: RelayLog, document: str = "notes/a", after: int = 0) -> list[Row]:
    page = await log.page(document, after, count_max=10_000, bytes_max=LARGE)
    assert not page.is_more
    return list(page.rows)


async def everything(log: RelayLog) -> dict[str, Any]:
    """What each read says; the error, if it says that something is damaged."""
    reads: dict[str, Callable[[], Any]] = {
        "feed": partial(log.feed, 0, None, Filter(), count_max=1_000, bytes_max=LARGE),
        "part": partial(log.feed, 3, 9, Filter("notes/"), count_max=1_000, bytes_max=LARGE),
        "bootstrap": partial(log.bootstrap, Filter()),
        "documents": partial(log.documents, "", count_max=100),
        "grants": log.grants,
        "settings": log.settings,
    }
    for key in ("notes/a", "notes/b", "other"):
        ids = [each.id for each in elements(12, key)]
        reads |= {
            f"page {key}": partial(log.page, key, 0, count_max=100, bytes_max=LARGE),
            f"next {key}": partial(log.page, key, NOW_MS + 2, count_max=100, bytes_max=LARGE),
            f"tail {key}": partial(log.tail, key, NOW_MS + 100, 3),
            f"snapshot {key}": partial(log.snapshot, key),
            f"snapshots {key}": partial(log.snapshots, key),
            f"readers {key}": partial(log.readers, key),
            f"find {key}": partial(log.find, ids, Filter()),
            # Known elements are told where they are; nothing is stored by this.
            f"again {key}": partial(log.append, elements(12, key), NOW_MS + 500),
        }
    said: dict[str, Any] = {}
    for name, read in reads.items():
        try:
            said[name] = await read()
        except LogCorruptError as error:
            said[name] = error
    return said


async def filled(log: RelayLog) -> None:
    for key in ("notes/a", "notes/b", "other"):
        places = await log.append(elements(12, key), NOW_MS)
        first = snapshot("first", None, places[1].ts, {ALICE: 2}, document=key)
        second = snapshot("second", first.id, places[5].ts, {ALICE: 6}, document=key, author=BOB)
        await log.put_snapshot(first, NOW_MS)
        await log.put_snapshot(second, NOW_MS)
        await log.note_readers([ReaderMark(key, BOB, places[3].ts, NOW_MS)])
    await log.compact([Removal("other", [snapshot("first", None, 0, document="other").id], NOW_MS)])
    grant = {"by": ALICE, "to": BOB, "prefix": "notes/", "at": 1, "roles": ["read"]}
    await log.put_grant(grant, NOW_MS)
    await log.put_setting("retention", {"mode": "full"})


# ── what survives ──────────────────────────────────────────────────────────────────────


async def test_everything_is_there_after_reopening(path: Path) -> None:
    async with SqliteLog.open(path) as log:
        await filled(log)
        before, name = await everything(log), log.relay_id
    async with SqliteLog.open(path) as log:
        assert log.relay_id == name
        assert await everything(log) == before
        (place,) = await log.append([element("next", "other")], 0)
        assert place.seq == before["feed"].head_seq + 1
        assert place.ts == before["page other"].head + 1


async def test_the_wal_file_is_put_away_when_the_log_is_closed(path: Path) -> None:
    async with SqliteLog.open(path) as log:
        await filled(log)
    assert sorted(each.name for each in path.parent.iterdir()) == ["relay.db", "relay.db-lock"]


async def test_a_closed_log_says_so(path: Path) -> None:
    async with SqliteLog.open(path) as log:
        pass
    await log.aclose()
    with pytest.raises(LogError, match="closed"):
        await log.append([element("1")], NOW_MS)
    with pytest.raises(LogError, match="closed"):
        await log.page("notes/a", 0, count_max=1, bytes_max=1)


async def test_closing_waits_for_what_was_begun(path: Path) -> None:
    async with SqliteLog.open(path) as log:
        begun = [asyncio.ensure_future(log.append([element(f"{n}")], NOW_MS)) for n in range(20)]
        await asyncio.sleep(0)
    answers = await asyncio.gather(*begun)
    async with SqliteLog.open(path) as log:
        assert [row.ts for row in await rows_of(log)] == sorted(each.ts for (each,) in answers)


async def test_each_commit_is_synced_before_it_returns(path: Path) -> None:
    full = 2
    # A file that is made, and one that was there; and nothing that is done to it changes it.
    for round_ in range(2):
        async with SqliteLog.open(path) as log:
            for check in ("opened", "written", "compacted"):
                if check == "written":
                    (place,) = await log.append([element(f"{round_}")], NOW_MS)
                elif check == "compacted":
                    await log.compact([Removal("notes/a", (), place.ts)])
                writing = log._writing.execute
                assert writing("PRAGMA synchronous").fetchone() == (full,), check
                assert writing("PRAGMA journal_mode").fetchone() == ("wal",), check
                assert writing("PRAGMA locking_mode").fetchone() == ("normal",), check


async def test_a_new_database_is_in_its_directory_before_it_is_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, bool]] = []
    sync = os.fsync

    def remember(handle: int) -> None:
        synced.append((os.fstat(handle).st_ino, path.exists()))
        sync(handle)

    monkeypatch.setattr(os, "fsync", remember)
    async with SqliteLog.open(path):
        assert (path.parent.stat().st_ino, True) in synced


async def test_nobody_else_can_write_to_it(path: Path) -> None:
    async with SqliteLog.open(path) as log:
        assert [notice async for notice in log.notices()] == []


async def test_compaction_gives_space_back(path: Path) -> None:
    async with SqliteLog.open(path) as log:
        large = [element(f"{n}", data=bytes([n]) * 100_000) for n in range(50)]
        places = await log.append(large, NOW_MS)
    before = path.stat().st_size
    async with SqliteLog.open(path) as log:
        await log.compact([Removal("notes/a", (), places[-2].ts)])
        assert [row.data for row in await rows_of(log, after=places[-2].ts)] == [large[-1].data]
    assert path.stat().st_size < before / 10


async def test_a_narrow_feed_is_the_same_however_it_is_found(path: Path) -> None:
    # Few of many events are wanted, then many of few: the two ways to look for them.
    async with SqliteLog.open(path) as log:
        await log.append([element(f"{n}", f"doc/{n % 100}") for n in range(2_000)], NOW_MS)
        whole = await log.feed(0, None, Filter(), count_max=5_000, bytes_max=LARGE)
        for since in (0, 1_000, 1_990):
            for keys in ({"doc/7"}, {f"doc/{n}" for n in range(90)}):
                wanted = Filter("doc/", frozenset(keys), frozenset({ALICE}))
                page = await log.feed(since, None, wanted, count_max=5_000, bytes_max=LARGE)
                assert list(page.events) == [
                    event for event in whole.events if event.document in keys and event.seq > since
                ]


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
async def test_a_text_that_no_file_can_hold_is_the_callers_fault(path: Path, text: str) -> None:
    async with SqliteLog.open(path) as log:
        one = element("1")
        for wrong in (
            one._replace(document=text),
            one._replace(id=text),
            one._replace(author=text),
        ):
            with pytest.raises(UsageError):
                await log.append([element("2"), wrong], NOW_MS)
        with pytest.raises(UsageError):
            await log.page(text, 0, count_max=1, bytes_max=1)
        assert await rows_of(log) == []
        await log.append([element("2")], NOW_MS)
        with pytest.raises(UsageError):
            await log.page("notes/a", 2**70, count_max=1, bytes_max=1)


# ── processes that end ─────────────────────────────────────────────────────────────────

WRITER = """
import asyncio, sys
from walstore.relay.sqlite import SqliteLog
from walstore.testing.relay_log import element

async def main(path, round):
    async with SqliteLog.open(path) as log:
        print("open", flush=True)
        for n in range(1_000_000):
            batch = [element(f"{round}-{n}-{m}", f"doc/{m % 2}") for m in range(4)]
            for place, each in zip(await log.append(batch, 1), batch):
                print(each.document, each.id, place.ts, place.seq, flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


@contextmanager
def writer(path: Path, round_: int = 0) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", WRITER, str(path), str(round_)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        try:
            yield process
        finally:
            process.kill()


def killed(process: subprocess.Popen[str], answers: int) -> list[tuple[str, str, int, int]]:
    """Kill a writer after some answers, and return all that it gave."""
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(answers)]
    process.send_signal(signal.SIGKILL)
    lines += [line for line in process.stdout if line.endswith("\n")]
    found = []
    for line in lines:
        document, name, ts, seq = line.split()
        found.append((document, name, int(ts), int(seq)))
    return found


async def test_what_a_killed_process_had_answered_is_there(path: Path) -> None:
    rng = random.Random(4)
    answered: list[tuple[str, str, int, int]] = []
    for round_ in range(4):
        with writer(path, round_) as process:
            answered += killed(process, rng.randrange(1, 120))
        async with SqliteLog.open(path) as log:
            page = await log.feed(0, None, Filter(), count_max=100_000, bytes_max=LARGE)
            stored = [(event.document, event.id, event.ts, event.seq) for event in page.events]
            assert set(answered) <= set(stored)
            assert len({name for _, name, _, _ in stored}) == len(stored)
            assert [seq for _, _, _, seq in stored] == list(range(1, len(stored) + 1))
            for document in ("doc/0", "doc/1"):
                ts = [row.ts for row in await rows_of(log, document)]
                assert ts == sorted(set(ts))


async def test_a_file_belongs_to_one_process(path: Path) -> None:
    with writer(path) as process:
        with pytest.raises(LogError, match="another relay is running"):
            async with SqliteLog.open(path):
                pass
        answered = killed(process, 8)
    async with SqliteLog.open(path) as log:
        assert len(await rows_of(log, "doc/0")) >= len(answered) // 2
        with pytest.raises(LogError, match="another relay is running"):
            async with SqliteLog.open(path):
                pass
        assert (await log.append([element("still ours")], NOW_MS))[0].is_new


# ── disks that fail ────────────────────────────────────────────────────────────────────


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Writes beyond a size fail, as they do on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 100, 4_096, 10_000, 33_000, 61_803, 100_000])
async def test_a_disk_that_is_full_refuses_appends_until_there_is_space(
    path: Path, room: int
) -> None:
    wal = path.with_name("relay.db-wal")
    async with SqliteLog.open(path) as log:
        await filled(log)
        before = await everything(log)
        stored: list[Row] = []

        async def append_for_ever() -> None:
            for n in range(1_000):
                batch[:] = [element(f"{n}-{m}", "disk", data=b"x" * 500) for m in range(8)]
                await log.append(batch, NOW_MS)
                stored[:] = await rows_of(log, "disk")

        batch: list[NewElement] = []
        with file_size_limit(wal.stat().st_size + room):
            with pytest.raises(LogError, match="the disk"):
                await append_for_ever()
            assert await rows_of(log, "disk") == stored
            if not stored:
                assert await everything(log) == before
        again = await log.append(batch, NOW_MS)
        assert all(place.is_new for place in again)
        assert [row.ts for row in await rows_of(log, "disk")] == [
            *(row.ts for row in stored),
            *(place.ts for place in again),
        ]
    async with SqliteLog.open(path) as log:
        assert len(await rows_of(log, "disk")) == len(stored) + 8


async def test_a_database_that_must_not_grow_refuses_appends(path: Path) -> None:
    async with SqliteLog.open(path) as log:
        await filled(log)
        before = await everything(log)
        log._writing.execute("PRAGMA max_page_count = 1")
        with pytest.raises(LogError, match="the disk is full"):
            await log.append([element("large", data=b"x" * 100_000)], NOW_MS)
        assert await everything(log) == before
        log._writing.execute("PRAGMA max_page_count = 1000000")
        await log.append([element("large", data=b"x" * 100_000)], NOW_MS)


async def test_a_lock_of_a_stranger_refuses_appends_and_not_reads(path: Path) -> None:
    async with SqliteLog.open(path, locked_ms_max=1) as log:
        await filled(log)
        rows = await rows_of(log)
        with closing(sqlite3.connect(path, isolation_level=None)) as stranger:
            stranger.execute("BEGIN IMMEDIATE")
            with pytest.raises(LogError, match="locked"):
                await log.append([element("1", "new")], NOW_MS)
            assert await rows_of(log) == rows
            stranger.execute("ROLLBACK")
        await log.append([element("1", "new")], NOW_MS)


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A place that somebody without rights can reach."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory / "relay.db"
    directory.chmod(0o755)
    shutil.rmtree(directory)


@contextmanager
def without_rights() -> Iterator[None]:
    """Nobody may write anywhere; root has to become somebody else for that."""
    uid = os.geteuid()
    if uid == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(uid)


async def test_a_directory_that_cannot_be_written_to_is_refused(public_path: Path) -> None:
    public_path.parent.chmod(0o555)
    with without_rights(), pytest.raises(LogError, match="Permission denied"):
        async with SqliteLog.open(public_path):
            pass


async def test_a_read_only_file_is_read_and_not_written(public_path: Path) -> None:
    async with SqliteLog.open(public_path) as log:
        await filled(log)
        rows = await rows_of(log)
    public_path.chmod(0o444)
    public_path.with_name("relay.db-lock").chmod(0o666)
    public_path.parent.chmod(0o777)
    with without_rights():
        async with SqliteLog.open(public_path) as log:
            assert await rows_of(log) == rows
            with pytest.raises(LogError, match="read-only"):
                await log.append([element("1", "new")], NOW_MS)
            assert await rows_of(log) == rows


async def test_a_place_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for wrong in (tmp_path / "nowhere" / "relay.db", tmp_path):
        with pytest.raises(LogError):
            async with SqliteLog.open(wrong):
                pass


# ── files that are damaged ─────────────────────────────────────────────────────────────


async def refusal(path: Path) -> str:
    """Open a file that must be refused, see that it is not touched, and return the reason."""
    before = {each.name: each.read_bytes() for each in path.parent.iterdir() if each.is_file()}
    with pytest.raises(LogCorruptError) as caught:
        async with SqliteLog.open(path):
            pass
    after = {each.name: each.read_bytes() for each in path.parent.iterdir() if each.is_file()}
    assert after.get(path.name) == before.get(path.name)
    assert after.get(path.name + "-wal", b"") == before.get(path.name + "-wal", b"")
    return str(caught.value)


async def made(path: Path) -> None:
    async with SqliteLog.open(path) as log:
        await filled(log)


async def test_a_foreign_file_is_refused_and_nothing_is_left_beside_it(path: Path) -> None:
    path.write_bytes(b"Dear diary, " * 1_000)
    assert "not a SQLite database" in await refusal(path)
    assert [each.name for each in path.parent.iterdir()] == ["relay.db"]


async def test_a_foreign_database_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as stranger:
        stranger.execute("CREATE TABLE songs (title TEXT)")
    assert "not a relay's log" in await refusal(path)
    assert [each.name for each in path.parent.iterdir()] == ["relay.db"]


@pytest.mark.parametrize(
    ("version", "reason"), [(2, "update"), (2**31 - 1, "update"), (0, "never")]
)
async def test_another_version_is_refused(path: Path, version: int, reason: str) -> None:
    await made(path)
    with closing(sqlite3.connect(path)) as stranger:
        stranger.execute(f"PRAGMA user_version = {version}")
    assert reason in await refusal(path)


async def test_a_file_that_was_analysed_is_used_as_before(path: Path) -> None:
    await made(path)
    with closing(sqlite3.connect(path)) as operator:
        operator.execute("ANALYZE")
    async with SqliteLog.open(path) as log:
        assert (await log.append([element("one more")], NOW_MS))[0].is_new


async def test_other_tables_are_refused(path: Path) -> None:
    await made(path)
    with closing(sqlite3.connect(path)) as stranger:
        stranger.execute("DROP TABLE grants")
    assert "tables are not a relay's" in await refusal(path)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.3, 0.5, 0.9, 0.999])
async def test_a_file_that_was_cut_off_is_refused(path: Path, share: float) -> None:
    await made(path)
    os.truncate(path, int(path.stat().st_size * share))
    await refusal(path)


async def test_a_file_that_is_gone_is_not_made_again(path: Path) -> None:
    await made(path)
    path.unlink()
    assert "is gone" in await refusal(path)
    path.with_name("relay.db-lock").unlink()
    async with SqliteLog.open(path) as log:
        assert await rows_of(log) == []


async def test_an_old_copy_is_refused_until_that_is_what_is_wanted(path: Path) -> None:
    await made(path)
    old = path.read_bytes()
    async with SqliteLog.open(path) as log:
        await log.append([element("new")], NOW_MS)
    path.write_bytes(old)
    assert "has lost changes that were answered" in await refusal(path)
    path.with_name("relay.db-lock").unlink()
    async with SqliteLog.open(path) as log:
        assert len(await rows_of(log)) == 12


async def test_a_damaged_lock_file_is_refused(path: Path) -> None:
    await made(path)
    lock = path.with_name("relay.db-lock")
    lock.write_bytes(lock.read_bytes()[:-1] + b"?")
    assert "-lock is damaged" in await refusal(path)


async def test_a_half_made_database_is_made_anew(path: Path) -> None:
    path.with_name("relay.db-new").write_bytes(b"half")
    async with SqliteLog.open(path) as log:
        assert await rows_of(log) == []


def copied(source: Path, target: Path) -> Path:
    """What a kill leaves behind: the files as they are while the log is open."""
    target.mkdir()
    for name in ("relay.db", "relay.db-wal", "relay.db-lock"):
        shutil.copy(source.with_name(name), target / name)
    return target / "relay.db"


async def test_a_wal_file_that_was_deleted_or_cut_off_is_noticed(
    path: Path, tmp_path: Path
) -> None:
    async with SqliteLog.open(path) as log:
        await filled(log)
        before = await everything(log)
        whole = copied(path, tmp_path / "whole")
        deleted = copied(path, tmp_path / "deleted")
        cut = [copied(path, tmp_path / f"cut-{share}") for share in range(10)]
    deleted.with_name("relay.db-wal").unlink()
    assert "-wal file was removed or damaged" in await refusal(deleted)
    for share, copy in enumerate(cut):
        wal = copy.with_name("relay.db-wal")
        os.truncate(wal, wal.stat().st_size * share // 10)
        assert "has lost changes" in await refusal(copy)
    async with SqliteLog.open(whole) as log:
        assert await everything(log) == before


# ── power that fails ───────────────────────────────────────────────────────────────────

# At how many lengths a commit that was not answered is cut off, beside the ends of its frames.
CUTS = int(os.environ.get("WALSTORE_TORN_CUTS", "20"))

WAL_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
SECTOR_BYTES = 512


class Torn(NamedTuple):
    """A database amid a commit.

    Attributes:
        files: The database and its lock file, when that commit began.
        answered: The -wal file, when the last answer was given.
        whole: The -wal file after that commit.
        frame_bytes: The size of its frames.
    """

    files: dict[str, bytes]
    answered: bytes
    whole: bytes
    frame_bytes: int

    def left(self, path: Path, wal: bytes, lock: bytes | None = None) -> None:
        """Leave behind what a power cut does."""
        for each in path.parent.iterdir():
            each.unlink()
        for name, content in {**self.files, "relay.db-wal": wal}.items():
            path.with_name(name).write_bytes(content)
        if lock is not None:
            path.with_name("relay.db-lock").write_bytes(lock)

    def ends(self) -> list[int]:
        """Where a frame of the last commit begins or ends."""
        first = max(WAL_HEADER_BYTES, len(self.answered))
        ends = [len(self.answered), *range(first, len(self.whole) + 1, self.frame_bytes)]
        assert ends[-1] == len(self.whole)
        return sorted(set(ends))

    def lengths(self, cuts: int) -> list[int]:
        """Where to cut it off: around the end of each frame, and in so many places between them."""
        tail = range(len(self.answered), len(self.whole) + 1)
        around = {end + by for end in self.ends() for by in (-1, 0, 1)}
        between = tail[:: max(1, len(tail) // cuts)] if cuts else tail[:0]
        return sorted(each for each in {*around, *between} if each in tail)


# The commit that is cut off: some pages, among them those of a row that does not fit one.
TORN = [element("torn"), element("large", data=b"x" * 9_000)]


async def torn(path: Path, answered: int) -> Torn:
    files: dict[str, bytes] = {}

    def keep(statement: str) -> None:
        if statement == "COMMIT":
            for name in ("relay.db", "relay.db-lock"):
                files[name] = path.with_name(name).read_bytes()

    async with SqliteLog.open(path) as log:
        for each in elements(answered):
            await log.append([each], NOW_MS)
        wal = path.with_name("relay.db-wal")
        before = wal.read_bytes()
        log._writing.set_trace_callback(keep)
        await log.append(TORN, NOW_MS)
        whole = wal.read_bytes()
        assert path.read_bytes() == files["relay.db"]
    page_bytes = int.from_bytes(files["relay.db"][16:18], "big")
    assert whole.startswith(before)
    return Torn(files, before, whole, FRAME_HEADER_BYTES + page_bytes)


async def assert_goes_on(path: Path, answered: int, *, has_torn: bool) -> None:
    """What was answered is there, the last commit wholly or not at all, and appends are taken."""
    expected = [each.id for each in elements(answered)]
    expected += [each.id for each in TORN] if has_torn else []
    async with SqliteLog.open(path) as log:
        before = await rows_of(log)
        assert await ids_of(log) == expected
        assert [row.data for row in before[answered:]] == [each.data for each in TORN if has_torn]
        places = await log.append([*TORN, element("next")], NOW_MS)
        assert [place.is_new for place in places] == [not has_torn] * len(TORN) + [True]
    async with SqliteLog.open(path) as log:
        assert (await rows_of(log))[: len(before)] == before
        after = [each.id for each in [*elements(answered), *TORN, element("next")]]
        assert await ids_of(log) == after


async def ids_of(log: RelayLog) -> list[str]:
    page = await log.feed(0, None, Filter(), count_max=1_000, bytes_max=LARGE)
    assert [event.seq for event in page.events] == list(range(1, len(page.events) + 1))
    return [event.id for event in page.events]


@pytest.mark.parametrize(("answered", "cuts"), [(0, 0), (5, CUTS)])
async def test_a_commit_that_was_cut_off_is_not_there_and_all_before_it_is(
    path: Path, answered: int, cuts: int
) -> None:
    amid = await torn(path, answered)
    assert len(amid.ends()) > 5
    lengths = amid.lengths(cuts)
    for length in lengths:
        amid.left(path, amid.whole[:length])
        await assert_goes_on(path, answered, has_torn=length == len(amid.whole))
    print(f"{len(lengths)} lengths of a torn commit")


async def test_a_commit_of_which_sectors_are_missing_is_not_there(path: Path) -> None:
    amid, chance = await torn(path, 5), random.Random(9)
    sectors = range(len(amid.answered), len(amid.whole), SECTOR_BYTES)
    for _ in range(max(20, CUTS // 20)):
        wal = bytearray(amid.whole)
        for start in chance.sample(sectors, chance.randint(1, 4)):
            size = min(SECTOR_BYTES, len(wal) - start)
            wal[start : start + size] = chance.choice((bytes(size), chance.randbytes(size)))
        amid.left(path, bytes(wal))
        await assert_goes_on(path, 5, has_torn=wal == amid.whole)


@pytest.mark.parametrize("lock", [b"", bytes(12)])
async def test_a_lock_file_that_a_power_cut_has_emptied_keeps_nobody_out(
    path: Path, lock: bytes
) -> None:
    amid = await torn(path, 5)
    for length in amid.ends():
        amid.left(path, amid.whole[:length], lock)
        await assert_goes_on(path, 5, has_torn=length == len(amid.whole))


def flip(path: Path, offset: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


async def assert_detected_or_harmless(path: Path, before: dict[str, Any]) -> None:
    try:
        async with SqliteLog.open(path) as log:
            after = await everything(log)
    except LogError:
        return
    for name, said in after.items():
        assert isinstance(said, LogCorruptError) or said == before[name], name


FLIPS = int(os.environ.get("WALSTORE_RELAY_FLIPS", "500"))


async def test_a_flipped_bit_is_detected_or_harmless(path: Path, tmp_path: Path) -> None:
    async with SqliteLog.open(path) as log:
        await filled(log)
        before = await everything(log)
        copy = copied(path, tmp_path / "copy")
    rng, flips = random.Random(7), 0
    kept = {each.name: each.read_bytes() for each in copy.parent.iterdir()}
    for name in ("relay.db", "relay.db-wal"):
        # In the database all is moved out of the -wal file first.
        files = {"relay.db": path.read_bytes()} if name == "relay.db" else kept
        for _ in range(FLIPS):
            for each in copy.parent.iterdir():
                each.unlink()
            for other, content in files.items():
                (copy.parent / other).write_bytes(content)
            flip(copy.with_name(name), rng.randrange(len(files[name])), rng.randrange(8))
            await assert_detected_or_harmless(copy, before)
            flips += 1
    print(f"{flips} bits flipped of a relay's database")


async def test_a_flipped_payload_is_named_and_others_go_on(path: Path) -> None:
    marked = element("marked", "notes/b", data=b"0123456789" * 30)
    async with SqliteLog.open(path) as log:
        await filled(log)
        (place,) = await log.append([marked], NOW_MS)
    whole = path.read_bytes()
    for offset in range(0, 300, 37):
        path.write_bytes(whole)
        flip(path, whole.index(marked.data) + offset, offset % 8)
        async with SqliteLog.open(path) as log:
            with pytest.raises(LogCorruptError, match=rf"'notes/b' is damaged at ts {place.ts};"):
                await rows_of(log, "notes/b")
            with pytest.raises(LogCorruptError, match="'notes/b'"):
                await log.find([marked.id], Filter())
            with pytest.raises(LogCorruptError, match="'notes/b'"):
                await log.feed(0, None, Filter(), count_max=1_000, bytes_max=LARGE)
            assert len(await rows_of(log, "notes/a")) == 12
            feed = await log.feed(0, None, Filter("notes/a"), count_max=1_000, bytes_max=LARGE)
            assert len(feed.events) == 14
            (accepted,) = await log.append([element("next", "notes/a")], NOW_MS)
            assert isinstance(accepted, Accepted)
        with suppress(FileNotFoundError):
            path.with_name("relay.db-lock").unlink()


async def test_a_payload_that_is_missing_is_named(path: Path) -> None:
    await made(path)
    with closing(sqlite3.connect(path)) as stranger, stranger:
        stranger.execute("DELETE FROM payloads WHERE seq = 3")
    async with SqliteLog.open(path) as log:
        with pytest.raises(LogCorruptError, match=rf"'notes/a' is damaged at ts {NOW_MS + 2}"):
            await rows_of(log)
        with pytest.raises(LogCorruptError, match="'notes/a'"):
            await log.feed(0, None, Filter(), count_max=1_000, bytes_max=LARGE)


async def test_an_element_that_is_missing_is_noticed(path: Path) -> None:
    await made(path)
    with closing(sqlite3.connect(path)) as stranger, stranger:
        stranger.execute("DELETE FROM events WHERE seq IN (3, 12)")
    async with SqliteLog.open(path) as log:
        with pytest.raises(LogCorruptError, match=rf"after ts {NOW_MS + 1}: an element is missing"):
            await rows_of(log)
        with pytest.raises(LogCorruptError, match=rf"after ts {NOW_MS + 10}: an element is"):
            await rows_of(log, after=NOW_MS + 10)


async def test_what_is_new_below_a_prefix_takes_no_longer_with_more_documents(path: Path) -> None:
    steps = []
    async with SqliteLog.open(path) as log:
        for number in range(2, 200):
            some = [element(f"{number}", f"notes/{number}"), element(f"{number}", "other")]
            place = (await log.append(some, NOW_MS))[-1]
            with closing(sqlite3.connect(path)) as connection, counted(connection) as count:
                found = reads.feed(connection, place.seq - 2, None, Filter("notes/"), 10, LARGE)
            assert [event.seq for event in found.events] == [place.seq - 1]
            steps.append(next(count))
    assert steps[-1] < steps[0] + 20


async def test_snapshots_that_are_gone_make_nothing_slower(path: Path) -> None:
    async with SqliteLog.open(path) as log:
        (place,) = await log.append([element("1")], NOW_MS)
        revision = None
        for number in range(64):
            new = snapshot(str(number), revision, place.ts)
            await log.put_snapshot(new, NOW_MS)
            if number >= 2:
                await log.compact([Removal("notes/a", [revision or ""], 0)])
            if number == 2:
                before = steps_of(path)
            revision = new.id
    assert steps_of(path) == before


async def test_what_lies_beyond_a_part_of_a_bootstrap_is_not_loaded(path: Path) -> None:
    async with SqliteLog.open(path) as log:
        await _put_in_each(log, 4)
        with closing(sqlite3.connect(path)) as stranger, stranger:
            stranger.execute("UPDATE events SET vc = '{}' WHERE seq IN (1, 4)")
        part = await log.bootstrap(Filter("notes/"), since=1, count_max=1)
        assert ([event.seq for event in part.events], part.is_more) == ([2], True)
        with pytest.raises(LogCorruptError):
            await log.bootstrap(Filter("notes/"))


@pytest.mark.parametrize("comparing", [SqliteLog.snapshots, SqliteLog.bootstrap])
async def test_nobody_waits_while_it_is_compared_what_snapshots_cover(
    path: Path, comparing: Callable[[SqliteLog, Any], Coroutine[Any, Any, Any]]
) -> None:
    wanted: Any = "notes/a" if comparing is SqliteLog.snapshots else Filter()
    many = {f"writer {number:05}": 1 for number in range(20_000)}
    async with SqliteLog.open(path) as log:
        await log.append([element("1", "other")], NOW_MS)
        revision = None
        for number in range(24):
            new = snapshot(str(number), revision, 0, {**many, f"~{number}": 1})
            assert isinstance(await log.put_snapshot(new, NOW_MS), Accepted)
            revision = new.id
        task = asyncio.create_task(comparing(log, wanted))
        await asyncio.sleep(0)
        assert len(await rows_of(log, "other")) == 1
        assert not task.done()
        await task


async def test_what_a_line_of_snapshots_covers_is_not_held_together(path: Path) -> None:
    many = {f"writer {number:05}": 1 for number in range(5_000)}
    revision, peaks = None, []
    async with SqliteLog.open(path) as log:
        for number in range(1, 33):
            new = snapshot(str(number), revision, 0, {**many, "~": number})
            assert isinstance(await log.put_snapshot(new, NOW_MS), Accepted)
            revision = new.id
            if number in (4, 32):
                tracemalloc.start()
                assert len(await log.snapshots("notes/a")) == number
                peaks.append(tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


async def _put_in_each(log: SqliteLog, count: int) -> None:
    for number in range(count):
        new = snapshot("s", None, 0, {"a": 1}, document=f"notes/{number}")
        await log.put_snapshot(new, NOW_MS)


def steps_of(path: Path) -> int:
    """How many steps SQLite takes to find the snapshots of a document."""
    with closing(sqlite3.connect(path)) as connection, counted(connection) as count:
        assert len(reads.snapshots(connection, "notes/a")) == 2
        assert reads.snapshot(connection, "notes/a") is not None
        assert reads.bootstrap(connection, Filter()).events
    return next(count)


@contextmanager
def counted(connection: sqlite3.Connection) -> Iterator[Iterator[int]]:
    """What comes next is how many steps SQLite has taken."""
    count = itertools.count()
    connection.set_progress_handler(lambda: next(count) < 0, 1)
    yield count


async def test_checks_can_be_left_out_for_large_files(path: Path) -> None:
    await made(path)
    with closing(sqlite3.connect(path)) as stranger, stranger:
        stranger.execute("PRAGMA writable_schema = ON")
        (root,) = stranger.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'events_by_id'")
        page_size = stranger.execute("PRAGMA page_size").fetchone()[0]
    offset = (root[0] - 1) * page_size
    content = bytearray(path.read_bytes())
    # Two cells of the index change places: only a comparison with the table can tell.
    content[offset + 8 : offset + 12] = (
        content[offset + 10 : offset + 12] + content[offset + 8 : offset + 10]
    )
    path.write_bytes(content)
    await refusal(path)
    async with SqliteLog.open(path, check="none") as log:
        assert len(await rows_of(log)) == 12

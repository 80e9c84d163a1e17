"""A directory keeps the promises of the port: between processes, kills and failing disks."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from anyio import to_thread

from walstore.archive import local
from walstore.archive.destination import ConflictError, Destination, DestinationError
from walstore.archive.destinations import open_destination
from walstore.archive.keys import RESERVED
from walstore.archive.local import LocalDestination
from walstore.local.durable import sync_directory
from walstore.testing.destination import DestinationContract

KEY = "notes/manifest.json"
REPOSITORY = Path(__file__).parent.parent

RACES = 40
RACERS = 3
KILLS = 30


class TestLocal(DestinationContract):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Destination:
        return open_destination(tmp_path / "not" / "yet there")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def destination(root: Path) -> LocalDestination:
    return LocalDestination(root)


async def keys_of(destination: Destination) -> list[str]:
    return [each.key async for each in destination.list("")]


def temporaries(root: Path) -> list[Path]:
    return list((root / RESERVED).glob("tmp-*"))


# ── other processes ────────────────────────────────────────────────────────────────────


class Other:
    """Another process that uses the directory."""

    def __init__(self, root: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.destination_process", str(root)],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.hears() == "ready"

    def tell(self, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def hears(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process has ended"
        return line.strip()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def other(root: Path) -> Iterator[Other]:
    process = Other(root)
    try:
        yield process
    finally:
        process.close()


@pytest.mark.parametrize("is_creation", [True, False])
async def test_of_processes_that_race_one_wins(
    root: Path, destination: LocalDestination, is_creation: bool
) -> None:
    with ExitStack() as stack:
        others = [stack.enter_context(other(root)) for _ in range(RACERS)]
        for race in range(RACES):
            key = f"race/{race}"
            revision = "-" if is_creation else await destination.put_if(key, b"before", None)
            for number, process in enumerate(others):
                process.tell("try", key, revision, f"racer-{number}")
            said = [process.hears().split() for process in others]
            won = [number for number, words in enumerate(said) if words[0] == "won"]
            assert len(won) == 1, said
            assert [words for words in said if words[0] != "won"] == [["lost"]] * (RACERS - 1)
            expected = (f"racer-{won[0]}".encode(), said[won[0]][1])
            assert await destination.get(key) == expected


@pytest.mark.parametrize("before", [None, b"before"])
@pytest.mark.parametrize("where", ["written", "locked"])
async def test_a_process_killed_before_the_name_is_given_leaves_nothing(
    root: Path, destination: LocalDestination, where: str, before: bytes | None
) -> None:
    revision = "-" if before is None else await destination.put_if(KEY, before, None)
    with other(root) as process:
        process.tell("stop", where)
        process.tell("try", KEY, revision, "after")
        assert process.hears() == "here"
        assert len(temporaries(root)) == 1
    found = await destination.get(KEY)
    assert (found and found.body) == before
    assert await keys_of(destination) == ([] if before is None else [KEY])
    assert len(temporaries(root)) == 1
    # Whoever writes next is not kept waiting by the dead one's lock, and clears up after it.
    await LocalDestination(root).put("other", b"")
    assert temporaries(root) == []


async def test_a_process_killed_once_the_name_is_given_has_written(
    root: Path, destination: LocalDestination
) -> None:
    with other(root) as process:
        process.tell("stop", "named")
        process.tell("try", KEY, "-", "after")
        assert process.hears() == "here"
    found = await destination.get(KEY)
    assert found is not None
    assert found.body == b"after"
    with pytest.raises(ConflictError):
        await destination.put_if(KEY, b"other", None)
    assert temporaries(root) == []


async def test_what_is_still_being_written_is_left_alone(
    root: Path, destination: LocalDestination
) -> None:
    with other(root) as process:
        process.tell("stop", "written")
        process.tell("try", KEY, "-", "slowly")
        assert process.hears() == "here"
        await destination.put("other", b"")
        assert await keys_of(destination) == ["other"]
        process.tell("go on")
        assert process.hears().startswith("won")
    assert await keys_of(destination) == [KEY, "other"]


async def test_a_process_that_was_stopped_does_not_stop_all_others(
    root: Path, destination: LocalDestination, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LOCK_MS_MAX", 100)
    with other(root) as process:
        process.tell("stop", "locked")
        process.tell("try", KEY, "-", "slowly")
        assert process.hears() == "here"
        with pytest.raises(DestinationError, match="another process holds its lock"):
            await destination.put("other", b"")
        assert await keys_of(destination) == []
        process.tell("go on")
        assert process.hears().startswith("won")
    await destination.put("other", b"")
    assert await keys_of(destination) == [KEY, "other"]


async def test_what_was_acknowledged_survives_a_kill_at_any_time(
    root: Path, destination: LocalDestination
) -> None:
    chance = random.Random(7)
    done = 0
    with other(root) as process:
        for _ in range(KILLS):
            will, did = count_until_killed(process, chance)
            found = await destination.get(KEY)
            number = 0 if found is None else int(found.body.split()[0])
            assert max(done, did) <= number <= max(done, will)
            assert found is None or found.body == f"{number} ".encode() * 20_000
            assert await keys_of(destination) == ([] if found is None else [KEY])
            done = number
    assert done > KILLS
    await LocalDestination(root).put("other", b"")
    assert temporaries(root) == []


def count_until_killed(process: Other, chance: random.Random) -> tuple[int, int]:
    """The highest number that a process began to write, and that it was told to have written."""
    process.tell("count", KEY)
    _, pid = process.hears().split()
    said = [process.hears() for _ in range(chance.randrange(20))]
    # Some microseconds more, so that it is hit anywhere.
    for _ in range(chance.randrange(20_000)):
        pass
    os.kill(int(pid), signal.SIGKILL)
    said += iter(process.hears, "ended")
    numbers = {"will": 0, "did": 0} | {line.split()[0]: int(line.split()[1]) for line in said}
    return numbers["will"], numbers["did"]


# ── the disk ───────────────────────────────────────────────────────────────────────────


async def test_bytes_are_synced_before_they_have_a_name_and_the_name_before_anybody_is_told(
    root: Path, destination: LocalDestination, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def noting_fsync(handle: int) -> None:
        steps.append(("sync", os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def noting_replace(source: Path, target: Path) -> None:
        steps.append(("name", str(target)))
        steps.append(("of", str(source)))
        replace(source, target)

    await destination.put("before", b"")
    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "replace", noting_replace)
    await destination.put_if("new/directory/key", b"content", None)
    directories = [("sync", str(root)), ("sync", str(root / "new"))]
    (_, temporary) = steps[0]
    assert steps == [
        ("sync", temporary),
        *directories,
        ("name", str(root / "new/directory/key")),
        ("of", temporary),
        ("sync", str(root / "new/directory")),
    ]
    steps.clear()
    await destination.delete("new/directory/key")
    assert steps == [("sync", str(root))]
    assert not (root / "new").exists()


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_leaves_what_was_there(root: Path, destination: LocalDestination) -> None:
    revision = await destination.put_if(KEY, b"before", None)
    with files_of_at_most(10_000):
        with pytest.raises(DestinationError, match=os.strerror(errno.EFBIG)):
            await destination.put_if(KEY, bytes(20_000), revision)
        with pytest.raises(DestinationError):
            await destination.put("other", bytes(20_000))
    assert await destination.get(KEY) == (b"before", revision)
    assert await keys_of(destination) == [KEY]
    assert temporaries(root) == []
    await destination.put_if(KEY, bytes(20_000), revision)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
async def test_a_failing_disk_is_an_error(
    root: Path, destination: LocalDestination, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    await destination.put(KEY, b"before")

    def fail(*args: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, failing, fail)
        with pytest.raises(DestinationError, match=os.strerror(errno.EIO)):
            await destination.put(KEY, b"after")
    found = await destination.get(KEY)
    assert found is not None
    assert found.body == b"before"
    assert temporaries(root) == []


class Syncs:
    """Syncs of one directory, some of which fail, and one of which takes long."""

    def __init__(self, directory: Path, *, failing: set[int], long: int) -> None:
        self._directory, self._failing, self._long = directory, failing, long
        self.begun: list[int] = []
        self.long_begun, self.may_end = threading.Event(), threading.Event()

    def sync(self, path: Path) -> None:
        if path != self._directory:
            return sync_directory(path)
        number = len(self.begun)
        self.begun.append(number)
        if number in self._failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if number == self._long:
            self.long_begun.set()
            assert self.may_end.wait(20)
        return sync_directory(path)


@pytest.fixture
async def syncs(
    root: Path, destination: LocalDestination, monkeypatch: pytest.MonkeyPatch
) -> Syncs:
    """A name could not be synced. To sync it again takes long, and the next new one fails, too."""
    await destination.put("t/a", b"1")
    syncs = Syncs(root / "t", failing={0, 3}, long=1)
    monkeypatch.setattr(local, "sync_directory", syncs.sync)
    with pytest.raises(DestinationError):
        await destination.put("t/b", b"2")
    return syncs


async def test_nobody_is_told_of_a_name_while_it_is_being_synced(
    destination: LocalDestination, syncs: Syncs
) -> None:
    first = asyncio.ensure_future(destination.get("t/b"))
    assert await to_thread.run_sync(syncs.long_begun.wait, 20)
    found = await destination.get("t/b")
    begun = list(syncs.begun)
    syncs.may_end.set()
    # The second one has not waited for the first: it has synced the name itself.
    assert (found, begun) == (await first, [0, 1, 2])


async def test_a_name_that_could_not_be_synced_while_others_were_is_not_forgotten(
    destination: LocalDestination, syncs: Syncs
) -> None:
    first = asyncio.ensure_future(destination.get("t/b"))
    assert await to_thread.run_sync(syncs.long_begun.wait, 20)
    with pytest.raises(DestinationError):
        await destination.put("t/c", b"3")
    syncs.may_end.set()
    await first
    assert await destination.get("t/c") is not None
    assert syncs.begun == [0, 1, 2, 3, 4]


async def test_where_there_can_be_no_directory_every_call_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    destination = LocalDestination(tmp_path / "file")
    with pytest.raises(DestinationError):
        await destination.put(KEY, b"")
    with pytest.raises(DestinationError):
        await destination.put_if(KEY, b"", None)
    with pytest.raises(DestinationError):
        await keys_of(destination)


async def test_an_object_and_a_directory_cannot_have_one_name(
    destination: LocalDestination,
) -> None:
    await destination.put("a/b", b"")
    for key in ("a", "a/b/c"):
        with pytest.raises(DestinationError) as caught:
            await destination.put_if(key, b"", None)
        assert not isinstance(caught.value, ConflictError)
    assert await keys_of(destination) == ["a/b"]


async def test_what_others_put_there_is_no_harm(root: Path, destination: LocalDestination) -> None:
    await destination.put(KEY, b"content")
    (root / "loop").symlink_to(root)
    (root / "dangling").symlink_to(root / "nowhere")
    (root / "back\\slash").write_bytes(b"")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff")).write_bytes(b"")
    (root / RESERVED / "tmp-of-somebody").write_bytes(b"")
    assert await keys_of(destination) == [KEY]


async def test_a_copy_of_the_objects_alone_can_be_used(
    root: Path, destination: LocalDestination
) -> None:
    (root / "notes").mkdir(parents=True)
    (root / KEY).write_bytes(b"copied")
    found = await destination.get(KEY)
    assert found is not None
    await destination.put_if(KEY, b"next", found.revision)
    await destination.delete(KEY)
    assert await destination.get(KEY) is None


async def test_a_directory_that_goes_comes_back(root: Path, destination: LocalDestination) -> None:
    await destination.put(KEY, b"content")
    root.rename(root.with_name("elsewhere"))
    assert await destination.get(KEY) is None
    await destination.put(KEY, b"again")
    assert await keys_of(destination) == [KEY]


# ── addresses ──────────────────────────────────────────────────────────────────────────


async def test_a_uri_is_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = LocalDestination(tmp_path / "with space")
    stored = await destination.put("a key.jsonl", b"content")
    assert stored.uri.startswith("file:///")
    again = open_destination((tmp_path / "with space").as_uri())
    assert (await again.get("a key.jsonl")) is not None
    monkeypatch.chdir(tmp_path)
    relative = open_destination("with space")
    monkeypatch.chdir("/")
    assert (await relative.get("a key.jsonl")) is not None
    assert open_destination(tmp_path, name="mine").name == "mine"
    assert open_destination(str(tmp_path)).name == str(tmp_path)

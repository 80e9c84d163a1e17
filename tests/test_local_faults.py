"""Local files under kills, damage and failing disks: nothing promised is lost without a word."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.local_writer import AUTHOR, DOCUMENT_KEY, body
from walstore.document.ports import RawElement
from walstore.local import (
    LocalFile,
    LocalFileClosedError,
    LocalFileDamagedError,
    LocalFileFailedError,
    LocalFileForeignError,
    LocalFileFullError,
    LocalFileNewerError,
    LocalFileNowhereError,
    Pending,
    UnsentFileError,
    read_unsent,
    unsent_files,
)
from walstore.local.schema import HEADER_BYTES, PAGE_BYTES

KILLS = int(os.environ.get("WALSTORE_LOCAL_KILLS", "100"))
ROOT = Path(__file__).parent.parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.wal"


def open_file(path: Path) -> LocalFile:
    return LocalFile.open(path, document_key=DOCUMENT_KEY, author=AUTHOR)


# ── kills ──────────────────────────────────────────────────────────────────────────────


class Promises:
    """What writers have been promised, by what they told."""

    def __init__(self) -> None:
        self.recorded: set[str] = set()
        self.perhaps_recorded: set[str] = set()
        self.held: dict[str, set[str]] = {}
        self.acknowledged: dict[str, int] = {}
        self.confirmed: set[str] = set()
        self.perhaps_confirmed: set[str] = set()

    def hear(self, line: str) -> None:
        match line.split():
            case ["will", "record", edit]:
                self.perhaps_recorded.add(edit)
            case ["did", "record", edit]:
                self.recorded.add(edit)
            case ["will", "seal", link, *edits]:
                self.held[link] = set(edits)
            case ["did", "acknowledge", link, ts]:
                self.acknowledged[link] = int(ts)
            case ["will", "confirm", link]:
                self.perhaps_confirmed.add(link)
            case ["did", "confirm", link]:
                self.confirmed.add(link)

    def check(self, pending: Pending) -> None:
        """Compare what is found after a kill with what was promised before it."""
        bodies = {one.link: one for one in pending.bodies}
        assert len(bodies) == len(pending.bodies), "a body is there twice"
        assert not self.confirmed & bodies.keys(), "what was confirmed is back"
        for link in self.acknowledged.keys() & bodies.keys():
            assert bodies[link].acknowledged is not None, "an acknowledgement is lost"
        found = Counter(edit.packed.decode() for edit in pending.recorded)
        for one in pending.bodies:
            found.update(one.canonical.decode().split("\n"))
        assert set(found.values()) <= {1}, "an edit is there twice"
        assert found.keys() <= self.perhaps_recorded, "an edit was made up"
        in_the_log = set[str]().union(*(self.held[link] for link in self.perhaps_confirmed))
        assert self.recorded - found.keys() <= in_the_log, "an edit is lost"


def test_what_was_promised_survives_kills_and_nothing_is_there_twice(path: Path) -> None:
    promises = Promises()
    chance = random.Random(5)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.local_writer", str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for kill in range(KILLS):
            server.stdin.write(f"s{kill}\n")
            server.stdin.flush()
            pid = int(server.stdout.readline().split()[1])
            for _ in range(chance.randrange(60)):
                line = server.stdout.readline().strip()
                assert line not in ("", "ended"), "a writer has failed"
                promises.hear(line)
            os.kill(pid, signal.SIGKILL)
            while (line := server.stdout.readline().strip()) != "ended":
                assert line, "the server has failed"
                promises.hear(line)
            # Every other time the next writer opens the file as the kill has left it.
            if kill % 2:
                with open_file(path) as file:
                    promises.check(file.pending())
        server.stdin.close()
    assert len(promises.recorded) > KILLS
    assert promises.confirmed
    print(f"{len(promises.recorded)} edits recorded amid {KILLS} kills")


# ── damage ─────────────────────────────────────────────────────────────────────────────


class Content(NamedTuple):
    """Everything that can be read from a file."""

    pending: Pending
    elements: list[RawElement]
    state: tuple[bytes, int] | None
    facts: tuple[object, ...]


def content_of(file: LocalFile) -> Content:
    facts = (file.log_id, file.marks, file.epoch_floor, file.get("undo"), file.last_sealed("s"))
    return Content(file.pending(), file.page(-1, 10_000), file.state(), facts)


def write_much(path: Path) -> LocalFile:
    """An open file with something of everything, some of it in the write-ahead log alone."""
    file = open_file(path)
    file.log_id, file.marks = "log-1", {"ts": 3}
    file.put("undo", ["step"] * 20)
    file.add_elements([RawElement(ts, b"{%d}" % ts * 40, AUTHOR, "s") for ts in range(1, 200)])
    file.put_state(random.Random(1).randbytes(20_000), 150)
    file.seal("s", file.record("s", b"0"), [body("s", seq, [b"x" * 900]) for seq in range(1, 12)])
    for count in range(150):
        file.record("s", b"edit %d " % count * 4)
    file.close()
    file = open_file(path)
    for count in range(20):
        file.record("s", b"late edit %d" % count)
    file.acknowledged("s/4", 77)
    file.sync()
    return file


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Content]:
    """A file as a killed process leaves it, and what is in it."""
    path = tmp_path_factory.mktemp("killed") / "notes.wal"
    image = path.parent / "image"
    image.mkdir()
    with write_much(path) as file:
        for found in path.parent.glob("notes.wal*"):
            shutil.copy(found, image)
        content = content_of(file)
    return image, content


def test_a_copy_of_an_open_file_has_everything(
    tmp_path: Path, killed: tuple[Path, Content]
) -> None:
    with open_file(restored(tmp_path, killed)) as file:
        assert content_of(file) == killed[1]


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_each_flipped_byte_is_noticed_or_does_no_harm(
    tmp_path: Path, killed: tuple[Path, Content], suffix: str
) -> None:
    size = (killed[0] / f"notes.wal{suffix}").stat().st_size
    chance = random.Random(7)
    # The end of the first page holds names, which SQLite repeats when they are no good.
    names = range(PAGE_BYTES - 1200, PAGE_BYTES, 60)
    offsets = [*range(0, HEADER_BYTES, 5), *names, *(chance.randrange(size) for _ in range(FLIPS))]
    verdicts = Counter[str]()
    for place in offsets:
        path = restored(tmp_path, killed)
        target = path.with_name(path.name + suffix)
        damage(target, place, chance.choice((1 << chance.randrange(8), chance.randrange(1, 256))))
        verdicts[verdict(path, killed[1])] += 1
    assert verdicts["damaged"] > FLIPS // 8
    print(f"{len(offsets)} places of a local file damaged, {verdicts['damaged']} of them noticed")


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_overwritten_sectors_are_noticed_or_do_no_harm(
    tmp_path: Path, killed: tuple[Path, Content], suffix: str
) -> None:
    size = (killed[0] / f"notes.wal{suffix}").stat().st_size
    chance = random.Random(8)
    verdicts = Counter[str]()
    for _ in range(FLIPS // 4):
        path, sector = restored(tmp_path, killed), chance.choice((512, 4096))
        with path.with_name(path.name + suffix).open("rb+") as file:
            for start in chance.sample(range(0, size, sector), chance.randint(1, 4)):
                file.seek(start)
                file.write(chance.choice((bytes(sector), chance.randbytes(sector))))
        verdicts[verdict(path, killed[1])] += 1
    assert verdicts["damaged"] > FLIPS // 32
    print(f"{FLIPS // 4} times sectors overwritten, {verdicts['damaged']} of them noticed")


def test_a_file_cut_short_is_noticed_at_every_length(
    tmp_path: Path, killed: tuple[Path, Content]
) -> None:
    size = (killed[0] / "notes.wal").stat().st_size
    lengths = [0, 1, 15, 16, 99, 100, *torn_lengths(511, size, 9973)]
    for length in lengths:
        path = restored(tmp_path, killed)
        open_file(path).close()
        os.truncate(path, length)
        assert verdict(path, killed[1]) == "damaged", length


def test_a_log_cut_below_what_was_synced_is_noticed_at_every_length(
    tmp_path: Path, killed: tuple[Path, Content]
) -> None:
    size = (killed[0] / "notes.wal-wal").stat().st_size
    for length in [0, 31, 32, *torn_lengths(33, size, 5987), size - 1]:
        path = restored(tmp_path, killed)
        os.truncate(path.with_name("notes.wal-wal"), length)
        assert verdict(path, killed[1]) == "damaged", length


def test_a_log_cut_above_what_was_synced_leaves_all_that_was(tmp_path: Path) -> None:
    path = tmp_path / "notes.wal"
    log = path.with_name(path.name + "-wal")
    with open_file(path) as file:
        file.record("s", b"0")
        file.sync()
        synced = log.stat().st_size
        for count in range(1, 12):
            file.record("s", b"%d" % count)
        image = {found.name: found.read_bytes() for found in tmp_path.iterdir()}
    left = []
    for length in [*torn_lengths(synced, len(image[log.name]), 1373), len(image[log.name])]:
        for name, content in image.items():
            (tmp_path / name).write_bytes(content)
        os.truncate(log, length)
        with open_file(path) as file:
            edits = [int(edit.packed) for edit in file.pending().recorded]
        assert edits == list(range(len(edits)))
        left.append(len(edits))
    assert left == sorted(left)
    assert set(left) == {*range(1, 13)}
    # Nothing but the very end makes the last edit whole.
    assert left.count(12) == 1


@pytest.mark.parametrize("frame", [-1, -2, -15, -30])
def test_a_damaged_frame_is_noticed_though_nothing_was_synced_since(path: Path, frame: int) -> None:
    log = path.with_name(path.name + "-wal")
    with open_file(path) as file:
        for count in range(30):
            file.record("s", b"%d" % count)
        image = {found.name: found.read_bytes() for found in path.parent.iterdir()}
    for name, content in image.items():
        path.with_name(name).write_bytes(content)
    damage(log, log.stat().st_size + frame * (24 + PAGE_BYTES) + 2000, 1)
    with pytest.raises(LocalFileDamagedError) as damaged:
        open_file(path)
    assert damaged.value.saved == 30 + frame
    assert damaged.value.lost is None
    assert path.with_name("notes.wal.damaged-1-wal").stat().st_size == len(image[log.name])


def test_a_lost_log_is_reported_and_the_rest_is_saved(
    tmp_path: Path, killed: tuple[Path, Content]
) -> None:
    path = restored(tmp_path, killed)
    path.with_name("notes.wal-wal").unlink()
    with pytest.raises(LocalFileDamagedError) as damaged:
        open_file(path)
    assert damaged.value.lost is None
    assert damaged.value.saved == 150 + 11
    with open_file(path) as file:
        assert file.pending().size == 0


def test_a_log_without_its_file_is_set_aside(tmp_path: Path, killed: tuple[Path, Content]) -> None:
    path = restored(tmp_path, killed)
    log = path.with_name("notes.wal-wal").read_bytes()
    path.unlink()
    with pytest.raises(LocalFileDamagedError) as damaged:
        open_file(path)
    assert damaged.value.damaged is None
    assert path.with_name("notes.wal.damaged-1-wal").read_bytes() == log
    open_file(path).close()


def test_an_old_copy_in_place_of_the_file_is_noticed(path: Path) -> None:
    with open_file(path) as file:
        file.record("s", b"1")
    old = path.read_bytes()
    with open_file(path) as file:
        file.record("s", b"2")
        file.sync()
    path.write_bytes(old)
    with pytest.raises(LocalFileDamagedError):
        open_file(path)


@pytest.mark.parametrize("place", [0, 20, 45, 105, 3000])
def test_behind_a_damaged_first_page_all_unsent_edits_are_found(path: Path, place: int) -> None:
    write_much(path).close()
    with open_file(path) as file:
        pending = file.pending()
    with path.open("rb+") as raw:
        raw.seek(place)
        raw.write(b"\xa5" * 900)
    with pytest.raises(LocalFileDamagedError) as damaged:
        open_file(path)
    assert damaged.value.unsent is not None
    assert read_unsent(damaged.value.unsent).pending == pending
    assert damaged.value.saved == pending.size
    assert damaged.value.lost == 0


def test_edits_around_a_damaged_page_are_saved(path: Path) -> None:
    with open_file(path) as file:
        for count in range(400):
            file.record("s", b"edit %d " % count * 8)
    whole = path.read_bytes()
    middle = whole.index(b"edit 200 ") // PAGE_BYTES * PAGE_BYTES
    with path.open("rb+") as raw:
        raw.seek(middle)
        raw.write(bytes(PAGE_BYTES))
    with pytest.raises(LocalFileDamagedError) as damaged:
        open_file(path)
    assert damaged.value.unsent is not None
    saved = [edit.number for edit in read_unsent(damaged.value.unsent).pending.recorded]
    missing = sorted(set(range(1, 401)) - set(saved))
    assert 201 in missing
    assert missing == list(range(missing[0], missing[-1] + 1))
    assert len(missing) < 60
    assert damaged.value.lost is None


def test_a_row_with_a_wrong_checksum_is_counted_and_the_others_are_saved(path: Path) -> None:
    with open_file(path) as file:
        for count in range(10):
            file.record("s", b"edit %d" % count)
    damage(path, path.read_bytes().index(b"edit 3"), 1)
    with pytest.raises(LocalFileDamagedError) as damaged:
        open_file(path)
    error = damaged.value
    assert (error.saved, error.lost) == (9, 1)
    assert error.unsent == path.with_name("notes.wal.unsent-1.jsonl")
    assert error.damaged == path.with_name("notes.wal.damaged-1")
    assert str(error.unsent) in str(error)
    assert error.unsent.stat().st_mode & 0o777 == 0o600


def test_a_set_aside_queue_comes_back_whole_and_a_second_one_has_its_own_name(path: Path) -> None:
    for number in (1, 2):
        with open_file(path) as file:
            file.seal("s", file.record("s", b"0"), [body("s", 1, [b"\xff"])])
            file.acknowledged("s/1", 5)
            file.record("\ud800", b"\x00\xff")
            pending = file.pending()
        damage(path, 3, 255)
        with pytest.raises(LocalFileDamagedError):
            open_file(path)
        assert len(unsent_files(path)) == number
        unsent = read_unsent(unsent_files(path)[-1])
        assert (unsent.document_key, unsent.author) == (DOCUMENT_KEY, AUTHOR)
        assert (unsent.pending, unsent.unreadable) == (pending, 0)
        assert unsent.sessions["s"].link == "s/1"


def test_a_line_that_cannot_be_read_costs_itself_alone(path: Path) -> None:
    with open_file(path) as file:
        for count in range(5):
            file.record("s", b"%d" % count)
    damage(path, 3, 255)
    with pytest.raises(LocalFileDamagedError):
        open_file(path)
    (unsent,) = unsent_files(path)
    lines = unsent.read_bytes().splitlines()
    lines[2] = b"[" * 100_000
    lines[3] = lines[3].replace(b'"packed": "', b'"packed": "!')
    unsent.write_bytes(b"\n".join(lines))
    read = read_unsent(unsent)
    assert (read.pending.size, read.unreadable) == (3, 2)
    unsent.write_bytes(b"{}")
    with pytest.raises(UnsentFileError):
        read_unsent(unsent)


def test_a_damaged_state_is_absent_and_the_elements_are_not(path: Path) -> None:
    text = random.Random(2).randbytes(9000)
    with open_file(path) as file:
        file.add_elements([RawElement(1, b"{}", AUTHOR, "s")])
        file.put_state(text, 1)
    damage(path, path.read_bytes().index(text[:50]) + 20, 4)
    with open_file(path) as file:
        assert file.state() is None
        assert file.state_fault is not None
        assert len(file.page(0, 5)) == 1
        file.put_state(text, 1)
        assert file.state() == (text, 1)
        assert file.state_fault is None


@pytest.mark.parametrize(
    ("place", "written"),
    [(0, bytes(PAGE_BYTES)), (7, b"\7")],
    ids=["an emptied page", "a wrong count in a page"],
)
def test_a_damaged_structure_is_noticed_at_once_whatever_is_read_later(
    path: Path, place: int, written: bytes
) -> None:
    with open_file(path) as file:
        file.add_elements([RawElement(ts, b"{%d}" % ts * 30, AUTHOR, "s") for ts in range(1, 300)])
        file.record("s", b"an unsent edit")
    page = path.read_bytes().index(b"{150}") // PAGE_BYTES
    with path.open("rb+") as raw:
        raw.seek(page * PAGE_BYTES + place)
        raw.write(written)
    with pytest.raises(LocalFileDamagedError) as damaged:
        open_file(path)
    assert (damaged.value.saved, damaged.value.lost) == (1, 0)
    assert "***" not in damaged.value.reason


def test_damage_that_is_met_while_reading_sets_the_file_aside(path: Path) -> None:
    with open_file(path) as file:
        file.add_elements([RawElement(1, b"{damage me}", AUTHOR, "s")])
    damage(path, path.read_bytes().index(b"{damage me}"), 1)
    file = open_file(path)
    file.record("s", b"an unsent edit")
    with pytest.raises(LocalFileDamagedError) as damaged:
        file.page(0, 1)
    assert (damaged.value.saved, damaged.value.lost) == (1, 0)
    assert damaged.value.damaged is not None
    assert damaged.value.damaged.with_name("notes.wal.damaged-1-wal").stat().st_size
    with pytest.raises(LocalFileClosedError):
        file.pending()
    open_file(path).close()


# ── foreign files ──────────────────────────────────────────────────────────────────────


def test_a_directory_that_is_not_there_is_said_and_not_made(path: Path) -> None:
    nowhere = path.parent / "nowhere" / "notes.wal"
    with pytest.raises(LocalFileNowhereError, match="make it first"):
        open_file(nowhere)
    assert not nowhere.parent.exists()


def test_a_file_that_is_not_ours_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path.with_name("another.db")) as connection:
        connection.execute("CREATE TABLE recorded (x)")
    connection.close()
    another = path.with_name("another.db").read_bytes()
    for content in (b"some text", b"\x89PNG" + bytes(5000), another):
        path.write_bytes(content)
        with pytest.raises(LocalFileForeignError):
            open_file(path)
        assert path.read_bytes() == content
    assert {found.name for found in path.parent.iterdir()} == {
        "another.db",
        "notes.wal",
        "notes.wal.lock",
    }


def test_a_file_of_a_newer_schema_is_left_alone(path: Path) -> None:
    open_file(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LocalFileNewerError) as newer:
        open_file(path)
    assert newer.value.version == 2
    assert path.read_bytes() == before


def test_a_copied_log_of_another_program_is_not_taken_for_lost(
    tmp_path: Path, killed: tuple[Path, Content]
) -> None:
    path = restored(tmp_path, killed)
    connection = sqlite3.connect(path)
    connection.execute("SELECT count(*) FROM recorded").fetchall()
    connection.close()
    assert not path.with_name("notes.wal-wal").exists()
    with open_file(path) as file:
        assert content_of(file) == killed[1]


# ── failing disks ──────────────────────────────────────────────────────────────────────


@contextmanager
def file_bytes_max(limit: int) -> Iterator[None]:
    """Let no file grow beyond a size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_without_room_a_call_does_nothing_and_works_again_later(path: Path) -> None:
    log = path.with_name(path.name + "-wal")
    big = [body("s", 1, [b"x" * 30_000]), body("s", 2, [b"y" * 30_000])]
    refused = 0
    with open_file(path) as file:
        for more in range(0, 80_000, 1531):
            number = file.record("s", b"an edit")
            before = content_of(file)
            with file_bytes_max(log.stat().st_size + more):
                try:
                    file.seal("s", number, big)
                except LocalFileFailedError:
                    refused += 1
                    assert content_of(file) == before
                with pytest.raises(LocalFileFailedError):
                    file.put_state(random.Random(3).randbytes(90_000), 1)
            assert file.state() is None
            file.seal("s", number, big)
            assert file.pending() == Pending([], big)
            file.confirmed(["s/1", "s/2"])
        assert refused > 10
        file.record("s", b"the last")
    with open_file(path) as file:
        assert [edit.packed for edit in file.pending().recorded] == [b"the last"]


def test_edits_that_found_no_room_are_not_there_and_all_others_are(path: Path) -> None:
    log = path.with_name(path.name + "-wal")
    with open_file(path) as file:
        made: list[bytes] = []
        for more in range(0, 9000, 307):
            for _ in range(4):
                edit = b"edit %d" % len(made)
                with file_bytes_max(log.stat().st_size + more):
                    try:
                        file.record("s", edit)
                    except LocalFileFailedError:
                        continue
                made.append(edit)
            for found in path.parent.glob("copy*"):
                found.unlink()
            copy = path.with_name("copy")
            for suffix in ("", "-wal"):
                shutil.copy(path.with_name(path.name + suffix), f"{copy}{suffix}")
            with open_file(copy) as after_a_kill:
                assert [edit.packed for edit in after_a_kill.pending().recorded] == made
        assert 0 < len(made) < 30 * 4


def test_a_full_disk_is_called_that(path: Path) -> None:
    with open_file(path) as file:
        # SQLite says the same of a file that may not grow as of a disk without room.
        (pages,) = file._database.execute("PRAGMA page_count")[0]
        file._database.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(LocalFileFullError):
            file.put_state(os.urandom(100_000), 1)
        assert file.state() is None
        file._database.execute("PRAGMA max_page_count = 1000000")
        file.put_state(b"state", 1)
        assert file.state() == (b"state", 1)


def test_a_damaged_file_stays_where_it_is_if_there_is_no_room_to_save_its_edits(path: Path) -> None:
    write_much(path).close()
    damage(path, 3, 255)
    before = path.read_bytes()
    with file_bytes_max(10_000), pytest.raises(LocalFileFailedError):
        open_file(path)
    assert path.read_bytes() == before
    with pytest.raises(LocalFileDamagedError) as damaged:
        open_file(path)
    assert damaged.value.saved == 150 + 20 + 11


def test_a_damaged_log_stays_where_it_is_if_there_is_no_room_to_set_it_aside(path: Path) -> None:
    log = path.with_name(path.name + "-wal")
    with open_file(path) as file:
        for count in range(30):
            file.record("s", b"%d" % count)
        image = {found.name: found.read_bytes() for found in path.parent.iterdir()}
    for name, content in image.items():
        path.with_name(name).write_bytes(content)
    damage(log, log.stat().st_size - 15 * (24 + PAGE_BYTES) + 2000, 1)
    before = log.read_bytes()
    for _ in range(2):
        with file_bytes_max(10_000), pytest.raises(LocalFileFailedError):
            open_file(path)
        assert log.read_bytes() == before
        assert {found.name for found in path.parent.iterdir()} == image.keys()
    # Somebody was killed in the middle of it.
    log.rename(path.with_name("notes.wal-wal.kept"))
    with pytest.raises(LocalFileDamagedError) as damaged:
        open_file(path)
    assert damaged.value.saved == 15
    assert damaged.value.lost is None
    assert path.with_name("notes.wal.damaged-1-wal").read_bytes() == before


def test_a_call_that_is_done_does_not_fail_because_the_log_cannot_be_looked_at(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("walstore.local.database._CALLS_PER_LOOK", 1)

    def fail(handle: int) -> os.stat_result:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    with open_file(path) as file:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fstat", fail)
            number = file.record("s", b"first")
            file.seal("s", number, [body("s", 1, [b"first"])])
        file.seal("s", file.record("s", b"second"), [body("s", 2, [b"second"])])
        assert [one.seq for one in file.pending().bodies] == [1, 2]


def test_a_number_is_used_once_whatever_interrupts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_file(path) as file:
        with monkeypatch.context() as patched:
            patched.setattr("walstore.local.database._CALLS_PER_LOOK", None)
            with pytest.raises(TypeError):
                file.record("s", b"first")
        file.record("s", b"second")
        assert [edit.packed for edit in file.pending().recorded] == [b"first", b"second"]


def test_after_a_failed_sync_the_next_one_does_not_trust_the_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = path.with_name(path.name + "-wal")

    def fail(handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with open_file(path) as file:
        for count in range(100):
            file.record("s", b"%d" % count)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fail)
            with pytest.raises(LocalFileFailedError):
                file.sync()
        assert log.stat().st_size > 100 * PAGE_BYTES
        file.sync()
        assert log.stat().st_size < 10 * PAGE_BYTES
        assert file.pending().size == 100


@pytest.mark.parametrize(("directory_mode", "file_mode"), [(0o555, 0o666), (0o777, 0o444)])
def test_a_read_only_file_or_directory_is_refused(directory_mode: int, file_mode: int) -> None:
    # The superuser may write everywhere, so somebody else has to try.
    script = (
        "import os, sys, tempfile; from tests.local_writer import *\n"
        "from walstore.local import LocalFileReadOnlyError\n"
        "with tempfile.TemporaryDirectory() as directory:\n"
        "    path = directory + '/x'\n"
        "    LocalFile.open(path, document_key='k', author='a').close()\n"
        "    os.chmod(path, int(sys.argv[2]))\n"
        "    os.chmod(path + '.lock', 0o666)\n"
        "    os.chmod(directory, int(sys.argv[1]))\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        if os.getuid() == 0: os.setuid(65534)\n"
        "        try: LocalFile.open(path, document_key='k', author='a')\n"
        "        except LocalFileReadOnlyError: os._exit(7)\n"
        "        os._exit(1)\n"
        "    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
        "    os.chmod(directory, 0o700)\n"
        "sys.exit(code)\n"
    )
    modes = [str(directory_mode), str(file_mode)]
    done = subprocess.run([sys.executable, "-c", script, *modes], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 7


# ── what the tests are made with ───────────────────────────────────────────────────────

# How many places are damaged in a test.
FLIPS = int(os.environ.get("WALSTORE_LOCAL_FLIPS", "300"))


# At how many lengths a torn tail is cut off; at each one, if it has fewer bytes.
CUTS = int(os.environ.get("WALSTORE_TORN_CUTS", "100"))

# The tail of a file: what one record, at least, was written with last.
TAIL_BYTES = 2 * (24 + PAGE_BYTES)


def torn_lengths(first: int, size: int, stride: int) -> list[int]:
    """Lengths to cut a file to: many of its tail, and one of each stride before."""
    tail = max(first, size - TAIL_BYTES)
    step = max(1, (size - tail) // CUTS)
    lengths = [*range(first, tail, stride), *range(tail, size, step)]
    print(f"{len(lengths)} lengths of a torn file, every {step} bytes of its tail")
    return lengths


def restored(tmp_path: Path, killed: tuple[Path, Content]) -> Path:
    """A fresh directory's copy of what a killed process has left."""
    shutil.rmtree(tmp_path / "work", ignore_errors=True)
    shutil.copytree(killed[0], tmp_path / "work")
    return tmp_path / "work" / "notes.wal"


def damage(path: Path, place: int, mask: int) -> None:
    """Flip bits of a byte."""
    with path.open("rb+") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ mask]))


def verdict(path: Path, whole: Content) -> str:
    """What becomes of a damaged file: it says so, or everything in it is as it was."""
    try:
        with open_file(path) as file:
            found = content_of(file)
            if file.state_fault is not None:
                found = found._replace(state=whole.state)
            assert found == whole, "damage went unnoticed"
            return "harmless"
    except (LocalFileForeignError, LocalFileNewerError):
        return "refused"
    except LocalFileDamagedError as error:
        damaged = error
    assert not path.exists()
    if damaged.unsent is not None:
        saved = read_unsent(damaged.unsent).pending
        assert saved.size == damaged.saved
        assert set(saved.recorded) <= set(whole.pending.recorded)
        texts = {one.canonical for one in whole.pending.bodies}
        assert {one.canonical for one in saved.bodies} <= texts
    open_file(path).close()
    return "damaged"

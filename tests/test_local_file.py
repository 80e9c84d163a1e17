"""Local files: what is put in comes back, in one process at a time, after any restart."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.local_writer import AUTHOR, DOCUMENT_KEY, body
from walstore.document.ports import RawElement
from walstore.errors import NotJsonError
from walstore.local import (
    LastSealed,
    LocalFile,
    LocalFileClosedError,
    LocalFileInUseError,
    NotStorableError,
    OtherAuthorError,
    OtherDocumentError,
    Recorded,
    Start,
)
from walstore.local.file import SLOT_BYTES_MAX
from walstore.local.guard import Guard


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes.wal"


def open_file(path: Path) -> LocalFile:
    return LocalFile.open(path, document_key=DOCUMENT_KEY, author=AUTHOR)


def element(ts: int, data: bytes = b"{}") -> RawElement:
    return RawElement(ts, data, AUTHOR, f"signature {ts}")


# ── elements, state, slots ─────────────────────────────────────────────────────────────


@given(
    st.dictionaries(
        st.integers(0, 2**53 - 1),
        st.builds(RawElement, st.just(0), st.binary(max_size=300), st.text(), st.text()),
    ),
    st.integers(-1, 2**53),
    st.integers(0, 10),
)
@settings(max_examples=12, deadline=None)
def test_elements_come_back_exactly_in_pages_and_tails(
    tmp_path_factory: pytest.TempPathFactory,
    made: dict[int, RawElement],
    at: int,
    count: int,
) -> None:
    elements = [made[ts]._replace(ts=ts) for ts in sorted(made)]
    path = tmp_path_factory.mktemp("elements") / "file"
    with open_file(path) as file:
        file.add_elements(elements[::2])
        file.add_elements(elements)
    with open_file(path) as file:
        assert file.page(-1, len(elements)) == elements
        assert file.page(at, count) == [e for e in elements if e.ts > at][:count]
        below = [e for e in elements if e.ts <= at]
        assert file.tail(at, count) == below[max(len(below) - count, 0) :]
        assert file.head() == (elements[-1].ts if elements else 0)
        author = elements[0].author if elements else ""
        file.drop_elements(at, but_of=author)
        left = [e for e in elements if e.ts > at or e.author == author]
        assert file.page(-1, len(elements)) == left
        file.drop_elements(at)
        assert file.page(-1, len(elements)) == [e for e in elements if e.ts > at]


def test_an_element_that_is_there_already_is_left_as_it_is(path: Path) -> None:
    with open_file(path) as file:
        file.add_elements([element(1, b"first")])
        file.add_elements([element(1, b"second"), element(2)])
        assert [found.data for found in file.page(0, 10)] == [b"first", b"{}"]


@pytest.mark.parametrize(
    "text", [b"", b"words " * 200_000, os.urandom(100_000)], ids=["none", "words", "noise"]
)
def test_the_state_is_the_last_one_that_was_put(path: Path, text: bytes) -> None:
    with open_file(path) as file:
        assert file.state() is None
        file.put_state(b"an earlier one", 1)
        file.put_state(text, 7)
    with open_file(path) as file:
        assert file.state() == (text, 7)
        assert file.state_fault is None


def test_a_state_that_shrinks_well_takes_little_room(path: Path) -> None:
    with open_file(path) as file:
        file.put_state(b"words " * 200_000, 1)
    assert path.stat().st_size < 100_000


def test_another_log_takes_the_place_of_one_in_one_step(path: Path) -> None:
    """What is put back is sent first, what waited stays, and what was edited is not touched."""
    start = Start(
        state=(b"another state", 2),
        elements=[element(3), element(5)],
        stranded=(b"what is lost", 0),
        bodies=[body("old", 1, [b"1"]), body("old", 2, [b"2"]), body("s", 1, [b"x"])],
        marks={"ts": 5},
        slots={"floor": 2},
    )
    with open_file(path) as file:
        file.add_elements([element(ts) for ts in range(1, 9)], marks={"ts": 8})
        assert file.marks == {"ts": 8}
        file.put_state(b"a state", 4)
        waiting = body("s", 1, [b"x"])
        file.seal("s", file.record("s", b"0"), [waiting])
        file.acknowledged(waiting.link, 8)
        file.record("s", b"an edit")
        with pytest.raises(NotStorableError):
            file.start_over(start._replace(slots={"No slot": 1}))
        with pytest.raises(NotStorableError):
            file.start_over(start._replace(elements=[element(-1)]))
        assert (file.head(), file.marks, file.state()) == (8, {"ts": 8}, (b"a state", 4))
        file.start_over(start)
        # A body that is there already is not put back as well.
        file.confirmed([start.bodies[0].link])
    with open_file(path) as file:
        assert [found.ts for found in file.page(-1, 10)] == [3, 5]
        assert (file.state(), file.stranded()) == ((b"another state", 2), b"what is lost")
        assert (file.marks, file.get("floor")) == ({"ts": 5}, 2)
        pending = file.pending()
        assert [found.seq for found in pending.bodies] == [2, 1]
        assert [found.acknowledged for found in pending.bodies] == [None, None]
        assert [edit.packed for edit in pending.recorded] == [b"an edit"]
        assert file.last_sealed("s") == LastSealed(1, waiting.link)
        file.drop_stranded()
        assert file.stranded() is None
        file.start_over(start._replace(state=None, stranded=None, bodies=[]))
        assert (file.state(), file.stranded(), file.pending().size) == (None, None, 3)


def test_a_body_of_another_author_is_never_renewed(path: Path) -> None:
    own, other = body("s", 1, [b"own"]), body("s", 1, [b"other"])
    other = other._replace(author="z" * 64, link="z" * 64)
    with open_file(path) as file:
        file.seal("s", file.record("s", b"0"), [own])
        file.start_over(Start(None, [], None, [other], None, {}))
        anew = own._replace(link="n" * 64)
        file.renew([anew])
        assert file.pending().bodies == [other, anew]


def test_facts_and_slots_survive_closing(path: Path) -> None:
    with open_file(path) as file:
        assert (file.log_id, file.marks, file.epoch_floor) == (None, None, 0)
        assert file.get("undo", []) == []
        file.log_id = "log-1"
        file.marks = {"ts": 5, "seqs": {"a:b": 3}}
        file.raise_epoch_floor(4)
        file.raise_epoch_floor(2)
        file.put("undo", [["é", 1.5, None]])
    with open_file(path) as file:
        assert (file.log_id, file.marks) == ("log-1", {"ts": 5, "seqs": {"a:b": 3}})
        assert file.epoch_floor == 4
        assert file.get("undo") == [["é", 1.5, None]]


def test_what_no_slot_can_hold_is_refused_and_changes_nothing(path: Path) -> None:
    nested: list[object] = []
    for _ in range(150):
        nested = [nested]
    with open_file(path) as file:
        file.put("undo", 1)
        for value in ("x" * SLOT_BYTES_MAX, nested):
            with pytest.raises(NotStorableError):
                file.put("undo", value)
        with pytest.raises(NotJsonError):
            file.put("undo", float("nan"))
        for name in ("", "\0log_id", "x" * 65, "Ä"):
            with pytest.raises(NotStorableError):
                file.put(name, 1)
        assert file.get("undo") == 1


def test_numbers_that_sqlite_has_no_room_for_are_refused(path: Path) -> None:
    with open_file(path) as file:
        with pytest.raises(NotStorableError):
            file.add_elements([element(1), element(2**80)])
        assert file.head() == 0
        with pytest.raises(NotStorableError):
            file.put_state(b"", 2**80)
        with pytest.raises(NotStorableError):
            file.raise_epoch_floor(2**53)
        assert file.epoch_floor == 0
        assert file.page(-(2**80), 2**80) == file.tail(2**80, 2**80) == []


# ── edits on their way ─────────────────────────────────────────────────────────────────


def test_an_edit_is_recorded_then_in_a_body_then_gone(path: Path) -> None:
    with open_file(path) as file:
        numbers = [file.record("s", edit) for edit in (b"1", b"2", b"3")]
        file.record("other", b"4")
        assert numbers == sorted(numbers)
        sealed = [body("s", 1, [b"1"]), body("s", 2, [b"2"])]
        file.seal("s", numbers[1], sealed)
        file.acknowledged("s/2", 50)
    with open_file(path) as file:
        recorded, bodies = file.pending()
        assert [edit.packed for edit in recorded] == [b"3", b"4"]
        assert bodies == [sealed[0], sealed[1]._replace(acknowledged=50)]
        assert file.last_sealed("s") == LastSealed(2, "s/2")
        file.confirmed(["s/2", "unknown"])
        file.acknowledged("unknown", 1)
        file.acknowledged("s/1", 60)
        file.acknowledged("s/1", None)
        assert file.pending().bodies == [sealed[0]]


def test_a_session_counts_on_as_long_as_anything_of_it_is_left(path: Path) -> None:
    with open_file(path) as file:
        file.seal("s", file.record("s", b"1"), [body("s", 1, [b"1"])])
        left = file.record("s", b"2")
        file.confirmed(["s/1"])
    with open_file(path) as file:
        assert file.pending().recorded == [Recorded("s", left, b"2")]
        assert file.last_sealed("s") == LastSealed(1, "s/1")
        file.seal("s", left, [body("s", 2, [b"2"])])
        file.confirmed(["s/2"])
    with open_file(path) as file:
        assert file.last_sealed("s") is None


def test_renewed_bodies_take_the_places_of_those_that_wait(path: Path) -> None:
    with open_file(path) as file:
        made = [body("s", seq, [b"%d" % seq]) for seq in (1, 2, 3)]
        file.seal("s", file.record("s", b"1"), made)
        file.acknowledged("s/1", 9)
        renewed = [one._replace(canonical=b"new", link=one.link + "'") for one in made[1:]]
        with pytest.raises(NotStorableError):
            file.renew([made[0], *renewed])
        assert file.pending().bodies[1:] == made[1:]
        file.renew(renewed[::-1])
        assert file.pending().bodies == [made[0]._replace(acknowledged=9), *renewed]
        assert file.last_sealed("s") == LastSealed(3, "s/3'")
        file.confirmed(["s/2'"])
        file.confirmed(["s/3"])
    with open_file(path) as file:
        assert [one.link for one in file.pending().bodies] == ["s/1", "s/3'"]


def test_edits_are_never_replaced_by_nothing(path: Path) -> None:
    with open_file(path) as file:
        number = file.record("s", b"1")
        with pytest.raises(NotStorableError):
            file.seal("s", number, [])
        assert file.pending().size == 1


def test_sealing_the_same_bodies_twice_keeps_them_once(path: Path) -> None:
    with open_file(path) as file:
        number = file.record("s", b"1")
        for _ in range(2):
            file.seal("s", number, [body("s", 1, [b"1"])])
        assert file.pending().size == 1


def test_text_that_is_no_unicode_comes_back(path: Path) -> None:
    odd = "\ud800"
    with open_file(path) as file:
        number = file.record(odd, b"1")
        made = body(odd, 1, [b"1"])._replace(link=odd, header=odd)
        file.record(odd, b"2")
        file.seal(odd, number, [made])
    with open_file(path) as file:
        assert file.pending().bodies == [made]
        assert file.pending().recorded[0].session == odd


def test_syncing_in_a_thread_leaves_edits_going_and_the_log_short(path: Path) -> None:
    with open_file(path) as file:
        for round_ in range(6):
            syncing = threading.Thread(target=file.sync)
            syncing.start()
            for count in range(600):
                file.record("s", b"%d" % (round_ * 600 + count))
            syncing.join()
        file.sync()
        assert path.with_name(path.name + "-wal").stat().st_size < 5 * 2**20
        assert [int(edit.packed) for edit in file.pending().recorded] == list(range(3600))


# ── who may open it ────────────────────────────────────────────────────────────────────


def test_a_file_is_open_once_in_a_process(path: Path) -> None:
    link = path.with_name("another-name")
    with open_file(path) as file:
        link.symlink_to(path)
        for name in (path, link):
            with pytest.raises(LocalFileInUseError):
                open_file(name)
        file.record("s", b"still open")
    with open_file(link) as file:
        assert file.pending().size == 1


def test_who_holds_the_lock_keeps_others_out_even_while_there_is_no_file(path: Path) -> None:
    guard = Guard.acquire(path)
    with pytest.raises(LocalFileInUseError):
        open_file(path)
    assert not path.exists()
    guard.close()
    open_file(path).close()


def test_a_file_is_open_in_one_process(path: Path) -> None:
    script = (
        "import sys; from tests.local_writer import *\n"
        "from walstore.local import LocalFileInUseError\n"
        "try: LocalFile.open(sys.argv[1], document_key=DOCUMENT_KEY, author=AUTHOR).close()\n"
        "except LocalFileInUseError: print('refused')\n"
        "else: print('open')\n"
    )
    with open_file(path) as file:
        file.record("s", b"1")
        assert run_script(script, path) == "refused"
        assert file.pending().size == 1
    assert run_script(script, path) == "open"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_a_forked_child_does_not_inherit_the_file(path: Path) -> None:
    script = (
        "import os, sys; from tests.local_writer import *\n"
        "from walstore.local import LocalFileClosedError\n"
        "file = LocalFile.open(sys.argv[1], document_key=DOCUMENT_KEY, author=AUTHOR)\n"
        "file.record('s', b'1')\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    try: file.record('s', b'child')\n"
        "    except LocalFileClosedError: sys.exit(7)\n"
        "    sys.exit(1)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
        "file.record('s', b'2')\n"
        "file.sync()\n"
        "print(*(edit.packed.decode() for edit in file.pending().recorded), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert run_script(script, path) == "1 2"
    with open_file(path) as file:
        assert file.pending().size == 2


def test_a_file_that_is_let_go_of_without_closing_can_be_opened_again(path: Path) -> None:
    script = (
        "import sys; from tests.local_writer import *\n"
        "file = LocalFile.open(sys.argv[1], document_key=DOCUMENT_KEY, author=AUTHOR)\n"
        "file.record('s', b'1')\n"
    )
    run_script(script, path)
    with open_file(path) as file:
        assert file.pending().size == 1


def test_only_the_owner_may_read_the_files(path: Path) -> None:
    with open_file(path) as file:
        file.record("s", b"1")
        names = {found.name: found.stat().st_mode & 0o777 for found in path.parent.iterdir()}
    assert names == dict.fromkeys(["notes.wal", "notes.wal-wal", "notes.wal.lock"], 0o600)


def test_the_file_of_another_document_or_author_is_left_alone(path: Path) -> None:
    with open_file(path) as file:
        file.record("s", b"1")
    before = path.read_bytes()
    with pytest.raises(OtherDocumentError) as other:
        LocalFile.open(path, document_key="another", author=AUTHOR)
    assert other.value.document_key == DOCUMENT_KEY
    with pytest.raises(OtherAuthorError):
        LocalFile.open(path, document_key=DOCUMENT_KEY, author="b" * 64)
    assert path.read_bytes() == before


def test_a_file_that_was_analysed_is_used_as_before(path: Path) -> None:
    with open_file(path) as file:
        file.add_elements([element(1)])
    with closing(sqlite3.connect(path)) as stranger:
        stranger.execute("ANALYZE")
        stranger.commit()
    with open_file(path) as file:
        file.add_elements([element(2)])
        assert file.page(0, 10) == [element(1), element(2)]


def test_a_closed_file_says_so(path: Path) -> None:
    file = open_file(path)
    file.close()
    file.close()
    for call in (file.pending, file.sync, file.state, lambda: file.record("s", b"1")):
        with pytest.raises(LocalFileClosedError):
            call()


def run_script(script: str, path: Path) -> str:
    """What a Python process prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not done.stderr
    return done.stdout.strip()

"""Slots by the beginning of their names, several at once, and with what is on its way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from walstore.local import LocalFile, LocalFileDamagedError, NotStorableError, OutboxBody

KEY, AUTHOR = "notes/a", "a" * 64


@pytest.fixture
def file(tmp_path: Path) -> Iterator[LocalFile]:
    with LocalFile.open(tmp_path / "a.wal", document_key=KEY, author=AUTHOR) as opened:
        yield opened


def body(number: int, session: str = "s", seq: int = 1) -> OutboxBody:
    text = b'{"n":%d}' % number
    return OutboxBody(text, AUTHOR, "A" * 88, f"{number:064d}", session, seq, "", "1")


def links(file: LocalFile) -> list[int]:
    return [int(each.link) for each in file.pending().bodies]


def test_slots_are_found_by_the_beginning_of_their_names(file: LocalFile) -> None:
    for name in ("undo", "undo.1", "undo.10", "undo.2", "undo-head", "undp", "a"):
        file.put(name, name)
    assert file.names("undo.") == ["undo.1", "undo.10", "undo.2"]
    assert file.names("undo") == ["undo", "undo-head", "undo.1", "undo.10", "undo.2"]
    assert file.names("x") == []
    with pytest.raises(NotStorableError):
        file.names("No")


@pytest.mark.parametrize("bit", [1, 0x80])
@pytest.mark.parametrize("place", [0, 4, 10])
def test_a_slot_with_a_damaged_name_is_not_taken_for_an_empty_one(
    tmp_path: Path, place: int, bit: int
) -> None:
    path = tmp_path / "a.wal"
    with LocalFile.open(path, document_key=KEY, author=AUTHOR) as file:
        file.put("undo.000001", 1)
    raw = bytearray(path.read_bytes())
    raw[raw.rindex(b"undo.000001") + place] ^= bit
    path.write_bytes(raw)
    with pytest.raises(LocalFileDamagedError):
        LocalFile.open(path, document_key=KEY, author=AUTHOR)
    assert path.with_name("a.wal.damaged-1").read_bytes()


def test_slots_are_put_and_emptied_at_once(file: LocalFile) -> None:
    file.put("gone", 1)
    file.put("both", 1)
    file.put_all({"a": [1], "both": 2}, gone=["gone", "both", "never"])
    assert [file.get(name) for name in ("a", "both", "gone")] == [[1], 2, None]
    with pytest.raises(NotStorableError):
        file.put_all({"a": 3, "No": 4}, gone=["both"])
    assert (file.get("a"), file.get("both")) == ([1], 2)


def test_bodies_are_replaced_together_with_slots(file: LocalFile, tmp_path: Path) -> None:
    file.record("s", b"edit")
    file.seal("s", 1, [body(1), body(2, seq=2), body(3, seq=3)])
    file.acknowledged(body(1).link, 5)
    file.replace([body(2).link, body(3).link, "f" * 64], [body(4, "t"), body(5, "t", 2)], {"x": 1})
    assert links(file) == [1, 4, 5]
    assert file.get("x") == 1
    last = file.last_sealed("t")
    assert last is not None
    assert (last.seq, last.link) == (2, body(5).link)
    # What is new is acknowledged and let go of like anything else.
    file.acknowledged(body(4).link, 6)
    file.confirmed([body(1).link])
    assert links(file) == [4, 5]
    file.close()
    with LocalFile.open(tmp_path / "a.wal", document_key=KEY, author=AUTHOR) as again:
        assert [each.acknowledged for each in again.pending().bodies] == [6, None]
        again.replace([each.link for each in again.pending().bodies], [])
        assert links(again) == []


def test_a_replacement_that_cannot_be_kept_changes_nothing(file: LocalFile) -> None:
    file.record("s", b"edit")
    file.seal("s", 1, [body(1)])
    for bodies, slots in (
        ([body(2, "t" * 200)], {}),
        ([body(2, "t", -1)], {}),
        ([body(2)], {"No": 1}),
        ([body(2)], {"large": "x" * (4 * 2**20)}),
    ):
        with pytest.raises(NotStorableError):
            file.replace([body(1).link], bodies, slots)
        assert links(file) == [1]

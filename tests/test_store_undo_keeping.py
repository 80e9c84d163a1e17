"""Undo across restarts: what is kept is the whole stack, and it is read when it is needed."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stores import ADA, KEY, store_of
from walstore.canon import Json
from walstore.local import LocalFile
from walstore.sealed import ContentKeys, NativeEncryptor, PlainEncryptor
from walstore.store import undo_keeping
from walstore.store.store import WalStore
from walstore.store.undo_keeping import UndoKeeping


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots that are soon too many."""
    monkeypatch.setattr(undo_keeping, "_PARTS_MAX", 5)
    monkeypatch.setattr(undo_keeping, "_PARTS_TIDY_MAX", 3)


MOVES = ["type", "set", "put", "undo", "redo", "commit", "restart", "look"]


@settings(max_examples=60, deadline=None)
@given(moves=st.lists(st.sampled_from(MOVES), max_size=40), is_sealed=st.booleans())
async def test_a_store_that_restarts_undoes_what_one_that_does_not_would(
    moves: list[str], is_sealed: bool
) -> None:
    with pytest.MonkeyPatch.context() as patched, TemporaryDirectory() as directory:
        for name, value in (("_PARTS_MAX", 5), ("_PARTS_TIDY_MAX", 3)):
            patched.setattr(undo_keeping, name, value)
        options: dict[str, Any] = {"path": Path(directory, "ada.db"), **sealing(is_sealed)}
        async with store_of(ADA) as steady:
            restarting = await store_of(ADA, **options).__aenter__()
            try:
                for number, move in enumerate(moves):
                    if move == "restart":
                        await restarting.__aexit__()
                        restarting = await store_of(ADA, **options).__aenter__()
                    for store in (steady, restarting):
                        await moved(store, move, number)
                    assert restarting.view() == steady.view()
                    if move == "look":
                        assert restarting.can_undo is steady.can_undo
                        assert restarting.can_redo is steady.can_redo
                while steady.can_undo:
                    steady.undo()
                    restarting.undo()
                    assert restarting.view() == steady.view()
                assert not restarting.can_undo
                assert restarting.can_redo is steady.can_redo
            finally:
                await restarting.__aexit__()


def sealing(is_sealed: bool) -> dict[str, Any]:
    if not is_sealed:
        return {}
    keys = ContentKeys(1, {1: b"k" * 32})
    return {"encryptor": NativeEncryptor(keys, randomness=lambda size: bytes(size))}


async def moved(store: WalStore, move: str, number: int) -> None:
    match move:
        case "type":
            at = number % (len(store.text("note")) + 1)
            store.edit_text("note", at, number % 2, f"{number}")
        case "set":
            store["title"] = number
        case "put":
            store.put("map", f"{number % 3}", number)
        case "undo":
            store.undo()
        case "redo":
            store.redo()
        case "commit":
            await store.commit()
    # How soon an edit follows on another is not what is compared here.
    store.undo_boundary()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The slots that are read."""
    names: list[str] = []
    get = LocalFile.get

    def noting(file: LocalFile, name: str, default: Json = None) -> Json:
        names.append(name)
        return get(file, name, default)

    monkeypatch.setattr(LocalFile, "get", noting)
    return names


async def test_an_edit_does_not_wait_for_what_was_kept(tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "ada.db"
    async with store_of(ADA, path=path) as store:
        for number in range(10):
            store["title"] = number
            store.undo_boundary()
        store.undo()
    asked.clear()
    async with store_of(ADA, path=path) as store:
        assert (store.can_undo, store.can_redo) == (True, True)
        store["title"] = "now"
        assert (store.can_undo, store.can_redo) == (True, False)
        await store.commit()
        assert not [name for name in asked if name == "undo" or name.startswith("undo.")]
        store.undo()
        assert "undo" in asked
        assert store["title"] == 8


async def test_a_commit_writes_what_is_new_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store_of(ADA, path=tmp_path / "ada.db") as store:
        written: list[int] = []
        put_all = LocalFile.put_all

        def noting(file: LocalFile, values: dict[str, Json], gone: object = ()) -> None:
            written.append(len(str(values)))
            put_all(file, values, gone)  # type: ignore[arg-type]

        monkeypatch.setattr(LocalFile, "put_all", noting)
        for number in range(400):
            store["title"] = number
            store.undo_boundary()
            await store.commit()
        # A whole stack of so many steps takes hundreds of times as much.
        assert max(written) < 1_000


@pytest.mark.parametrize("selection", [None, ("note", 3, 3)])
async def test_a_step_that_grows_is_kept_as_it_is_in_the_end(
    tmp_path: Path, selection: tuple[str, int, int] | None
) -> None:
    path = tmp_path / "ada.db"
    async with store_of(ADA, path=path) as store:
        store["title"] = "before"
        store.undo_boundary()
        for number, letter in enumerate("tea"):
            # One step, which was on file before it was finished.
            store.edit_text("note", number, 0, letter)
            await store.commit()
        if selection is not None:
            store.selected(*selection)
        store.undo_boundary()
        store["title"] = "after"
        store._undo.save()
        store._undo.tidy = lambda: None  # type: ignore[method-assign]
    with LocalFile.open(path, document_key=KEY, author=ADA.public_key) as file:
        assert len(file.names("undo.")) == 3
    async with store_of(ADA, path=path) as store:
        store.undo()
        assert (store["title"], store.text("note")) == ("before", "tea")
        store.undo()
        assert store.text("note") == ""
        redone = store.redo()
        assert redone is not None
        # It was said after the step was on file.
        assert redone.selection == selection
        assert store.text("note") == "tea"


async def test_a_stack_that_an_earlier_version_has_kept_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ada.db"
    async with store_of(ADA, path=path) as store:
        store["title"] = 1
        store.undo_boundary()
        store["title"] = 2
        store.undo()
    with LocalFile.open(path, document_key=KEY, author=ADA.public_key) as file:
        assert file.get("undo-head") == {"undo": 1, "redo": 1}
        file.put_all({}, gone=["undo-head"])
    async with store_of(ADA, path=path) as store:
        assert (store.can_undo, store.can_redo) == (True, True)
        store.redo()
        assert store["title"] == 2


@pytest.mark.usefixtures("small_parts")
async def test_what_a_process_that_died_had_pushed_is_there(tmp_path: Path) -> None:
    """It never came to write anything in one piece."""
    path = tmp_path / "ada.db"
    async with store_of(ADA, path=path) as store:
        for number in range(5):
            store["title"] = number
            store.undo_boundary()
            await store.commit()
        store._undo.tidy = lambda: None  # type: ignore[method-assign]
    with LocalFile.open(path, document_key=KEY, author=ADA.public_key) as file:
        assert len(file.names("undo.")) == 5
        assert file.get("undo") is None
    async with store_of(ADA, path=path) as store:
        for number in (3, 2, 1, 0):
            store.undo()
            assert store["title"] == number
        store.undo()
        assert "title" not in store.view()
        assert not store.can_undo


@pytest.mark.usefixtures("small_parts")
async def test_a_part_that_is_damaged_costs_what_is_before_it(tmp_path: Path) -> None:
    path = tmp_path / "ada.db"
    async with store_of(ADA, path=path) as store:
        for number in range(5):
            store["title"] = number
            store.undo_boundary()
        await store.commit()
        store._undo.tidy = lambda: None  # type: ignore[method-assign]
    with LocalFile.open(path, document_key=KEY, author=ADA.public_key) as file:
        names = file.names("undo.")
        assert len(names) == 5
        file.put(names[2], {"v": 1, "author": "somebody else"})
    async with store_of(ADA, path=path) as store:
        store.undo()
        store.undo()
        assert store["title"] == 2
        assert not store.can_undo


async def test_a_step_that_is_too_large_to_keep_does_not_keep_others_from_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ada.db"
    large = "x" * 400_000
    async with store_of(ADA, path=path) as store:
        with store.batch():
            for number in range(8):
                store[f"large{number}"] = large
        store.undo_boundary()
        with store.batch():
            for number in range(8):
                store[f"large{number}"] = "small"
        await store.commit()
        store["title"] = 1
        await store.commit()
    async with store_of(ADA, path=path) as store:
        store.undo()
        assert "title" not in store.view()


def test_nothing_was_kept(tmp_path: Path) -> None:
    with LocalFile.open(tmp_path / "a.db", document_key=KEY, author=ADA.public_key) as file:
        keeping = UndoKeeping(
            file, document_key=KEY, author=ADA.public_key, encryptor=PlainEncryptor()
        )
        assert (keeping.has_undo, keeping.has_redo, keeping.is_untidy) == (None, None, False)
        stack = keeping.load()
        assert not stack.can_undo
        assert keeping.append(stack)
        assert file.names("undo") == []

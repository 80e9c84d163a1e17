"""A file and a document that follow each other: nobody's edit is lost, and nothing else changes."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walstore.errors import UsageError
from walstore.net.memory import MemoryTransport
from walstore.signed import Identity
from walstore.store import disk as disk_module
from walstore.store.disk import Disk
from walstore.store.file_format import FileRefusedError, Style, read_json, read_text, write_text
from walstore.store.files import EMPTY_LOOKS, FileBinding, FileState, FileStatus
from walstore.store.merging import merge_items, merge_members, merge_text
from walstore.store.store import WalStore

ADA, BOB = (Identity.from_seed(bytes([n]) * 32) for n in (1, 2))


async def no_pause() -> None:
    """Look again at once."""


async def never() -> None:
    """Look only when a test does."""
    await asyncio.Event().wait()


def local() -> WalStore:
    return WalStore.open("notes/a", identity=ADA, autocommit_ms=None)


class Two:
    """A store with a file, and somebody else's store."""

    def __init__(self, mine: WalStore, other: WalStore) -> None:
        self.mine = mine
        self.other = other

    async def exchange(self) -> None:
        for store in (self.mine, self.other, self.mine):
            await store.commit()
            await store.pull()


@asynccontextmanager
async def two() -> AsyncIterator[Two]:
    transport = MemoryTransport()
    keys = [ADA.public_key, BOB.public_key]
    stores = [
        WalStore.open("notes/a", identity=who, relay=transport, writers=keys, autocommit_ms=None)
        for who in (ADA, BOB)
    ]
    async with stores[0] as mine, stores[1] as other:
        yield Two(mine, other)


@asynccontextmanager
async def followed(
    store: WalStore, path: Path, text: str | None = "body", **more: Any
) -> AsyncIterator[FileBinding]:
    """A binding that looks only when a test does, apart from its beginning and end."""
    is_following = False

    async def pause() -> None:
        if is_following:
            await never()

    binding = FileBinding(store, path, text=text, pause=pause, **more)
    async with binding:
        is_following = True
        yield binding
        is_following = False


async def settle(binding: FileBinding) -> None:
    """Look until there is nothing more to see."""
    for _ in range(4 * EMPTY_LOOKS):
        if not await binding.look():
            return
    raise AssertionError("it does not come to rest")


def state_of(binding: FileBinding) -> FileState:
    return binding.status.state


# ── one side after the other ───────────────────────────────────────────────────────────


async def test_a_file_is_made_from_the_document(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    async with local() as store:
        store.set_text("body", "hello\n")
        async with followed(store, path):
            assert path.read_bytes() == b"hello\n"


async def test_a_document_that_is_empty_takes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    path.write_text("hello\n")
    async with local() as store, followed(store, path) as binding:
        assert store.text("body") == "hello\n"
        assert binding.set_aside is None


async def test_each_side_follows_the_other(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    async with local() as store, followed(store, path) as binding:
        path.write_text("from disk")
        await settle(binding)
        assert store.text("body") == "from disk"
        store.set_text("body", "from the document")
        await settle(binding)
        assert path.read_text() == "from the document"


async def test_what_was_edited_last_is_taken_over_when_following_ends(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    async with local() as store:
        async with followed(store, path):
            store.set_text("body", "one")
        assert path.read_text() == "one"
        async with followed(store, path):
            path.write_text("two")
        assert store.text("body") == "two"


async def test_following_goes_on_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    heard = asyncio.Event()
    async with local() as store, asyncio.timeout(10):
        store.subscribe("body", lambda change: heard.set())
        async with FileBinding(store, path, text="body", pause=lambda: asyncio.sleep(0)):
            path.write_text("from disk")
            await heard.wait()
            assert store.text("body") == "from disk"


async def test_nothing_is_written_or_edited_without_a_change(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    path.write_text("hello")
    async with local() as store, followed(store, path) as binding:
        before, version = os.stat(path), store.view().version
        for _ in range(5):
            await binding.look()
        assert os.stat(path).st_ino == before.st_ino
        assert store.view().version == version
        store.set_text("other", "of no concern")
        await settle(binding)
        assert os.stat(path).st_ino == before.st_ino


async def test_a_binding_is_used_once(tmp_path: Path) -> None:
    async with local() as store:
        binding = FileBinding(store, tmp_path / "note.txt", text="body", pause=no_pause)
        async with binding:
            with pytest.raises(UsageError):
                await binding.__aenter__()


# ── both sides at once ─────────────────────────────────────────────────────────────────


async def test_edits_of_both_sides_merge(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    async with two() as stores:
        stores.mine.set_text("body", "one two three")
        await stores.exchange()
        async with followed(stores.mine, path) as binding:
            path.write_text("one 2 three")
            stores.other.set_text("body", "one two three four")
            await stores.exchange()
            await settle(binding)
            await stores.exchange()
            assert path.read_text() == "one 2 three four"
            assert stores.other.text("body") == "one 2 three four"


class Interloper(Disk):
    """A disk on which somebody else writes right before we do."""

    def __init__(self, edits: list[Callable[[Path], object]]) -> None:
        super().__init__()
        self.edits = edits

    def replace(self, path: Path, content: bytes, expected: bytes | None) -> bool:
        if self.edits:
            self.edits.pop(0)(path)
        return super().replace(path, content, expected)


@pytest.mark.parametrize("can_exchange", [True, False])
async def test_what_is_written_at_the_very_same_time_is_not_lost(
    tmp_path: Path, can_exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_exchange:
        monkeypatch.setattr(disk_module, "_exchanger", lambda: None)
    path = tmp_path / "note.txt"
    async with two() as stores:
        stores.mine.set_text("body", "one two")
        disk = Interloper([])
        async with followed(stores.mine, path, disk=disk) as binding:
            disk.edits += [
                lambda path: path.write_text("one two disk"),
                lambda path: path.write_text("one two disk again"),
            ]
            stores.mine.set_text("body", "document one two")
            await settle(binding)
            assert disk.edits == []
            assert path.read_text() == "document one two disk again"
            assert stores.mine.text("body") == "document one two disk again"
    assert os.listdir(tmp_path) == ["note.txt"]


async def test_an_edit_of_an_edit_that_was_not_written_back_yet_merges(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    async with two() as stores:
        stores.mine.set_text("body", "base")
        await stores.exchange()
        disk = Interloper([])
        async with followed(stores.mine, path, disk=disk) as binding:
            path.write_text("base disk")
            stores.other.set_text("body", "remote base")
            await stores.exchange()
            # The merged text cannot be written, because the file is edited once more.
            disk.edits.append(lambda path: path.write_text("base disk!"))
            await settle(binding)
            assert path.read_text() == "remote base disk!"
            assert stores.mine.text("body") == "remote base disk!"


# Each character is inserted once, so that it can be told whether it is there.
def edits() -> st.SearchStrategy[list[tuple[int, int, int]]]:
    """Positions as parts of the length, how much to remove there, and how much to insert."""
    return st.lists(
        st.tuples(st.integers(0, 100), st.integers(0, 4), st.integers(0, 3)), max_size=4
    )


def edited(text: str, made: list[tuple[int, int, int]], letters: str) -> str:
    """A text with edits that insert each letter at most once."""
    fresh = iter(letters)
    for part, removed, inserted in made:
        start = part * len(text) // 100
        new = "".join([next(fresh, "") for _ in range(inserted)])
        text = text[:start] + new + text[start + removed :]
    return text


MINE, THEIRS, BASE = "ABCDEFGHIJKLMNOP", "0123456789+-*/=#", "abcdefghijklm\nopqrstuvwxyz"


def check_merge(merged: str, *, base: str, left: str, right: str) -> None:
    """Nobody's edit is lost: what anybody inserted is there once, what anybody removed is gone."""
    kept = set(left) & set(right) | (set(left) | set(right)) - set(base)
    assert sorted(merged) == sorted(kept)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(edits(), edits(), st.booleans(), st.booleans()), min_size=1, max_size=3))
def test_no_edit_of_either_side_is_lost(
    rounds: list[tuple[list[tuple[int, int, int]], list[tuple[int, int, int]], bool, bool]],
) -> None:
    async def run(folder: Path) -> None:
        path = folder / "note.txt"
        async with two() as stores:
            stores.mine.set_text("body", BASE)
            await stores.exchange()
            disk = Interloper([])
            async with followed(stores.mine, path, disk=disk) as binding:
                mine, theirs = MINE, THEIRS
                for on_disk, remote, is_racing, is_late in rounds:
                    base = path.read_text()
                    left, right = edited(base, on_disk, mine), edited(base, remote, theirs)
                    mine = "".join([each for each in mine if each not in left])
                    theirs = "".join([each for each in theirs if each not in right])
                    if is_racing:
                        disk.edits.append(lambda path, text=left: path.write_text(text))  # type: ignore[misc]
                    else:
                        path.write_text(left)
                    if is_late:
                        await settle(binding)
                    stores.other.set_text("body", right, base=stores.other.view())
                    await stores.exchange()
                    await settle(binding)
                    if disk.edits:
                        disk.edits.pop()(path)
                        await settle(binding)
                    await stores.exchange()
                    merged = path.read_text()
                    check_merge(merged, base=base, left=left, right=right)
                    assert stores.mine.text("body") == stores.other.text("body") == merged

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


@given(edits(), edits())
def test_merging_texts_loses_nothing(
    mine: list[tuple[int, int, int]], theirs: list[tuple[int, int, int]]
) -> None:
    left, right = edited(BASE, mine, MINE), edited(BASE, theirs, THEIRS)
    merged = merge_text(BASE, left=left, right=right)
    check_merge(merged, base=BASE, left=left, right=right)
    assert sorted(merge_text(BASE, left=right, right=left)) == sorted(merged)
    assert merge_text(BASE, left=left, right=left) == left
    assert merge_text(BASE, left=BASE, right=right) == right
    items = merge_items(list(BASE), left=list(left), right=list(right))
    check_merge("".join(items), base=BASE, left=left, right=right)


def test_merging_objects_goes_into_members() -> None:
    base = {"a": 1, "b": {"x": 1, "y": 1}, "gone": 1, "edited": 1, "items": [1, 2]}
    left = {"a": 2, "b": {"x": 2, "y": 1}, "edited": 2, "items": [0, 1, 2], "mine": 1}
    right = {"a": 1, "b": {"x": 1, "y": 2}, "gone": 1, "items": [1, 2, 3], "theirs": 1}
    merged = merge_members(base, left=left, right=right)
    assert merged == {
        "a": 2,
        "b": {"x": 2, "y": 2},
        "edited": 2,
        "items": [0, 1, 2, 3],
        "mine": 1,
        "theirs": 1,
    }


# ── how editors save ───────────────────────────────────────────────────────────────────


def save_by_renaming(path: Path, content: str) -> None:
    draft = path.with_name("draft")
    draft.write_text(content)
    draft.rename(path)


def save_like_vim(path: Path, content: str) -> None:
    backup = path.with_name(path.name + "~")
    path.rename(backup)
    path.write_text(content)
    backup.unlink()


@pytest.mark.parametrize("save", [save_by_renaming, save_like_vim, Path.write_text])
async def test_editors_may_save_as_they_like(
    tmp_path: Path, save: Callable[[Path, str], object]
) -> None:
    path = tmp_path / "note.txt"
    async with local() as store:
        store.set_text("body", "one")
        async with followed(store, path) as binding:
            for content in ("one two", "three", "one"):
                save(path, content)
                await settle(binding)
                assert store.text("body") == content
                store.set_text("body", content + "!")
                await settle(binding)
                assert path.read_text() == content + "!"


async def test_a_file_that_is_being_written_is_not_taken_for_an_edit(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    async with local() as store:
        store.set_text("body", "hello world")
        async with followed(store, path) as binding:
            version = store.view().version
            with path.open("w") as file:
                await binding.look()
                file.write("hello ")
                file.flush()
                await binding.look()
                file.write("world, and all")
                file.flush()
                await binding.look()
            assert store.view().version == version
            await settle(binding)
            assert store.text("body") == "hello world, and all"


async def test_a_file_that_stays_empty_is_an_edit(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    async with local() as store:
        store.set_text("body", "hello")
        async with followed(store, path) as binding:
            path.write_text("")
            for _ in range(EMPTY_LOOKS - 1):
                await binding.look()
            assert store.text("body") == "hello"
            await binding.look()
            assert store.text("body") == ""


async def test_a_file_that_is_gone_pauses_and_is_followed_again(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    told: list[FileStatus] = []
    async with local() as store:
        store.set_text("body", "one two")
        async with followed(store, path, on_status=told.append) as binding:
            path.unlink()
            store.set_text("body", "one two document")
            await settle(binding)
            assert not path.exists()
            assert store.text("body") == "one two document"
            path.write_text("disk one two")
            await settle(binding)
            assert path.read_text() == "disk one two document"
    assert [status.state for status in told] == [FileState.MISSING, FileState.FOLLOWING]


async def test_a_callback_that_fails_does_not_end_following(tmp_path: Path) -> None:
    path, handled = tmp_path / "note.txt", list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: handled.append(context))
    error = RuntimeError("the label is gone")

    def fail(status: FileStatus) -> None:
        raise error

    async with local() as store:
        store.set_text("body", "one")
        async with followed(store, path, on_status=fail) as binding:
            path.unlink()
            await settle(binding)
            path.write_text("one")
            store.set_text("body", "two")
            await settle(binding)
            assert path.read_text() == "two"
    assert [context["exception"] for context in handled] == [error, error]


async def test_mode_and_links_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "target.txt"
    target.write_text("one")
    target.chmod(0o640)
    path = tmp_path / "note.txt"
    path.symlink_to(target.name)
    async with local() as store, followed(store, path) as binding:
        store.set_text("body", "two")
        await settle(binding)
        assert path.is_symlink()
        assert target.read_text() == "two"
        assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["note.txt", "target.txt"]


async def test_a_file_that_cannot_be_written_is_reported_and_tried_again(tmp_path: Path) -> None:
    class Full(Disk):
        is_full = False

        def replace(self, path: Path, content: bytes, expected: bytes | None) -> bool:
            if self.is_full:
                raise OSError(28, "No space left on device")
            return super().replace(path, content, expected)

    path, disk = tmp_path / "note.txt", Full()
    async with local() as store:
        store.set_text("body", "one")
        async with followed(store, path, disk=disk) as binding:
            disk.is_full = True
            store.set_text("body", "two")
            await settle(binding)
            assert state_of(binding) is FileState.REFUSED
            assert "No space left" in binding.status.reason
            disk.is_full = False
            for _ in range(30):
                await binding.look()
            assert state_of(binding) is FileState.FOLLOWING
            assert path.read_text() == "two"


async def test_a_write_that_fails_after_all_was_done_is_not_taken_for_an_edit(
    tmp_path: Path,
) -> None:
    class Unsure(Disk):
        is_unsure = False

        def replace(self, path: Path, content: bytes, expected: bytes | None) -> bool:
            is_done = super().replace(path, content, expected)
            if self.is_unsure:
                raise OSError(5, "Input/output error")
            return is_done

    path, disk = tmp_path / "note.txt", Unsure()
    async with local() as store:
        store.set_text("body", "one")
        async with followed(store, path, disk=disk) as binding:
            disk.is_unsure = True
            store.set_text("body", "one two")
            await settle(binding)
            disk.is_unsure = False
            for _ in range(30):
                await binding.look()
            assert path.read_text() == store.text("body") == "one two"
            path.write_text("zero one two")
            await settle(binding)
            assert store.text("body") == "zero one two"


# ── what a file cannot say ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"caf\xe9", b"zero\x00byte", b"\x89PNG\r\n\x1a\n\x00", b"x" * 5000]
)
async def test_what_is_not_text_is_reported_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "note.txt"
    async with local() as store:
        store.set_text("body", "one")
        async with followed(store, path, disk=Disk(size_max=4096)) as binding:
            path.write_bytes(content)
            store.set_text("body", "two")
            await settle(binding)
            assert state_of(binding) is FileState.REFUSED
            assert binding.status.reason
            assert path.read_bytes() == content
            assert store.text("body") == "two"
            path.write_text("one again")
            await settle(binding)
            assert state_of(binding) is FileState.FOLLOWING
            assert path.read_text() == store.text("body")


async def test_a_folder_and_a_pipe_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    async with local() as store:
        for path in (tmp_path, tmp_path / "pipe"):
            async with followed(store, path) as binding:
                assert binding.status == FileStatus(FileState.REFUSED, "not a regular file")


async def test_a_text_that_the_encoding_cannot_spell_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    path.write_bytes(b"caf\xe9")
    async with local() as store, followed(store, path, encoding="latin-1") as binding:
        assert store.text("body") == "café"
        store.set_text("body", "café €")
        await settle(binding)
        assert state_of(binding) is FileState.REFUSED
        assert path.read_bytes() == b"caf\xe9"


async def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    path.write_text("hello")
    async with local() as store:
        store["body"] = 5
        async with followed(store, path) as binding:
            assert state_of(binding) is FileState.REFUSED
            assert path.read_text() == "hello"
            assert store["body"] == 5


@pytest.mark.parametrize(
    "content",
    [
        b"one\r\ntwo\r\n",
        b"one\r\ntwo",
        b"one\ntwo\n",
        b"one",
        b"\xef\xbb\xbfone\r\n",
        "one\r\ntwo\r\n".encode("utf-16"),
        b"\xfe\xff" + "one\ntwo".encode("utf-16-be"),
        b"mixed\r\nlines\nand\rmore",
        b"\r\n",
    ],
)
async def test_encoding_and_newlines_are_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "note.txt"
    path.write_bytes(content)
    text, style = read_text(content, Style())
    async with local() as store, followed(store, path) as binding:
        assert store.text("body") == text
        store.set_text("body", f"new\n{text}")
        await settle(binding)
        assert path.read_bytes() == write_text(f"new\n{text}", style)
        store.set_text("body", text)
        await settle(binding)
        assert path.read_bytes() == content


@given(st.text(st.sampled_from("a\r\n\ufeffé😀")), st.sampled_from([b"", b"\xef\xbb\xbf"]))
def test_reading_and_writing_changes_no_byte(text: str, mark: bytes) -> None:
    content = mark + text.encode()
    value, style = read_text(content, Style())
    assert write_text(value, style) == content


@given(st.text(st.sampled_from("a\r\nb")), st.sampled_from(["\n", "\r\n"]))
def test_whatever_is_written_reads_the_same(text: str, newline: Any) -> None:
    style = Style(newline=newline)
    spelled = write_text(text, style).decode()
    assert (spelled.replace("\r\n", "\n") if newline == "\r\n" else spelled) == text


# ── from one time to the next ──────────────────────────────────────────────────────────


async def test_what_was_edited_meanwhile_merges_with_a_memory(tmp_path: Path) -> None:
    path, memory = tmp_path / "note.txt", tmp_path / "memory"
    async with local() as store:
        store.set_text("body", "one two three")
        async with followed(store, path, memory=memory):
            pass
        path.write_text("one 2 three")
        store.set_text("body", "one two three four")
        async with followed(store, path, memory=memory) as binding:
            assert store.text("body") == path.read_text() == "one 2 three four"
            assert binding.set_aside is None
        assert memory.read_text() == "one 2 three four"


@pytest.mark.parametrize("lost", [None, b"\xff\x00"])
async def test_without_a_memory_what_the_file_said_is_kept_beside_it(
    tmp_path: Path, lost: bytes | None
) -> None:
    path, memory = tmp_path / "note.txt", tmp_path / "memory"
    if lost is not None:
        memory.write_bytes(lost)
    path.write_text("of the file")
    async with local() as store:
        store.set_text("body", "of the document")
        async with followed(store, path, memory=memory) as binding:
            assert path.read_text() == "of the document"
            assert binding.set_aside == tmp_path / "note.txt.aside-1"
            assert binding.set_aside.read_text() == "of the file"


# ── JSON ───────────────────────────────────────────────────────────────────────────────


async def test_a_json_file_is_a_whole_document(tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    async with local() as store:
        store["title"] = "Notes"
        store.set_text("body", "hello")
        store.set_list("items", [{"id": 1}])
        async with followed(store, path, None) as binding:
            assert json.loads(path.read_text()) == {
                "title": "Notes",
                "body": "hello",
                "items": [{"id": 1}],
            }
            path.write_text('{"title": "New", "body": "hello!", "items": [], "done": true}')
            await settle(binding)
            assert store["title"] == "New"
            assert store.text("body") == "hello!"
            assert list(store.list("items")) == []
            assert store["done"] is True
            # It says the same in its own way.
            assert path.read_text() == (
                '{"title": "New", "body": "hello!", "items": [], "done": true}'
            )


async def test_both_sides_of_a_json_file_merge(tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    async with two() as stores:
        stores.mine["a"] = 1
        stores.mine["b"] = 1
        stores.mine["size"] = {"x": 1, "y": 1}
        stores.mine.set_text("body", "one two")
        stores.mine.set_list("items", ["first", "second"])
        await stores.exchange()
        async with followed(stores.mine, path, None) as binding:
            members = json.loads(path.read_text())
            members.update(a=2, body="one 2", new=1)
            members["size"]["x"] = 2
            members["items"].insert(0, "zeroth")
            path.write_text(json.dumps(members, indent=4))
            stores.other["b"] = 2
            stores.other["size"] = {"x": 1, "y": 2}
            stores.other["other"] = 1
            stores.other.set_text("body", "one two three")
            stores.other.list("items").append("third")
            await stores.exchange()
            await settle(binding)
            expected = {
                "a": 2,
                "b": 2,
                "size": {"x": 2, "y": 2},
                "body": "one 2 three",
                "items": ["zeroth", "first", "second", "third"],
                "new": 1,
                "other": 1,
            }
            assert json.loads(path.read_text()) == expected
            await stores.exchange()
            assert dict(stores.other.view()) | {"size": {"x": 2, "y": 2}} == {
                **expected,
                "items": tuple(expected["items"]),  # type: ignore[arg-type]
            }


async def test_a_json_file_merges_with_a_memory(tmp_path: Path) -> None:
    path, memory = tmp_path / "note.json", tmp_path / "memory"
    async with local() as store:
        store["a"] = {"x": 1, "y": 1}
        store["gone"] = 1
        store.set_text("body", "one two")
        async with followed(store, path, None, memory=memory):
            pass
        path.write_text('{"a": {"x": 2, "y": 1}, "body": "one 2"}')
        store["a"] = {"x": 1, "y": 2}
        store.set_text("body", "one two three")
        async with followed(store, path, None, memory=memory):
            assert json.loads(path.read_text()) == {"a": {"x": 2, "y": 2}, "body": "one 2 three"}


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[1]",
        '{"a": 1} x',
        '{"a": 1, "a": 2}',
        '{"a": 9007199254740993}',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"__proto__": 1}',
        '{"a": ' + "[" * 500 + "]" * 500 + "}",
        '{"a": ' + "1" * 5000 + "}",
        '{"title": [1]}',
        "   ",
    ],
)
async def test_what_a_document_cannot_hold_is_reported_and_left_alone(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "note.json"
    async with local() as store:
        store["title"] = "Notes"
        async with followed(store, path, None) as binding:
            path.write_text(content)
            await settle(binding)
            assert state_of(binding) is FileState.REFUSED
            assert path.read_text() == content
            assert dict(store.view()) == {"title": "Notes"}
            path.write_text('{"title": "Fixed"}')
            await settle(binding)
            assert state_of(binding) is FileState.FOLLOWING
            assert dict(store.view()) == {"title": "Fixed"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{\n    "b": 1,\n    "a": 1\n}\n', '{\n    "b": 1,\n    "a": 2\n}\n'),
        ('{\n\t"b": 1,\n\t"a": 1\n}', '{\n\t"b": 1,\n\t"a": 2\n}'),
        ('{"b": 1, "a": 1}', '{"b": 1, "a": 2}'),
        ('{"b":1,"a":1}\n', '{"b":1,"a":2}\n'),
        ('{\r\n  "b": 1,\r\n  "a": 1\r\n}\r\n', '{\r\n  "b": 1,\r\n  "a": 2\r\n}\r\n'),
    ],
)
async def test_the_way_a_json_file_is_written_is_kept(
    tmp_path: Path, before: str, after: str
) -> None:
    path = tmp_path / "note.json"
    path.write_bytes(before.encode())
    async with local() as store, followed(store, path, None) as binding:
        store["a"] = 2
        await settle(binding)
        assert path.read_bytes() == after.encode()


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_reading_noise_raises_nothing_else(content: bytes) -> None:
    for read in (read_text, read_json):
        with suppress(FileRefusedError):
            read(content, Style())

"""What every destination of an archive must do, as tests: for whoever writes one.

A class inherits `DestinationContract` and provides a fixture `destination`; pytest runs the rest:

    class TestMyDestination(DestinationContract):
        @pytest.fixture
        async def destination(self) -> AsyncIterator[Destination]:
            async with MyDestination(...) as destination:
                yield destination

- The destination must be empty, and is each test's own.
- The tests are coroutines: use pytest-asyncio in mode `auto`, or mark the class.
- What happens between processes, or when a disk or a network fails, is for the implementation's
  own tests.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from walstore.archive.destination import ConflictError, Destination, Found, Listed
from walstore.archive.keys import KeyRefusedError

_KEY = "notes/manifest.json"
_LARGE_BYTES = 6 * 2**20
_CLOCKS_APART_MS = 120_000

# Bytes that a careless hand would change.
_ODD_BODIES = (b"", b"\0", b"\r\n", b"\xff\xfe\xfd", b"\xef\xbb\xbf{}", bytes(range(256)))

# Keys that a pattern, a path or a wrong encoding would take for one another, or drop.
_ODD_KEYS = (
    "a",
    "a.json",
    "a b",
    "a%20b",
    "a%2Fb",
    "a+b",
    "a&b",
    "a=b/epoch=1/snapshot-42.jsonl",
    "a'b",
    'a"b',
    "a#b?c",
    "a*",
    "a~",
    "~a",
    "a_",
    ".a",
    "a..b",
    "...",
    "a:b",
    "ä",
    "a\u0308",
    "日本/語.jsonl",
    "🦉/ﬀ",
    "k" * 200,
    "deep/" * 20 + "a",
)

_BAD_KEYS = (
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/../../b",
    "a/./b",
    "a\0b",
    "a\nb",
    "a\\b",
    "a\x7f",
    "\ud800",
    "k" * 1025,
    ".walstore/lock",
)


class DestinationContract:
    """The promises of `walstore.archive.destination.Destination`."""

    # ── objects ────────────────────────────────────────────────────────────────────────

    async def test_what_is_put_can_be_got(self, destination: Destination) -> None:
        stored = await destination.put(_KEY, b"content")
        assert stored == (destination.uri(_KEY), 7)
        found = await _found(destination)
        assert type(found.body) is bytes
        assert found.body == b"content"
        assert found.revision

    async def test_what_was_never_put_is_not_there(self, destination: Destination) -> None:
        assert await destination.get(_KEY) is None
        await destination.put(_KEY, b"content")
        for key in ("notes", "notes/manifest", f"{_KEY}/below", "manifest.json"):
            assert await destination.get(key) is None

    async def test_a_put_takes_the_place_of_what_is_there(self, destination: Destination) -> None:
        await destination.put(_KEY, b"a longer content")
        before = await _found(destination)
        stored = await destination.put(_KEY, b"short")
        after = await _found(destination)
        assert stored.size_bytes == 5
        assert after.body == b"short"
        assert after.revision != before.revision

    async def test_bytes_come_back_as_they_were(self, destination: Destination) -> None:
        for number, body in enumerate(_ODD_BODIES):
            assert (await destination.put(f"put/{number}", body)).size_bytes == len(body)
            await destination.put_if(f"created/{number}", body, None)
            assert (await _found(destination, f"put/{number}")).body == body
            assert (await _found(destination, f"created/{number}")).body == body

    async def test_a_large_object_fits(self, destination: Destination) -> None:
        body = b"0123456789abcdef" * (_LARGE_BYTES // 16)
        await destination.put("put", body)
        revision = await destination.put_if("created", body, None)
        await destination.put_if("created", body[1:], revision)
        assert (await _found(destination, "put")).body == body
        assert (await _found(destination, "created")).body == body[1:]

    async def test_keys_are_never_confused(self, destination: Destination) -> None:
        for key in _ODD_KEYS:
            await destination.put(key, key.encode())
        for key in _ODD_KEYS:
            assert (await _found(destination, key)).body == key.encode()
        assert [each.key for each in await _listed(destination)] == sorted(_ODD_KEYS)
        assert len(set(map(destination.uri, _ODD_KEYS))) == len(_ODD_KEYS)

    @pytest.mark.parametrize("key", _BAD_KEYS)
    async def test_a_key_that_could_leave_its_place_is_refused(
        self, destination: Destination, key: str
    ) -> None:
        with pytest.raises(KeyRefusedError):
            destination.uri(key)
        for call in (
            destination.put(key, b""),
            destination.put_if(key, b"", None),
            destination.get(key),
            destination.delete(key),
        ):
            with pytest.raises(KeyRefusedError):
                await call
        assert await _listed(destination) == []

    async def test_it_has_a_name(self, destination: Destination) -> None:
        assert destination.name

    # ── replacing ──────────────────────────────────────────────────────────────────────

    async def test_an_object_is_created_once(self, destination: Destination) -> None:
        revision = await destination.put_if(_KEY, b"first", None)
        assert await destination.get(_KEY) == Found(b"first", revision)
        for body in (b"second", b"first", b""):
            await _conflicts(destination, body, None)
        assert await destination.get(_KEY) == Found(b"first", revision)

    async def test_what_was_put_cannot_be_created(self, destination: Destination) -> None:
        await destination.put(_KEY, b"first")
        await _conflicts(destination, b"second", None)
        assert (await _found(destination)).body == b"first"

    async def test_a_revision_is_replaced_by_the_next(self, destination: Destination) -> None:
        revisions = [await destination.put_if(_KEY, b"0", None)]
        for number in range(1, 5):
            body = str(number).encode()
            revisions.append(await destination.put_if(_KEY, body, revisions[-1]))
            assert await destination.get(_KEY) == Found(body, revisions[-1])
        assert len(set(revisions)) == 5

    async def test_what_was_put_is_replaced_by_its_revision(self, destination: Destination) -> None:
        await destination.put(_KEY, b"first")
        before = await _found(destination)
        await destination.put_if(_KEY, b"second", before.revision)
        assert (await _found(destination)).body == b"second"

    async def test_a_revision_that_has_passed_is_refused(self, destination: Destination) -> None:
        first = await destination.put_if(_KEY, b"first", None)
        second = await destination.put_if(_KEY, b"second", first)
        await _conflicts(destination, b"third", first)
        assert await destination.get(_KEY) == Found(b"second", second)
        await destination.put(_KEY, b"put")
        await _conflicts(destination, b"third", second)
        assert (await _found(destination)).body == b"put"

    @pytest.mark.parametrize("revision", ["", "0", "0" * 64, '"etag"', '["etag","7"]', "[]", "ä"])
    async def test_a_revision_that_never_was_is_refused(
        self, destination: Destination, revision: str
    ) -> None:
        await _conflicts(destination, b"new", revision)
        assert await destination.get(_KEY) is None
        await destination.put(_KEY, b"there")
        await _conflicts(destination, b"new", revision)
        assert (await _found(destination)).body == b"there"

    async def test_what_was_deleted_is_not_replaced(self, destination: Destination) -> None:
        revision = await destination.put_if(_KEY, b"first", None)
        await destination.delete(_KEY)
        await _conflicts(destination, b"second", revision)
        assert await destination.get(_KEY) is None
        await destination.put_if(_KEY, b"anew", None)
        assert (await _found(destination)).body == b"anew"

    # ── at once ────────────────────────────────────────────────────────────────────────

    async def test_of_several_that_create_at_once_one_wins(self, destination: Destination) -> None:
        for number in range(5):
            await _race(destination, f"race/{number}", None)

    async def test_of_several_that_replace_at_once_one_wins(self, destination: Destination) -> None:
        for number in range(5):
            key = f"race/{number}"
            await _race(destination, key, await destination.put_if(key, b"before", None))

    async def test_no_update_is_lost(self, destination: Destination) -> None:
        await destination.put_if(_KEY, b"0", None)

        async def count() -> None:
            for _ in range(5):
                await _add_one(destination)

        await asyncio.gather(*(count() for _ in range(4)))
        assert (await _found(destination)).body == b"20"

    async def test_an_object_is_read_whole(self, destination: Destination) -> None:
        bodies = {bytes([letter]) * 300_000 for letter in b"abc"}
        await destination.put(_KEY, max(bodies))

        async def write() -> None:
            for body in sorted(bodies) * 3:
                await destination.put(_KEY, body)

        writing = asyncio.create_task(write())
        seen = set()
        while not writing.done():
            seen.add((await _found(destination)).body)
            # A destination need not wait for anything; the writer has to have its turn.
            await asyncio.sleep(0)
        await writing
        assert seen <= bodies

    # ── listing and deleting ───────────────────────────────────────────────────────────

    async def test_what_is_there_is_listed_by_key(self, destination: Destination) -> None:
        # Directory by directory, `a/…` would come before or after both of `a.b` and `a0`.
        keys = ("b", "a/b/c", "a.b", "a0", "a/c", "ab/c", "é")
        for key in keys:
            await destination.put(key, key.encode())
        listed = await _listed(destination)
        assert [each.key for each in listed] == sorted(keys)
        assert all(each.size_bytes == len(each.key.encode()) for each in listed)
        now_ms = time.time() * 1000
        assert all(abs(each.modified_ms - now_ms) < _CLOCKS_APART_MS for each in listed)

    async def test_a_prefix_is_of_text_and_not_of_segments(self, destination: Destination) -> None:
        for key in ("a/epoch=1/x", "a/epoch=10/x", "a/epoch=2/x", "ab", "b"):
            await destination.put(key, b"")
        expected: dict[str, list[str]] = {
            "a": ["a/epoch=1/x", "a/epoch=10/x", "a/epoch=2/x", "ab"],
            "a/": ["a/epoch=1/x", "a/epoch=10/x", "a/epoch=2/x"],
            "a/epoch=1": ["a/epoch=1/x", "a/epoch=10/x"],
            "a/epoch=1/": ["a/epoch=1/x"],
            "a/epoch=1/x": ["a/epoch=1/x"],
            "a/epoch=1/x/": [],
            "c": [],
            "c/d": [],
            "": ["a/epoch=1/x", "a/epoch=10/x", "a/epoch=2/x", "ab", "b"],
        }
        for prefix, keys in expected.items():
            assert [each.key for each in await _listed(destination, prefix)] == keys, prefix

    async def test_nothing_is_listed_where_nothing_is(self, destination: Destination) -> None:
        assert await _listed(destination) == []

    async def test_only_objects_are_left_behind(self, destination: Destination) -> None:
        revision = await destination.put_if(_KEY, b"first", None)
        await destination.put_if(_KEY, b"second", revision)
        await destination.put(_KEY, b"third")
        await _conflicts(destination, b"fourth", revision)
        assert [each.key for each in await _listed(destination)] == [_KEY]

    async def test_what_is_deleted_is_gone(self, destination: Destination) -> None:
        await destination.put(_KEY, b"")
        await destination.put("notes/kept", b"kept")
        await destination.delete(_KEY)
        assert await destination.get(_KEY) is None
        assert [each.key for each in await _listed(destination)] == ["notes/kept"]
        await destination.delete("notes/kept")
        assert await _listed(destination) == []

    async def test_what_is_not_there_can_be_deleted(self, destination: Destination) -> None:
        await destination.delete(_KEY)
        await destination.put(_KEY, b"")
        await destination.delete("notes")
        await destination.delete("notes/other")
        await destination.delete(f"{_KEY}/below")
        assert (await _found(destination)).body == b""


async def _found(destination: Destination, key: str = _KEY) -> Found:
    found = await destination.get(key)
    assert found is not None
    return found


async def _listed(destination: Destination, prefix: str = "") -> list[Listed]:
    return [each async for each in destination.list(prefix)]


async def _conflicts(destination: Destination, body: bytes, revision: str | None) -> None:
    with pytest.raises(ConflictError) as caught:
        await destination.put_if(_KEY, body, revision)
    assert caught.value.key == _KEY
    assert caught.value.destination == destination.name


async def _race(destination: Destination, key: str, revision: str | None) -> None:
    bodies = [f"writer {number}".encode() for number in range(8)]
    outcomes: list[Any] = await asyncio.gather(
        *(destination.put_if(key, body, revision) for body in bodies), return_exceptions=True
    )
    won = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, str)]
    assert len(won) == 1, outcomes
    lost = [outcome for outcome in outcomes if not isinstance(outcome, str)]
    assert all(isinstance(outcome, ConflictError) for outcome in lost), outcomes
    assert await destination.get(key) == Found(bodies[won[0]], outcomes[won[0]])


async def _add_one(destination: Destination) -> None:
    """Count one up, however often others come in between."""
    while True:
        found = await _found(destination)
        try:
            await destination.put_if(_KEY, str(int(found.body) + 1).encode(), found.revision)
        except ConflictError:
            continue
        return

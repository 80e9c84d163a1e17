"""What every transport and snapshot store must do, as tests: for whoever writes one.

A class inherits `TransportContract` and provides a fixture `place`; pytest runs the rest:

    class TestMyTransport(TransportContract):
        @pytest.fixture
        async def place(self) -> AsyncIterator[Place]:
            async with MyTransport(...) as transport:
                yield Place(transport, transport, ALICE)

- The logs must be empty, and are each test's own.
- What is written is signed as documents sign it, for places that look.
- The tests are coroutines: use pytest-asyncio in mode `auto`, or mark the class.
- What happens when a connection fails is for the implementation's own tests.
- A transport whose log cannot tell where it ends says so with `knows_its_head = False`.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest

from walstore.canon import canonical_bytes, parse
from walstore.document.ports import (
    Body,
    LogBehindError,
    RawElement,
    SnapshotConflictError,
    SnapshotStore,
    StoredSnapshot,
    Transport,
)
from walstore.signed.author import sign_append, sign_document
from walstore.signed.identity import Identity
from walstore.wire.limits import TS_MAX

_KEY = "notes/a"

# Elements whose text a careless hand would change.
_ODD_DATA: tuple[dict[str, Any], ...] = (
    {},
    {"": ""},
    {"a": None, "b": True, "c": [], "d": {}},
    {"text": 'quotes " and \\ and / and \u2028 and \u0000 and \u007f'},
    {"text": "Zoë, 日本語, עברית, 🏳️\u200d🌈, e\u0301"},
    {"ä": 1, "z": 2, "😀": 3, "\uffff": 4},
    {"numbers": [0, -1, 1.5, 1e21, 1e-7, 2**53 - 1, 0.1]},
    {"half a pair": "\ud800", "the other half": "\udc00"},
    {"nested": [[[[{"deep": [[]]}]]]]},
    {"like a frame": ["OK", "1", {"ts": 1}], "],": "],{"},
)

# Keys that a pattern, a path or a wrong encoding would take for one another.
_ODD_KEYS = (
    "a",
    "A",
    "a/",
    "a//b",
    "a b",
    "a%20b",
    "a%",
    "a_",
    "a?b=c#d",
    "../a",
    "a'b",
    'a"b',
    "a\\b",
    "ä",
    "a\u0308",
    "日本/語",
    "🦉",
    "k" * 512,
)


class Place(NamedTuple):
    """What is tested.

    Attributes:
        transport: The logs.
        snapshots: The snapshots; None if there are none.
        identity: Who writes.
    """

    transport: Transport
    snapshots: SnapshotStore | None
    identity: Identity

    def body(self, data: dict[str, Any], document_key: str = _KEY) -> Body:
        """An element, signed."""
        proof = sign_append(document_key, data, self.identity)
        return Body(canonical_bytes(data), *proof)

    async def append(self, data: dict[str, Any], document_key: str = _KEY) -> int:
        """Sign and append."""
        return await self.transport.append(document_key, self.body(data, document_key))

    async def pull_all(self, document_key: str = _KEY, checkpoint: int = 0) -> list[RawElement]:
        """Every page above a checkpoint."""
        found: list[RawElement] = []
        while page := await self.transport.pull(document_key, checkpoint):
            found += map(as_raw, page)
            assert found[-1].ts > checkpoint, "a page that does not move the checkpoint"
            checkpoint = found[-1].ts
        return found

    def snapshot(self, upto_ts: int, state: str, document_key: str = _KEY) -> dict[str, Any]:
        """A snapshot, signed."""
        content = {
            "state": {"note": state},
            "uptoTs": upto_ts,
            "writerSeq": {self.identity.public_key: 1},
            "producedBy": self.identity.public_key,
        }
        proof = sign_document(document_key + "__snapshot", content, self.identity)
        return {
            **content,
            "authorPubkey": proof.author_pubkey,
            "authorSignature": proof.author_signature,
        }


def as_raw(element: object) -> RawElement:
    """An element with its text, however it was handed out."""
    if isinstance(element, RawElement):
        return element
    assert isinstance(element, dict)
    return RawElement(
        element["ts"],
        canonical_bytes(element["data"]),
        element["authorPubkey"],
        element["authorSignature"],
    )


class TransportContract:
    """The promises of `Transport`, and of `SnapshotStore` if there is one, one test each.

    Attributes:
        knows_its_head: Whether it can be told where a log ends.
    """

    knows_its_head = True

    # ── logs ───────────────────────────────────────────────────────────────────────────

    async def test_a_log_that_was_never_written_is_empty(self, place: Place) -> None:
        assert list(await place.transport.pull(_KEY, 0)) == []

    async def test_every_ts_is_greater_than_all_before_it(self, place: Place) -> None:
        stamps = [await place.append({"n": n}) for n in range(20)]
        assert stamps[0] > 0
        assert stamps == sorted(set(stamps))
        assert [element.ts for element in await place.pull_all()] == stamps

    async def test_appends_at_once_are_all_kept(self, place: Place) -> None:
        stamps = await asyncio.gather(*(place.append({"n": n}) for n in range(50)))
        found = {element.ts: parse(element.data) for element in await place.pull_all()}
        assert found == {ts: {"n": n} for n, ts in enumerate(stamps)}

    async def test_an_element_comes_back_as_it_was(self, place: Place) -> None:
        bodies = [place.body(data) for data in _ODD_DATA]
        for body in bodies:
            await place.transport.append(_KEY, body)
        found = await place.pull_all()
        assert [element.data for element in found] == [body.canonical for body in bodies]
        assert [element.author for element in found] == [body.author for body in bodies]
        assert [element.signature for element in found] == [body.signature for body in bodies]

    async def test_the_same_element_again_is_no_error(self, place: Place) -> None:
        body = place.body({"n": 1})
        first = await place.transport.append(_KEY, body)
        await place.append({"n": 2})
        again = await place.transport.append(_KEY, body)
        elements = await place.pull_all()
        assert again == first or again > elements[1].ts
        assert {element.data for element in elements} == {b'{"n":1}', b'{"n":2}'}

    async def test_the_same_element_at_once_is_no_error(self, place: Place) -> None:
        body = place.body({"n": 1})
        stamps = await asyncio.gather(*(place.transport.append(_KEY, body) for _ in range(10)))
        assert {element.ts for element in await place.pull_all()} == set(stamps)

    async def test_a_checkpoint_is_exclusive(self, place: Place) -> None:
        stamps = [await place.append({"n": n}) for n in range(5)]
        for index, ts in enumerate(stamps):
            assert [each.ts for each in await place.pull_all(_KEY, ts)] == stamps[index + 1 :]
            assert [each.ts for each in await place.pull_all(_KEY, ts - 1)] == stamps[index:]

    async def test_a_log_that_never_reached_the_checkpoint_says_so(self, place: Place) -> None:
        if not self.knows_its_head:
            pytest.skip("it cannot tell where its logs end")
        await place.append({"n": 1})
        for key, head in (("notes/b", 0), (_KEY, await place.append({"n": 2}))):
            with pytest.raises(LogBehindError) as caught:
                await place.transport.pull(key, head + 1)
            assert (caught.value.head, caught.value.checkpoint) == (head, head + 1)
            assert not caught.value.retryable
            assert list(await place.transport.pull(key, head)) == []

    async def test_pages_follow_one_another_until_an_empty_one(self, place: Place) -> None:
        stamps: list[int] = []
        for start in range(0, 1100, 100):
            some = range(start, start + 100)
            stamps += await asyncio.gather(*(place.append({"n": n}) for n in some))
        assert [element.ts for element in await place.pull_all()] == sorted(stamps)

    async def test_documents_know_nothing_of_each_other(self, place: Place) -> None:
        first = [await place.append({"n": n}, "notes/a") for n in range(3)]
        second = [await place.append({"n": n}, "notes/b") for n in range(2)]
        assert [element.ts for element in await place.pull_all("notes/a")] == first
        assert [element.ts for element in await place.pull_all("notes/b")] == second
        assert await place.pull_all("notes") == []

    @pytest.mark.parametrize("size", [2**16, 2**20])
    async def test_a_large_element_fits(self, place: Place, size: int) -> None:
        data = {"text": "x" * (size - len('{"text":""}'))}
        body = place.body(data)
        assert len(body.canonical) == size
        ts = await place.transport.append(_KEY, body)
        after = await place.append({"n": 1})
        found = await place.pull_all()
        assert [element.ts for element in found] == [ts, after]
        assert found[0].data == body.canonical

    async def test_similar_keys_are_different_documents(self, place: Place) -> None:
        for key in _ODD_KEYS:
            await place.append({"key": key}, key)
        for key in _ODD_KEYS:
            assert [parse(each.data) for each in await place.pull_all(key)] == [{"key": key}]

    async def test_the_tail_is_the_newest_up_to_a_ts(self, place: Place) -> None:
        transport: Any = place.transport
        if not hasattr(transport, "tail"):
            pytest.skip("it reads forward only")
        stamps = [await place.append({"n": n}) for n in range(6)]

        async def tail(upto: int, count: int) -> list[int]:
            return [as_raw(each).ts for each in await transport.tail(_KEY, upto, count)]

        assert await tail(stamps[-1], 3) == stamps[3:]
        assert await tail(TS_MAX, 100) == stamps
        assert await tail(stamps[2], 2) == stamps[1:3]
        assert await tail(stamps[2] - 1, 1) == stamps[1:2]
        assert await tail(stamps[0] - 1, 5) == []
        assert await tail(stamps[-1], 0) == []
        assert list(await transport.tail("notes/b", TS_MAX, 5)) == []

    # ── snapshots ──────────────────────────────────────────────────────────────────────

    async def test_a_snapshot_that_was_never_written_is_not_there(self, place: Place) -> None:
        assert await _snapshots(place).read("notes/a__snapshot") is None

    async def test_a_snapshot_comes_back_as_it_was(self, place: Place) -> None:
        document = place.snapshot(await place.append({"n": 1}), "Zoë 🦉 \u0000")
        await _snapshots(place).write("notes/a__snapshot", document, None)
        assert (await _read(place)).document == document

    async def test_a_snapshot_is_replaced_by_naming_its_revision(self, place: Place) -> None:
        ts = await place.append({"n": 1})
        first, second = place.snapshot(ts, "first"), place.snapshot(ts, "second")
        store = _snapshots(place)
        await store.write("notes/a__snapshot", first, None)
        revision = (await _read(place)).revision
        await store.write("notes/a__snapshot", second, revision)
        stored = await _read(place)
        assert stored.document == second
        assert stored.revision != revision

    async def test_a_snapshot_that_was_replaced_meanwhile_is_a_conflict(self, place: Place) -> None:
        ts = await place.append({"n": 1})
        first, second, third = (place.snapshot(ts, state) for state in ("1", "2", "3"))
        store = _snapshots(place)
        await store.write("notes/a__snapshot", first, None)
        revision = (await _read(place)).revision
        await store.write("notes/a__snapshot", second, revision)
        with pytest.raises(SnapshotConflictError):
            await store.write("notes/a__snapshot", third, revision)
        with pytest.raises(SnapshotConflictError):
            await store.write("notes/a__snapshot", third, None)
        with pytest.raises(SnapshotConflictError):
            await store.write("notes/a__snapshot", third, "0" * 64)
        assert (await _read(place)).document == second

    async def test_replacing_what_is_not_there_is_a_conflict(self, place: Place) -> None:
        document = place.snapshot(await place.append({"n": 1}), "first")
        with pytest.raises(SnapshotConflictError):
            await _snapshots(place).write("notes/a__snapshot", document, "0" * 64)
        assert await _snapshots(place).read("notes/a__snapshot") is None

    async def test_of_two_who_replace_at_once_one_wins(self, place: Place) -> None:
        ts = await place.append({"n": 1})
        documents = [place.snapshot(ts, state) for state in "abcd"]
        store = _snapshots(place)
        outcomes = await asyncio.gather(
            *(store.write("notes/a__snapshot", document, None) for document in documents),
            return_exceptions=True,
        )
        won = [index for index, outcome in enumerate(outcomes) if outcome is None]
        assert len(won) == 1
        assert all(
            isinstance(outcome, SnapshotConflictError)
            for outcome in outcomes
            if outcome is not None
        )
        assert (await _read(place)).document == documents[won[0]]

    async def test_a_large_snapshot_fits(self, place: Place) -> None:
        # Characters of every width, so that pieces are cut everywhere.
        document = place.snapshot(await place.append({"n": 1}), "aé日🦉" * 150_000)
        await _snapshots(place).write("notes/a__snapshot", document, None)
        assert (await _read(place)).document == document

    async def test_snapshots_and_logs_do_not_mix(self, place: Place) -> None:
        ts = await place.append({"n": 1})
        document = place.snapshot(ts, "first")
        await _snapshots(place).write("notes/a__snapshot", document, None)
        assert [element.ts for element in await place.pull_all()] == [ts]
        assert await _snapshots(place).read("notes/b__snapshot") is None


def _snapshots(place: Place) -> SnapshotStore:
    if place.snapshots is None:
        pytest.skip("it keeps no snapshots")
    return place.snapshots


async def _read(place: Place) -> StoredSnapshot:
    stored = await _snapshots(place).read("notes/a__snapshot")
    assert stored is not None
    return stored

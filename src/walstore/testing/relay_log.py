"""What every relay log must do, as tests: for whoever writes an implementation.

A class inherits `RelayLogContract` and provides a fixture `log`; pytest runs the rest:

    class TestMyLog(RelayLogContract):
        @pytest.fixture
        async def log(self) -> AsyncIterator[RelayLog]:
            log = await MyLog.open(...)
            yield log
            await log.aclose()

- The log must be empty, and is each test's own.
- The tests are coroutines: use pytest-asyncio in mode `auto`, or mark the class.
- What happens when a disk fails or a process is killed is for the implementation's own tests.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Any

from walstore.relay.log import (
    READERS_MAX,
    Accepted,
    Conflict,
    Event,
    Filter,
    NewElement,
    NewSnapshot,
    ReaderMark,
    RelayLog,
    Removal,
    Row,
    StoredRecord,
    log_id,
    record_revision,
)
from walstore.wire.limits import RECORD_BYTES_MAX

NOW_MS = 1_700_000_000_000
ALICE = sha256(b"alice").hexdigest()
BOB = sha256(b"bob").hexdigest()

_ANY = Filter()
_MANY = 1_000
_LARGE = 2**30

# Keys that a pattern, a locale or a wrong encoding would take for one another.
_ODD_KEYS = (
    "a",
    "A",
    "a/",
    "a%",
    "a_",
    "ab",
    "a%b",
    "a_b",
    "axb",
    "a*",
    "a\\",
    "a'b",
    'a"b',
    "ä",
    "a\u0308",
    "ß",
    "ss",
    "日本/語",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "🦉",
    "🦉🦉",
    "\U0010ffff",
    "\U0010ffff\U0010ffff",
    "a\U0010ffff",
    "a\U0010ffffb",
)


def element(
    text: str, document: str = "notes/a", author: str = ALICE, data: bytes | None = None
) -> NewElement:
    """An element that is told from others by its text."""
    signature = base64.b64encode(sha256(text.encode()).digest() * 2).decode()
    name = sha256(f"{document}\n{author}\n{text}".encode()).hexdigest()
    return NewElement(document, name, author, signature, data or b'{"t":"%s"}' % text.encode())


def elements(count: int, document: str = "notes/a", author: str = ALICE) -> list[NewElement]:
    """Different elements of one document."""
    return [element(f"{author[:4]}-{index}", document, author) for index in range(count)]


def snapshot(
    text: str,
    revision: str | None,
    upto_ts: int,
    vc: dict[str, int] | None = None,
    document: str = "notes/a",
    author: str = ALICE,
    is_deletion: bool = False,
) -> NewSnapshot:
    """A snapshot that is told from others by its text."""
    body = b'{"s":"%s"}' % text.encode()
    name = sha256(f"{document}\n{text}".encode()).hexdigest()
    return NewSnapshot(document, revision, name, author, upto_ts, vc or {}, is_deletion, body)


class RelayLogContract:
    """The promises of `RelayLog`, one test each."""

    # ── appending ──────────────────────────────────────────────────────────────────────

    async def test_an_empty_log_answers_that_there_is_nothing(self, log: RelayLog) -> None:
        page = await log.page("notes/a", 0, count_max=_MANY, bytes_max=_LARGE)
        assert (list(page.rows), page.is_more, page.floor, page.head) == ([], False, 0, 0)
        feed = await _feed(log)
        assert (feed.events, feed.last_seq, feed.is_more) == ([], 0, False)
        assert (feed.min_seq, feed.head_seq) == (0, 0)
        found = await log.bootstrap(_ANY)
        assert (found.snapshot_seq, found.min_seq, list(found.events)) == (0, 0, [])
        assert await log.tail("notes/a", _LARGE, 10) == []
        assert await log.snapshot("notes/a") is None
        assert await log.snapshots("notes/a") == []
        assert await log.find(["00" * 32], _ANY) == []
        assert await log.documents("", count_max=10) == []
        assert await log.readers("notes/a") == []
        assert await log.grants() == []
        assert await log.settings() == {}
        assert await log.record("notes/a", "roster") is None

    async def test_the_relay_id_names_one_database(self, log: RelayLog) -> None:
        assert len(log.relay_id) == 32
        assert set(log.relay_id) <= set("0123456789abcdef")
        assert log_id(log.relay_id, "a") != log_id(log.relay_id, "b")

    async def test_appending_nothing_does_nothing(self, log: RelayLog) -> None:
        assert await log.append([], NOW_MS) == []
        assert (await _feed(log)).head_seq == 0

    async def test_elements_are_answered_in_order_and_read_back_as_they_were(
        self, log: RelayLog
    ) -> None:
        new = [element("one"), element("two", author=BOB), element("three")]
        accepted = await log.append(new, NOW_MS)
        assert [each.is_new for each in accepted] == [True, True, True]
        assert [each.ts for each in accepted] == [NOW_MS, NOW_MS + 1, NOW_MS + 2]
        _assert_rising([each.seq for each in accepted])
        rows = await _rows(log)
        assert rows == [
            Row(place.ts, place.seq, each.author, each.signature, each.data)
            for each, place in zip(new, accepted, strict=True)
        ]

    async def test_an_element_is_told_which_one_was_before_it(self, log: RelayLog) -> None:
        first = await log.append(elements(2), NOW_MS)
        assert [each.previous_ts for each in first] == [0, first[0].ts]
        (other,) = await log.append([element("x", "notes/b")], NOW_MS)
        assert other.previous_ts == 0
        (third,) = await log.append([element("third")], NOW_MS + 50)
        assert third.previous_ts == first[1].ts

    async def test_documents_have_their_own_ts_and_share_the_seq(self, log: RelayLog) -> None:
        accepted = await log.append(
            [element("1", "a"), element("2", "b"), element("3", "a"), element("4", "b")], NOW_MS
        )
        assert [each.ts for each in accepted] == [NOW_MS, NOW_MS, NOW_MS + 1, NOW_MS + 1]
        _assert_rising([each.seq for each in accepted])

    async def test_ts_follows_a_clock_that_goes_on(self, log: RelayLog) -> None:
        places = [await _one(log, f"{ms}", ms) for ms in (NOW_MS, NOW_MS + 7, NOW_MS + 1_000)]
        assert [place.ts for place in places] == [NOW_MS, NOW_MS + 7, NOW_MS + 1_000]

    async def test_ts_increases_under_a_frozen_clock(self, log: RelayLog) -> None:
        places = [await _one(log, f"{index}", NOW_MS) for index in range(5)]
        assert [place.ts for place in places] == [NOW_MS + index for index in range(5)]

    async def test_ts_increases_when_the_clock_goes_back(self, log: RelayLog) -> None:
        day_ms = 86_400_000
        clock = (NOW_MS, NOW_MS - day_ms, 0, -5, NOW_MS + 1, NOW_MS)
        places = [await _one(log, f"{index}", ms) for index, ms in enumerate(clock)]
        _assert_rising([place.ts for place in places])
        _assert_rising([place.seq for place in places])

    async def test_ts_is_above_zero_whatever_the_clock_says(self, log: RelayLog) -> None:
        assert (await _one(log, "x", -5)).ts == 1

    async def test_the_same_element_again_keeps_its_place(self, log: RelayLog) -> None:
        first = await log.append(elements(3), NOW_MS)
        again = await log.append(elements(3), NOW_MS + 1_000)
        assert [(each.ts, each.seq) for each in again] == [(each.ts, each.seq) for each in first]
        assert not any(each.is_new for each in again)
        assert len(await _rows(log)) == 3
        assert (await _feed(log)).head_seq == first[-1].seq

    async def test_an_element_twice_in_one_batch_is_stored_once(self, log: RelayLog) -> None:
        one, two = elements(2)
        accepted = await log.append([one, one, two, one], NOW_MS)
        assert [each.is_new for each in accepted] == [True, False, True, False]
        assert len({(each.ts, each.seq) for each in accepted}) == 2
        assert accepted[0][:2] == accepted[1][:2] == accepted[3][:2]
        assert [row.ts for row in await _rows(log)] == [accepted[0].ts, accepted[2].ts]

    async def test_known_and_new_elements_mix_in_one_batch(self, log: RelayLog) -> None:
        four = elements(4)
        first = await log.append(four[1:3], NOW_MS)
        second = await log.append(four, NOW_MS + 10)
        assert [each.is_new for each in second] == [True, False, False, True]
        assert [each[:2] for each in second[1:3]] == [each[:2] for each in first]
        assert second[0].previous_ts == first[1].ts
        assert second[3].previous_ts == second[0].ts

    async def test_one_id_in_two_documents_is_two_elements(self, log: RelayLog) -> None:
        one = element("one", "a")
        accepted = await log.append([one, one._replace(document="b")], NOW_MS)
        assert [each.is_new for each in accepted] == [True, True]
        assert [row.data for row in await _rows(log, "b")] == [one.data]
        assert [event.document for event in await log.find([one.id], _ANY)] == ["a", "b"]

    async def test_a_compacted_element_is_known_and_never_taken_again(self, log: RelayLog) -> None:
        first = await log.append(elements(3), NOW_MS)
        await log.compact([Removal("notes/a", (), first[-1].ts)])
        again = await log.append(elements(3), NOW_MS + 1_000)
        assert [each[:3] for each in again] == [(*each[:2], False) for each in first]
        assert (await _feed(log)).head_seq == first[-1].seq

    async def test_ts_and_seq_go_on_after_everything_was_compacted(self, log: RelayLog) -> None:
        first = await log.append(elements(3), NOW_MS)
        await log.compact([Removal("notes/a", (), first[-1].ts)])
        await log.trim(first[-1].seq + 1)
        place = await _one(log, "new", NOW_MS - 1_000)
        assert place.ts == first[-1].ts + 1
        assert place.seq > first[-1].seq
        assert place.previous_ts == first[-1].ts
        assert [row.ts for row in await _rows(log, after=first[-1].ts)] == [place.ts]

    async def test_a_large_batch_is_one_step(self, log: RelayLog) -> None:
        accepted = await log.append(elements(3_000), NOW_MS)
        assert [each.ts for each in accepted] == list(range(NOW_MS, NOW_MS + 3_000))
        _assert_rising([each.seq for each in accepted])
        assert len(await _rows(log)) == 3_000
        again = await log.append(elements(3_000), NOW_MS)
        assert not any(each.is_new for each in again)

    async def test_many_appends_at_once_lose_nothing_and_repeat_nothing(
        self, log: RelayLog
    ) -> None:
        # Every element is sent twice, by two callers, to three documents, all at once.
        batches = [
            [element(f"{batch}-{index}", f"doc/{batch % 3}") for index in range(5)]
            for batch in range(40)
        ]
        answers = await asyncio.gather(
            *(log.append(batch, NOW_MS) for batch in batches),
            *(log.append(batch, NOW_MS) for batch in reversed(batches)),
        )
        assert [len(each) for each in answers] == [5] * 80
        flat = [place for each in answers for place in each]
        assert sum(place.is_new for place in flat) == 200
        assert len({place.seq for place in flat}) == 200
        events = (await _feed(log)).events
        _assert_rising([event.seq for event in events])
        assert {event.seq for event in events} == {place.seq for place in flat}
        for number in range(3):
            rows = await _rows(log, f"doc/{number}")
            _assert_rising([row.ts for row in rows])
            _assert_rising([row.seq for row in rows])
        assert len({event.id for event in events}) == 200

    async def test_reads_at_the_time_of_appends_see_no_hole(self, log: RelayLog) -> None:
        async def write() -> None:
            for index in range(20):
                await log.append(elements(5, "w", f"{index:064x}"), NOW_MS)

        async def follow() -> list[int]:
            seen: list[int] = []
            while len(seen) < 100:
                page = await _feed(log, since=seen[-1] if seen else 0, count_max=7)
                seen += [event.seq for event in page.events]
                await asyncio.sleep(0)
            return seen

        _, seen = await asyncio.gather(write(), follow())
        assert seen == [event.seq for event in (await _feed(log)).events]

    async def test_payloads_are_kept_byte_for_byte(self, log: RelayLog) -> None:
        payloads = [bytes(range(256)), b"\x00", b"\x00" * 5_000, "日本🦉".encode(), b"'\"\\%_"]
        await log.append(
            [element(f"{index}", data=data) for index, data in enumerate(payloads)], NOW_MS
        )
        assert [row.data for row in await _rows(log)] == payloads
        assert [event.payload for event in (await _feed(log)).events] == payloads

    async def test_large_payloads_are_kept(self, log: RelayLog) -> None:
        data = bytes(range(256)) * 4_096
        (place,) = await log.append([element("large", data=data)], NOW_MS)
        state = snapshot("large", None, place.ts)._replace(text=data * 8)
        await log.put_snapshot(state, NOW_MS)
        assert [row.data for row in await _rows(log)] == [data]
        stored = await log.snapshot("notes/a")
        assert stored is not None
        assert stored.text == data * 8

    # ── reading a document ─────────────────────────────────────────────────────────────

    async def test_after_is_exclusive_and_need_not_be_an_element(self, log: RelayLog) -> None:
        for ms in (NOW_MS, NOW_MS + 10, NOW_MS + 20):
            await _one(log, f"{ms}", ms)
        assert [row.ts for row in await _rows(log, after=NOW_MS)] == [NOW_MS + 10, NOW_MS + 20]
        assert [row.ts for row in await _rows(log, after=NOW_MS + 15)] == [NOW_MS + 20]
        assert await _rows(log, after=NOW_MS + 20) == []
        assert await _rows(log, after=NOW_MS + 1_000) == []

    async def test_a_page_ends_at_its_count(self, log: RelayLog) -> None:
        places = await log.append(elements(5), NOW_MS)
        page = await log.page("notes/a", 0, count_max=2, bytes_max=_LARGE)
        assert [row.ts for row in page.rows] == [place.ts for place in places[:2]]
        assert page.is_more
        assert page.head == places[-1].ts
        page = await log.page("notes/a", places[2].ts, count_max=2, bytes_max=_LARGE)
        assert [row.ts for row in page.rows] == [place.ts for place in places[3:]]
        assert not page.is_more

    async def test_a_page_ends_once_its_bytes_are_passed(self, log: RelayLog) -> None:
        await log.append([element(f"{n}", data=b"x" * 100) for n in range(10)], NOW_MS)
        page = await log.page("notes/a", 0, count_max=_MANY, bytes_max=250)
        sizes = [len(row.data) for row in page.rows]
        assert sum(sizes[:-1]) <= 250 < sum(sizes) + 100
        assert page.is_more

    async def test_a_page_has_an_element_even_if_that_is_too_large(self, log: RelayLog) -> None:
        await log.append([element("1", data=b"x" * 500), element("2")], NOW_MS)
        page = await log.page("notes/a", 0, count_max=_MANY, bytes_max=10)
        assert [len(row.data) for row in page.rows] == [500]
        assert page.is_more

    async def test_pages_of_any_size_give_the_whole_log(self, log: RelayLog) -> None:
        await log.append(elements(23), NOW_MS)
        whole = await _rows(log)
        for count_max, bytes_max in ((1, _LARGE), (7, _LARGE), (_MANY, 1), (5, 40), (23, _LARGE)):
            rows: list[Row] = []
            is_more = True
            while is_more:
                after = rows[-1].ts if rows else 0
                page = await log.page("notes/a", after, count_max=count_max, bytes_max=bytes_max)
                rows += page.rows
                is_more = page.is_more
            assert rows == whole

    async def test_a_page_holds_one_document_only(self, log: RelayLog) -> None:
        await log.append([element(key, key) for key in _ODD_KEYS], NOW_MS)
        for key in _ODD_KEYS:
            rows = await _rows(log, key)
            assert [row.data for row in rows] == [element(key, key).data], key

    async def test_snapshots_are_not_elements(self, log: RelayLog) -> None:
        (place,) = await log.append([element("1")], NOW_MS)
        await _put(log, snapshot("s", None, place.ts))
        page = await log.page("notes/a", 0, count_max=_MANY, bytes_max=_LARGE)
        assert [row.ts for row in page.rows] == [place.ts]
        assert page.head == place.ts
        assert len(await log.tail("notes/a", _LARGE * 2**20, 10)) == 1

    async def test_the_tail_is_the_newest_elements_up_to_a_ts(self, log: RelayLog) -> None:
        places = await log.append(elements(6), NOW_MS)
        whole = await _rows(log)
        assert await log.tail("notes/a", places[-1].ts, 2) == whole[4:]
        assert await log.tail("notes/a", places[3].ts, 3) == whole[1:4]
        assert await log.tail("notes/a", places[3].ts, 100) == whole[:4]
        assert await log.tail("notes/a", places[-1].ts + 1_000, 1) == whole[5:]
        assert await log.tail("notes/a", NOW_MS - 1, 3) == []
        assert await log.tail("notes/a", places[-1].ts, 0) == []

    async def test_the_tail_leaves_out_what_was_compacted(self, log: RelayLog) -> None:
        places = await log.append(elements(6), NOW_MS)
        await log.compact([Removal("notes/a", (), places[2].ts)])
        tail = await log.tail("notes/a", places[4].ts, 10)
        assert [row.ts for row in tail] == [places[3].ts, places[4].ts]
        assert await log.tail("notes/a", places[2].ts, 10) == []

    # ── the floor ──────────────────────────────────────────────────────────────────────

    async def test_below_the_floor_a_page_is_empty_and_says_where_the_floor_is(
        self, log: RelayLog
    ) -> None:
        places = await log.append(elements(5), NOW_MS)
        await log.compact([Removal("notes/a", (), places[2].ts)])
        for after in (0, places[0].ts, places[2].ts - 1):
            page = await log.page("notes/a", after, count_max=_MANY, bytes_max=_LARGE)
            assert list(page.rows) == []
            assert page.floor == places[2].ts
            assert page.head == places[4].ts
        page = await log.page("notes/a", places[2].ts, count_max=_MANY, bytes_max=_LARGE)
        assert [row.ts for row in page.rows] == [places[3].ts, places[4].ts]

    async def test_a_floor_never_falls(self, log: RelayLog) -> None:
        places = await log.append(elements(5), NOW_MS)
        await log.compact([Removal("notes/a", (), places[3].ts)])
        removed = await log.compact([Removal("notes/a", (), places[1].ts)])
        assert removed == (0, 0, 0)
        await log.compact([Removal("notes/a", (), 0)])
        page = await log.page("notes/a", 0, count_max=_MANY, bytes_max=_LARGE)
        assert page.floor == places[3].ts

    async def test_a_floor_never_passes_the_head(self, log: RelayLog) -> None:
        places = await log.append(elements(2), NOW_MS)
        await log.compact([Removal("notes/a", (), places[-1].ts + 1_000)])
        page = await log.page("notes/a", places[-1].ts, count_max=_MANY, bytes_max=_LARGE)
        assert page.floor == page.head == places[-1].ts
        place = await _one(log, "next", NOW_MS)
        assert [row.ts for row in await _rows(log, after=places[-1].ts)] == [place.ts]

    # ── snapshots ──────────────────────────────────────────────────────────────────────

    async def test_the_first_snapshot_replaces_nothing(self, log: RelayLog) -> None:
        places = await log.append(elements(3), NOW_MS)
        new = snapshot("s", None, places[1].ts, {ALICE: 2})
        accepted = await _put(log, new)
        assert accepted.is_new
        assert accepted.ts == places[1].ts
        assert accepted.seq > places[-1].seq
        assert await log.snapshot("notes/a") == (new.id, new.text)

    async def test_a_snapshot_replaces_the_revision_that_it_names(self, log: RelayLog) -> None:
        places = await log.append(elements(3), NOW_MS)
        one = snapshot("one", None, places[0].ts)
        two = snapshot("two", one.id, places[2].ts)
        first, second = await _put(log, one), await _put(log, two)
        assert second.seq > first.seq
        assert await log.snapshot("notes/a") == (two.id, two.text)

    async def test_a_snapshot_that_names_another_revision_is_a_conflict(
        self, log: RelayLog
    ) -> None:
        places = await log.append(elements(3), NOW_MS)
        one = snapshot("one", None, places[0].ts)
        await _conflict(log, snapshot("early", one.id, places[0].ts), None)
        await _put(log, one)
        await _conflict(log, snapshot("blind", None, places[1].ts), one.id)
        await _conflict(log, snapshot("wrong", "ab" * 32, places[1].ts), one.id)
        assert await log.snapshot("notes/a") == (one.id, one.text)

    async def test_a_snapshot_that_covers_less_is_a_conflict(self, log: RelayLog) -> None:
        places = await log.append(elements(3), NOW_MS)
        one = snapshot("one", None, places[1].ts)
        await _put(log, one)
        await _conflict(log, snapshot("less", one.id, places[0].ts), one.id)
        same = snapshot("same", one.id, places[1].ts)
        await _put(log, same)
        assert await log.snapshot("notes/a") == (same.id, same.text)

    async def test_a_snapshot_of_elements_that_are_not_there_is_a_conflict(
        self, log: RelayLog
    ) -> None:
        await _conflict(log, snapshot("one", None, 1), None)
        (place,) = await log.append([element("1")], NOW_MS)
        await _conflict(log, snapshot("two", None, place.ts + 1), None)
        assert await log.snapshot("notes/a") is None
        assert (await _feed(log)).head_seq == place.seq

    async def test_a_snapshot_of_nothing_can_be_the_first_event(self, log: RelayLog) -> None:
        empty = snapshot("empty", None, 0)
        await _put(log, empty)
        assert await log.snapshot("notes/a") == (empty.id, empty.text)
        assert (await _one(log, "1", NOW_MS)).previous_ts == 0

    async def test_the_same_snapshot_again_is_answered_as_before(self, log: RelayLog) -> None:
        places = await log.append(elements(3), NOW_MS)
        one = snapshot("one", None, places[0].ts)
        two = snapshot("two", one.id, places[2].ts)
        first, second = await _put(log, one), await _put(log, two)
        for new, before in ((one, first), (two, second), (one, first)):
            again = await _put(log, new)
            assert again[:3] == (before.ts, before.seq, False)
        await log.compact([Removal("notes/a", [one.id], 0)])
        assert (await _put(log, one))[:3] == (first.ts, first.seq, False)
        assert await log.snapshot("notes/a") == (two.id, two.text)

    async def test_of_snapshots_at_once_one_wins(self, log: RelayLog) -> None:
        (place,) = await log.append([element("1")], NOW_MS)
        answers = await asyncio.gather(
            *(log.put_snapshot(snapshot(f"{n}", None, place.ts), NOW_MS) for n in range(8))
        )
        assert sum(isinstance(answer, Accepted) for answer in answers) == 1
        assert len(await log.snapshots("notes/a")) == 1

    async def test_snapshots_are_listed_without_their_payload_until_they_are_compacted(
        self, log: RelayLog
    ) -> None:
        one, two, three = await _three_snapshots(log)
        assert [event.id for event in await log.snapshots("notes/a")] == [one.id, two.id, three.id]
        await log.compact([Removal("notes/a", [two.id], 0)])
        found = await log.snapshots("notes/a")
        assert [event.id for event in found] == [one.id, three.id]
        assert [event.payload for event in found] == [b"", b""]
        # What is dominated may be listed without what it covers.
        assert dict(found[-1].vc) == dict(three.vc)
        assert [event.is_deletion for event in found] == [False, True]
        assert [event.accepted_ms for event in found] == [NOW_MS + 1, NOW_MS + 3]

    async def test_all_documents_can_be_gone_through_by_key(self, log: RelayLog) -> None:
        for key in ("b/2", "a", "b/1", "é", "b", "Z"):
            await log.append([element("1", key)], NOW_MS)
        found, last = [], ""
        while page := await log.documents_after(last, count_max=2):
            found += [status.document for status in page]
            last = found[-1]
        assert found == sorted(found) == ["Z", "a", "b", "b/1", "b/2", "é"]

    async def test_a_snapshot_is_read_in_parts(self, log: RelayLog) -> None:
        places = await log.append(elements(2), NOW_MS)
        text = "ü€🦉".encode() * 1_000
        one = snapshot("one", None, places[0].ts)._replace(text=text)
        two = snapshot("two", one.id, places[1].ts)
        await _put_each(log, one, two)
        for start, size in ((0, len(text)), (0, 1), (1, 2), (4_000, 9_000), (len(text) - 1, 7)):
            part = await log.snapshot_part("notes/a", one.id, start=start, size=size)
            assert part == text[start : start + size]
        for start in (len(text), len(text) + 1):
            assert await log.snapshot_part("notes/a", one.id, start=start, size=1) == b""
        for document, name in (("notes/b", one.id), ("notes/a", elements(1)[0].id)):
            assert await log.snapshot_part(document, name, start=0, size=1) is None
        await log.compact([Removal("notes/a", [one.id], 0)])
        assert await log.snapshot_part("notes/a", one.id, start=0, size=1) is None
        assert await log.snapshot_part("notes/a", two.id, start=0, size=99) == two.text

    # ── dominance ──────────────────────────────────────────────────────────────────────

    async def test_a_bootstrap_has_only_what_nothing_dominates(self, log: RelayLog) -> None:
        places = await log.append(elements(4), NOW_MS)
        top = places[-1].ts
        await _put_each(
            log,
            snapshot("old", None, places[0].ts, {ALICE: 1}),
            snapshot("left", None, top, {ALICE: 3, BOB: 1}),
            snapshot("right", None, top, {ALICE: 2, BOB: 2}),
        )
        assert await _current(log) == [b'{"s":"left"}', b'{"s":"right"}']
        found = await log.bootstrap(_ANY)
        assert all(
            (event.kind, event.payload, event.vc) == ("snapshot", b"", {}) for event in found.events
        )

    async def test_of_equal_snapshots_the_newer_one_is_current(self, log: RelayLog) -> None:
        places = await log.append(elements(1), NOW_MS)
        one = snapshot("one", None, places[0].ts, {ALICE: 1})
        await _put_each(log, one, snapshot("two", None, places[0].ts, {ALICE: 1, BOB: 0}))
        assert await _current(log) == [b'{"s":"two"}']

    async def test_a_claim_to_cover_more_than_it_reaches_pushes_nobody_aside(
        self, log: RelayLog
    ) -> None:
        places = await log.append(elements(3), NOW_MS)
        await _put_each(
            log,
            snapshot("boast", None, places[0].ts, {ALICE: 2**53 - 1}),
            snapshot("honest", None, places[2].ts, {ALICE: 3}),
        )
        found = await log.bootstrap(_ANY)
        texts = [
            each.payload for each in await log.find([event.id for event in found.events], _ANY)
        ]
        assert texts == [b'{"s":"boast"}', b'{"s":"honest"}']

    async def test_a_deletion_is_current_until_something_dominates_it(self, log: RelayLog) -> None:
        await _three_snapshots(log)
        (event,) = (await log.bootstrap(_ANY)).events
        assert event.is_deletion

    async def test_documents_do_not_dominate_each_other(self, log: RelayLog) -> None:
        for key, reach in (("a", 1), ("b", 2)):
            places = await log.append(elements(reach, key), NOW_MS)
            await _put(log, snapshot("s", None, places[-1].ts, {ALICE: reach}, document=key))
        found = await log.bootstrap(_ANY)
        assert [event.document for event in found.events] == ["a", "b"]

    async def test_filters_come_after_dominance(self, log: RelayLog) -> None:
        places = await log.append(elements(2), NOW_MS)
        old = snapshot("old", None, places[0].ts, {ALICE: 1}, author=ALICE)
        await _put_each(log, old, snapshot("new", None, places[1].ts, {ALICE: 2}, author=BOB))
        assert (await log.bootstrap(Filter(authors=frozenset({ALICE})))).events == []
        assert len((await log.bootstrap(Filter(authors=frozenset({BOB})))).events) == 1
        for wanted in (
            Filter(kinds=frozenset({"element"})),
            Filter(kinds=frozenset()),
            Filter(documents=frozenset()),
            Filter("notes/", documents=frozenset({"other"})),
            Filter("none"),
        ):
            assert (await log.bootstrap(wanted)).events == []

    async def test_a_bootstrap_is_the_same_in_parts(self, log: RelayLog) -> None:
        keys = [f"notes/{number}" for number in range(6)]
        places = await log.append([element("1", key) for key in keys], NOW_MS)
        for line in range(3):
            # What is dominated stands before, among and after what is not.
            for index, key in enumerate(keys[line:]):
                vc, author = {ALICE: 1, BOB: line}, (ALICE, BOB)[index % 2]
                new = snapshot(f"{line}", None, places[0].ts, vc, document=key, author=author)
                current = await log.snapshot(key)
                await _put(log, new._replace(revision=current and current.revision))
        for wanted in (_ANY, Filter("notes/"), Filter(authors=frozenset({BOB}))):
            whole = await log.bootstrap(wanted)
            assert (len(whole.events), whole.is_more) == (2 if wanted.authors else 6, False)
            for count_max in range(1, 8):
                events: list[Event] = []
                is_more = True
                while is_more:
                    since = events[-1].seq if events else 0
                    part = await log.bootstrap(wanted, since=since, count_max=count_max)
                    events += part.events
                    is_more = part.is_more
                    assert len(part.events) == count_max or not is_more
                assert events == whole.events

    async def test_a_bootstrap_between_two_seqs_is_compared_with_what_lies_beyond(
        self, log: RelayLog
    ) -> None:
        one, _, three = await _three_snapshots(log)
        other = snapshot("other", None, NOW_MS, document="notes/b")
        await log.append([element("1", "notes/b")], NOW_MS)
        last = await _put(log, other)
        seqs = [event.seq for event in await log.find([one.id, three.id], _ANY)]
        for since, until, expected in (
            (0, seqs[0], []),
            (0, seqs[1] - 1, []),
            (0, seqs[1], [three.id]),
            (seqs[1] - 1, None, [three.id, other.id]),
            (seqs[1], None, [other.id]),
            (seqs[1], last.seq, [other.id]),
            (seqs[1], last.seq - 1, []),
            (last.seq, None, []),
            (last.seq + 9, None, []),
            (0, last.seq + 9, [three.id, other.id]),
        ):
            found = await log.bootstrap(_ANY, since=since, until=until)
            assert [event.id for event in found.events] == expected, (since, until)
            assert (found.snapshot_seq, found.is_more) == (last.seq, False)

    async def test_a_bootstrap_leaves_out_what_was_compacted(self, log: RelayLog) -> None:
        places = await log.append(elements(2), NOW_MS)
        left = snapshot("left", None, places[1].ts, {ALICE: 1})
        await _put_each(log, left, snapshot("right", None, places[1].ts, {BOB: 1}))
        await log.compact([Removal("notes/a", [left.id], 0)])
        assert await _current(log) == [b'{"s":"right"}']

    async def test_a_bootstrap_and_its_tail_miss_nothing_and_repeat_nothing(
        self, log: RelayLog
    ) -> None:
        async def write() -> None:
            revision = None
            for index in range(20):
                place = await _one(log, f"{index}", NOW_MS)
                new = snapshot(f"{index}", revision, place.ts, {ALICE: index + 1})
                await _put(log, new)
                revision = new.id

        async def join() -> None:
            found = await log.bootstrap(_ANY)
            assert all(event.seq <= found.snapshot_seq for event in found.events)
            before = await _feed(log, until=found.snapshot_seq)
            states = [event for event in before.events if event.kind == "snapshot"]
            # The line of snapshots is total: the newest one at that point is the current one.
            assert [event.id for event in found.events] == [event.id for event in states[-1:]]

        await asyncio.gather(write(), *(join() for _ in range(20)))

    # ── the feed ───────────────────────────────────────────────────────────────────────

    async def test_the_feed_shows_events_in_the_order_of_acceptance(self, log: RelayLog) -> None:
        (place,) = await log.append([element("1", author=BOB)], NOW_MS)
        new = snapshot("s", None, place.ts, {ALICE: 1, BOB: 2}, is_deletion=True)
        put = await log.put_snapshot(new, NOW_MS + 5)
        one = element("1", author=BOB)
        assert isinstance(put, Accepted)
        page = await _feed(log)
        assert page.events == [
            Event(
                seq=place.seq,
                id=one.id,
                kind="element",
                document="notes/a",
                author=BOB,
                ts=place.ts,
                accepted_ms=NOW_MS,
                signature=one.signature,
                vc={},
                is_deletion=False,
                payload=one.data,
            ),
            Event(
                seq=put.seq,
                id=new.id,
                kind="snapshot",
                document="notes/a",
                author=ALICE,
                ts=place.ts,
                accepted_ms=NOW_MS + 5,
                signature="",
                vc={ALICE: 1, BOB: 2},
                is_deletion=True,
                payload=new.text,
            ),
        ]
        assert (page.last_seq, page.head_seq, page.is_more) == (put.seq, put.seq, False)

    async def test_since_is_exclusive_and_until_inclusive(self, log: RelayLog) -> None:
        seqs = [place.seq for place in await log.append(elements(6), NOW_MS)]
        page = await _feed(log, since=seqs[1], until=seqs[3])
        assert _seqs(page.events) == seqs[2:4]
        assert (page.last_seq, page.is_more, page.head_seq) == (seqs[3], False, seqs[5])
        page = await _feed(log, since=seqs[5])
        assert (_seqs(page.events), page.last_seq) == ([], seqs[5])
        page = await _feed(log, since=seqs[4], until=seqs[5] + 100)
        assert (_seqs(page.events), page.last_seq) == ([seqs[5]], seqs[5])
        page = await _feed(log, since=seqs[3], until=seqs[1])
        assert (_seqs(page.events), page.is_more) == ([], False)

    async def test_a_page_that_was_cut_covers_up_to_its_last_event(self, log: RelayLog) -> None:
        seqs = [place.seq for place in await log.append(elements(6), NOW_MS)]
        page = await _feed(log, count_max=2)
        assert (_seqs(page.events), page.last_seq, page.is_more) == (seqs[:2], seqs[1], True)
        page = await _feed(log, since=seqs[1], until=seqs[4], count_max=2)
        assert (_seqs(page.events), page.last_seq, page.is_more) == (seqs[2:4], seqs[3], True)

    async def test_a_page_that_is_just_full_was_not_cut(self, log: RelayLog) -> None:
        seqs = [place.seq for place in await log.append(elements(4), NOW_MS)]
        (other,) = await log.append([element("x", "other")], NOW_MS)
        page = await _feed(log, wanted=Filter(prefix="notes/"), count_max=4)
        assert (_seqs(page.events), page.last_seq, page.is_more) == (seqs, other.seq, False)

    async def test_a_feed_page_ends_once_its_bytes_are_passed(self, log: RelayLog) -> None:
        await log.append([element(f"{n}", data=b"x" * 100) for n in range(10)], NOW_MS)
        page = await _feed(log, bytes_max=250)
        sizes = [len(event.payload or b"") for event in page.events]
        assert sum(sizes[:-1]) <= 250 < sum(sizes) + 100
        assert (page.is_more, page.last_seq) == (True, page.events[-1].seq)
        page = await _feed(log, bytes_max=1)
        assert len(page.events) == 1

    async def test_what_snapshots_cover_counts_towards_the_bytes_of_a_page(
        self, log: RelayLog
    ) -> None:
        one = snapshot("one", None, 0, {ALICE: 1})
        two = snapshot("two", one.id, 0, {ALICE: 2})
        seqs = [(await _put(log, each)).seq for each in (one, two)]
        await log.compact([Removal("notes/a", {one.id}, 0)])
        page = await _feed(log, bytes_max=len(ALICE))
        assert (_seqs(page.events), page.last_seq, page.is_more) == (seqs[:1], seqs[0], True)
        assert _seqs((await _feed(log, bytes_max=_LARGE)).events) == seqs

    async def test_feed_pages_of_any_size_give_the_whole_feed(self, log: RelayLog) -> None:
        for index in range(9):
            await log.append([element(f"{index}", f"notes/{index % 3}")], NOW_MS)
            await log.append([element(f"{index}", "other")], NOW_MS)
        for wanted in (_ANY, Filter(prefix="notes/"), Filter(documents=frozenset({"notes/1"}))):
            whole = (await _feed(log, wanted=wanted)).events
            for count_max, bytes_max in ((1, _LARGE), (4, _LARGE), (_MANY, 1), (_MANY, 30)):
                assert await _walk(log, wanted, count_max, bytes_max) == whole
                for seqs_max in (1, 5):
                    assert await _walk(log, wanted, count_max, bytes_max, seqs_max) == whole

    async def test_a_page_looks_at_no_more_seqs_than_it_may(self, log: RelayLog) -> None:
        await log.append(elements(4), NOW_MS)
        (other,) = await log.append([element("x", "other")], NOW_MS)
        wanted = Filter(documents=frozenset({"other"}))
        page = await _feed(log, wanted=wanted, seqs_max=3)
        assert (page.events, page.last_seq, page.is_more) == ([], 3, True)
        page = await _feed(log, since=3, wanted=wanted, seqs_max=3)
        assert (_seqs(page.events), page.last_seq, page.is_more) == ([other.seq], other.seq, False)
        page = await _feed(log, until=2, wanted=wanted, seqs_max=3)
        assert (page.events, page.last_seq, page.is_more) == ([], 2, False)
        page = await _feed(log, since=3, until=4, wanted=wanted, seqs_max=1)
        assert (page.events, page.last_seq, page.is_more) == ([], 4, False)
        page = await _feed(log, since=100, wanted=wanted, seqs_max=1)
        assert (page.events, page.last_seq, page.is_more) == ([], 100, False)

    async def test_compacted_events_are_told_without_their_payload(self, log: RelayLog) -> None:
        places = await log.append(elements(3), NOW_MS)
        one = snapshot("one", None, places[0].ts, {ALICE: 1})
        two = snapshot("two", one.id, places[2].ts, {ALICE: 3})
        await _put(log, one)
        await _put(log, two)
        before = (await _feed(log)).events
        await log.compact([Removal("notes/a", [one.id], places[1].ts)])
        after = (await _feed(log)).events
        assert [event.payload is None for event in after] == [True, True, False, True, False]
        assert [event._replace(payload=None) for event in after] == [
            event._replace(payload=None) for event in before
        ]

    async def test_the_feed_can_be_filtered(self, log: RelayLog) -> None:
        places = await log.append(
            [
                element("1", "a/1", ALICE),
                element("2", "a/2", BOB),
                element("3", "b/1", ALICE),
                element("4", "a/1", BOB),
            ],
            NOW_MS,
        )
        put = await _put(log, snapshot("s", None, places[0].ts, document="a/1"))
        one, two, three, four = (place.seq for place in places)
        five = put.seq
        for wanted, expected in (
            (Filter(prefix="a/"), [one, two, four, five]),
            (Filter(prefix="a/1"), [one, four, five]),
            (Filter(prefix="c"), []),
            (Filter(documents=frozenset({"a/2", "b/1", "none"})), [two, three]),
            (Filter(documents=frozenset()), []),
            (Filter(prefix="a/", documents=frozenset({"a/2", "b/1"})), [two]),
            (Filter(authors=frozenset({BOB})), [two, four]),
            (Filter(authors=frozenset()), []),
            (Filter(kinds=frozenset({"snapshot"})), [five]),
            (Filter(kinds=frozenset({"element"})), [one, two, three, four]),
            (Filter(kinds=frozenset({"element", "snapshot"})), [one, two, three, four, five]),
            (Filter(kinds=frozenset()), []),
            (Filter(kinds=frozenset({"other"})), []),
            (Filter("a/", None, frozenset({ALICE}), frozenset({"element"})), [one]),
        ):
            page = await _feed(log, wanted=wanted)
            assert _seqs(page.events) == expected, wanted
            assert (page.last_seq, page.is_more) == (five, False)
            found = await log.find([event.id for event in (await _feed(log)).events], wanted)
            assert _seqs(found) == expected, wanted

    async def test_a_prefix_means_exactly_what_it_says(self, log: RelayLog) -> None:
        await log.append([element(key, key) for key in _ODD_KEYS], NOW_MS)
        for key in _ODD_KEYS:
            await _put(log, snapshot(key, None, NOW_MS, document=key))
        for prefix in ("", *_ODD_KEYS):
            expected = {key for key in _ODD_KEYS if key.startswith(prefix)}
            wanted = Filter(prefix=prefix)
            feed = await _feed(log, wanted=wanted)
            assert {event.document for event in feed.events} == expected, prefix
            found = await log.bootstrap(wanted)
            assert {event.document for event in found.events} == expected, prefix
            listed = await log.documents(prefix, count_max=_MANY)
            assert {status.document for status in listed} == expected, prefix

    # ── the replay window ──────────────────────────────────────────────────────────────

    async def test_everything_can_be_replayed_until_it_is_let_go_of(self, log: RelayLog) -> None:
        seqs = [place.seq for place in await log.append(elements(5), NOW_MS)]
        page = await _feed(log)
        assert 1 <= page.min_seq <= seqs[0]
        assert _seqs(page.events) == seqs
        await log.trim(seqs[2])
        page = await _feed(log, since=seqs[2] - 1)
        assert page.min_seq == seqs[2]
        assert _seqs(page.events) == seqs[2:]
        assert (await log.bootstrap(_ANY)).min_seq == seqs[2]

    async def test_a_cursor_below_the_window_gets_nothing(self, log: RelayLog) -> None:
        seqs = [place.seq for place in await log.append(elements(5), NOW_MS)]
        await log.trim(seqs[2])
        page = await _feed(log, since=seqs[2] - 2)
        assert (list(page.events), page.min_seq, page.head_seq) == ([], seqs[2], seqs[4])
        assert not page.is_more

    async def test_the_window_only_moves_up_and_never_past_the_next_seq(
        self, log: RelayLog
    ) -> None:
        await log.trim(100)
        assert (await _feed(log)).min_seq == 0
        seqs = [place.seq for place in await log.append(elements(5), NOW_MS)]
        assert _seqs((await _feed(log)).events) == seqs
        await log.trim(seqs[3])
        await log.trim(seqs[1])
        assert (await _feed(log, since=seqs[4])).min_seq == seqs[3]
        await log.trim(seqs[4] + 1_000)
        assert (await _feed(log, since=seqs[4])).min_seq == seqs[4] + 1
        place = await _one(log, "next", NOW_MS)
        assert _seqs((await _feed(log, since=seqs[4])).events) == [place.seq]

    async def test_what_left_the_window_is_still_there(self, log: RelayLog) -> None:
        places = await log.append(elements(3), NOW_MS)
        await log.trim(places[-1].seq + 1)
        assert len(await _rows(log)) == 3
        assert len(await log.find([each.id for each in elements(3)], _ANY)) == 3
        again = await log.append(elements(3), NOW_MS)
        assert [each[:3] for each in again] == [(*each[:2], False) for each in places]

    # ── finding by id ──────────────────────────────────────────────────────────────────

    async def test_events_are_found_by_id_in_their_order(self, log: RelayLog) -> None:
        new = [*elements(3), *elements(2, "notes/b", BOB)]
        places = await log.append(new, NOW_MS)
        put = await _put(log, snapshot("s", None, places[0].ts))
        ids = [new[4].id, snapshot("s", None, 0).id, "00" * 32, new[1].id, new[1].id]
        found = await log.find(ids, _ANY)
        assert _seqs(found) == [places[1].seq, places[4].seq, put.seq]
        assert [event.payload for event in found] == [new[1].data, new[4].data, b'{"s":"s"}']
        assert await log.find([], _ANY) == []

    async def test_payloads_that_are_too_large_are_found_as_empty_bytes(
        self, log: RelayLog
    ) -> None:
        new = [element("1", data=b"x" * 10), element("2", data=b"x" * 11), element("3")]
        places = await log.append(new, NOW_MS)
        ids = [each.id for each in new]
        found = await log.find(ids, _ANY, payload_bytes_max=10)
        assert [event.payload for event in found] == [b"x" * 10, b"", new[2].data]
        whole = await log.find(ids, _ANY)
        assert [event._replace(payload=None) for event in found] == [
            event._replace(payload=None) for event in whole
        ]
        await log.compact([Removal("notes/a", (), places[1].ts)])
        found = await log.find(ids, _ANY, payload_bytes_max=0)
        assert [event.payload for event in found] == [None, None, b""]

    async def test_a_compacted_event_is_found_without_its_payload(self, log: RelayLog) -> None:
        one, two = elements(2)
        places = await log.append([one, two], NOW_MS)
        await log.compact([Removal("notes/a", (), places[0].ts)])
        found = await log.find([one.id, two.id], _ANY)
        assert [event.payload for event in found] == [None, two.data]
        assert found[0][:8] == (*found[0][:5], places[0].ts, NOW_MS, one.signature)

    async def test_a_filter_hides_compacted_events_too(self, log: RelayLog) -> None:
        one = element("1")
        (place,) = await log.append([one], NOW_MS)
        await log.compact([Removal("notes/a", (), place.ts)])
        for wanted in (
            Filter(authors=frozenset({BOB})),
            Filter(documents=frozenset({"notes/b"})),
            Filter(kinds=frozenset({"snapshot"})),
            Filter(prefix="other"),
        ):
            assert await log.find([one.id], wanted) == []

    async def test_many_ids_are_found_in_one_call(self, log: RelayLog) -> None:
        new = elements(1_100)
        await log.append(new, NOW_MS)
        found = await log.find([each.id for each in reversed(new)], _ANY)
        assert [event.id for event in found] == [each.id for each in new]

    # ── compaction ─────────────────────────────────────────────────────────────────────

    async def test_a_compaction_says_what_it_has_removed(self, log: RelayLog) -> None:
        places = await log.append(elements(4), NOW_MS)
        await log.append(elements(2, "notes/b"), NOW_MS)
        one = snapshot("one", None, places[0].ts)
        two = snapshot("two", one.id, places[3].ts)
        await _put(log, one)
        await _put(log, two)
        size = sum(len(each.data) for each in elements(4)[:3]) + len(one.text)
        removal = Removal("notes/a", [one.id, "00" * 32], places[2].ts)
        assert await log.compact([removal]) == (3, 1, size)
        assert await log.compact([removal]) == (0, 0, 0)
        assert await log.compact([Removal("unknown", ["00" * 32], 10)]) == (0, 0, 0)
        assert await log.compact([]) == (0, 0, 0)

    async def test_a_compaction_touches_the_named_documents_alone(self, log: RelayLog) -> None:
        keys = ("notes/a", "notes/a%", "notes/aa")
        for key in keys:
            await log.append(elements(2, key), NOW_MS)
            await _put(log, snapshot("s", None, NOW_MS, document=key))
        name = snapshot("s", None, NOW_MS, document="notes/aa").id
        removed = await log.compact(
            [Removal("notes/a", [name], NOW_MS + 10), Removal("notes/a%", (), NOW_MS)]
        )
        assert removed[:2] == (3, 0)
        assert len(await _rows(log, "notes/aa")) == 2
        assert len(await _rows(log, "notes/a%", after=NOW_MS)) == 1
        assert await log.snapshot("notes/aa") is not None
        page = await log.page("notes/aa", 0, count_max=1, bytes_max=1)
        assert page.floor == 0

    async def test_a_compaction_keeps_the_current_snapshot_and_the_tail(
        self, log: RelayLog
    ) -> None:
        places = await log.append(elements(4), NOW_MS)
        one = snapshot("one", None, places[2].ts, {ALICE: 3})
        await _put(log, one)
        await log.compact([Removal("notes/a", (), places[2].ts)])
        assert await log.snapshot("notes/a") == (one.id, one.text)
        rows = await _rows(log, after=places[2].ts)
        assert [row.data for row in rows] == [elements(4)[3].data]

    # ── what there is ──────────────────────────────────────────────────────────────────

    async def test_documents_are_listed_newest_first(self, log: RelayLog) -> None:
        for index, key in enumerate(("a", "b", "c", "a")):
            await log.append([element(f"{index}", key)], NOW_MS + index)
        listed = await log.documents("", count_max=10)
        assert [status.document for status in listed] == ["a", "c", "b"]
        assert [status.document for status in await log.documents("", count_max=2)] == ["a", "c"]
        assert [status.document for status in await log.documents("b", count_max=2)] == ["b"]

    async def test_documents_are_counted(self, log: RelayLog) -> None:
        assert await log.documents_count() == 0
        await log.append([element("1", "a"), element("1", "b"), element("2", "a")], NOW_MS)
        await log.put_snapshot(snapshot("refused", None, NOW_MS + 9, document="c"), NOW_MS)
        await log.put_record("d", "roster", b"{}", None)
        await log.append([element("3", "a")], NOW_MS)
        assert await log.documents_count() == 2
        await log.put_snapshot(snapshot("taken", None, 0, document="c"), NOW_MS)
        assert await log.documents_count() == 3

    async def test_a_document_says_what_there_is_of_it(self, log: RelayLog) -> None:
        new = elements(4)
        places = await log.append(new, NOW_MS)
        one = snapshot("one", None, places[0].ts)
        two = snapshot("two", one.id, places[2].ts)
        await log.put_snapshot(one, NOW_MS + 7)
        await log.put_snapshot(two, NOW_MS + 8)
        size = sum(len(each.data) for each in new) + len(one.text) + len(two.text)
        expected = ("notes/a", 4, size, places[3].ts, 0, 2, places[2].ts, NOW_MS + 8)
        assert await log.documents("", count_max=10) == [expected]

    async def test_a_document_counts_only_what_has_its_payload(self, log: RelayLog) -> None:
        new = elements(4)
        places = await log.append(new, NOW_MS)
        one = snapshot("one", None, places[0].ts)
        two = snapshot("two", one.id, places[2].ts)
        await _put(log, one)
        await _put(log, two)
        await log.compact([Removal("notes/a", [one.id], places[2].ts)])
        (status,) = await log.documents("", count_max=10)
        assert (status.elements, status.snapshots) == (1, 1)
        assert status.payload_bytes == len(new[3].data) + len(two.text)
        assert (status.head, status.floor) == (places[3].ts, places[2].ts)
        assert status.snapshot_upto == places[2].ts

    # ── readers, grants, settings ──────────────────────────────────────────────────────

    async def test_a_readers_mark_replaces_its_former_one(self, log: RelayLog) -> None:
        await log.append([*elements(1, "a"), *elements(1, "b")], NOW_MS)
        marks = [ReaderMark("a", ALICE, 10, 1), ReaderMark("a", BOB, 20, 2)]
        await log.note_readers([*marks, ReaderMark("b", ALICE, 30, 3)])
        assert sorted(await log.readers("a")) == sorted(marks)
        await log.note_readers([ReaderMark("a", ALICE, 5, 9)])
        assert sorted(await log.readers("a")) == sorted([ReaderMark("a", ALICE, 5, 9), marks[1]])
        assert await log.readers("b") == [ReaderMark("b", ALICE, 30, 3)]
        assert await log.readers("c") == []
        await log.note_readers([])

    async def test_of_marks_in_one_call_the_last_counts(self, log: RelayLog) -> None:
        await log.append(elements(1, "a"), NOW_MS)
        await log.note_readers([ReaderMark("a", ALICE, 10, 1), ReaderMark("a", ALICE, 20, 2)])
        assert await log.readers("a") == [ReaderMark("a", ALICE, 20, 2)]

    async def test_who_reads_what_nobody_wrote_leaves_nothing_behind(self, log: RelayLog) -> None:
        await log.append(elements(1, "a"), NOW_MS)
        odd = [ReaderMark(key, ALICE, 10, 1) for key in ("", "b", "a/", "A", "a ")]
        await log.note_readers([*odd, ReaderMark("a", ALICE, 10, 1)])
        assert [await log.readers(mark.document) for mark in odd] == [[]] * len(odd)
        assert await log.readers("a") == [ReaderMark("a", ALICE, 10, 1)]

    async def test_of_very_many_readers_those_who_read_last_are_known(self, log: RelayLog) -> None:
        await log.append([*elements(1, "a"), *elements(1, "b")], NOW_MS)
        await log.note_readers([ReaderMark("b", ALICE, 1, 1), ReaderMark("a", "first", 1, 1)])
        many = [ReaderMark("a", f"{n:064x}", 10, 2 + n) for n in range(READERS_MAX)]
        await log.note_readers(many[1:])
        assert len(await log.readers("a")) == READERS_MAX
        await log.note_readers(many)
        assert sorted(await log.readers("a")) == many
        again = ReaderMark("a", "first", 5, 10**6)
        await log.note_readers([again])
        assert sorted(await log.readers("a")) == sorted([*many[1:], again])
        assert await log.readers("b") == [ReaderMark("b", ALICE, 1, 1)]

    async def test_a_grant_replaces_an_older_one(self, log: RelayLog) -> None:
        old, new = _grant(at=1, roles=["read"]), _grant(at=2, roles=["read", "write"])
        await log.put_grant(old, NOW_MS)
        assert await log.grants() == [old]
        await log.put_grant(new, NOW_MS)
        assert await log.grants() == [new]

    async def test_an_older_grant_never_comes_back(self, log: RelayLog) -> None:
        revoked = _grant(at=5, roles=[])
        await log.put_grant(revoked, NOW_MS)
        await log.put_grant(_grant(at=4, roles=["write"]), NOW_MS)
        assert await log.grants() == [revoked]

    async def test_grants_of_others_stand_side_by_side(self, log: RelayLog) -> None:
        grants = [
            _grant(at=1),
            _grant(at=1, by=BOB),
            _grant(at=1, to=ALICE),
            _grant(at=1, prefix="notes/%"),
            _grant(at=1, prefix="notes/🦉", expires=NOW_MS),
        ]
        for grant in grants:
            await log.put_grant(grant, NOW_MS)
        found = {(grant["by"], grant["to"], grant["prefix"]): grant for grant in await log.grants()}
        assert found == {(grant["by"], grant["to"], grant["prefix"]): grant for grant in grants}
        assert len(await log.grants()) == len(grants)

    async def test_a_record_is_read_back_as_it_was(self, log: RelayLog) -> None:
        text = '{"a":"日本🦉\\u0000 \'\\""}'.encode()
        revision = await log.put_record("notes/a", "roster", text, None)
        assert revision == sha256(text).hexdigest() == record_revision(text)
        assert await log.record("notes/a", "roster") == StoredRecord(revision, text)
        assert await log.record("notes/a", "keyring") is None
        assert await log.record("notes/A", "roster") is None

    async def test_a_record_replaces_the_revision_that_it_names(self, log: RelayLog) -> None:
        first = await _keep(log, b"one", None)
        second = await _keep(log, b"two", first)
        assert await log.record("notes/a", "roster") == StoredRecord(second, b"two")
        for stale in (None, first, "00" * 32):
            assert await log.put_record("notes/a", "roster", b"three", stale) == Conflict(
                second, "another record is current"
            )
        assert await log.record("notes/a", "roster") == StoredRecord(second, b"two")

    async def test_a_record_replaces_nothing_where_there_is_none(self, log: RelayLog) -> None:
        answer = await log.put_record("notes/a", "roster", b"one", "00" * 32)
        assert answer == Conflict(None, "another record is current")
        assert await log.record("notes/a", "roster") is None

    async def test_the_same_record_again_is_answered_as_before(self, log: RelayLog) -> None:
        first = await _keep(log, b"one", None)
        second = await _keep(log, b"two", first)
        # The answer to either may have been lost.
        assert await log.put_record("notes/a", "roster", b"two", first) == second
        assert await log.put_record("notes/a", "roster", b"two", None) == second
        assert await log.put_record("notes/a", "roster", b"two", second) == second
        answer = await log.put_record("notes/a", "roster", b"one", None)
        assert isinstance(answer, Conflict)

    async def test_a_record_may_return_to_an_earlier_text(self, log: RelayLog) -> None:
        first = await _keep(log, b"one", None)
        second = await _keep(log, b"two", first)
        assert await _keep(log, b"one", second) == first
        assert await log.record("notes/a", "roster") == StoredRecord(first, b"one")

    async def test_of_records_at_once_one_wins(self, log: RelayLog) -> None:
        base = await _keep(log, b"base", None)
        texts = [b"%d" % number for number in range(8)]
        answers = await asyncio.gather(
            *(log.put_record("notes/a", "roster", text, base) for text in texts)
        )
        (winner,) = [answer for answer in answers if isinstance(answer, str)]
        stored = await log.record("notes/a", "roster")
        assert stored is not None
        assert stored.revision == winner
        assert all(answer.revision == winner for answer in answers if isinstance(answer, Conflict))

    async def test_records_stand_side_by_side_and_are_no_events(self, log: RelayLog) -> None:
        for document in _ODD_KEYS:
            for name in ("roster", "keyring"):
                text = f"{document} {name}".encode()
                await log.put_record(document, name, text, None)
        for document in _ODD_KEYS:
            for name in ("roster", "keyring"):
                stored = await log.record(document, name)
                assert stored is not None
                assert stored.text == f"{document} {name}".encode()
        assert (await _feed(log)).head_seq == 0
        assert await log.documents("", count_max=10) == []

    async def test_a_large_record_is_kept_whole(self, log: RelayLog) -> None:
        text = "ü".encode() * (RECORD_BYTES_MAX // 2)
        revision = await _keep(log, text, None)
        assert await log.record("notes/a", "roster") == StoredRecord(revision, text)

    async def test_settings_keep_json_values(self, log: RelayLog) -> None:
        values: dict[str, Any] = {
            "none": None,
            "flag": True,
            "number": 2**53 - 1,
            "fraction": 0.5,
            "text": "日本🦉\x00",
            "nested": {"list": [1, {"a": None}], "": ""},
        }
        for name, value in values.items():
            await log.put_setting(name, value)
        assert await log.settings() == values
        await log.put_setting("flag", [False])
        assert await log.settings() == values | {"flag": [False]}


# ── reading in one line ────────────────────────────────────────────────────────────────


async def _rows(log: RelayLog, document: str = "notes/a", after: int = 0) -> list[Row]:
    page = await log.page(document, after, count_max=10_000, bytes_max=_LARGE)
    assert not page.is_more
    return list(page.rows)


async def _feed(
    log: RelayLog,
    *,
    since: int = 0,
    until: int | None = None,
    wanted: Filter = _ANY,
    count_max: int = 10_000,
    bytes_max: int = _LARGE,
    seqs_max: int | None = None,
) -> Any:
    page = await log.feed(
        since, until, wanted, count_max=count_max, bytes_max=bytes_max, seqs_max=seqs_max
    )
    return page._replace(events=list(page.events))


async def _walk(
    log: RelayLog, wanted: Filter, count_max: int, bytes_max: int, seqs_max: int | None = None
) -> list[Event]:
    events: list[Event] = []
    since, is_more = 0, True
    while is_more:
        page = await _feed(
            log,
            since=since,
            wanted=wanted,
            count_max=count_max,
            bytes_max=bytes_max,
            seqs_max=seqs_max,
        )
        events += page.events
        since, is_more = page.last_seq, page.is_more
    return events


# ── writing in one line ────────────────────────────────────────────────────────────────


async def _one(log: RelayLog, text: str, now_ms: int) -> Accepted:
    (accepted,) = await log.append([element(text)], now_ms)
    assert accepted.is_new
    return accepted


async def _put(log: RelayLog, new: NewSnapshot, now_ms: int = NOW_MS) -> Accepted:
    answer = await log.put_snapshot(new, now_ms)
    assert isinstance(answer, Accepted), answer
    return answer


async def _keep(log: RelayLog, text: bytes, revision: str | None) -> str:
    answer = await log.put_record("notes/a", "roster", text, revision)
    assert isinstance(answer, str), answer
    return answer


async def _current(log: RelayLog) -> list[bytes | None]:
    """The texts of the snapshots that a bootstrap names."""
    ids = [event.id for event in (await log.bootstrap(_ANY)).events]
    return [event.payload for event in await log.find(ids, _ANY)]


async def _put_each(log: RelayLog, *new: NewSnapshot) -> None:
    revision = None
    for each in new:
        await _put(log, each._replace(revision=revision))
        revision = each.id


async def _conflict(log: RelayLog, new: NewSnapshot, current: str | None) -> None:
    answer = await log.put_snapshot(new, NOW_MS)
    assert isinstance(answer, Conflict), answer
    assert answer.revision == current
    assert answer.reason


async def _three_snapshots(log: RelayLog) -> tuple[NewSnapshot, NewSnapshot, NewSnapshot]:
    places = await log.append(elements(3), NOW_MS)
    one = snapshot("one", None, places[0].ts, {ALICE: 1})
    two = snapshot("two", one.id, places[1].ts, {ALICE: 2, BOB: 1})
    three = snapshot("three", two.id, places[2].ts, {ALICE: 3, BOB: 1}, is_deletion=True)
    for index, new in enumerate((one, two, three)):
        await _put(log, new, NOW_MS + 1 + index)
    return one, two, three


def _grant(
    *,
    at: int,
    by: str = ALICE,
    to: str = BOB,
    prefix: str = "notes/",
    roles: Sequence[str] = ("read",),
    expires: int | None = None,
) -> dict[str, Any]:
    grant = {"v": 1, "prefix": prefix, "to": to, "roles": list(roles), "by": by, "at": at}
    return grant | {"signature": "c2ln"} | ({} if expires is None else {"expires": expires})


def _seqs(events: Sequence[Event]) -> list[int]:
    return [event.seq for event in events]


def _assert_rising(numbers: Sequence[int]) -> None:
    assert all(left < right for left, right in pairwise(numbers))

"""Keystrokes are folded as one, with the outcome of folding them one by one.

Elements that are pulled as text may be gathered, elements that are pulled as JSON never are: two
readers of one log, one of each kind, must agree in everything that can be seen of a log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    KEY,
    MALLORY,
    MEMBERS,
    JsonElement,
    RiggedLog,
    document,
    link_of,
    opened,
    signed,
    spoiled,
    state_of,
)
from walstore.canon import canonical_bytes, parse
from walstore.crdt import Change, ListChanged, Run, WalCrdt, to_ops
from walstore.crdt.runs import Insert, Remove, Set
from walstore.document import Fork, Rejection
from walstore.document.entries import Stretch
from walstore.document.gaps import SequenceTracker
from walstore.document.history import blame_list, versions_of
from walstore.document.log import DocumentLog
from walstore.document.ports import RawElement
from walstore.net import MemoryTransport
from walstore.sealed import PlainEncryptor
from walstore.signed import Identity
from walstore.wire.envelope import Header, inner_packed, outer_packed
from walstore.wire.limits import COUNTER_JUMP_MAX, ELEMENT_BYTES_MAX, TS_AHEAD_MS_MAX

NOW_MS = 1_800_000_000_000
AUTHORS = {"alice": ALICE, "bob": BOB, "mallory": MALLORY}


def as_text(element: JsonElement) -> RawElement:
    data = canonical_bytes(element["data"])
    return RawElement(element["ts"], data, element["authorPubkey"], element["authorSignature"])


def new_log() -> DocumentLog:
    return DocumentLog(
        KEY,
        encryptor=PlainEncryptor(),
        is_writer=MEMBERS.__contains__,
        now_ms=lambda: NOW_MS,
    )


# ── scripts ────────────────────────────────────────────────────────────────────────────


class Act(NamedTuple):
    """What somebody does, some times over."""

    author: str
    session: str
    kind: str
    times: int
    flaw: str


acts = st.builds(
    Act,
    st.sampled_from(["alice", "alice", "alice", "bob", "mallory"]),
    st.sampled_from(["s", "s", "s", "t"]),
    st.sampled_from(["type", "type", "type", "backspace", "move", "follow", "set"]),
    st.integers(1, 5),
    st.sampled_from(
        ["", "", "", "", "forged", "unlinked", "gap", "fork", "retry", "far", "again", "stolen"]
    ),
)


class Session:
    """How far a session of the script has come."""

    def __init__(self, author: Identity, name: str) -> None:
        self.author = author
        self.name = name
        self.replica = f"{author.public_key}:{name}"
        self.seq = 0
        self.typed = 0


class Script:
    """Makes a log of acts."""

    def __init__(self) -> None:
        self.elements: list[JsonElement] = []
        self._sessions: dict[tuple[str, str], Session] = {}
        self._counter = 0
        self._links: dict[str, str | None] = {}
        self._foreign: tuple[str, int] = ("", 0)

    def play(self, act: Act) -> None:
        author = AUTHORS[act.author]
        key = (act.author, act.session)
        session = self._sessions.setdefault(key, Session(author, act.session))
        for number in range(act.times):
            # What is wrong is wrong with one of them.
            self._write(session, act.kind, act.flaw if number == act.times // 2 else "")

    def _write(self, session: Session, kind: str, flaw: str) -> None:
        if flaw == "again" and self.elements:
            self._add(self.elements[self._counter % len(self.elements)])
            return
        session.seq += 2 if flaw == "gap" else 1
        counter = self._counter + 1 + (COUNTER_JUMP_MAX + 1 if flaw == "far" else 0)
        if flaw in ("fork", "retry") and session.typed:
            counter = session.typed
        runs = [self._run(session, kind, counter, "x" if flaw == "fork" else "abc"[counter % 3])]
        author = session.author.public_key
        prev = None if flaw == "unlinked" else self._links.get(author)
        named = MALLORY.public_key if flaw == "stolen" else author
        header = Header(session.name, session.seq, prev, {})
        body = inner_packed(session.replica, runs)
        element = signed(outer_packed(body, named, header), session.author)
        self._links[author] = link_of(element)
        if flaw != "far":
            self._counter = max(self._counter, counter)
        if kind in ("type", "move", "follow"):
            session.typed = counter
            self._foreign = (session.replica, counter)
        self._add(spoiled(element) if flaw == "forged" else element)

    def _run(self, session: Session, kind: str, counter: int, text: str) -> Run:
        own, last = session.replica, min(session.typed, counter - 1)
        if kind == "set":
            return Set("r", own, counter, text)
        if kind == "backspace" and last:
            return Remove("t", own, counter, own, last)
        if kind == "follow" and 0 < self._foreign[1] < counter:
            return Insert("t", own, counter, *self._foreign, text)
        if kind == "move" or not last:
            return Insert("t", own, counter, "", 0, text)
        return Insert("t", own, counter, own, last, text)

    def _add(self, element: JsonElement) -> None:
        self.elements.append({**element, "ts": len(self.elements) + 1})


def log_of(*script: Act) -> list[JsonElement]:
    """The elements that acts make."""
    writing = Script()
    for act in script:
        writing.play(act)
    return writing.elements


# ── what can be seen ───────────────────────────────────────────────────────────────────


def seen_of(log: DocumentLog) -> dict[str, Any]:
    """Everything that can be seen of a log."""
    return {
        "state": log.crdt.canonical_state(),
        "counter": (log.counter, log.crdt.counter, log.checkpoint, log.is_out_of_order),
        "entries": [
            (each.element, each.ts, each.link, each.header, each.author_seq, to_ops(each.runs))
            for each in log.ledger.entries
        ],
        "versions": versions_of(log.ledger.parts()),
        "blame": blame_list(log.crdt, "t", log.ledger),
        "heads": log.heads,
        "gaps": log.tracker.gaps(),
        "seqs": log.tracker.seqs(),
        "before": [log._counter_before(ts) for ts in range(min(log.checkpoint, 100) + 2)],
        "aside": (list(log._unproven), list(log._too_far), log.own_unread()),
    }


def event_of(event: object) -> object:
    """An event, with evidence that does not depend on how it was pulled."""
    if isinstance(event, Rejection) and isinstance(event.evidence, RawElement):
        ts, data, author, signature = event.evidence
        evidence = {
            "ts": ts,
            "data": parse(data),
            "authorPubkey": author,
            "authorSignature": signature,
        }
        return event._replace(evidence=evidence)
    return event


def read_both(
    elements: Sequence[JsonElement],
    cuts: Sequence[int] = (),
    covered: Mapping[str, int] | None = None,
) -> tuple[DocumentLog, DocumentLog]:
    """Read a log in pages, as text and as JSON, and compare after every page."""
    gathered, single = new_log(), new_log()
    gathered.covered = single.covered = covered or {}
    shown: list[list[Any]] = [[], []]
    bounds = [0, *sorted(cuts), len(elements)]
    for start, stop in pairwise(bounds):
        page = elements[start:stop]
        changes: tuple[list[Change], list[Change]] = [], []
        left = gathered.read(list(map(as_text, page)), changes[0])
        right = single.read(page, changes[1])
        assert list(map(event_of, left.events)) == list(map(event_of, right.events))
        assert [each.link for each in left.folded] == [each.link for each in right.folded]
        assert len(left.folded) == len(right.folded)
        assert seen_of(gathered) == seen_of(single)
        for values, made in zip(shown, changes, strict=True):
            follow(values, made)
            assert values == gathered.crdt.list_values("t")
    return gathered, single


def follow(values: list[Any], changes: Sequence[Change]) -> None:
    for change in changes:
        if isinstance(change, ListChanged):
            values[change.position : change.position + change.removed] = change.inserted


@settings(deadline=None)
@given(st.lists(acts, max_size=12), st.data())
def test_two_readers_agree_whichever_way_they_pull(script: list[Act], data: st.DataObject) -> None:
    elements = log_of(*script)
    cuts = data.draw(st.lists(st.integers(0, len(elements)), max_size=3))
    gathered, single = read_both(elements, cuts)
    # The same once more, under another `ts`.
    later = [{**each, "ts": each["ts"] + len(elements)} for each in elements]
    gathered.read(list(map(as_text, later)))
    single.read(later)
    assert seen_of(gathered) == seen_of(single)


@settings(deadline=None)
@given(st.lists(acts, max_size=12))
def test_readers_of_one_element_at_a_time_agree_as_well(script: list[Act]) -> None:
    elements = log_of(*script)
    read_both(elements, range(1, len(elements)))


@settings(deadline=None)
@given(st.lists(acts, max_size=8), st.integers(0, 8))
def test_what_a_barrier_covers_does_not_come_back(script: list[Act], seq: int) -> None:
    covered = {f"{ALICE.public_key}:s": seq}
    elements = log_of(*script)
    read_both(elements, range(1, len(elements)), covered=covered)
    gathered, _ = read_both(elements, covered=covered)
    for entry in gathered.ledger.entries:
        assert entry.header is not None
        assert entry.header.seq > covered.get(f"{entry.author}:{entry.header.session}", 0)


@settings(deadline=None)
@given(st.lists(acts.filter(lambda act: act.flaw != "far"), max_size=8))
def test_a_fold_up_to_any_element_is_that_of_the_elements_up_to_it(script: list[Act]) -> None:
    elements = log_of(*script)
    gathered, _ = read_both(elements)
    for ts in range(len(elements) + 1):
        one_by_one, at_once = WalCrdt(), WalCrdt()
        for entry in sorted(gathered.ledger.entries, key=lambda entry: entry.ts):
            if entry.ts <= ts:
                one_by_one.fold_runs(entry.runs)
        gathered.ledger.fold_into(at_once, upto_ts=ts)
        assert at_once.canonical_state() == one_by_one.canonical_state()


BAD_TIMES: list[Any] = [0, 3, 4, -1, 2**53, NOW_MS + TS_AHEAD_MS_MAX + 1, 5.0, True, "5", None]


@pytest.mark.parametrize("ts", BAD_TIMES)
def test_a_ts_out_of_place_is_noticed_among_keystrokes(ts: Any) -> None:
    elements = log_of(Act("alice", "s", "type", 8, ""))
    for place in (0, 4, 7):
        moved = [*elements[:place], {**elements[place], "ts": ts}, *elements[place + 1 :]]
        read_both(moved)
        read_both(moved, [place])


def test_a_keystroke_beyond_the_size_of_an_element_is_rejected() -> None:
    own, header = f"{ALICE.public_key}:s", Header("s", 1, None, {})
    for size, is_fine in ((ELEMENT_BYTES_MAX // 2, True), (ELEMENT_BYTES_MAX, False)):
        body = inner_packed(own, [Insert("t", own, 1, "", 0, "x" * size)])
        element = signed(outer_packed(body, ALICE.public_key, header), ALICE)
        log = new_log()
        reading = log.read([as_text({**element, "ts": 1})])
        assert (len(reading.folded), len(reading.events)) == ((1, 0) if is_fine else (0, 1))
        assert log.crdt.list_length("t") == (size if is_fine else 0)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4), st.booleans()), max_size=6))
@example([(1, 1, False), (1, 1, True), (1, 2, False), (4, 1, False)])
def test_seqs_in_a_row_count_as_they_do_one_by_one(rows: list[tuple[int, int, bool]]) -> None:
    at_once, one_by_one = SequenceTracker(), SequenceTracker()
    for seq, size, is_excused in rows:
        for tracker in (at_once, one_by_one) if is_excused else ():
            tracker.excuse("a")
        first, *rest = [one_by_one.note("a", None, seq + offset) for offset in range(size)]
        assert at_once.note_all("a", None, seq, size) == first
        assert rest == [None] * (size - 1)
        assert at_once.gaps() == one_by_one.gaps()
        assert at_once.highest("a", None) == one_by_one.highest("a", None)


def test_keystrokes_in_a_row_are_kept_as_one() -> None:
    gathered, single = read_both(log_of(*[Act("alice", "s", "type", 50, "")] * 4))
    assert [type(part) for part in gathered.ledger.entries.parts] == [Stretch]
    assert len(gathered.ledger.entries) == len(single.ledger.entries.parts) == 200
    assert gathered.ledger.entries[7].ts == 8
    assert [each.ts for each in gathered.ledger.entries[198:]] == [199, 200]


def test_keystrokes_that_come_one_by_one_are_kept_as_one_after_the_first() -> None:
    elements = log_of(*[Act("alice", "s", "type", 50, "")] * 4)
    gathered, single = read_both(elements, range(1, 200))
    assert list(map(len, gathered.ledger.entries.parts)) == [1, 199]
    assert [each.ts for each in gathered.ledger.entries] == list(range(1, 201))
    assert gathered.ledger.upto(77).find_origin(f"{ALICE.public_key}:s", 77, 200) == (
        (ALICE.public_key, 77),
        78,
    )
    assert len(single.ledger.entries.parts) == 200


def test_what_is_read_in_between_parts_keystrokes_that_come_one_by_one() -> None:
    script = [
        Act("alice", "s", "type", 4, ""),
        Act("bob", "s", "type", 3, ""),
        Act("alice", "s", "type", 3, ""),
        Act("alice", "s", "set", 1, ""),
        Act("alice", "s", "type", 3, ""),
        Act("alice", "s", "type", 1, "forged"),
        Act("alice", "s", "type", 3, ""),
    ]
    elements = log_of(*script)
    gathered, _ = read_both(elements, range(1, len(elements)))
    # One was forged.
    assert sum(map(len, gathered.ledger.entries.parts)) == len(elements) - 1
    for part in gathered.ledger.entries.parts:
        times = [element.ts for element in part.newest(len(part))]
        assert times == list(range(times[0], times[0] + len(times)))


def test_what_was_handed_out_does_not_grow_with_what_comes_later() -> None:
    elements = list(map(as_text, log_of(*[Act("alice", "s", "type", 30, "")])))
    log = new_log()
    readings = [log.read(elements[:10]), *(log.read([each]) for each in elements[10:])]
    assert [len(reading.folded) for reading in readings] == [10] + [1] * 20
    assert [each.ts for reading in readings for each in reading.folded] == list(range(1, 31))


ANYTHING: list[Any] = [None, 1, 2.0, True, "x", b"x", "ü" * 88, [], {}, "0" * 64]


@pytest.mark.parametrize(
    ("field", "value"),
    [("data", value) for value in (b"", b"x", b"{}", b"\xff")]
    + [(field, value) for field in ("ts", "author", "signature") for value in ANYTHING],
)
def test_anything_in_the_place_of_a_field_is_taken_as_it_is_among_others(
    field: str, value: Any
) -> None:
    elements = list(map(as_text, log_of(Act("alice", "s", "type", 4, ""))))
    spoilt = elements[3]._replace(**{field: value})
    logs = new_log(), new_log()
    logs[0].read(elements[:3])
    alone = logs[0].read([spoilt])
    among = logs[1].read([*elements[:3], spoilt])
    assert alone.events == among.events
    assert seen_of(logs[0]) == seen_of(logs[1])


def test_an_unusual_element_parts_the_keystrokes_around_it_and_no_more() -> None:
    script = [
        Act("alice", "s", "type", 9, ""),
        Act("alice", "s", "set", 1, ""),
        Act("alice", "s", "type", 9, ""),
        Act("bob", "s", "type", 9, ""),
    ]
    gathered, _ = read_both(log_of(*script))
    assert list(map(len, gathered.ledger.entries.parts)) == [9, 1, 9, 9]


def test_a_forged_element_among_keystrokes_is_the_only_one_rejected() -> None:
    elements = log_of(Act("alice", "s", "type", 9, ""), Act("alice", "s", "set", 1, ""))
    elements[8] = {**spoiled(elements[8]), "ts": 9}
    gathered, _ = read_both(elements[:9])
    assert [entry.ts for entry in gathered.ledger.entries] == list(range(1, 9))
    assert gathered.crdt.list_length("t") == 8


def test_a_clock_used_twice_is_reported_with_the_element_that_used_it_first() -> None:
    script = [Act("alice", "s", "type", 9, ""), Act("alice", "s", "type", 1, "fork")]
    log = new_log()
    events = log.read(list(map(as_text, log_of(*script)))).events
    (fork,) = events
    assert isinstance(fork, Fork)
    assert (fork.counter, fork.first.ts, fork.second.ts) == (9, 9, 10)


async def test_a_document_is_the_same_whichever_way_its_log_is_pulled() -> None:
    transport = MemoryTransport(page_size=7)
    alice, bob = await opened(transport, ALICE), await opened(transport, BOB)
    for number in range(40):
        for doc in (alice, bob) if number % 10 == 0 else (alice,):
            await doc.pull()
            doc.insert_text("t", number % 4 * 3, 'añ\n"😀'[number % 5])
            if number % 6 == 5:
                doc.remove_text("t", number // 2, 1)
            await doc.commit()
    elements = [
        {
            "ts": ts,
            "data": parse(data),
            "authorPubkey": author,
            "authorSignature": signature,
        }
        for ts, data, author, signature in await transport.tail(KEY, 1000, 1000)
    ]
    readers = []
    for source in (transport, RiggedLog(elements)):
        for posture in ("re-derive", "trust-retain-tail"):
            doc = document(source, CAROL, posture=posture, retain_tail_n=5)
            readers.append(await doc.open())
    first = readers[0]
    for reader in readers:
        assert state_of(reader) == state_of(first)
        assert reader.history() == first.history()
        assert reader.blame("t") == first.blame("t")
        assert reader.retained_tail() == first.retained_tail()
        assert reader.marks == first.marks
        assert [reader.at(ts) for ts in (0, 3, 20, 41)] == [first.at(ts) for ts in (0, 3, 20, 41)]
    assert len(first.history()) == len(elements)

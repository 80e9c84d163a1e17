"""What a retention policy keeps and lets go of, decided on paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walstore.relay.frontier import UNDOMINATED_COUNTS_MAX, UNDOMINATED_MAX, is_crowded
from walstore.relay.log import Event, NewSnapshot, dominates
from walstore.relay.retention import (
    CLIENT_POLICY,
    DAY_MS,
    LogMode,
    Policy,
    PolicyError,
    SnapshotMode,
    current_ids,
    plan_elements,
    plan_replay,
    plan_snapshots,
)

NOW_MS = 1_700_000_000_000


def snapshot(
    name: str,
    seq: int,
    vc: Mapping[str, int],
    *,
    ts: int = 10,
    age_days: float = 0,
    is_deletion: bool = False,
) -> Event:
    return Event(
        seq=seq,
        id=name,
        kind="snapshot",
        document="notes/a",
        author="0" * 64,
        ts=ts,
        accepted_ms=NOW_MS - int(age_days * DAY_MS),
        signature="",
        vc=vc,
        is_deletion=is_deletion,
        payload=b"",
    )


def line(count: int, *, writer: str = "A", first_seq: int = 1, **options: Any) -> list[Event]:
    """Snapshots of one writer, each dominating the one before."""
    return [
        snapshot(f"{writer}{place}", first_seq + place - 1, {writer: place}, **options)
        for place in range(1, count + 1)
    ]


# ── the policy ─────────────────────────────────────────────────────────────────────────


def test_the_default_keeps_the_whole_log_and_four_snapshots() -> None:
    policy = Policy()
    assert policy.snapshot_mode is SnapshotMode.RECENT_HISTORY
    assert (policy.recent_count, policy.retain_tail_n) == (4, 64)
    assert policy.log_mode is LogMode.KEEP_FULL_HISTORY
    assert policy.replay_window is None
    assert policy.compaction_interval_seconds == 300
    assert not policy.require_archive


def test_a_policy_is_read_as_it_is_written() -> None:
    policy = Policy.read(
        {
            "snapshot_mode": "current_only",
            "log_mode": "compact_below_snapshot",
            "recent_count": 9,
            "payload_retention_days": None,
            "require_archive": True,
            "replay_window": 1000,
        }
    )
    assert policy.snapshot_mode is SnapshotMode.CURRENT_ONLY
    assert policy.log_mode is LogMode.COMPACT_BELOW_SNAPSHOT
    assert policy.payload_retention_days is None
    assert Policy.read(policy.as_json()) == policy
    assert Policy.read({}) == Policy()


def test_a_policy_is_changed_member_by_member() -> None:
    policy = Policy(recent_count=7)
    changed = policy.changed({"payload_retention_days": 30})
    assert (changed.recent_count, changed.payload_retention_days) == (7, 30)
    assert policy.payload_retention_days == 0


WRONG: list[tuple[str, Any]] = [
    ("snapshot_mode", "newest"),
    ("snapshot_mode", None),
    ("snapshot_mode", "keep_full_history"),
    ("log_mode", "current_only"),
    ("log_mode", True),
    ("log_mode", []),
    ("recent_count", 0),
    ("recent_count", -1),
    ("recent_count", "4"),
    ("recent_count", 4.0),
    ("recent_count", True),
    ("recent_count", None),
    ("recent_count", 10**400),
    ("history_count", -1),
    ("payload_retention_days", -1),
    ("payload_retention_days", 0.5),
    ("payload_retention_days", "30d"),
    ("retain_tail_n", -1),
    ("retain_tail_n", None),
    ("require_archive", "yes"),
    ("require_archive", 1),
    ("replay_window", -1),
    ("replay_window", 2**53),
    ("compaction_interval_seconds", 0),
    ("compaction_interval_seconds", None),
    ("recent_cuont", 4),
    ("", 1),
]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_wrong_member_is_refused_by_its_name(key: str, value: Any) -> None:
    policy = Policy()
    with pytest.raises(PolicyError, match=rf"retention\.{key}") as caught:
        policy.changed({key: value})
    assert caught.value.key == key
    if key in Policy().as_json() and not isinstance(value, str):
        with pytest.raises(PolicyError):
            Policy(**{key: value})


@pytest.mark.parametrize("key", ["ttl", "ttl_days", "log_ttl", "TTL"])
def test_a_log_with_a_time_to_live_is_refused_with_the_reason(key: str) -> None:
    with pytest.raises(PolicyError, match="append-only"):
        Policy.read({key: 30})


# ── snapshots ──────────────────────────────────────────────────────────────────────────


def worked_case() -> list[Event]:
    a1, a2, a3, a4, a5 = line(5)
    b1 = snapshot("B1", 2, {"B": 1})
    later = [each._replace(seq=each.seq + 1) for each in (a2, a3, a4, a5)]
    return [a1, b1, *later]


def test_the_worked_case() -> None:
    assert plan_snapshots(Policy(recent_count=4), worked_case(), NOW_MS) == ["A1", "A2"]


@pytest.mark.parametrize(
    ("policy", "gone"),
    [
        (Policy(snapshot_mode=SnapshotMode.CURRENT_ONLY), ["A1", "A2", "A3", "A4"]),
        (Policy(snapshot_mode=SnapshotMode.FULL_RETENTION), []),
        (Policy(recent_count=1), ["A1", "A2", "A3", "A4"]),
        (Policy(recent_count=2), ["A1", "A2", "A3", "A4"]),
        (Policy(recent_count=3), ["A1", "A2", "A3"]),
        (Policy(recent_count=6), []),
        (Policy(recent_count=99), []),
        (Policy(payload_retention_days=None), []),
        (CLIENT_POLICY, []),
    ],
)
def test_modes_and_counts(policy: Policy, gone: list[str]) -> None:
    assert plan_snapshots(policy, worked_case(), NOW_MS) == gone


def test_more_conflicts_than_the_window_are_all_kept_and_no_history() -> None:
    conflicts = [snapshot(name, seq, {name: 2}) for seq, name in enumerate("PQRST", start=6)]
    former = [snapshot(name.lower(), seq, {name: 1}) for seq, name in enumerate("PQRST", start=1)]
    gone = plan_snapshots(Policy(recent_count=4), [*former, *conflicts], NOW_MS)
    assert gone == ["p", "q", "r", "s", "t"]


def test_a_client_keeps_ten_of_the_history_whatever_is_current() -> None:
    events = [*line(15), *line(3, writer="B", first_seq=16)]
    gone = plan_snapshots(CLIENT_POLICY, events, NOW_MS)
    assert len(events) - len(gone) == 2 + 10
    assert gone == [f"A{place}" for place in range(1, 7)]


@pytest.mark.parametrize("mode", [SnapshotMode.CURRENT_ONLY, SnapshotMode.RECENT_HISTORY])
def test_a_deletion_is_kept_while_the_document_is_deleted(mode: SnapshotMode) -> None:
    policy = Policy(snapshot_mode=mode, recent_count=1)
    deletion = snapshot("gone", 9, {"A": 5}, ts=20, is_deletion=True)
    assert plan_snapshots(policy, [*line(5), deletion], NOW_MS) == ["A1", "A2", "A3", "A4", "A5"]
    again = snapshot("again", 10, {"A": 6}, ts=30)
    assert "gone" in plan_snapshots(policy, [*line(5), deletion, again], NOW_MS)


def test_age_counts_from_acceptance() -> None:
    policy = Policy(snapshot_mode=SnapshotMode.CURRENT_ONLY, payload_retention_days=30)
    old = snapshot("old", 1, {"A": 1}, age_days=30)
    young = snapshot("young", 2, {"A": 2}, age_days=29.9, ts=1)
    # A producer that says that it covers nothing, or everything, is not older or younger for that.
    newest = snapshot("newest", 3, {"A": 3})
    assert plan_snapshots(policy, [old, young, newest], NOW_MS) == ["old"]
    assert plan_snapshots(policy, [old, young, newest], NOW_MS + DAY_MS) == ["old", "young"]


def test_a_clock_that_was_set_back_keeps_nothing() -> None:
    policy = Policy(snapshot_mode=SnapshotMode.CURRENT_ONLY)
    assert plan_snapshots(policy, line(3, age_days=-5), NOW_MS) == ["A1", "A2"]


def test_where_there_are_no_snapshots_none_go() -> None:
    assert plan_snapshots(Policy(), [], NOW_MS) == []


def test_what_readers_get_is_kept_even_if_another_claims_more() -> None:
    claims = snapshot("claims", 1, {"A": 99}, ts=10)
    honest = snapshot("honest", 2, {"A": 5}, ts=10)
    assert dominates(claims, honest)
    gone = plan_snapshots(Policy(snapshot_mode=SnapshotMode.CURRENT_ONLY), [claims, honest], NOW_MS)
    assert gone == []


clocks = st.dictionaries(st.sampled_from("ABC"), st.integers(1, 4), max_size=3)
histories = st.lists(st.tuples(clocks, st.integers(0, 4), st.integers(0, 9)), max_size=12)
policies = st.builds(
    Policy,
    snapshot_mode=st.sampled_from(SnapshotMode),
    recent_count=st.integers(1, 6),
    history_count=st.integers(0, 3),
    payload_retention_days=st.none() | st.integers(0, 6),
)


def events_of(history: list[tuple[dict[str, int], int, int]]) -> list[Event]:
    return [
        snapshot(f"s{seq}", seq, vc, ts=ts, age_days=age)
        for seq, (vc, ts, age) in enumerate(history, start=1)
    ]


@given(histories, policies)
def test_nothing_current_ever_goes(
    history: list[tuple[dict[str, int], int, int]], policy: Policy
) -> None:
    events = events_of(history)
    gone = set(plan_snapshots(policy, events, NOW_MS))
    for event in events:
        if event.id in gone:
            assert any(dominates(other, event) for other in events)
    if events:
        newest = max(events, key=lambda event: (event.ts, event.seq))
        assert newest.id not in gone


@given(histories, policies)
def test_a_second_pass_finds_nothing(
    history: list[tuple[dict[str, int], int, int]], policy: Policy
) -> None:
    events = events_of(history)
    gone = set(plan_snapshots(policy, events, NOW_MS))
    left = [event for event in events if event.id not in gone]
    assert plan_snapshots(policy, left, NOW_MS) == []
    assert current_ids(left) == current_ids(events)


# ── elements ───────────────────────────────────────────────────────────────────────────

PRUNING = Policy(log_mode=LogMode.COMPACT_BELOW_SNAPSHOT, retain_tail_n=2)


@pytest.mark.parametrize(
    ("policy", "covered", "archived_ts", "below_ts"),
    [
        (Policy(), [1, 2, 3, 4], None, 0),
        (PRUNING, [], None, 0),
        (PRUNING, [1, 2], None, 0),
        (PRUNING, [1, 2, 3], None, 1),
        (PRUNING, [5, 7, 9], None, 5),
        (PRUNING.changed({"retain_tail_n": 0}), [9], None, 9),
        (PRUNING.changed({"require_archive": True}), [5, 7, 9], None, 0),
        (PRUNING.changed({"require_archive": True}), [5, 7, 9], 3, 3),
        (PRUNING.changed({"require_archive": True}), [5, 7, 9], 9, 5),
        (PRUNING, [5, 7, 9], 3, 5),
    ],
)
def test_elements_go_below_the_tail_and_what_the_archive_holds(
    policy: Policy, covered: list[int], archived_ts: int | None, below_ts: int
) -> None:
    found = plan_elements(policy, upto_ts=9, covered=covered, archived_ts=archived_ts)
    assert found == below_ts


def test_nothing_goes_above_the_snapshot() -> None:
    policy = PRUNING.changed({"retain_tail_n": 0})
    assert plan_elements(policy, upto_ts=0, covered=[1, 2], archived_ts=None) == 0
    assert plan_elements(policy, upto_ts=4, covered=[5], archived_ts=None) == 4


# ── replay ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("members", "archived_seq", "expected"),
    [
        ({}, None, None),
        ({"replay_window": 10}, None, 91),
        ({"replay_window": 0}, None, 101),
        ({"replay_window": 99}, None, None),
        ({"replay_window": 1000}, None, None),
        ({"replay_window": 10, "require_archive": True}, 50, 51),
        ({"replay_window": 10, "require_archive": True}, None, None),
        ({"replay_window": 10, "require_archive": True}, 100, 91),
    ],
)
def test_the_replay_window_moves_up_and_waits_for_the_archive(
    members: dict[str, Any], archived_seq: int | None, expected: int | None
) -> None:
    found = plan_replay(Policy.read(members), head_seq=100, min_seq=2, archived_seq=archived_seq)
    assert found == expected


@pytest.mark.parametrize("reach", [0, 1])
def test_a_document_is_crowded_by_what_nothing_dominates_and_by_nothing_else(reach: int) -> None:
    beside = [snapshot(f"{n}", n, {f"w{n}": 1}) for n in range(1, UNDOMINATED_MAX + 1)]
    ts = beside[0].ts + reach

    def new(**counts: int) -> NewSnapshot:
        return NewSnapshot("notes/a", None, "new", "a", ts, counts, False, b"{}")

    assert is_crowded(beside, new(other=1))
    assert not is_crowded(beside[1:], new(other=1))
    assert not is_crowded(beside, new(w1=1, w2=1))
    # A long line is no crowd.
    assert not is_crowded(line(1000), new(other=1))


def test_a_document_is_crowded_by_few_that_count_very_many_sessions() -> None:
    many = {f"{number}": 1 for number in range(UNDOMINATED_COUNTS_MAX // 4)}
    beside = [snapshot(f"{n}", n, {**many, f"w{n}": 1}) for n in range(1, 4)]

    def new(**counts: int) -> NewSnapshot:
        return NewSnapshot("notes/a", None, "new", "a", beside[-1].ts, counts, False, b"{}")

    assert is_crowded(beside, new(**many))
    assert not is_crowded(beside, new(other=1))
    assert not is_crowded(beside[1:], new(**many))
    everything = {f"{number}": 1 for number in range(UNDOMINATED_COUNTS_MAX + 1)}
    assert not is_crowded(beside, new(**everything, w1=1, w2=1, w3=1))

"""The log in memory keeps the promises of the port, and the frontier is what dominance says."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walstore.relay.frontier import told_apart, undominated
from walstore.relay.log import Event, RelayLog, dominates
from walstore.relay.memory import MemoryLog
from walstore.testing.relay_log import RelayLogContract


class TestMemoryLog(RelayLogContract):
    @pytest.fixture
    def log(self) -> RelayLog:
        return MemoryLog()


async def test_nobody_else_can_write_to_it() -> None:
    assert [notice async for notice in MemoryLog().notices()] == []


@st.composite
def snapshot_events(draw: st.DrawFn) -> list[Event]:
    """Snapshots of two documents by two writers, with few enough values to meet often."""
    count = draw(st.integers(0, 8))
    small = st.integers(0, 3)
    return [
        Event(
            seq=seq,
            id=f"{seq}",
            kind="snapshot",
            document=draw(st.sampled_from("ab")),
            author="",
            ts=draw(small),
            accepted_ms=0,
            signature="",
            vc=draw(st.dictionaries(st.sampled_from("xy"), small)),
            is_deletion=False,
            payload=b"",
        )
        for seq in range(1, count + 1)
    ]


@given(snapshot_events(), st.randoms())
def test_the_frontier_is_what_nothing_dominates(events: list[Event], rng: random.Random) -> None:
    expected = [
        event
        for event in events
        if not any(dominates(other, event) for other in events if other.document == event.document)
    ]
    rng.shuffle(events)
    assert undominated(events) == expected


@given(snapshot_events(), st.randoms())
def test_what_is_dominated_is_so_without_what_it_covers(
    events: list[Event], rng: random.Random
) -> None:
    events = [event._replace(document="a") for event in events]
    rng.shuffle(events)
    found = told_apart(events)
    assert [event.seq for event in found] == sorted(event.seq for event in events)
    assert undominated(found) == undominated(events)
    assert not any(event.vc for event in found if event not in undominated(events))

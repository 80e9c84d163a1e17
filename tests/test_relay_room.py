"""Rooms: whatever happens in whatever order, everybody gets everything once and in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from walstore.relay.room import Room, Subscription
from walstore.wire.frames import Delivered
from walstore.wire.limits import TS_MAX


def element(ts: int) -> Delivered:
    return Delivered(ts, ts, "", "", b"{}")


@dataclass(eq=False)
class Follower:
    """A subscription, and everything that it was sent."""

    after: int
    subscription: Subscription[str]
    got: list[int] = field(default_factory=list)


class Document(RuleBasedStateMachine):
    """A plain log beside a room.

    What is stored is announced later: by this process with what came before it, or as a notice of
    everything that was stored since the last one, in any mixture of both.
    """

    @initialize()
    def begin(self) -> None:
        self.room: Room[str] = Room()
        self.log: list[int] = []
        self.unannounced: list[tuple[int, list[int]]] = []
        self.noticed = 0
        self.followers: list[Follower] = []

    # ── the log ────────────────────────────────────────────────────────────────────────

    @rule(size=st.integers(1, 4), gap=st.integers(1, 3))
    def store(self, size: int, gap: int) -> None:
        """Durable, but nobody has been told yet."""
        previous = self.log[-1] if self.log else 0
        batch = [previous + gap * step for step in range(1, size + 1)]
        self.log += batch
        self.unannounced.append((previous, batch))

    @rule(refused=st.sets(st.integers(0, 9)), is_lost=st.booleans())
    def announce(self, refused: set[int], is_lost: bool) -> None:
        """Tell the room of a batch of this process; another process's is lost to it."""
        if not self.unannounced:
            return
        previous, batch = self.unannounced.pop(0)
        if not is_lost:
            self.hand_out(batch, previous, refused)

    @rule(refused=st.sets(st.integers(0, 9)))
    def notice(self, refused: set[int]) -> None:
        """Tell the room of everything since the last notice."""
        batch = self.log[self.noticed :]
        if batch:
            self.noticed = len(self.log)
            self.hand_out(batch, None, refused)

    def hand_out(self, batch: Sequence[int], previous: int | None, refused: set[int]) -> None:
        due = self.room.stored([element(ts) for ts in batch], previous)
        pushed = [(each, batch) for each in due.all]
        pushed += [(each, [one.ts for one in rest]) for each, rest in due.some]
        places = {each.subscription: place for place, each in enumerate(self.followers)}
        for subscription, sent in pushed:
            place = places.get(subscription, -1)
            if place in refused:
                subscription.fall_behind(sent[0] - 1)
            elif place >= 0:
                self.followers[place].got += sent
        assert not any(each.is_live for each in due.behind)

    # ── the followers ──────────────────────────────────────────────────────────────────

    @rule(back=st.integers(0, 6))
    def follow(self, back: int) -> None:
        after = self.log[-back] if 0 < back <= len(self.log) else 0
        subscription = Subscription("peer", f"{len(self.followers)}", "d", after)
        self.room.subscriptions[subscription] = None
        self.followers.append(Follower(after, subscription))

    @rule(claim=st.sampled_from([1, 1000, TS_MAX]))
    def follow_from_the_future(self, claim: int) -> None:
        """Somebody claims to have what is not there yet."""
        after = (self.log[-1] if self.log else 0) + claim
        subscription = Subscription("liar", "x", "d", min(after, TS_MAX))
        self.room.subscriptions[subscription] = None
        self.room.caught_up(subscription)

    @rule(which=st.integers(0, 9), size=st.integers(1, 5))
    def read_page(self, which: int, size: int) -> None:
        if which >= len(self.followers) or self.followers[which].subscription.is_live:
            return
        follower = self.followers[which]
        left = [ts for ts in self.log if ts > follower.subscription.cursor]
        follower.got += left[:size]
        if left:
            follower.subscription.cursor = left[:size][-1]
        if len(left) <= size:
            self.room.caught_up(follower.subscription)

    @rule()
    def miss_something(self) -> None:
        """What was not announced may be gone: all that lack it have to read."""
        if self.log:
            for subscription in self.room.lacking(self.log[-1]):
                assert not subscription.is_live

    # ── the law ────────────────────────────────────────────────────────────────────────

    @invariant()
    def nobody_has_a_hole_or_something_twice(self) -> None:
        for follower in self.followers:
            wanted = [ts for ts in self.log if ts > follower.after]
            assert follower.got == wanted[: len(follower.got)]
            reached = follower.got[-1] if follower.got else follower.after
            if follower.subscription.is_live:
                assert follower.subscription.cursor == reached

    def teardown(self) -> None:
        """In the end everybody has everything, and going on reading ends."""
        if not hasattr(self, "room"):
            return
        self.notice(set())
        for which, follower in enumerate(self.followers):
            for _ in range(len(self.log) + 1):
                if follower.subscription.is_live:
                    break
                self.read_page(which, 1000)
            assert follower.subscription.is_live
            assert follower.got == [ts for ts in self.log if ts > follower.after]


Document.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestWhateverHappensThereIsNoHole = Document.TestCase


# ── one at a time ──────────────────────────────────────────────────────────────────────


def follower(room: Room[str], cursor: int, *, is_live: bool = True) -> Subscription[str]:
    subscription = Subscription("peer", "r", "d", cursor)
    room.subscriptions[subscription] = None
    if is_live:
        assert room.caught_up(subscription)
    return subscription


def test_an_element_stored_while_somebody_reads_keeps_them_reading() -> None:
    room: Room[str] = Room()
    reader = follower(room, 5, is_live=False)
    room.stored([element(6)], 5)
    assert not room.caught_up(reader)
    reader.cursor = 6
    assert room.caught_up(reader)


def test_an_element_that_was_read_already_is_not_handed_out_again() -> None:
    room: Room[str] = Room()
    reader = follower(room, 6)
    due = room.stored([element(5), element(6), element(7)], 4)
    assert due.all == []
    assert due.some == [(reader, [element(7)])]
    assert room.stored([element(7)], 6) == ([], [], [])


def test_who_lacks_what_another_process_stored_has_to_read_it() -> None:
    room: Room[str] = Room()
    reader = follower(room, 5)
    due = room.stored([element(8)], 7)
    assert (due.all, due.some, due.behind) == ([], [], [reader])
    assert not reader.is_live
    assert reader.cursor == 5


@pytest.mark.parametrize("claim", [7, TS_MAX])
def test_a_cursor_from_the_future_keeps_nobody_else_from_being_live(claim: int) -> None:
    room: Room[str] = Room()
    follower(room, claim)
    honest = follower(room, 5, is_live=False)
    assert room.caught_up(honest)
    assert room.stored([element(6)], 5).all == [honest]


def test_what_is_gone_is_not_handed_out_around() -> None:
    room: Room[str] = Room()
    has_it, lacks_it = follower(room, 6), follower(room, 5)
    assert room.lacking(6) == [lacks_it]
    assert has_it.is_live
    assert not lacks_it.is_live
    assert not room.caught_up(lacks_it)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 3)), max_size=20))
def test_presences_are_those_last_announced(steps: list[tuple[str, int | None]]) -> None:
    room: Room[str] = Room()
    there: dict[str, dict[str, int]] = {}
    for peer, number in steps:
        payload = None if number is None else {"n": number}
        assert room.announce(peer, payload) == (payload is not None or peer in there)
        if payload is None:
            there.pop(peer, None)
        else:
            there[peer] = payload
        assert dict(room.presences()) == there
        assert room.is_empty == (not there)

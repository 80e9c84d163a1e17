"""Telling sinks of commits: at least once, in order, and never in the way of a writer."""

from __future__ import annotations

import asyncio

import pytest

from tests.commits import Counting, RecordingSink, busy, commit
from walstore.archive.delivery import Delivery
from walstore.archive.sink import CommitEvent, SinkError
from walstore.errors import UsageError
from walstore.net.backoff import Backoff


class Pauses:
    """Waits for nothing, and keeps how long it should have been."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


async def test_events_arrive_in_order() -> None:
    sink, counting = RecordingSink(), Counting()
    events = [commit(number) for number in range(1, 6)]
    async with Delivery([sink], watcher=counting) as delivery:
        for event in events:
            delivery.offer(event)
        await sink.wait_for(5)
    assert sink.events == events
    assert counting.reports == [("delivered", "recording")] * 5
    assert sink.is_closed


async def test_an_attempt_that_fails_is_made_again_after_longer_and_longer_pauses() -> None:
    sink, pauses, counting = RecordingSink(), Pauses(), Counting()
    sink.failures = [busy(), ConnectionResetError("gone"), busy()]
    backoff = Backoff(quick_ms_min=100, quick_ms_max=100, pause_ms_min=1_000)
    delivery = Delivery([sink], watcher=counting, backoff=backoff, sleep=pauses, chance=lambda: 1.0)
    async with delivery:
        delivery.offer(commit(1))
        delivery.offer(commit(2))
        await sink.wait_for(2)
    assert sink.events == [commit(1), commit(2)]
    assert sink.attempts == [commit(1)] * 4 + [commit(2)]
    assert pauses.seconds == [0.1, 1.0, 2.0]
    assert counting.reports[1] == ("failed", "recording", "ConnectionResetError: gone")


async def test_a_sink_that_asks_for_a_pause_gets_it_but_not_for_ever() -> None:
    sink, pauses = RecordingSink(), Pauses()
    sink.failures = [busy(pause_ms=60_000), busy(pause_ms=10**12)]
    async with Delivery([sink], sleep=pauses) as delivery:
        delivery.offer(commit(1))
        await sink.wait_for(1)
    assert pauses.seconds == [60.0, 300.0]


async def test_an_event_is_let_go_of_after_some_attempts_and_the_next_one_is_told() -> None:
    sink, counting = RecordingSink(), Counting()
    sink.failures = [busy() for _ in range(3)]
    async with Delivery([sink], watcher=counting, attempts_max=3, sleep=Pauses()) as delivery:
        delivery.offer(commit(1))
        delivery.offer(commit(2))
        await sink.wait_for(1)
        counts = delivery.counts["recording"]
    assert sink.events == [commit(2)]
    assert (counts.delivered, counts.failed, counts.dropped, counts.queued) == (1, 3, 1, 0)
    assert ("dropped", "recording", "busy") in counting.reports


async def test_an_event_that_is_refused_is_not_tried_again() -> None:
    sink, counting = RecordingSink(), Counting()
    sink.failures = [SinkError("recording", "no such queue", retryable=False)]
    async with Delivery([sink], watcher=counting, sleep=Pauses()) as delivery:
        delivery.offer(commit(1))
        delivery.offer(commit(2))
        await sink.wait_for(1)
    assert sink.attempts == [commit(1), commit(2)]
    assert counting.reports[:2] == [
        ("failed", "recording", "no such queue"),
        ("dropped", "recording", "no such queue"),
    ]


async def test_a_slow_sink_blocks_neither_the_writer_nor_other_sinks() -> None:
    slow, quick, counting = RecordingSink("slow"), RecordingSink("quick"), Counting()
    slow.open.clear()
    delivery = Delivery([slow, quick], watcher=counting, queue_count_max=10, closing_ms_max=1)
    async with delivery:
        delivery.offer(commit(1))
        await slow.wait_for_attempts(1)
        for number in range(2, 1_001):
            delivery.offer(commit(number))
            if number % 5 == 0:
                await quick.wait_for(number)
        assert [event.to_position for event in quick.events] == list(range(1, 1_001))
        counts = delivery.counts["slow"]
        # One is on its way, ten are waiting, and the oldest of the others were let go of.
        assert (counts.queued, counts.dropped) == (11, 989)
        slow.open.set()
        await slow.wait_for(11)
    assert [event.to_position for event in slow.events] == [1, *range(991, 1_001)]
    assert counting.reports.count(("dropped", "slow", "the queue is full")) == 989


async def test_an_attempt_that_never_ends_is_given_up() -> None:
    sink, counting = RecordingSink(), Counting()
    sink.open.clear()
    async with Delivery([sink], watcher=counting, attempt_ms_max=1, sleep=Pauses()) as delivery:
        delivery.offer(commit(1))
        await sink.wait_for_attempts(2)
        sink.open.set()
        await sink.wait_for(1)
    assert ("failed", "recording", "TimeoutError") in counting.reports
    assert counting.reports[-1] == ("delivered", "recording")


async def test_what_a_sink_waits_for_may_be_cancelled() -> None:
    class Cancelled(RecordingSink):
        async def publish(self, event: CommitEvent) -> None:
            if not self.attempts:
                self.attempts.append(event)
                waited: asyncio.Future[None] = asyncio.Future()
                waited.cancel()
                await waited
            await super().publish(event)

    sink = Cancelled()
    async with Delivery([sink], sleep=Pauses()) as delivery:
        delivery.offer(commit(1))
        await sink.wait_for(1)
    assert sink.events == [commit(1)]


async def test_what_is_queued_is_told_at_the_end() -> None:
    sink = RecordingSink()
    async with Delivery([sink]) as delivery:
        for number in range(1, 4):
            delivery.offer(commit(number))
    assert sink.events == [commit(1), commit(2), commit(3)]


async def test_a_dead_sink_does_not_keep_anything_from_ending() -> None:
    class Dead(RecordingSink):
        async def aclose(self) -> None:
            self.is_closed = True
            raise OSError("dead")

    sink, other, counting = Dead("dead"), RecordingSink("other"), Counting()
    sink.open.clear()
    async with Delivery([sink, other], watcher=counting, closing_ms_max=1) as delivery:
        delivery.offer(commit(1))
        delivery.offer(commit(2))
        await sink.wait_for_attempts(1)
    counts = delivery.counts["dead"]
    assert (counts.delivered, counts.dropped, counts.queued) == (0, 2, 0)
    assert sink.is_closed
    assert other.is_closed
    assert counting.reports.count(("dropped", "dead", "there was no time left")) == 2


async def test_what_is_offered_after_the_end_is_counted() -> None:
    sink = RecordingSink()
    async with Delivery([sink]) as delivery:
        pass
    delivery.offer(commit(1))
    assert (delivery.counts["recording"].dropped, delivery.counts["recording"].queued) == (1, 0)


def test_sinks_have_names_of_their_own_and_limits_are_limits() -> None:
    with pytest.raises(UsageError, match="one name"):
        Delivery([RecordingSink(), RecordingSink()])
    with pytest.raises(UsageError, match="1 or more"):
        Delivery([], queue_count_max=0)

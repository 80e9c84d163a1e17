"""The keeper of a log, and what a relay answers about it, over a log in memory."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from walstore.canon import canonical_bytes
from walstore.relay.archived import ARCHIVES_MAX, ArchiveError
from walstore.relay.compaction import Plan
from walstore.relay.config import Settings
from walstore.relay.exchange import ConnectionStatus, HttpContext, read_target
from walstore.relay.front import Front
from walstore.relay.http import respond
from walstore.relay.info import Retained
from walstore.relay.keeper import Keeper
from walstore.relay.log import (
    Accepted,
    FeedPage,
    LogError,
    NewElement,
    NewSnapshot,
    Removal,
    Removed,
)
from walstore.relay.memory import MemoryLog
from walstore.relay.metrics import Metrics
from walstore.relay.retention import LogMode, Policy, PolicyError

TOKEN = "a-token-of-the-operator"
NOW_MS = 1_700_000_000_000
AUTHOR = "ab" * 32
PEER = ConnectionStatus("1", "127.0.0.1:5000", [AUTHOR], 2, 10, 0, 7, NOW_MS)


async def filled(log: MemoryLog, *, snapshots: int = 6) -> MemoryLog:
    """A document with elements, and snapshots of which each dominates the one before."""
    revision = None
    for number in range(1, snapshots + 1):
        element = NewElement("notes/a", f"{number:064x}", AUTHOR, "s", b'{"v":1}')
        (accepted,) = await log.append([element], NOW_MS + number)
        snapshot = NewSnapshot(
            document="notes/a",
            revision=revision,
            id=f"{1000 + number:064x}",
            author=AUTHOR,
            upto_ts=accepted.ts,
            vc={AUTHOR: number},
            is_deletion=False,
            text=b"{}",
        )
        assert isinstance(await log.put_snapshot(snapshot, NOW_MS + number), Accepted)
        revision = snapshot.id
    return log


def keeper_of(
    log: MemoryLog, policy: Policy | None = None, metrics: Metrics | None = None
) -> Keeper:
    return Keeper(
        log, policy or Policy(), metrics=metrics or Metrics(), now_ms=lambda: NOW_MS + 1000
    )


def front_of(
    log: MemoryLog, policy: Policy | None = None, connections: Sequence[ConnectionStatus] = ()
) -> Front:
    metrics = Metrics()
    return Front(
        Settings(),
        log=log,
        metrics=metrics,
        keeper=keeper_of(log, policy, metrics),
        connections=lambda: list(connections),
        is_draining=lambda: False,
        now_ms=lambda: NOW_MS,
    )


async def test_a_compaction_removes_what_the_policy_lets_go_and_counts_it() -> None:
    metrics = Metrics()
    log = await filled(MemoryLog())
    keeper = keeper_of(log, Policy(recent_count=4), metrics)
    assert len((await keeper.preview()).documents) == 1
    assert (await keeper.compact()).snapshots == 2
    assert (await keeper.compact()).snapshots == 0
    assert await keeper.preview() == Plan([], None)
    front = front_of(log)
    text = metrics.text(await front.gauges()).decode()
    assert 'walstore_relay_compacted_total{kind="snapshot"} 2.0' in text


async def test_a_changed_policy_is_kept_and_carried_out_at_once() -> None:
    log = await filled(MemoryLog())
    keeper = keeper_of(log, Policy(recent_count=9))
    assert (await keeper.compact()).snapshots == 0
    assert (await keeper.change({"recent_count": 2})).snapshots == 4
    await keeper.change({"history_count": 1})
    again = keeper_of(log, Policy(recent_count=9, retain_tail_n=7))
    await again.load()
    assert again.policy == Policy(recent_count=2, history_count=1, retain_tail_n=7)


async def test_what_is_configured_after_a_change_counts_and_what_was_before_does_not() -> None:
    log = await filled(MemoryLog())
    configured = {"recent_count": 9, "retain_tail_n": 7}
    keeper = keeper_of(log, Policy.read(configured))
    await keeper.change({"recent_count": 2, "log_mode": "compact_below_snapshot"})
    again = keeper_of(log, Policy.read(configured))
    await again.load()
    assert again.policy.recent_count == 2
    assert again.policy.log_mode is LogMode.COMPACT_BELOW_SNAPSHOT
    # The default is named now, and the other member has another value.
    later = keeper_of(log, Policy.read({"recent_count": 8, "log_mode": "keep_full_history"}))
    await later.load()
    assert later.policy == Policy(recent_count=8)
    await later.change({"recent_count": 3})
    await later.load()
    assert later.policy == Policy(recent_count=3)


async def test_a_change_that_was_overruled_does_not_come_back_with_what_was_configured_then() -> (
    None
):
    log = MemoryLog()
    before = keeper_of(log, Policy.read({"recent_count": 10}))
    await before.change({"recent_count": 1, "history_count": 2})
    for configured in (20, 10):
        keeper = keeper_of(log, Policy.read({"recent_count": configured}))
        await keeper.load()
        assert keeper.policy == Policy(recent_count=configured, history_count=2)


async def test_documents_are_counted_however_many_there_are() -> None:
    log = MemoryLog()
    await log.append(
        [NewElement(f"notes/{n}", f"{n:064x}", AUTHOR, "s", b"{}") for n in range(100_001)], NOW_MS
    )
    assert (await front_of(log).gauges()).documents == 100_001


async def test_a_bad_change_changes_nothing() -> None:
    log = await filled(MemoryLog())
    keeper = keeper_of(log, Policy(recent_count=9))
    for changes in ({"recent_count": 1, "no": 1}, {"recent_count": 0}, {"ttl": 1}):
        with pytest.raises(PolicyError):
            await keeper.change(changes)
    assert keeper.policy == Policy(recent_count=9)
    assert await log.settings() == {}
    assert (await keeper.compact()).snapshots == 0


async def test_a_change_that_is_not_understood_any_more_is_told_and_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = MemoryLog()
    await log.put_setting("retention", {"of_a_later_version": 1})
    keeper = keeper_of(log)
    await keeper.load()
    assert keeper.policy == Policy()
    assert "of_a_later_version" in caplog.text


def said(log: MemoryLog, **members: Any) -> dict[str, Any]:
    """What an archive says of itself."""
    told = {"archive": "all", "prefix": "", "position": "0", "relay_id": log.relay_id}
    return {**told, **members}


async def test_nothing_goes_that_the_archive_does_not_hold() -> None:
    policy = Policy(require_archive=True, replay_window=1)
    log = await filled(MemoryLog())
    keeper = keeper_of(log, policy)
    await keeper.compact()
    assert (await front_of(log).retained()).min_seq == 1
    await keeper.report(said(log, position="5"))
    await keeper.compact()
    assert (await front_of(log).retained()).min_seq == 6


async def test_the_slowest_archive_decides_until_it_is_forgotten() -> None:
    log = await filled(MemoryLog())
    keeper = keeper_of(log, Policy(require_archive=True, replay_window=1))
    await keeper.report(said(log, archive="slow", position="2"))
    await keeper.report(said(log, archive="quick", position="1"))
    # What one says last counts, and is there after a restart.
    await keeper_of(log).report(said(log, archive="quick", position="5"))
    await keeper.compact()
    assert (await front_of(log).retained()).min_seq == 3
    await keeper.forget("slow")
    await keeper.compact()
    assert (await front_of(log).retained()).min_seq == 6
    assert [each.name for each in (await keeper.archived()).archives] == ["quick"]
    with pytest.raises(ArchiveError, match="no archive 'slow'"):
        await keeper.forget("slow")


async def test_what_another_version_has_noted_of_an_archive_holds_everything_back() -> None:
    log = await filled(MemoryLog())
    keeper = keeper_of(log, Policy(require_archive=True, replay_window=1))
    await keeper.report(said(log, position="5"))
    await log.put_setting("archived/other", {"positions": [9]})
    await keeper.compact()
    assert (await front_of(log).retained()).min_seq == 1


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"position": "1000000"}, "never reached"),
        ({"relay_id": "another"}, "another relay"),
        ({"position": 5}, "`position`"),
        ({"position": "-1"}, "`position`"),
        ({"position": "٣"}, "`position`"),
        ({"position": "9" * 5000}, "`position`"),
        ({"archive": ""}, "`archive`"),
        ({"archive": "a\nb"}, "`archive`"),
        ({"archive": "a" * 201}, "`archive`"),
        ({"archive": None}, "`archive`"),
        ({"prefix": None}, "`prefix`"),
        ({"prefix": "a" * 1025}, "`prefix`"),
        ({"more": 1}, "the members are"),
    ],
)
async def test_what_no_archive_can_say_is_refused(members: dict[str, Any], reason: str) -> None:
    log = await filled(MemoryLog())
    with pytest.raises(ArchiveError, match=reason):
        await keeper_of(log).report(said(log, **members))
    assert await log.settings() == {}


async def test_there_are_only_so_many_archives() -> None:
    log = await filled(MemoryLog())
    keeper = keeper_of(log)
    for number in range(ARCHIVES_MAX):
        await log.put_setting(f"archived/{number}", {"prefix": "", "seq": 1})
    with pytest.raises(ArchiveError, match="already"):
        await keeper.report(said(log))
    await keeper.report(said(log, archive="7", position="2"))


async def test_it_goes_on_when_the_log_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(MemoryLog):
        attempts = 0

        async def compact(self, removals: Sequence[Removal]) -> Removed:
            self.attempts += 1
            if self.attempts == 1:
                raise LogError("the disk is full")
            done.set()
            return await super().compact(removals)

    done = asyncio.Event()
    log = Failing()
    await filled(log)
    keeper = keeper_of(log, Policy(recent_count=1, compaction_interval_seconds=1))
    caplog.set_level(logging.ERROR)
    running = asyncio.create_task(keeper.run())
    async with asyncio.timeout(20):
        await done.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "the disk is full" in caplog.text


async def test_an_empty_log_has_nothing_to_go_back_to() -> None:
    context: HttpContext = front_of(MemoryLog())
    assert await context.retained() == Retained(0, 0, "nondominated_plus_recent_history", 4, None)
    gauges = await context.gauges()
    assert tuple(gauges) == (0, 0, 0, 0)
    await context.check_log()


async def test_the_oldest_snapshot_is_the_oldest_that_is_still_there() -> None:
    log = await filled(MemoryLog())
    front = front_of(log, Policy(recent_count=4))
    retained = await front.retained()
    assert (retained.min_seq, retained.head_seq) == (1, 12)
    assert retained.min_created_ms == NOW_MS + 1
    assert (await front.compact(is_dry_run=False))["removed"]["snapshots"] == 2
    assert (await front.retained()).min_created_ms == NOW_MS + 3
    assert (await front_of(log).retained()).min_created_ms == NOW_MS + 3
    await log.trim(8)
    assert (await front.retained()).min_created_ms == NOW_MS + 4


async def test_where_no_snapshot_is_there_nothing_is_looked_at_twice() -> None:
    looked: list[range] = []

    class Counted(MemoryLog):
        async def feed(self, since: int, *arguments: Any, **options: Any) -> FeedPage:
            page = await super().feed(since, *arguments, **options)
            looked.append(range(since, page.last_seq))
            return page

    log = Counted()
    front = front_of(log)
    for count in (1, 20_000, 0, 5):
        looked.clear()
        news = [NewElement("notes/a", f"{count}-{n}", AUTHOR, "s", b"{}") for n in range(count)]
        await log.append(news, NOW_MS)
        assert (await front.retained()).min_created_ms is None
        assert sum(map(len, looked)) == count
    # And never very many at once: others want to read, too.
    looked.clear()
    assert (await front_of(log).retained()).min_created_ms is None
    assert max(map(len, looked)) < 20_000 < sum(map(len, looked))


async def test_what_would_go_is_told_without_its_going() -> None:
    log = await filled(MemoryLog())
    front = front_of(log, Policy(recent_count=4))
    for _ in range(2):
        told = await front.compact(is_dry_run=True)
        assert told["dry_run"] is True
        assert told["total"]["snapshots"] == 2


async def test_the_routes_work_on_a_real_log() -> None:
    log = await filled(MemoryLog())
    front = front_of(log, connections=[PEER])
    for path in ("/", "/readyz", "/metrics", "/status"):
        request = read_target("GET", path, {"host": "127.0.0.1"}, b"")
        assert (await respond(request, front)).status == 200


async def test_archives_say_how_far_they_have_come_and_are_forgotten_over_http() -> None:
    log = await filled(MemoryLog())
    front = front_of(log)
    front.settings = Settings(admin_token=TOKEN)

    async def ask(method: str, query: str = "", body: bytes = b"") -> tuple[int, Any]:
        headers = {"host": "127.0.0.1", "authorization": f"Bearer {TOKEN}"}
        answer = await respond(read_target(method, f"/admin/archives{query}", headers, body), front)
        return answer.status, json.loads(answer.body)

    noted = {"archive": "all", "prefix": "", "position": "5"}
    assert await ask("PUT", body=canonical_bytes(said(log, position="5"))) == (200, noted)
    assert await ask("GET") == (200, {"archives": [noted]})
    for body in (b"", b"7", b"{", b"[" * 10_000, canonical_bytes(said(log, position="99"))):
        assert (await ask("PUT", body=body))[0] == 400
    for query, status in (("", 400), ("?name=all", 400), ("?archive=other", 404)):
        assert (await ask("DELETE", query))[0] == status
    assert await ask("GET") == (200, {"archives": [noted]})
    assert await ask("DELETE", "?archive=all") == (200, {"archives": []})


async def test_documents_are_not_counted_for_everybody_who_asks() -> None:
    class Counting(MemoryLog):
        asked = 0

        async def documents_count(self) -> int:
            self.asked += 1
            return await super().documents_count()

    log = Counting()
    await filled(log, snapshots=1)
    front = front_of(log)
    counts = [(await front.gauges()).documents for _ in range(3)]
    assert (counts, log.asked) == ([1, 1, 1], 1)


async def test_a_change_through_the_front_tells_the_policy_and_what_went() -> None:
    log = await filled(MemoryLog())
    front = front_of(log, Policy(recent_count=9))
    answer: Mapping[str, Any] = await front.change_retention({"recent_count": 2})
    assert answer["retention"] == await front.retention()
    assert answer["removed"]["snapshots"] == 4

"""What a running relay answers to HTTP: the numbers behind the routes.

- What anybody may ask for is cheap: where it is not, it is counted now and then, not each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from walstore.relay.config import Settings
from walstore.relay.exchange import ConnectionStatus
from walstore.relay.info import Retained
from walstore.relay.keeper import Keeper
from walstore.relay.log import DocumentStatus, Event, FeedPage, Filter, RelayLog
from walstore.relay.metrics import Gauges, Metrics

# Documents are counted at most this often.
_COUNT_MS_MIN = 10_000

# Rows without a payload that are passed over at once, the bytes of what they covered, and the seqs
# that they are looked for among.
_ROWS_MAX = 1_000
_ROWS_BYTES_MAX = 2**16
_SEQS_MAX = 2**14

_ANY = Filter()
_SNAPSHOTS = Filter(kinds=frozenset({"snapshot"}))


class Front:
    """The `HttpContext` of a relay."""

    def __init__(
        self,
        settings: Settings,
        *,
        log: RelayLog,
        metrics: Metrics,
        keeper: Keeper,
        connections: Callable[[], list[ConnectionStatus]],
        is_draining: Callable[[], bool],
        now_ms: Callable[[], int],
    ) -> None:
        """Answer for a relay.

        Args:
            settings: How it was set up.
            log: Its log.
            metrics: What it counts.
            keeper: Who compacts.
            connections: Tells who is connected.
            is_draining: Tells whether it is about to stop.
            now_ms: The time.
        """
        self.settings = settings
        self.metrics = metrics
        self.started_ms = now_ms()
        self.connections = connections
        self._log = log
        self._keeper = keeper
        self._is_draining = is_draining
        self._now_ms = now_ms
        self._counted_ms = 0
        self._count = 0
        self._passed_seq = 0
        self._oldest: Event | None = None

    @property
    def is_draining(self) -> bool:
        """Whether it is about to stop."""
        return self._is_draining()

    async def check_log(self) -> None:
        """Ask the log for something cheap."""
        await self._ends()

    async def retained(self) -> Retained:
        """How far back somebody can go."""
        ends, policy = await self._ends(), self._keeper.policy
        return Retained(
            min_seq=ends.min_seq,
            head_seq=ends.head_seq,
            mode=policy.snapshot_mode.value,
            recent_count=policy.recent_count,
            min_created_ms=await self._oldest_snapshot_ms(ends.min_seq),
        )

    async def gauges(self) -> Gauges:
        """The numbers of this moment."""
        connections = self.connections()
        return Gauges(
            connections=len(connections),
            pending_bytes=sum(each.pending_bytes for each in connections),
            head_seq=(await self._ends()).head_seq,
            documents=await self._documents_count(),
        )

    async def documents(self, *, count_max: int) -> list[DocumentStatus]:
        """The documents, those that changed last first."""
        return await self._log.documents("", count_max=count_max)

    async def retention(self) -> Mapping[str, Any]:
        """The retention policy, as JSON."""
        return self._keeper.policy.as_json()

    async def change_retention(self, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Change members of the policy, keep it, and compact at once."""
        removed = await self._keeper.change(changes)
        return {"retention": self._keeper.policy.as_json(), "removed": removed._asdict()}

    async def compact(self, *, is_dry_run: bool) -> Mapping[str, Any]:
        """Remove what the policy lets go, or only say what that would be."""
        if is_dry_run:
            return {"dry_run": True, **(await self._keeper.preview()).as_json()}
        return {"dry_run": False, "removed": (await self._keeper.compact())._asdict()}

    async def archives(self) -> list[Mapping[str, Any]]:
        """How far each archive has come."""
        return [each.as_json() for each in (await self._keeper.archived()).archives]

    async def report_archive(self, found: object) -> Mapping[str, Any]:
        """Take note of how far an archive has come."""
        return (await self._keeper.report(found)).as_json()

    async def forget_archive(self, name: str) -> None:
        """Let an archive hold nothing back any more."""
        await self._keeper.forget(name)

    async def _ends(self) -> FeedPage:
        return await self._log.feed(0, 0, _ANY, count_max=1, bytes_max=1)

    async def _documents_count(self) -> int:
        now_ms = self._now_ms()
        if abs(now_ms - self._counted_ms) >= _COUNT_MS_MIN:
            self._counted_ms = now_ms
            self._count = await self._log.documents_count()
        return self._count

    async def _oldest_snapshot_ms(self, min_seq: int) -> int | None:
        """When the oldest snapshot was accepted that can be replayed and has its payload.

        Payloads go and never come back, so what was passed over once need not be looked at again.
        Whoever asks first has all of it looked at, in steps between which others read.
        """
        if await self._is_there(self._oldest, min_seq):
            assert self._oldest is not None
            return self._oldest.accepted_ms
        while True:
            since = max(self._passed_seq, min_seq - 1, 0)
            page = await self._log.feed(
                since,
                None,
                _SNAPSHOTS,
                count_max=_ROWS_MAX,
                bytes_max=_ROWS_BYTES_MAX,
                seqs_max=_SEQS_MAX,
            )
            there = next((event for event in page.events if event.payload is not None), None)
            if there is not None:
                self._passed_seq = there.seq - 1
                self._oldest = there._replace(payload=None, vc={})
                return there.accepted_ms
            self._passed_seq = page.last_seq
            if not page.is_more:
                return None

    async def _is_there(self, snapshot: Event | None, min_seq: int) -> bool:
        """Whether a snapshot can still be replayed with its payload, which is not read for that."""
        if snapshot is None or snapshot.seq < min_seq:
            return False
        wanted = Filter(documents=frozenset({snapshot.document}))
        found = await self._log.find([snapshot.id], wanted, payload_bytes_max=0)
        return any(each.payload is not None for each in found)

"""Keeps a running relay to its retention policy.

- The policy is the configured one with what the operator has changed since, which is kept in the
  log itself and survives a restart. What was said last counts: a member that is configured
  otherwise than when it was changed, or only since, is as it is configured, and what it was changed
  to is forgotten: it does not come back with what was configured then.
- It compacts every so often, and at once when the policy changes. Two never run at a time.
- A log that cannot be compacted now is tried again later; the relay goes on.
- How far archives have come is kept in the log, too: a policy may ask for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Set
from typing import Any

from walstore.relay.archived import (
    ARCHIVES_MAX,
    NAME_SIZE_MAX,
    ArchivedSeq,
    ArchiveError,
    ArchivePosition,
    read_archived,
    read_position,
    setting_of,
)
from walstore.relay.compaction import Plan, compact_all, plan
from walstore.relay.log import Filter, LogError, RelayLog, Removed
from walstore.relay.metrics import Metrics
from walstore.relay.retention import Policy, PolicyError

_logger = logging.getLogger("walstore.relay.keeper")

# Under this name the log keeps what was changed, and under this member what was configured then.
POLICY_SETTING = "retention"
_CONFIGURED = "configured"


class Keeper:
    """Compacts one log, by one policy."""

    def __init__(
        self,
        log: RelayLog,
        policy: Policy,
        *,
        metrics: Metrics,
        now_ms: Callable[[], int],
        sending: Callable[[], Set[str]] = frozenset,
    ) -> None:
        """Prepare; `load` reads what was changed, `run` keeps to it.

        Args:
            log: The log.
            policy: What is configured.
            metrics: Where it is told.
            now_ms: The time.
            sending: The revisions of snapshots that are being sent, which stay meanwhile.
        """
        self.policy = policy
        self._configured = policy
        self._log = log
        self._metrics = metrics
        self._now_ms = now_ms
        self._sending = sending
        self._turn = asyncio.Lock()

    async def load(self) -> None:
        """Take over what the operator has changed in former runs, and forget what was overruled.

        Raises:
            LogError: The log cannot be read, or not be changed.
        """
        async with self._turn:
            kept = await self._kept()
            changes = self._standing(kept)
            try:
                self.policy = self._configured.changed(changes)
            except PolicyError as error:
                # Another version may have kept it. What is configured removes less than a guess.
                _logger.error("what was changed in the policy is not understood: %s", error)
            if kept.keys() - {_CONFIGURED} != changes.keys():
                await self._put(changes)

    async def change(self, changes: Mapping[str, Any]) -> Removed:
        """Change members of the policy for good, and compact at once.

        Raises:
            PolicyError: A member is unknown or has a wrong value; nothing has changed.
            LogError: The log cannot be changed now; the policy may have been.
        """
        async with self._turn:
            policy = self.policy.changed(changes)
            await self._put({**self._standing(await self._kept()), **changes})
            self.policy = policy
            _logger.info("the policy is now %s", policy.as_json())
            return await self._compact()

    async def _kept(self) -> Mapping[str, Any]:
        kept: Mapping[str, Any] = (await self._log.settings()).get(POLICY_SETTING, {})
        return kept

    def _standing(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        """What was changed, but for what was configured otherwise since."""
        now = self._named()
        then = kept.get(_CONFIGURED, now)
        return {
            key: value
            for key, value in kept.items()
            if key != _CONFIGURED and (key not in now or (key in then and then[key] == now[key]))
        }

    async def _put(self, changes: Mapping[str, Any]) -> None:
        await self._log.put_setting(POLICY_SETTING, {**changes, _CONFIGURED: self._named()})

    def _named(self) -> dict[str, Any]:
        members = self._configured.as_json()
        return {key: members[key] for key in sorted(self._configured.named)}

    async def preview(self) -> Plan:
        """What a compaction would remove now.

        Raises:
            LogError: The log cannot be read now.
        """
        return await plan(
            self._log,
            self.policy,
            archived_seq=await self.archived(),
            now_ms=self._now_ms(),
            is_measured=True,
        )

    async def compact(self) -> Removed:
        """Remove what the policy lets go.

        Raises:
            LogError: The log cannot be changed now; what is done is done.
        """
        async with self._turn:
            return await self._compact()

    async def run(self) -> None:
        """Compact every so often, until cancelled."""
        while True:
            await asyncio.sleep(self.policy.compaction_interval_seconds)
            try:
                await self.load()
                await self.compact()
            except LogError as error:
                _logger.error("not compacted: %s", error)

    async def _compact(self) -> Removed:
        removed = await compact_all(
            self._log,
            self.policy,
            archived_seq=await self.archived(),
            now_ms=self._now_ms(),
            sending=self._sending,
        )
        self._metrics.compacted(removed)
        if any(removed):
            _logger.info("compacted: %s", removed._asdict())
        return removed

    async def archived(self) -> ArchivedSeq:
        """How far the archives have come.

        Raises:
            LogError: The log cannot be read now.
        """
        return read_archived(await self._log.settings())

    async def report(self, found: object) -> ArchivePosition:
        """Take note of how far an archive has come; what it said last counts.

        Raises:
            ArchiveError: It cannot be so, or there are too many archives; nothing has changed.
            LogError: The log cannot be changed now.
        """
        feed = await self._log.feed(0, 0, Filter(), count_max=1, bytes_max=1)
        position = read_position(found, relay_id=self._log.relay_id, head_seq=feed.head_seq)
        known = [each.name for each in (await self.archived()).archives]
        if position.name not in known and len(known) >= ARCHIVES_MAX:
            raise ArchiveError(f"there are {len(known)} archives already")
        await self._log.put_setting(*position.setting)
        return position

    async def forget(self, name: str) -> None:
        """Let an archive hold nothing back any more.

        Raises:
            ArchiveError: There is none of this name.
            LogError: The log cannot be changed now.
        """
        if name not in [each.name for each in (await self.archived()).archives]:
            raise ArchiveError(f"there is no archive {name[:NAME_SIZE_MAX]!r}")
        await self._log.put_setting(setting_of(name), None)
        _logger.warning("the archive %r is forgotten, and holds nothing back any more", name)

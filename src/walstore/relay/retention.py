"""What a relay keeps: a policy, and what it lets go of, decided without touching anything.

Three layers, each for itself:

    snapshots   the current ones, always; of those that are history, the most recent
    elements    all of them, or those above the current snapshot and a tail below it
    replay      how far back the changes feed can be followed

- Current are the snapshot that readers get, all that nothing dominates (they stand for edits that
  were made at the same time), and so a deletion for as long as nothing was written after it.
- History is ranked by the order of acceptance, and its age is counted from then: a producer's
  clock has no say in what is kept.
- Elements go only below the snapshot that readers get, which is on disk, and, if that is asked
  for, only if the archive holds them. Above it nothing ever goes.
- A log is never emptied by age: a quiet document would be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from typing import Any, Final

from walstore.errors import UsageError
from walstore.relay.frontier import undominated
from walstore.relay.log import Event

DAY_MS: Final = 24 * 3600 * 1000


class SnapshotMode(Enum):
    """Which snapshots keep their payload."""

    CURRENT_ONLY = "current_only"
    RECENT_HISTORY = "nondominated_plus_recent_history"
    FULL_RETENTION = "full_retention"


class LogMode(Enum):
    """Which elements keep their payload."""

    KEEP_FULL_HISTORY = "keep_full_history"
    COMPACT_BELOW_SNAPSHOT = "compact_below_snapshot"


class PolicyError(UsageError):
    """A member of the retention policy is unknown or has a wrong value.

    Attributes:
        key: The member.
        reason: What is wrong with it.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"retention.{key[:80]}: {reason}")
        self.key = key
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Policy:
    """What is kept.

    Attributes:
        snapshot_mode: Which snapshots keep their payload.
        recent_count: With recent history: how many snapshots of a document are kept, the current
            ones included; current ones are kept even if they are more.
        history_count: With recent history: how many that are not current are kept in any case.
        payload_retention_days: How old, since it was accepted, a snapshot's payload must be to go.
            None: none ever goes.
        log_mode: Which elements keep their payload.
        retain_tail_n: How many elements below the current snapshot are kept.
        require_archive: Whether elements go only if the archive holds them.
        replay_window: How many events back the changes feed can be followed; None: all.
        compaction_interval_seconds: How often a relay compacts.
        named: The members that somebody has named, whether or not that is the default.
    """

    snapshot_mode: SnapshotMode = SnapshotMode.RECENT_HISTORY
    recent_count: int = 4
    history_count: int = 0
    payload_retention_days: int | None = 0
    log_mode: LogMode = LogMode.KEEP_FULL_HISTORY
    retain_tail_n: int = 64
    require_archive: bool = False
    replay_window: int | None = None
    compaction_interval_seconds: int = 300
    named: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            PolicyError: A member has a wrong value.
        """
        _check_type(self, "snapshot_mode", SnapshotMode)
        _check_type(self, "log_mode", LogMode)
        _check_type(self, "require_archive", bool)
        for key, (smallest, largest) in _RANGES.items():
            value = getattr(self, key)
            if value is None and key in _MAY_BE_NONE:
                continue
            if type(value) is not int or not smallest <= value <= largest:
                raise PolicyError(key, f"not an integer from {smallest} to {largest}")

    @classmethod
    def read(cls, members: Mapping[str, Any]) -> Policy:
        """A policy from a configuration; what is left out has its default.

        Raises:
            PolicyError: A member is unknown or has a wrong value.
        """
        return cls().changed(members)

    def changed(self, members: Mapping[str, Any]) -> Policy:
        """The same policy with other members.

        Raises:
            PolicyError: A member is unknown or has a wrong value.
        """
        found = {key: _read(key, value) for key, value in members.items()}
        return replace(self, named=self.named | found.keys(), **found)

    def as_json(self) -> dict[str, Any]:
        """The members, as `read` takes them."""
        return {
            key: value.value if isinstance(value, Enum) else value
            for key, value in asdict(self).items()
            if key in _KEYS
        }


# A thousand years, and more events than a relay will see: beyond, somebody has mistyped.
_RANGES: Final[dict[str, tuple[int, int]]] = {
    "recent_count": (1, 1_000_000),
    "history_count": (0, 1_000_000),
    "payload_retention_days": (0, 365_250),
    "retain_tail_n": (0, 1_000_000),
    "replay_window": (0, 2**53 - 1),
    "compaction_interval_seconds": (1, 366 * 24 * 3600),
}
_MAY_BE_NONE: Final = frozenset({"payload_retention_days", "replay_window"})


def plan_snapshots(policy: Policy, events: Sequence[Event], now_ms: int) -> list[str]:
    """Which snapshots of one document lose their payload.

    Args:
        policy: What is kept.
        events: Its snapshots that have their payload.
        now_ms: The time.

    Returns:
        Their ids, oldest first.
    """
    if policy.snapshot_mode is SnapshotMode.FULL_RETENTION or policy.payload_retention_days is None:
        return []
    kept = current_ids(events)
    history = sorted((each for each in events if each.id not in kept), key=_seq, reverse=True)
    if policy.snapshot_mode is SnapshotMode.RECENT_HISTORY:
        history = history[max(policy.recent_count - len(kept), policy.history_count, 0) :]
    age_ms_min = policy.payload_retention_days * DAY_MS
    return [
        each.id
        for each in reversed(history)
        # A clock that was set back makes nothing too young that need not be old at all.
        if not age_ms_min or now_ms - each.accepted_ms >= age_ms_min
    ]


def current_ids(snapshots: Collection[Event]) -> frozenset[str]:
    """The snapshots of one document that must stay: what readers get, what nothing dominates."""
    if not snapshots:
        return frozenset()
    # What readers get may be dominated by one that reaches as far, is older, and claims more.
    newest = max(snapshots, key=lambda event: (event.ts, event.seq))
    return frozenset({newest.id, *[event.id for event in undominated(snapshots)]})


def plan_elements(
    policy: Policy, *, upto_ts: int, covered: Sequence[int], archived_ts: int | None
) -> int:
    """Up to which `ts` the elements of one document lose their payload.

    Args:
        policy: What is kept.
        upto_ts: What the snapshot covers that readers get; 0 if there is none.
        covered: The `ts` of the newest elements up to there, ascending: one more than the tail that
            is kept, or all that are left.
        archived_ts: The newest element that the archive holds; None if it holds none.

    Returns:
        The `ts` of the last one that goes, 0 if none does.
    """
    if policy.log_mode is LogMode.KEEP_FULL_HISTORY or len(covered) <= policy.retain_tail_n:
        return 0
    last = covered[-1 - policy.retain_tail_n]
    if policy.require_archive:
        last = min(last, archived_ts or 0)
    return min(last, upto_ts)


def plan_replay(
    policy: Policy, *, head_seq: int, min_seq: int, archived_seq: int | None
) -> int | None:
    """The lowest seq that the changes feed replays from now on; None if that stays as it is.

    Args:
        policy: What is kept.
        head_seq: The newest seq.
        min_seq: The lowest seq that is replayed now.
        archived_seq: The newest event that the archive has taken; None if it has taken none.
    """
    if policy.replay_window is None:
        return None
    lowest = head_seq - policy.replay_window + 1
    if policy.require_archive:
        # The archive follows the feed: what it has not taken must not leave the window.
        lowest = min(lowest, (archived_seq or 0) + 1)
    return lowest if lowest > min_seq else None


def _seq(event: Event) -> int:
    return event.seq


def _read(key: str, value: Any) -> Any:
    if "ttl" in key.lower():
        raise PolicyError(
            key,
            "a log cannot expire: it is append-only, and a document that nobody edits for a while "
            "would be emptied; use log_mode = 'compact_below_snapshot', which keeps its content",
        )
    if key not in _KEYS:
        raise PolicyError(key, f"is unknown; known are {', '.join(sorted(_KEYS))}")
    convert = _MODES.get(key)
    return value if convert is None else convert(key, value)


def _mode(kind: type[SnapshotMode] | type[LogMode]) -> Callable[[str, Any], Enum]:
    def convert(key: str, value: Any) -> Enum:
        for mode in kind:
            if value == mode.value or value is mode:
                return mode
        raise PolicyError(key, f"not one of {', '.join(mode.value for mode in kind)}")

    return convert


def _check_type(policy: Policy, key: str, kind: type) -> None:
    if not isinstance(getattr(policy, key), kind):
        raise PolicyError(key, f"not a {kind.__name__}")


_KEYS: Final = frozenset(each.name for each in fields(Policy)) - {"named"}
_MODES: Final = {"snapshot_mode": _mode(SnapshotMode), "log_mode": _mode(LogMode)}

# What a client keeps of the snapshots that it has seen: the current ones and ten of the others.
CLIENT_POLICY: Final = Policy(recent_count=1, history_count=10)

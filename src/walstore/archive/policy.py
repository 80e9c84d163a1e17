"""When a base is due, and when a diff will do.

- The floor comes first: a base younger than `min_interval` is not followed by another, whatever
  else holds. At `min_interval` exactly the floor is over.
- Then the first of these that has been reached is the trigger, and is named:

      max_interval           the age of the base
      max_diff_bytes         the size of this window's diff
      max_diff_fraction      the same, as a share of the base's size
      max_churn_records      the events since the base
      max_churn_fraction     the same, as a share of the rows there are now
      max_chain_fraction     the size of all diffs since the base, as a share of what a base would
                             take now; from `min_chain_diffs` diffs on
      max_chain_diffs        how many diffs there are since the base, whatever is in them

- The last two are on unless they are switched off; of the others one that is left out is off. A
  number or a time of 0 is off, too; with all of them off there are diffs for ever. A share of
  nothing is no trigger.
- For these two no base is written of which a part would be above `max_chain_part_bytes`, with its
  diffs: it is held in memory about twice, and whoever has less would be killed again and again.
- A base of which the diffs since the last one are half takes no more than twice what they took: all
  that is written is at most three times the diffs, however large a table becomes.
- A table that has not moved since its base gets no other for its age, unless `quiet_bases` says so.
- What a base is asked for is not for this file: the first one, and one by hand, ignore all of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import NamedTuple

from walstore.canon import INTEGER_MAX
from walstore.errors import UsageError

# Up to so many diffs are read in the time of a few hundred rows, and whoever follows would have to
# replace all that they have more often.
MIN_CHAIN_DIFFS = 16

# To read so many takes as long as to write a base of one or two GiB: a tenth of a second from a
# disk, half a minute from an object store. With a diff every 30 seconds it is eight hours.
MAX_CHAIN_DIFFS = 1000

MAX_CHAIN_FRACTION = 0.5

MAX_CHAIN_PART_BYTES = 512 * 2**20

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_COUNTS = (
    "min_interval_ms",
    "max_interval_ms",
    "max_diff_bytes",
    "max_churn_records",
    "min_chain_diffs",
    "max_chain_diffs",
    "max_chain_part_bytes",
)
_DURATION = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>ms|s|m|h|d)")


class PolicyError(UsageError):
    """A policy cannot be used.

    Attributes:
        key: The setting.
        reason: What is wrong with it.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key} {reason}")
        self.key = key
        self.reason = reason


class Measures(NamedTuple):
    """What a decision is made from.

    Attributes:
        age_ms: The age of the newest base.
        diff_bytes: The size of this window as a diff, in the first format of diffs.
        base_bytes: The size of the newest base, in the first format of bases.
        churn: How many events there were since that base, with this window.
        rows: How many rows the table has now.
        has_moved: Whether anything has happened since that base.
        chain_diffs: How many diffs there are since that base, with this window; 0 if it is empty.
        chain_bytes: The size of those diffs, in all formats; of this window in the first.
        stored_bytes: The size of that base, in all formats.
        base_rows: How many rows it has.
        parts: How many parts it has.
    """

    age_ms: int
    diff_bytes: int
    base_bytes: int
    churn: int
    rows: int
    has_moved: bool = True
    chain_diffs: int = 0
    chain_bytes: int = 0
    stored_bytes: int = 0
    base_rows: int = 0
    parts: int = 1

    @property
    def next_bytes(self) -> int:
        """About what a base would take now: as its rows are more or fewer, or all that there is."""
        most = self.stored_bytes + self.chain_bytes
        if self.base_rows <= 0:
            return most
        return min(self.stored_bytes * max(self.rows, 0) // self.base_rows, most)


class Decision(NamedTuple):
    """Whether a base is due, and the setting that says so.

    Attributes:
        is_base: Whether it is.
        trigger: The first trigger that was reached, or what kept one from being looked at: the
            floor, or `max_chain_part_bytes`; None if there was none.
    """

    is_base: bool
    trigger: str | None


@dataclass(frozen=True, slots=True)
class Policy:
    """When a base is due; see the head of the file.

    Raises:
        PolicyError: A number is negative, a share is not above 0, or the floor is above the age.
    """

    min_interval_ms: int = 0
    max_interval_ms: int = 0
    max_diff_bytes: int = 0
    max_diff_fraction: float | None = None
    max_churn_records: int = 0
    max_churn_fraction: float | None = None
    quiet_bases: bool = False
    min_chain_diffs: int = MIN_CHAIN_DIFFS
    max_chain_fraction: float = MAX_CHAIN_FRACTION
    max_chain_diffs: int = MAX_CHAIN_DIFFS
    max_chain_part_bytes: int = MAX_CHAIN_PART_BYTES

    def __post_init__(self) -> None:
        for key in _COUNTS:
            _check_count(_setting(key), getattr(self, key))
        if self.max_chain_fraction != 0 or type(self.max_chain_fraction) is bool:
            _check_fraction("max_chain_fraction", self.max_chain_fraction, off="0")
        for key in ("max_diff_fraction", "max_churn_fraction"):
            _check_fraction(key, getattr(self, key))
        if type(self.quiet_bases) is not bool:
            raise PolicyError("quiet_bases", "is neither true nor false")
        if 0 < self.max_interval_ms < self.min_interval_ms:
            raise PolicyError("min_interval", "is above max_interval")

    @classmethod
    def read(cls, settings: Mapping[str, object]) -> Policy:
        """The policy of a configuration, with times such as `"30s"`, `"5m"` or `"6h"`.

        Raises:
            PolicyError: A setting is unknown, or cannot be used.
        """
        known = {_setting(field.name): field.name for field in fields(cls)}
        for key in settings:
            if key not in known:
                raise PolicyError(str(key), f"is not known; there are {', '.join(known)}")
        given = {
            known[key]: _duration_ms(key, value) if known[key].endswith("_ms") else value
            for key, value in settings.items()
        }
        return cls(**given)  # type: ignore[arg-type]  # `__post_init__` looks at each of them.


def decide(policy: Policy, now: Measures) -> Decision:
    """Whether a base is due."""
    if policy.min_interval_ms > 0 and now.age_ms < policy.min_interval_ms:
        return Decision(is_base=False, trigger="min_interval")
    may_age = now.has_moved or policy.quiet_bases
    reached = {
        "max_interval": may_age and _reaches(now.age_ms, policy.max_interval_ms),
        "max_diff_bytes": _reaches(now.diff_bytes, policy.max_diff_bytes),
        "max_diff_fraction": _is_share(now.diff_bytes, policy.max_diff_fraction, now.base_bytes),
        "max_churn_records": _reaches(now.churn, policy.max_churn_records),
        "max_churn_fraction": _is_share(now.churn, policy.max_churn_fraction, now.rows),
    }
    trigger = next((name for name, is_reached in reached.items() if is_reached), None)
    return _decide_by_chain(policy, now) if trigger is None else Decision(True, trigger)


def _decide_by_chain(policy: Policy, now: Measures) -> Decision:
    trigger = None
    if _is_long(policy, now):
        trigger = "max_chain_fraction"
    elif _reaches(now.chain_diffs, policy.max_chain_diffs):
        trigger = "max_chain_diffs"
    held_bytes = (now.stored_bytes + now.chain_bytes) // now.parts
    if trigger is not None and 0 < policy.max_chain_part_bytes < held_bytes:
        return Decision(is_base=False, trigger="max_chain_part_bytes")
    return Decision(trigger is not None, trigger)


def size_skew(policy: Policy, *, base_format: str, diff_format: str) -> str | None:
    """Why `max_diff_fraction` does not mean what it says; None if it does.

    Args:
        policy: The policy.
        base_format: The first format of bases, whose size is compared.
        diff_format: The first format of diffs, likewise.
    """
    if policy.max_diff_fraction is None or base_format == diff_format:
        return None
    return (
        f"max_diff_fraction compares diffs in {diff_format} with bases in {base_format}, "
        "which are not of one size for the same rows"
    )


def parse_duration_ms(text: str) -> int | None:
    """The time that a text such as `"5m"` stands for; None if it is none."""
    found = _DURATION.fullmatch(text)
    return None if found is None else int(found["count"]) * _UNITS_MS[found["unit"]]


def _reaches(value: int, limit: int) -> bool:
    return 0 < limit <= value


def _is_long(policy: Policy, now: Measures) -> bool:
    """Whether the diffs are worth a base; a table that is empty by now has one for nothing."""
    fraction = policy.max_chain_fraction
    if not fraction or now.chain_diffs < max(policy.min_chain_diffs, 1):
        return False
    return now.next_bytes == 0 or _is_share(now.chain_bytes, fraction, now.next_bytes)


def _is_share(value: int, fraction: float | None, whole: int) -> bool:
    if fraction is None or whole <= 0:
        return False
    # As it was written: 0.07 of 100 is 7, and as floats a little more.
    return value >= Fraction(repr(fraction)) * whole


def _setting(field: str) -> str:
    return field.removesuffix("_ms")


def _duration_ms(key: str, value: object) -> int:
    if value == 0 and type(value) is int:
        return 0
    found = parse_duration_ms(value) if type(value) is str else None
    if found is None:
        raise PolicyError(key, f"is {value!r}, and not a time such as 30s, 5m or 6h")
    return found


def _check_count(key: str, value: object) -> None:
    if type(value) is not int or not 0 <= value <= INTEGER_MAX:
        raise PolicyError(key, f"is {value!r}, and not a whole number that is 0 or more")


def _check_fraction(key: str, value: object, *, off: str | None = None) -> None:
    match value:
        case None if off is None:
            return
        case int() | float() if type(value) is not bool and 0 < value <= INTEGER_MAX:
            return
    way = "leave it out" if off is None else f"say {off}"
    raise PolicyError(key, f"is {value!r}, and not a number above 0; {way} for none")

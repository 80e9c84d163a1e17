"""Times in manifests and events: ISO 8601 in UTC, to the millisecond."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)

# What others write too: fractions of any length, and other zones.
_TIME = re.compile(
    r"(?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?:\.(?P<fraction>[0-9]{1,9}))?(?P<zone>Z|[+-][0-9]{2}:[0-9]{2})"
)

TIME_MS_MAX = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // _MS


def time_text(time_ms: int) -> str:
    """A time as text, such as `2026-03-01T12:00:00.000Z`."""
    whole = (_EPOCH + time_ms * _MS).isoformat(timespec="milliseconds")
    return whole.removesuffix("+00:00") + "Z"


def time_ms(text: str) -> int | None:
    """The time that a text stands for, cut to the millisecond; None if it is none."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    fraction = (found["fraction"] or "").ljust(3, "0")[:3]
    try:
        at = datetime.fromisoformat(f"{found['time']}.{fraction}{found['zone']}")
        ms = (at - _EPOCH) // _MS
    except (ValueError, OverflowError):
        return None
    return ms if 0 <= ms <= TIME_MS_MAX else None

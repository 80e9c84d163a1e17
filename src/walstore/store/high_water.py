"""How far a log was read, across processes: what it must not fall behind.

- It only ever grows, until a person accepts that the log was rolled back.
- It is kept in the same step as the elements that it is about. So a process that dies leaves both
  or neither, and what is kept is never ahead of what a relay has served.
- It may be ahead of the elements that are kept: what has not the shape of one is not kept.
- What it says was read by this reader from a file of this reader's; what does not read like it says
  nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from walstore.canon import Json
from walstore.document.ports import RawElement
from walstore.wire.limits import TS_MAX


class HighWater(NamedTuple):
    """How far a log was read.

    Attributes:
        ts: The last `ts` read, of whatever was there.
        newest_ts: The `ts` of the newest element that had the shape of one; 0 if there was none.
        signature: The signature of that element.
        snapshot_ts: The `uptoTs` of the newest snapshot that was believed; 0 if there was none.
    """

    ts: int = 0
    newest_ts: int = 0
    signature: str = ""
    snapshot_ts: int = 0

    @classmethod
    def read(cls, kept: Json) -> HighWater:
        """Take what an earlier process has kept."""
        match kept:
            case {
                "ts": int(ts),
                "newest": [int(newest_ts), str(signature)],
                "snapshot": int(snapshot_ts),
            } if all(0 <= each <= TS_MAX for each in (ts, newest_ts, snapshot_ts)):
                return cls(ts, newest_ts, signature, snapshot_ts)
            case _:
                return cls()

    def as_json(self) -> Json:
        """What to keep of it."""
        return {
            "ts": self.ts,
            "newest": [self.newest_ts, self.signature],
            "snapshot": self.snapshot_ts,
        }

    def risen(self, ts: int, elements: Sequence[RawElement]) -> HighWater:
        """The same after a page was read.

        Args:
            ts: The highest `ts` in it.
            elements: What had the shape of elements, ascending.
        """
        grown = self._replace(ts=max(self.ts, ts))
        newest = elements[-1] if elements else None
        if newest is None or newest.ts <= self.newest_ts:
            return grown
        return grown._replace(newest_ts=newest.ts, signature=newest.signature)

    def with_snapshot(self, snapshot_ts: int) -> HighWater:
        """The same after a snapshot was believed."""
        if snapshot_ts <= self.snapshot_ts:
            return self
        return self._replace(snapshot_ts=snapshot_ts)

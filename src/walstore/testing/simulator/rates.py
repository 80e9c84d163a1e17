"""How bad the world is in one run: drawn from its seed, each kind for itself.

- Every kind is absent from about a third of the runs, so that no fault hides another.
- At most one kind of hostility per run; about half of the runs have none, and must raise no alarm.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

LOSS_MAX = 0.30
REPLAY_MAX = 0.50
LATE_MAX = 0.15
PARTITION_MAX = 0.03
CRASH_MAX = 0.04
CANCEL_MAX = 0.05
CLOCK_MAX = 0.03
FULL_MAX = 0.03
DELAY_MS_MAX = 400

HOSTILE_RELAY = ("rollback", "hide", "fork", "forge", "echo", "lie", "snapshot")
HOSTILE = (*HOSTILE_RELAY, "writer")

_ABSENT = 1 / 3


@dataclass(frozen=True, slots=True)
class Rates:
    """What goes wrong, and how often.

    Attributes:
        loss: Of messages, that never arrive.
        replay: Of messages, that arrive again later.
        late: Of messages, that arrive after whoever sent them has given up, and after others.
        delay_ms: How long a message takes at most.
        partition: Of steps, that somebody loses the network for a while.
        crash: Of steps, that a process dies.
        cancel: Of calls, that are given up halfway.
        clock: Of steps, that somebody's clock jumps.
        full: Of steps, that somebody's disk is full for a while.
        hostility: What is done on purpose; empty if nothing is.
    """

    loss: float = 0.0
    replay: float = 0.0
    late: float = 0.0
    delay_ms: float = 0.0
    partition: float = 0.0
    crash: float = 0.0
    cancel: float = 0.0
    clock: float = 0.0
    full: float = 0.0
    hostility: str = ""

    @classmethod
    def draw(cls, chance: Random) -> Rates:
        """The rates of a run."""
        limits = {
            "loss": LOSS_MAX,
            "replay": REPLAY_MAX,
            "late": LATE_MAX,
            "delay_ms": DELAY_MS_MAX,
            "partition": PARTITION_MAX,
            "crash": CRASH_MAX,
            "cancel": CANCEL_MAX,
            "clock": CLOCK_MAX,
            "full": FULL_MAX,
        }
        drawn: dict[str, Any] = {}
        for name, limit in limits.items():
            rate = chance.uniform(0, limit)
            drawn[name] = 0.0 if chance.random() < _ABSENT else rate
        hostility = chance.choice(HOSTILE)
        return cls(**drawn, hostility=hostility if chance.random() < 0.5 else "")

    def without(self, kinds: Collection[str]) -> Rates:
        """The same world with some kinds of faults left out."""
        gone: dict[str, Any] = {kind: "" if kind == "hostility" else 0.0 for kind in kinds}
        return replace(self, **gone)

    def kinds(self) -> list[str]:
        """The kinds of faults that there are."""
        return [field.name for field in fields(self) if getattr(self, field.name)]

    def __str__(self) -> str:
        shown = []
        for kind in self.kinds():
            rate = getattr(self, kind)
            shown.append(f"{kind}={rate:.2f}" if isinstance(rate, float) else f"{kind}={rate}")
        return " ".join(shown) or "nothing goes wrong"

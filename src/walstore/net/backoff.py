"""When to try again, so that a relay that comes back is not run over by everybody at once.

- The first attempt after a connection that lasted comes quickly, at a random moment.
- Each further one doubles the pause, up to a limit; half of every pause is random.
"""

from __future__ import annotations

from typing import NamedTuple


class Backoff(NamedTuple):
    """The pauses before attempts.

    Attributes:
        quick_ms_min: The first pause, at least.
        quick_ms_max: The first pause, at most.
        pause_ms_min: The second pause.
        pause_ms_max: Every pause, at most.
        lasting_ms: A connection that was up for this long has worked: the pauses start anew.
    """

    quick_ms_min: int = 100
    quick_ms_max: int = 1_000
    pause_ms_min: int = 1_000
    pause_ms_max: int = 30_000
    lasting_ms: int = 10_000

    def pause_ms(self, failures: int, chance: float) -> int:
        """How long to wait.

        Args:
            failures: How many attempts have failed since a connection lasted.
            chance: A random number from 0 to 1.
        """
        if failures == 0:
            return round(self.quick_ms_min + chance * (self.quick_ms_max - self.quick_ms_min))
        pause_ms = min(self.pause_ms_min << min(failures - 1, 30), self.pause_ms_max)
        return round(pause_ms * (1 + chance) / 2)

"""How much memory a process takes at most while something happens, as its system counts it."""

from __future__ import annotations

from pathlib import Path


class PeakMemory:
    """What a process has had at most since this was made, beyond what it had then, in bytes.

    Args:
        number: The process; it is one's own or a child.
    """

    def __init__(self, number: int) -> None:
        self._status = Path(f"/proc/{number}/status")
        # From now on its system keeps the most anew.
        Path(f"/proc/{number}/clear_refs").write_text("5")
        self._before = self._kib("VmRSS")

    @property
    def grown(self) -> int:
        """So much, up to now."""
        return (self._kib("VmHWM") - self._before) * 2**10

    def _kib(self, name: str) -> int:
        (line,) = [line for line in self._status.read_text().splitlines() if line.startswith(name)]
        return int(line.split()[1])

"""How walstore stands to its targets: one row for each, whatever measured it, in one table.

- A value is what walstore needs, divided by what its yardstick needs or in the target's own unit;
  so less is better everywhere. 1/3 is three times faster, or smaller.
- A value within 1.4 of its target, marked `~`, could come out on the other side in another run.
- Interpreted and compiled walstore have targets of their own, and stand side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

NOISE = 1.4

Build = Literal["pure", "compiled"]
BUILD_NAMES: tuple[Build, Build] = ("pure", "compiled")

_HEADINGS = ["", "", "beside", "pure", "target", "", "compiled", "target", ""]


@dataclass(frozen=True)
class Standing:
    """One target of one build; without a value, it was not measured."""

    workload: str
    case: str
    # A peer, another case of walstore's own, or the unit of a target that needs no comparison.
    yardstick: str
    build: Build
    value: float | None
    limit: float
    is_ratio: bool = True
    is_noisy: bool = True

    @property
    def is_reached(self) -> bool:
        """Whether it was measured and is within the limit."""
        return self.value is not None and self.value <= self.limit

    @property
    def word(self) -> str:
        """Whether the target is reached, and whether noise could have decided it."""
        if self.value is None:
            return "not measured"
        noisy = self.is_noisy and 1 / NOISE < self.value / self.limit < NOISE
        return f"{'reached' if self.is_reached else 'missed'}{' ~' if noisy else ''}"

    @property
    def shown(self) -> str:
        """The value."""
        return "–" if self.value is None else self._spelled(self.value)

    @property
    def wanted(self) -> str:
        """The target."""
        return f"≤ {self._spelled(self.limit)}"

    def _spelled(self, value: float) -> str:
        return fraction(value) if self.is_ratio else number(value)


def overview(standings: Iterable[Standing]) -> str:
    """All targets as one table, both builds side by side."""
    rows: dict[tuple[str, str, str], dict[str, Standing]] = {}
    for each in standings:
        rows.setdefault((each.workload, each.case, each.yardstick), {})[each.build] = each
    cells = [_HEADINGS]
    for (workload, case, yardstick), builds in rows.items():
        cells.append([workload, title(case), yardstick, *_halves(builds)])
    return "\n".join(aligned(cells))


def counted(standings: Iterable[Standing]) -> str:
    """How many targets are reached, by build, as a sentence."""
    parts = []
    standings = list(standings)
    for build in BUILD_NAMES:
        measured = [each for each in standings if each.build == build and each.value is not None]
        if measured:
            reached = sum(each.is_reached for each in measured)
            parts.append(f"{build}: {reached} of {len(measured)} targets reached")
    return "; ".join(parts)


def number(value: float) -> str:
    """A figure, as short as it says something."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.1g}"


def fraction(value: float) -> str:
    """A ratio; below one, as how many times better."""
    return f"1/{number(1 / value)}" if 0 < value < 1 else number(value)


def title(case: str) -> str:
    """The name of a case; of sizes, with thousands apart."""
    return f"{int(case):,}" if case.isdigit() else case


def aligned(rows: list[list[str]]) -> Iterator[str]:
    """Rows as lines, columns under each other; the first one to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        yield f"  {first.ljust(widths[0])}  {'  '.join(cells)}".rstrip()


def _halves(builds: dict[str, Standing]) -> Iterator[str]:
    for build in BUILD_NAMES:
        each = builds.get(build)
        yield from ("", "", "") if each is None else (each.shown, each.wanted, each.word)

"""The report: one table per workload, the targets below it, a summary at the end.

- A ratio is what the peer needs divided by what walstore needs: 3.0 is three times faster.
- Ratios within 1.4 of one are no finding: rounds differ by more than that.
- Figures stand in the tables only to show what the ratios are made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.peers import PEERS, WALSTORE
from benchmarks.runner import Outcome
from benchmarks.workloads import BEST_PEER, Target

NOISE = 1.4

_VERSIONS = {peer.name: peer.version for peer in PEERS}


@dataclass(frozen=True)
class Verdict:
    """A target of a workload, and how walstore's figure stands to it."""

    workload: str
    target: Target
    ratio: float | None

    @property
    def word(self) -> str:
        """Whether the target is reached, and whether noise could have decided it."""
        if self.ratio is None:
            return "not measured"
        reached = "reached" if self.ratio <= self.target.limit else "not reached"
        close = 1 / NOISE < self.ratio / self.target.limit < NOISE
        return f"{reached}, within the noise" if close and _is_relative(self.target) else reached

    @property
    def text(self) -> str:
        """The target as a sentence."""
        target = self.target
        ratio = "–" if self.ratio is None else _number(self.ratio)
        limit = _number(target.limit)
        yardstick = _yardstick_name(target)
        return f"{target.case}: {ratio}{yardstick}, target ≤ {limit}{yardstick}: {self.word}"


def table(outcome: Outcome) -> str:
    """One workload: figures, ratios and targets."""
    workload = outcome.workload
    own = outcome.figures.get(WALSTORE.name, {})
    cases = [
        case for case in workload.cases if any(case in row for row in outcome.figures.values())
    ]
    rows = [["", *(part for case in cases for part in (_title(case), "ratio"))]]
    for name, figures in outcome.figures.items():
        cells = [f"{name} {_VERSIONS.get(name, '')}".strip()]
        for case in cases:
            cells.append(_number(figures[case]) if case in figures else "–")
            cells.append(_ratio(own.get(case), figures.get(case)) if name != WALSTORE.name else "")
        rows.append(cells)
    lines = [f"{workload.name}: {workload.what} ({workload.unit})", *_aligned(rows)]
    lines += [f"  {name}: {reason}" for name, reason in outcome.reasons.items()]
    lines += [f"  target  {verdict.text}" for verdict in verdicts(outcome)]
    return "\n".join(lines) + "\n"


def verdicts(outcome: Outcome) -> list[Verdict]:
    """How the workload's targets stand."""
    targets = outcome.workload.targets(compiled=outcome.compiled)
    return [Verdict(outcome.workload.name, target, _divided(outcome, target)) for target in targets]


def summary(outcomes: Iterable[Outcome], missing: dict[str, str]) -> str:
    """What the run found, as ratios, and what it could not look at."""
    outcomes = list(outcomes)
    all_verdicts = [verdict for outcome in outcomes for verdict in verdicts(outcome)]
    reached = [verdict for verdict in all_verdicts if verdict.word.startswith("reached")]
    build = "compiled" if any(outcome.compiled for outcome in outcomes) else "pure Python"
    lines = [f"Summary ({build}): {len(reached)} of {len(all_verdicts)} targets reached"]
    lines += [f"  {verdict.workload:14}{verdict.text}" for verdict in all_verdicts]
    lines += [f"  not installed: {name}: {reason}" for name, reason in missing.items()]
    lines += [
        f"  failed: {outcome.workload.name}: {name}: {outcome.reasons[name]}"
        for outcome in outcomes
        for name in sorted(outcome.failed)
    ]
    return "\n".join(lines)


def as_json(outcomes: Iterable[Outcome], missing: dict[str, str]) -> dict[str, Any]:
    """The whole run as plain values."""
    return {
        "versions": _VERSIONS,
        "not_installed": missing,
        "workloads": [
            {
                "name": outcome.workload.name,
                "unit": outcome.workload.unit,
                "compiled": outcome.compiled,
                "figures": outcome.figures,
                "reasons": outcome.reasons,
                "targets": [
                    {**asdict(verdict.target), "ratio": verdict.ratio, "verdict": verdict.word}
                    for verdict in verdicts(outcome)
                ],
            }
            for outcome in outcomes
        ],
    }


def _divided(outcome: Outcome, target: Target) -> float | None:
    own = outcome.figures.get(WALSTORE.name, {})
    if target.case not in own:
        return None
    if not _is_relative(target):
        return own[target.case]
    yardstick = _yardstick(outcome, target)
    return own[target.case] / yardstick if yardstick else None


def _yardstick(outcome: Outcome, target: Target) -> float | None:
    if target.other_case:
        return outcome.figures[WALSTORE.name].get(target.other_case)
    if target.peer != BEST_PEER:
        return outcome.figures.get(target.peer, {}).get(target.case)
    others = [
        figures[target.case]
        for name, figures in outcome.figures.items()
        if name != WALSTORE.name and target.case in figures
    ]
    return min(others, default=None)


def _is_relative(target: Target) -> bool:
    return bool(target.peer or target.other_case)


def _yardstick_name(target: Target) -> str:
    if target.other_case:
        return f" × its {_title(target.other_case)}"
    if target.peer == BEST_PEER:
        return " × the best peer"
    return f" × {target.peer}" if target.peer else ""


def _ratio(own: float | None, other: float | None) -> str:
    if not own or not other:
        return ""
    ratio = other / own
    return f"{_number(ratio)}×" if not 1 / NOISE < ratio < NOISE else f"~{_number(ratio)}×"


def _title(case: str) -> str:
    return f"{int(case):,}" if case.isdigit() else case


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.1g}"


def _aligned(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        yield f"  {first.ljust(widths[0])}  {'  '.join(cells)}".rstrip()

"""The report: one table per workload, the targets below it, a summary at the end.

- A ratio is what walstore needs divided by what the peer needs: 1/3 is three times faster.
- A ratio within 1.4 of one, marked `~`, is no finding: rounds differ by as much.
- Figures stand in the tables only to show what the ratios are made of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.peers import PEERS, WALSTORE
from benchmarks.runner import Outcome
from benchmarks.workloads import BEST_PEER, Target, Workload

NOISE = 1.4

_VERSIONS = {peer.name: peer.version for peer in PEERS}


@dataclass(frozen=True)
class Verdict:
    """A target of a workload, and how walstore's figure stands to it."""

    workload: Workload
    target: Target
    ratio: float | None

    @property
    def word(self) -> str:
        """Whether the target is reached, and whether noise could have decided it."""
        if self.ratio is None:
            return "not measured"
        word = "reached" if self.ratio <= self.target.limit else "not reached"
        noisy = self.workload.repeats and _is_relative(self.target)
        if noisy and 1 / NOISE < self.ratio / self.target.limit < NOISE:
            return f"{word}, within the noise"
        return word

    @property
    def text(self) -> str:
        """The target as a sentence."""
        target = self.target
        spell = _fraction if _is_relative(target) else _number
        unit = f"× {_yardstick_name(target)}" if _is_relative(target) else self.workload.unit
        ratio = "–" if self.ratio is None else f"{spell(self.ratio)} {unit}"
        return f"{_title(target.case)}: {ratio}, target ≤ {spell(target.limit)} {unit}: {self.word}"


def table(outcome: Outcome) -> str:
    """One workload: figures, ratios and targets."""
    workload = outcome.workload
    own = outcome.figures.get(WALSTORE.name, {})
    cases = [
        case for case in workload.cases if any(case in row for row in outcome.figures.values())
    ]
    rows = [["", *map(_title, cases)]]
    for name, figures in outcome.figures.items():
        compared = {} if name == WALSTORE.name else own
        label = f"{name} {_VERSIONS.get(name, '')}".strip()
        rows.append([label, *(_cell(figures.get(case), compared.get(case)) for case in cases)])
    lines = [f"{workload.name}: {workload.what} ({workload.unit})", *_aligned(rows)]
    lines += [f"  {reason}: {', '.join(names)}" for reason, names in _by_reason(outcome)]
    lines += [f"  target  {verdict.text}" for verdict in verdicts(outcome)]
    return "\n".join(lines) + "\n"


def verdicts(outcome: Outcome) -> list[Verdict]:
    """How the workload's targets stand."""
    targets = outcome.workload.targets(compiled=outcome.compiled)
    return [Verdict(outcome.workload, target, _divided(outcome, target)) for target in targets]


def summary(outcomes: Iterable[Outcome], missing: dict[str, str]) -> str:
    """What the run found, as ratios, and what it could not look at."""
    outcomes = list(outcomes)
    all_verdicts = [verdict for outcome in outcomes for verdict in verdicts(outcome)]
    reached = [verdict for verdict in all_verdicts if verdict.word.startswith("reached")]
    build = "compiled" if any(outcome.compiled for outcome in outcomes) else "pure Python"
    lines = [f"Summary ({build}): {len(reached)} of {len(all_verdicts)} targets reached"]
    lines += [f"  {verdict.workload.name:14}{verdict.text}" for verdict in all_verdicts]
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
        return f"its {_title(target.other_case)}"
    return "the best peer" if target.peer == BEST_PEER else target.peer


def _by_reason(outcome: Outcome) -> list[tuple[str, list[str]]]:
    names: dict[str, list[str]] = defaultdict(list)
    for name, reason in outcome.reasons.items():
        names[reason].append(name)
    return list(names.items())


def _cell(figure: float | None, own: float | None) -> str:
    if figure is None:
        return "–"
    if not own or not figure:
        return _number(figure)
    ratio = own / figure
    mark = "~" if 1 / NOISE < ratio < NOISE else ""
    return f"{_number(figure)} ({mark}{_fraction(ratio)})"


def _fraction(value: float) -> str:
    return f"1/{_number(1 / value)}" if 0 < value < 1 else _number(value)


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

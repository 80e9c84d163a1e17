"""The report: one table per workload, and what the run found about the targets.

- A ratio is what walstore needs divided by what the peer needs: 1/3 is three times faster.
- A ratio within 1.4 of one, marked `~`, is no finding: rounds differ by as much.
- Figures stand in the tables only to show what the ratios are made of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from benchmarks.peers import BUILDS, COMPILED, PEERS, WALSTORE
from benchmarks.runner import Outcome
from benchmarks.standing import (
    BUILD_NAMES,
    NOISE,
    Build,
    Standing,
    aligned,
    fraction,
    number,
    title,
)
from benchmarks.workloads import BEST_PEER, Target

_VERSIONS = {peer.name: peer.version for peer in PEERS}
_OWN: dict[Build, str] = {"pure": WALSTORE.name, "compiled": COMPILED.name}


def table(outcome: Outcome) -> str:
    """One workload: figures and ratios, of which the pure build's are compared."""
    workload = outcome.workload
    own = outcome.figures.get(WALSTORE.name, {})
    cases = [
        case for case in workload.cases if any(case in row for row in outcome.figures.values())
    ]
    rows = [["", *map(title, cases)]]
    for name, figures in outcome.figures.items():
        compared = {} if name in _OWN.values() else own
        label = f"{name} {_VERSIONS.get(name, '')}".strip()
        rows.append([label, *(_cell(figures.get(case), compared.get(case)) for case in cases)])
    lines = [f"{workload.name}: {workload.what} ({workload.unit})", *aligned(rows)]
    lines += [f"  {reason}: {', '.join(names)}" for reason, names in _by_reason(outcome)]
    return "\n".join(lines) + "\n"


def standings(outcome: Outcome) -> list[Standing]:
    """How the workload's targets stand, those of each build."""
    return [
        Standing(
            outcome.workload.name,
            target.case,
            _yardstick_name(target) if _is_relative(target) else outcome.workload.unit,
            build,
            _divided(outcome, target, build),
            target.limit,
            is_ratio=_is_relative(target),
            is_noisy=outcome.workload.repeats and _is_relative(target),
        )
        for build in BUILD_NAMES
        if _OWN[build] in outcome.figures
        for target in outcome.workload.targets(compiled=build == "compiled")
    ]


def shortcomings(outcomes: Iterable[Outcome], missing: dict[str, str]) -> str:
    """What the run could not look at."""
    lines = [f"  not installed: {name}: {reason}" for name, reason in missing.items()]
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
                "what": outcome.workload.what,
                "unit": outcome.workload.unit,
                "figures": outcome.figures,
                "reasons": outcome.reasons,
            }
            for outcome in outcomes
        ],
    }


def standing_json(standing: Standing) -> dict[str, Any]:
    """A target and how it stands, as plain values."""
    return {**asdict(standing), "verdict": standing.word}


def _divided(outcome: Outcome, target: Target, build: Build) -> float | None:
    own = outcome.figures.get(_OWN[build], {})
    if target.case not in own:
        return None
    if not _is_relative(target):
        return own[target.case]
    yardstick = _yardstick(outcome, target, own)
    return own[target.case] / yardstick if yardstick else None


def _yardstick(outcome: Outcome, target: Target, own: dict[str, float]) -> float | None:
    if target.other_case:
        return own.get(target.other_case)
    if target.peer != BEST_PEER:
        return outcome.figures.get(target.peer, {}).get(target.case)
    ours = [peer.name for peer in BUILDS]
    others = [
        figures[target.case]
        for name, figures in outcome.figures.items()
        if name not in ours and target.case in figures
    ]
    return min(others, default=None)


def _is_relative(target: Target) -> bool:
    return bool(target.peer or target.other_case)


def _yardstick_name(target: Target) -> str:
    if target.other_case:
        return f"its {title(target.other_case)}"
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
        return number(figure)
    ratio = own / figure
    mark = "~" if 1 / NOISE < ratio < NOISE else ""
    return f"{number(figure)} ({mark}{fraction(ratio)})"

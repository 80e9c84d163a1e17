"""The report: a table per case, with targets beside what they are about, and what was reached.

- A ratio says how many times better walstore is: more per second, or less of all else.
- A ratio within 1.4 of one, or of its target, could come out otherwise in another run.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.standing import NOISE, Build, Standing

WALSTORE, PEER = "walstore", "pycrdt-websocket"

# Where more is better.
_RATES = frozenset({"per second"})

# What is no matter of more or less.
_COUNTS = frozenset({"lost"})

Rows = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Target:
    """What a figure should be: so many times better than the peer's, or at most so much."""

    figure: str
    pure: float
    compiled: float
    is_ratio: bool


@dataclass(frozen=True)
class Case:
    """One table: what is done, and what is wanted of it."""

    name: str
    what: str
    targets: tuple[Target, ...] = ()


def medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The figures of all rounds as one."""
    return {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}


def better(figure: str, rows: Rows) -> float | None:
    """How many times better walstore's figure is; None if one of them has none."""
    own, other = rows.get(WALSTORE, {}).get(figure), rows.get(PEER, {}).get(figure)
    if not own or not other or figure in _COUNTS:
        return None
    return own / other if figure in _RATES else other / own


def table(case: Case, rows: Rows) -> str:
    """One case."""
    figures = list(dict.fromkeys(figure for row in rows.values() for figure in row))
    cells = [["", *figures]]
    cells += [
        [name, *("–" if figure not in row else _number(row[figure]) for figure in figures)]
        for name, row in rows.items()
    ]
    ratios = [better(figure, rows) for figure in figures]
    if any(ratio is not None for ratio in ratios):
        cells.append(["times better", *(_ratio(ratio) for ratio in ratios)])
    lines = [f"{case.name}: {case.what}", *_aligned(cells)]
    lines += [f"  {line}" for line in verdicts(case, rows)]
    return "\n".join(lines) + "\n"


def verdicts(case: Case, rows: Rows) -> Iterator[str]:
    """How the targets stand, as sentences."""
    for target in case.targets:
        have = (
            better(target.figure, rows)
            if target.is_ratio
            else rows.get(WALSTORE, {}).get(target.figure)
        )
        for word, limit in (("target", target.pure), ("goal", target.compiled)):
            yield f"{word}  {_sentence(target, have, limit)}"


def standings(case: Case, rows: Rows) -> Iterator[Standing]:
    """How the targets stand, less being better: a ratio is turned around."""
    for target in case.targets:
        if target.is_ratio:
            times = better(target.figure, rows)
            value = None if times is None else 1 / times
        else:
            value = rows.get(WALSTORE, {}).get(target.figure)
        limits: tuple[tuple[Build, float], ...]
        limits = (("pure", target.pure), ("compiled", target.compiled))
        for build, limit in limits:
            yield Standing(
                f"relay {case.name}",
                target.figure,
                PEER if target.is_ratio else "–",
                build,
                value,
                1 / limit if target.is_ratio else limit,
                is_ratio=target.is_ratio,
                is_noisy=target.is_ratio,
            )


def as_json(cases: Sequence[Case], results: Mapping[str, Rows]) -> list[dict[str, Any]]:
    """The whole run as plain values."""
    return [
        {
            "case": case.name,
            "what": case.what,
            "figures": results[case.name],
            "times_better": {
                figure: better(figure, results[case.name])
                for figure in results[case.name].get(WALSTORE, {})
            },
            "targets": list(verdicts(case, results[case.name])),
            "standings": [asdict(each) for each in standings(case, results[case.name])],
        }
        for case in cases
        if case.name in results
    ]


def _sentence(target: Target, have: float | None, limit: float) -> str:
    if have is None:
        return f"{target.figure}: not measured"
    if target.is_ratio:
        wanted, is_reached = f"≥ {_number(limit)} × {PEER}", have >= limit
        shown = f"{_number(have)} ×"
    else:
        wanted, is_reached = f"≤ {_number(limit)}", have <= limit
        shown = _number(have)
    word = "reached" if is_reached else "not reached"
    noise = ", within the noise" if target.is_ratio and 1 / NOISE < have / limit < NOISE else ""
    return f"{target.figure}: {shown}, wanted {wanted}: {word}{noise}"


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{'~' if 1 / NOISE < ratio < NOISE else ''}{_number(ratio)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _aligned(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        yield f"  {first.ljust(widths[0])}  {'  '.join(cells)}".rstrip()

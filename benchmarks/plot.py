"""A picture of a run: how far each figure is from its target, both builds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.standing import BUILD_NAMES, Standing, fraction, number, title

_COLOURS = {True: "#2a7f62", False: "#c2452d"}
_MARKS = {"pure": "o", "compiled": "D"}


def targets(standings: Sequence[Standing], file: Path) -> None:
    """Draw each target as a row: left of the line it is reached, right of it missed."""
    from matplotlib.figure import Figure

    measured = [each for each in standings if each.value]
    labels = list(dict.fromkeys(_label(each) for each in measured))
    figure = Figure(figsize=(8, 0.22 * len(labels) + 1.2), dpi=110)
    axes = figure.add_subplot()
    axes.axvline(1, color="#444444", linewidth=1)
    for each in measured:
        assert each.value is not None
        place, row = each.value / each.limit, labels.index(_label(each))
        axes.plot(place, row, _MARKS[each.build], color=_COLOURS[each.is_reached], markersize=5)
        spelled = fraction(each.value) if each.is_ratio else number(each.value)
        shift = (4, 3 if each.build == "pure" else -7)
        axes.annotate(spelled, (place, row), shift, textcoords="offset points", fontsize=5)
    for build in BUILD_NAMES:
        axes.plot([], [], _MARKS[build], color="#777777", label=build)
    axes.set_xscale("log")
    axes.set_yticks(range(len(labels)), labels, fontsize=6)
    axes.invert_yaxis()
    axes.grid(axis="x", linewidth=0.3)
    axes.tick_params(axis="x", labelsize=6)
    axes.set_xlabel("figure ÷ target: left of 1 is reached", fontsize=7)
    axes.legend(fontsize=6, loc="lower right")
    figure.tight_layout()
    figure.savefig(file)


def _label(standing: Standing) -> str:
    beside = f", beside {standing.yardstick}" if standing.is_ratio else f" ({standing.yardstick})"
    return f"{standing.workload} {title(standing.case)}{beside.replace(' (–)', '')}"

"""Draws who wrote how much, and how large documents became; it knows nothing of Spark.

- matplotlib is imported when something is drawn: it is the extra `notebook`.
- Figures are made without the global state of `pyplot`, and are whoever's asks for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from walstore.archive.extras import needed

OTHERS: Final = "others"

UNITS: Final = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
# The unit that a line needs where bars have the other.
FINER: Final = {"minute": "minute", "hour": "hour", "day": "hour", "week": "day"}

Bars: TypeAlias = dict[datetime, int]
Line: TypeAlias = list[tuple[datetime, int]]

_AUTHORS: Final = ("#3b6fb6", "#e0812b", "#3f9b6c", "#b3477d", "#7d6bb8", "#b39b28")
_DOCUMENTS: Final = ("#17505c", "#8c2f39", "#4c4a7d", "#5d7a2f", "#96571f", "#6b6f76")
_GREY, _INK, _FAINT = "#a9adb5", "#2b2f36", "#e4e6ea"


class History(NamedTuple):
    """What is drawn.

    Attributes:
        written: By author, how much was written from each time on.
        unit: For how long.
        sizes: By document, how large it was after each time.
        sizes_unit: After how long.
    """

    written: Mapping[str, Bars]
    unit: str
    sizes: Mapping[str, Line]
    sizes_unit: str


def check_drawing() -> None:
    """See that something can be drawn, before anything is computed for it.

    Raises:
        ExtraMissingError: matplotlib is not installed.
    """
    _figures()


def draw(history: History, title: str) -> Any:
    """A figure of matplotlib.

    Raises:
        ExtraMissingError: matplotlib is not installed.
    """
    figure = _figures().Figure(figsize=(10, 6.4), dpi=150, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    figure.suptitle(title, x=0.01, ha="left", fontsize=14, color=_INK, weight="bold")
    _draw_written(above, history.written, history.unit)
    _draw_sizes(below, history.sizes, UNITS[history.sizes_unit])
    return figure


def _figures() -> Any:
    return needed("matplotlib.figure", what="a picture", extra="notebook")


def _draw_written(axes: Any, written: Mapping[str, Bars], unit: str) -> None:
    _dress(axes, f"characters written each {unit}")
    below: dict[datetime, int] = defaultdict(int)
    for (author, bars), colour in zip(written.items(), _colours(written, _AUTHORS), strict=True):
        times = sorted(bars)
        axes.bar(
            times,
            [bars[time] for time in times],
            bottom=[below[time] for time in times],
            width=UNITS[unit] * 0.86,
            align="edge",
            color=colour,
            label=author,
            linewidth=0,
        )
        for time in times:
            below[time] += bars[time]
    if written:
        axes.legend(
            loc="lower right",
            bbox_to_anchor=(1, 1),
            ncols=len(written),
            frameon=False,
            fontsize=9,
            labelcolor=_INK,
            handlelength=0.9,
            handleheight=0.9,
            columnspacing=1.2,
            borderaxespad=0.2,
        )


def _draw_sizes(axes: Any, sizes: Mapping[str, Line], step: timedelta) -> None:
    _dress(axes, "characters in each document")
    drawn = {document: line for document, line in sizes.items() if line}
    if not drawn:
        return
    first = min(line[0][0] for line in drawn.values())
    last = max(line[-1][0] for line in drawn.values()) + step
    # The last size is there a little while, so that it can be seen.
    end = last + (last - first) * 0.015
    heights = _apart([line[-1][1] for line in drawn.values()])
    for (document, line), height, colour in zip(
        drawn.items(), heights, _colours(drawn, _DOCUMENTS), strict=True
    ):
        # A size is that at the end of its unit of time, and stays until somebody writes again.
        times = [line[0][0], *(time + step for time, _ in line), end]
        values = [0, *(size for _, size in line), line[-1][1]]
        axes.plot(times, values, drawstyle="steps-post", color=colour, linewidth=1.8)
        axes.annotate(
            document,
            (end, height),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=colour,
            annotation_clip=False,
        )
    axes.set_ylim(bottom=0)


def _dress(axes: Any, label: str) -> None:
    dates = needed("matplotlib.dates", what="a picture", extra="notebook")
    axes.set_title(label, loc="left", fontsize=10, color=_INK)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_GREY)
    axes.grid(axis="y", color=_FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, labelsize=9, length=0)
    axes.margins(x=0.015, y=0.08)
    locator = dates.AutoDateLocator(tz=UTC, minticks=4)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=UTC))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _colours(drawn: Iterable[str], palette: Sequence[str]) -> list[str]:
    colours = iter(palette)
    return [_GREY if name == OTHERS else next(colours, _GREY) for name in drawn]


def _apart(heights: Sequence[int]) -> list[float]:
    """Heights for labels, moved up where they would cover each other."""
    least = max(heights, default=0) * 0.075
    placed: dict[int, float] = {}
    last = float("-inf")
    for place in sorted(range(len(heights)), key=heights.__getitem__):
        last = max(float(heights[place]), last + least)
        placed[place] = last
    return [placed[place] for place in range(len(heights))]

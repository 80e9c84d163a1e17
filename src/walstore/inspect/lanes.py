"""Who wrote when, as lanes: one row for each author, one column for a stretch of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

# From nothing to as much as anybody has written in one stretch.
BLOCKS = " ▁▂▃▄▅▆▇█"

# Authors that get a lane of their own; the others share one.
LANES_MAX = 64


class Lane(NamedTuple):
    """One author.

    Attributes:
        author: Whose; empty for all the others.
        elements: How many elements.
        bars: How much in each column.
    """

    author: str
    elements: int
    bars: str


def lanes(authors: Sequence[str], width: int) -> list[Lane]:
    """The lanes of a log, given who wrote each of its elements; the busiest author first."""
    totals = Counter(authors)
    shown = [author for author, _ in totals.most_common(LANES_MAX)]
    cells = {author: [0] * width for author in shown}
    rest = [0] * width
    for place, author in enumerate(authors):
        cells.get(author, rest)[column(place, len(authors), width)] += 1
    peak = max((max(row) for row in [*cells.values(), rest]), default=0)
    found = [Lane(author, totals[author], _bars(cells[author], peak)) for author in shown]
    if len(totals) > len(shown):
        count = len(authors) - sum(lane.elements for lane in found)
        found.append(Lane("", count, _bars(rest, peak)))
    return found


def column(place: int, count: int, width: int) -> int:
    """Where the element at a place is shown, of so many."""
    if count <= 1:
        return max(width - 1, 0)
    return min(place * (width - 1) // (count - 1), width - 1)


def _bars(row: Sequence[int], peak: int) -> str:
    top = len(BLOCKS) - 1
    # Whatever is there can be seen.
    return "".join(BLOCKS[-(-count * top // peak)] if count else " " for count in row)

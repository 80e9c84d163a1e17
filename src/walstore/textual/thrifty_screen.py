"""A screen for which a frame costs the widgets that it shows something new of.

Textual asks every widget for all its rows whenever anything is drawn, those too that are elsewhere
or behind others. Here a widget is asked for rows in which something is to be drawn that nothing in
front of it covers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from textual._compositor import Compositor
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip

# Pieces of a row by where they begin; None where nothing was drawn yet.
_Pieces = dict[int, Strip | None]


class ThriftyScreen(Screen[None]):
    """The screen of an app that is drawn often and changes little each time."""

    def __init__(self, **options: Any) -> None:
        """Be empty; the options are those of a `Screen`."""
        super().__init__(**options)
        self._compositor = _ThriftyCompositor()


class _ThriftyCompositor(Compositor):
    def _render_chops(
        self, crop: Region, is_rendered_line: Callable[[int], bool]
    ) -> Sequence[Mapping[int, Strip]]:
        """Draw the rows in which something has changed, from the front to the back."""
        rows: list[_Pieces] = [dict.fromkeys(cuts[:-1]) for cuts in self.cuts]
        wanted = {y for y in crop.line_range if is_rendered_line(y)}
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            bare = [y for y in seen.line_range if y in wanted and _is_bare(rows[y], seen)]
            if not bare or not seen.overlaps(crop):
                continue
            asked = Region(seen.x, bare[0], seen.width, bare[-1] + 1 - bare[0])
            strips = widget.render_lines(asked.translate(-region.offset))
            for y in bare:
                self._put(rows[y], y, strips[y - asked.y], seen)
        return cast("Sequence[Mapping[int, Strip]]", rows)

    def _put(self, row: _Pieces, y: int, strip: Strip, seen: Region) -> None:
        """Put a widget's strip where nothing in front of it was put."""
        first, last = seen.column_span
        cuts = [cut for cut in self.cuts[y] if first <= cut <= last]
        for cut, piece in zip(cuts, strip.divide([cut - first for cut in cuts[1:]]), strict=False):
            if row[cut] is None:
                row[cut] = piece


def _is_bare(row: _Pieces, seen: Region) -> bool:
    """Whether there is something of a row that only what is behind can show."""
    first, last = seen.column_span
    return any(piece is None for cut, piece in row.items() if first <= cut < last)

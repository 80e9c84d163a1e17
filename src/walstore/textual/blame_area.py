"""A text that is only read, and who wrote what of it: each stretch stands on its author's colour.

- What is in view stays where it is while one version takes the place of another.
- A version costs what differs from the one before, and the rows that are in view.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from rich.style import Style
from textual.color import Color
from textual.document._document import Selection

from walstore.textual.carets import author_color
from walstore.textual.rendering import Mark
from walstore.textual.text_drawing import Look
from walstore.textual.text_view import TextView, difference, moved

# How much of their colour the ground of an author has: enough, in light and in dark.
_SHARE = 0.4


class BlameArea(TextView):
    """A text, and who wrote it."""

    def __init__(self, **options: Any) -> None:
        """Show nothing yet; the options are those of a `TextArea`."""
        # Where the stretches begin, and behind them where the last one ends.
        self._starts = [0]
        self._authors: list[str] = []
        super().__init__(**{"read_only": True, "highlight_cursor_line": False, **options})

    def show(self, written: Iterable[tuple[str, str]]) -> None:
        """Show a text: stretches of it, one behind the other, each with its author."""
        stretches = list(written)
        self._starts = [0, *accumulate([len(text) for text, _ in stretches])]
        self._authors = [author for _, author in stretches]
        edit = difference(self.document.text, "".join([text for text, _ in stretches]))
        held = self.held().moved(*edit)
        # Who is where something begins to be there, as in the first version, stays before it.
        start, end = [
            moved(place, *edit) if place > edit[0] else place
            for place in map(self.document.position, self.selection)
        ]
        with self.drawing():
            self.splice(*edit)
        locate = self.document.location
        with self.settling():
            self.selection = Selection(locate(start), locate(end))
            self._refresh_size()
        self.hold(held)
        # Whoever wrote it may be somebody else even where it reads the same.
        self.draw_below(0)

    def _marks(self, row: int, line: str, look: Look, line_style: Style | None) -> Iterator[Mark]:
        yield from self._grounds(row, line, look.ground)
        yield from super()._marks(row, line, look, line_style)

    def _grounds(self, row: int, line: str, ground: Color) -> Iterator[Mark]:
        first = self.document.position((row, 0))
        last = first + len(line)
        stretch = bisect_right(self._starts, first) - 1
        while stretch < len(self._authors) and self._starts[stretch] < last:
            start, end = self._starts[stretch], self._starts[stretch + 1]
            yield Mark(
                max(start - first, 0),
                min(end - first, len(line)),
                _style(self._authors[stretch], ground),
            )
            stretch += 1


def _style(author: str, ground: Color) -> Style:
    return Style(bgcolor=ground.blend(Color.parse(author_color(author)), _SHARE).rich_color)

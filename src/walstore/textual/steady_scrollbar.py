"""A scroll bar that is drawn again only if it looks different.

In a long text a line more moves it by less than a screen can show.
"""

from __future__ import annotations

from math import ceil
from typing import Self

from rich.console import RenderableType
from textual.geometry import Region
from textual.scrollbar import ScrollBar, ScrollBarRender

# The smallest step that a scroll bar shows is one of so many of a cell.
_STEPS = len(ScrollBarRender.VERTICAL_BARS)


class SteadyScrollBar(ScrollBar):
    """A vertical scroll bar."""

    _drawn: tuple[object, ...] = ()

    def refresh(
        self,
        *regions: Region,
        repaint: bool = True,
        layout: bool = False,
        recompose: bool = False,
    ) -> Self:
        """Draw it again, unless it would look the same."""
        if repaint and not layout and not recompose and self._drawn == self._look():
            return self
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def render(self) -> RenderableType:
        """Draw it."""
        self._drawn = self._look()
        return super().render()

    def _look(self) -> tuple[object, ...]:
        """All that it looks different by."""
        assert self.parent is not None
        size, window, virtual = self.size.height, self.window_size, self.window_virtual_size
        thumb: tuple[int, ...] = ()
        if 0 < window < virtual and size:
            length = max(1, window * size / virtual)
            start = int((size - length) * self.position / (virtual - window) * _STEPS)
            thumb = start, ceil(length * _STEPS)
        styles = self.parent.styles
        return thumb, self.size, self.mouse_over, self.grabbed, styles._cache_key, self.app.theme

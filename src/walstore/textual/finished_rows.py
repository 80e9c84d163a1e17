"""Rows of a text with what stands around them: padding and borders.

- Textual finishes a row anew whenever it is drawn, and measures, cuts and encodes it anew. Here a
  row that was finished before is the same row again, wherever on the screen it is by now.
- What was finished with another look is let go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual._styles_cache import StylesCache
from textual.cache import LRUCache
from textual.color import Color
from textual.css.styles import RenderStyles, StylesBase
from textual.geometry import Size, Spacing
from textual.strip import Strip

# Rows that are kept: those of two large screens. Each takes some kilobytes.
ROWS_MAX = 128


class FinishedRows(StylesCache):
    """What a widget looks like that is given the same strip for a row that shows the same."""

    def __init__(self) -> None:
        super().__init__()
        self._look: tuple[object, ...] = ()
        # By the identity of what was finished, which is held so that it stays its own.
        self._finished: LRUCache[tuple[int, bool, bool], tuple[Strip, Strip]] = LRUCache(ROWS_MAX)

    def render_line(
        self,
        styles: StylesBase,
        y: int,
        size: Size,
        content_size: Size,
        padding: Spacing,
        base_background: Color,
        background: Color,
        render_content_line: Callable[[int], Strip],
        *rest: Any,
    ) -> Strip:
        """Finish a row."""

        def finish(render: Callable[[int], Strip]) -> Strip:
            return StylesCache.render_line(
                self, styles, y, size, content_size, padding, base_background, background, render,
                *rest,
            )  # fmt: skip

        gutter = styles.gutter
        if not gutter.top <= y < min(gutter.top + content_size.height, size.height - gutter.bottom):
            return finish(render_content_line)
        self._look_at(styles, size.width, content_size.width, base_background, background, rest)
        content = render_content_line(y - gutter.top)
        # What is drawn over the first row or the last one is not over the others.
        key = id(content), y == 0, y == size.height - 1
        kept = self._finished.get(key)
        if kept is None:
            kept = self._finished[key] = content, finish(lambda _: content)
        return kept[1]

    def _look_at(self, styles: StylesBase, *look: object) -> None:
        assert isinstance(styles, RenderStyles)
        seen = styles._cache_key, *look
        if seen != self._look:
            self._finished.clear()
            self._look = seen

"""Time, drawn: where one is, who wrote when, and the log line by line."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Static

from walstore.document.history import Version
from walstore.inspect.lanes import column, lanes
from walstore.inspect.places import Line
from walstore.inspect.subject import UNSENT, VERIFIED, Subject
from walstore.inspect.summary import time_of
from walstore.textual.carets import author_color
from walstore.textual.text_document import shown

# What stands before a lane: the author, and how much they wrote.
_LABEL_WIDTH = 18


def moment_of(ts: int) -> str:
    """When something was, or where it is in the log."""
    return time_of(ts) or f"ts {ts}"


class Slider(Static):
    """Where one is among the versions, and from where one compares."""

    def __init__(self) -> None:
        """Begin at nothing."""
        super().__init__("", id="slider", markup=False)

    def show(self, *, at: int, mark: int | None, count: int) -> None:
        """Draw it, as wide as there is room."""
        width = max(self.size.width - 2 - _LABEL_WIDTH - 2, 4)
        cells = ["─"] * width
        if mark is not None:
            cells[column(mark, count, width)] = "◆"
        if count:
            cells[column(at, count, width)] = "●"
        label = f"{at + 1 if count else 0:,} of {count:,}"
        self.update(f"{label:<{_LABEL_WIDTH}}├{''.join(cells)}┤")


class Lanes(Static):
    """Who wrote when."""

    def __init__(self) -> None:
        """Begin with nobody."""
        super().__init__("", id="lanes")
        self._drawn = (0, 0)

    def show(self, versions: Sequence[Version]) -> None:
        """Draw them, as wide as there is room; only if there are more, or another width."""
        width = max(self.size.width - 2 - _LABEL_WIDTH - 2, 4)
        if self._drawn == (len(versions), width):
            return
        self._drawn = (len(versions), width)
        authors = [version.author for version in versions]
        rows = []
        for lane in lanes(authors, width):
            name = shown(lane.author[:8]) or "others"
            color = author_color(lane.author)
            rows.append(
                Content(f"{name:<8} {lane.elements:>7,}  ")
                + Content.styled("▕", "$text-muted")
                + Content.styled(lane.bars, color)
                + Content.styled("▏", "$text-muted")
            )
        self.update(Content("\n").join(rows))


class LogView(ScrollView, can_focus=True):
    """The elements, one on each line; only what is seen is drawn."""

    def __init__(self, subject: Subject) -> None:
        """Show a log."""
        super().__init__(id="log")
        self._subject = subject
        self._lines: Sequence[Line] = ()
        self._chosen = 0

    def show(self, chosen: int) -> None:
        """Show what there is by now, with one element chosen."""
        self._lines = list(self._subject.lines)
        self._chosen = chosen
        self.virtual_size = Size(self.size.width, len(self._lines))
        place = bisect_left(self._lines, chosen, key=lambda line: line.ts)
        top, height = self.scroll_offset.y, max(self.size.height, 1)
        if not top <= place < top + height:
            self.scroll_to(y=max(place - height // 2, 0), animate=False)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One element."""
        place = self.scroll_offset.y + y
        width = self.size.width
        if place >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        line = self._lines[place]
        verdict = self._subject.verdict(line)
        ground = self.rich_style
        if line.ts == self._chosen:
            ground += Style(reverse=True)
        text = (
            f" {moment_of(line.ts):<24} {shown(line.author[:8]):<8}"
            f" {shown(line.session[:6]):<6} {line.seq or '':>5} {line.size:>7,} B  "
        )
        sign = "✓" if verdict in (VERIFIED, UNSENT) else "✗"
        segments = [
            Segment("▌", ground + Style(color=author_color(line.author))),
            Segment(text, ground),
            Segment(f"{sign} {shown(verdict)}", ground),
        ]
        return Strip(segments).adjust_cell_length(width, ground).crop(0, width)

"""The text of an editor as lines, with a way from code points to rows and columns and back.

- `text` is exactly what the store holds. Only a line feed ends a line: whatever else Unicode calls
  a line break stays within its line, so that nothing is lost or counted twice.
- `lines` is what may be shown: a character that would command the terminal, or reorder what is
  around it, has a visible stand-in. One code point stands for one, so columns are the same.
- A place is found, and an edit taken in, in log n and in the lines that it touches.
"""

from __future__ import annotations

import re
from typing import NamedTuple, overload

from rich.cells import cell_len
from textual.document._document import DocumentBase, EditResult, Location, Newline
from textual.expand_tabs import expand_tabs_inline
from textual.geometry import Size

from walstore.textual.counts import Counts

# Controls, line breaks that are none here, bidirectional overrides, and halves of characters.
_HIDDEN = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class Replaced(NamedTuple):
    """The locations between which an edit replaced something."""

    start: Location
    old_end: Location
    new_end: Location


class TextDocument(DocumentBase):
    """A text that a `TextArea` shows."""

    def __init__(self, text: str = "") -> None:
        self._raw = text.split("\n")
        self._lines = list(map(shown, self._raw))
        # Every line counts its line feed, the last one the place behind it.
        self._sizes = Counts([len(line) + 1 for line in self._raw])
        self._widths: tuple[int, Counts] | None = None

    # ── reading ────────────────────────────────────────────────────────────────────────

    @property
    def text(self) -> str:
        """The text as the store holds it."""
        return "\n".join(self._raw)

    @property
    def size(self) -> int:
        """How many code points it has."""
        return self._sizes.total - 1

    @property
    def newline(self) -> Newline:
        """What ends a line."""
        return "\n"

    @property
    def lines(self) -> list[str]:
        """The lines as they may be shown."""
        return self._lines

    @property
    def line_count(self) -> int:
        """How many lines it has, one at least."""
        return len(self._lines)

    @property
    def start(self) -> Location:
        """Where it begins."""
        return 0, 0

    @property
    def end(self) -> Location:
        """Where it ends."""
        return len(self._lines) - 1, len(self._lines[-1])

    def get_line(self, index: int) -> str:
        """A line as it may be shown."""
        return self._lines[index]

    @overload
    def __getitem__(self, line_index: int) -> str: ...
    @overload
    def __getitem__(self, line_index: slice) -> list[str]: ...
    def __getitem__(self, line_index: int | slice) -> str | list[str]:
        return self._lines[line_index]

    def get_text_range(self, start: Location, end: Location) -> str:
        """What is between two locations, as the store holds it."""
        (top, left), (bottom, right) = sorted((self.clamp(start), self.clamp(end)))
        if top == bottom:
            return self._raw[top][left:right]
        return "\n".join(
            [self._raw[top][left:], *self._raw[top + 1 : bottom], self._raw[bottom][:right]]
        )

    def get_size(self, indent_width: int) -> Size:
        """The widest line's width in cells, and the number of lines."""
        if self._widths is None or self._widths[0] != indent_width:
            self._widths = indent_width, Counts(self._widths_of(self._lines, indent_width))
        return Size(self._widths[1].largest, len(self._lines))

    # ── places ─────────────────────────────────────────────────────────────────────────

    def clamp(self, location: Location) -> Location:
        """The nearest location that there is."""
        row, column = location
        if row < 0:
            return 0, 0
        if row >= len(self._lines):
            return self.end
        return row, min(max(column, 0), len(self._lines[row]))

    def position(self, location: Location) -> int:
        """How many code points are before a location, or before the nearest one that there is."""
        row, column = self.clamp(location)
        return self._sizes.sum_before(row) + column

    def location(self, position: int) -> Location:
        """The location behind so many code points; outside the text, its start or end."""
        return self._sizes.find(min(max(position, 0), self.size))

    get_index_from_location = position
    get_location_from_index = location

    # ── editing ────────────────────────────────────────────────────────────────────────

    def splice(self, position: int, removed: int, inserted: str) -> Replaced:
        """Put a text in the place of `removed` code points from a position on.

        Raises:
            IndexError: There are not so many code points.
        """
        if position < 0 or removed < 0 or position + removed > self.size:
            raise IndexError(f"{removed} code points from {position} on, of {self.size}")
        start, old_end = self.location(position), self.location(position + removed)
        (top, left), (bottom, right) = start, old_end
        raw = inserted.split("\n")
        end_column = len(raw[-1]) + (left if len(raw) == 1 else 0)
        # One code point stands for one, so what was shown of the lines around it still is.
        lines = list(map(shown, raw))
        for those, kept in ((raw, self._raw), (lines, self._lines)):
            those[-1] += kept[bottom][right:]
            those[0] = kept[top][:left] + those[0]
        # A line that is shown as it is is kept once.
        lines = [one if one == other else other for one, other in zip(raw, lines, strict=True)]
        self._raw[top : bottom + 1] = raw
        self._lines[top : bottom + 1] = lines
        self._sizes.splice(top, bottom + 1, [len(line) + 1 for line in raw])
        if self._widths is not None:
            indent_width, widths = self._widths
            widths.splice(top, bottom + 1, self._widths_of(lines, indent_width))
        return Replaced(start, old_end, (top + len(raw) - 1, end_column))

    def replace_range(self, start: Location, end: Location, text: str) -> EditResult:
        """Put a text in the place of what is between two locations."""
        top, bottom = sorted((self.position(start), self.position(end)))
        replaced = self.get_text_range(start, end)
        return EditResult(self.splice(top, bottom - top, text).new_end, replaced)

    @staticmethod
    def _widths_of(lines: list[str], indent_width: int) -> list[int]:
        return [
            len(line)
            if line.isascii() and "\t" not in line
            else cell_len(expand_tabs_inline(line, indent_width))
            for line in lines
        ]


def shown(line: str) -> str:
    """A line as it may be shown: nothing in it commands a terminal."""
    if line.isprintable() and line.isascii():
        return line
    return _HIDDEN.sub(_stand_in, line)


def _stand_in(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        # Unicode has a picture for each of these.
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"

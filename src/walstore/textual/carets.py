"""Where the others are in a text: their carets, selections, names and colours.

- What they say of themselves was proved to be theirs, not to be true, short or pretty: names are
  cut and cleaned before they are shown, and whoever has no colour is given one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import NamedTuple, Protocol

from rich.style import Style
from textual.color import Color
from textual.document._document import Location

from walstore.store.presence import Cursor, Person
from walstore.textual.rendering import Flag, Mark
from walstore.textual.text_document import TextDocument, shown
from walstore.textual.wrapping import next_column

# A name longer than this is cut where it is shown.
NAME_SIZE_MAX = 24

# Colours that can be told apart, and read, on light and on dark ground.
_PALETTE = (
    "#c2410c", "#0e7490", "#7e22ce", "#15803d", "#be123c",
    "#1d4ed8", "#a16207", "#0f766e", "#a21caf", "#4d7c0f",
)  # fmt: skip

# How much of somebody's colour the ground of their selection has.
_SELECTION_SHARE = 0.35


class Closable(Protocol):
    """Something that can be ended."""

    def close(self) -> None:
        """End it."""
        ...


class Presences(Protocol):
    """What tells who else is here, and is told where we are: a `Presence`."""

    def others(self) -> list[Person]:
        """Who else is here."""
        ...

    def move(self, cursor: Cursor | None) -> None:
        """Say where I am."""
        ...

    def subscribe(self, fn: Callable[[list[Person]], object]) -> Closable:
        """Call a function whenever the others came, left or say something else."""
        ...


class RemoteCaret(NamedTuple):
    """Where somebody else is.

    Attributes:
        session: Names them, in all their sessions apart.
        name: What they are called.
        color: Their colour.
        start: Where their selection began; the same as `end` if nothing is selected.
        end: Where their caret is.
    """

    session: str
    name: str
    color: str
    start: Location
    end: Location


def session_of(person: Person) -> str:
    """The name of somebody's session, which nobody else has."""
    return f"{person.author}:{person.session}"


def color_of(person: Person) -> str:
    """Somebody's colour: the one that they say, or always the same one for their key."""
    return author_color(person.author) if person.color is None else person.color


def author_color(author: str) -> str:
    """A colour for an author, always the same one."""
    digest = sha256(author.encode("utf-8", "replace")).digest()
    return _PALETTE[digest[0] % len(_PALETTE)]


def name_of(person: Person) -> str:
    """What to call somebody: their name, cleaned and cut, or the beginning of their key."""
    name = "" if person.name is None else shown(person.name.replace("\t", " ")).strip()
    return name[:NAME_SIZE_MAX] or person.author[:8]


def remote_carets(
    people: Iterable[Person], path: str, document: TextDocument
) -> tuple[RemoteCaret, ...]:
    """The carets of those who are in a text, by where they are now."""
    carets = []
    for person in people:
        cursor = person.cursor
        if cursor is None or cursor.path != path:
            continue
        end = document.location(cursor.position)
        start = end if cursor.origin is None else document.location(cursor.origin)
        carets.append(
            RemoteCaret(session_of(person), name_of(person), color_of(person), start, end)
        )
    return tuple(carets)


def selection_mark(start: Location, end: Location, line: str, row: int, style: Style) -> Mark:
    """What of a selection is in a row; the place behind a line is, if its line feed is."""
    (top, left), (bottom, right) = sorted((start, end))
    first = left if row == top else 0
    last = right if row == bottom else len(line) + 1
    return Mark(first, last, style)


def is_in(start: Location, end: Location, row: int) -> bool:
    """Whether a selection touches a row."""
    return start != end and min(start, end)[0] <= row <= max(start, end)[0]


def selections_in(carets: Iterable[RemoteCaret], line: str, row: int, ground: Color) -> list[Mark]:
    """What the others have selected of a line."""
    return [
        selection_mark(caret.start, caret.end, line, row, _selection_style(caret.color, ground))
        for caret in carets
        if is_in(caret.start, caret.end, row)
    ]


def carets_in(carets: Iterable[RemoteCaret], line: str, row: int) -> list[Mark]:
    """The carets of the others in a line, each as wide as what it is on."""
    marks = []
    for caret in carets:
        if caret.end[0] == row:
            column = caret.end[1]
            stop = next_column(line, column) if column < len(line) else column + 1
            marks.append(Mark(column, stop, _caret_style(caret.color)))
    return marks


def flags_in(carets: Iterable[RemoteCaret], row: int, *, start: int, stop: int) -> list[Flag]:
    """The names of the others whose carets are between two columns of a line."""
    return [
        Flag(f" {caret.name} ", _caret_style(caret.color))
        for caret in carets
        if caret.end[0] == row and start <= caret.end[1] < stop
    ]


def _caret_style(color: str) -> Style:
    ground = Color.parse(color)
    text = ground + ground.get_contrast_text(1.0)
    return Style(color=text.rich_color, bgcolor=ground.rich_color)


def _selection_style(color: str, ground: Color) -> Style:
    return Style(bgcolor=ground.blend(Color.parse(color), _SELECTION_SHARE).rich_color)

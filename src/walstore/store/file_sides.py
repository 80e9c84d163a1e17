"""What of a document a file says: one text, or all of it as JSON.

- A side reads and writes the bytes of its file, and makes edits of them in the document.
- Edits are made against the view that the file has said; where there is none, against what it has
  said before, merged as values.
- An edit that cannot be read or made raises, and neither side has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from walstore.document.view import View, thawed
from walstore.store.file_format import (
    FileRefusedError,
    Style,
    read_json,
    read_text,
    write_json,
    write_text,
)
from walstore.store.merging import is_same, merge_members, merge_text


class Closable(Protocol):
    """What `subscribe` returns."""

    def close(self) -> None:
        """Tell nothing more."""
        ...


class FileStore(Protocol):
    """What a file needs of a store."""

    def view(self) -> View:
        """The document as it is now."""
        ...

    def set_text(self, name: str, text: str, *, base: View | None = None) -> None:
        """Make a text read as given; what arrived since `base` is kept."""
        ...

    def update(self, wanted: Mapping[str, Any], *, base: View | None = None) -> None:
        """Make the document read as given; what arrived since `base` is kept."""
        ...

    def subscribe(self, pattern: str, fn: Callable[[Any], object]) -> Closable:
        """Call a function with every change of some paths."""
        ...


class Side(Protocol):
    """What of a document a file says."""

    pattern: str

    def learn(self, content: bytes) -> None:
        """Learn the style of a file; raises `FileRefusedError` if it cannot be followed."""
        ...

    def is_blank(self, content: bytes) -> bool:
        """Whether a file says nothing at all, so that nothing is lost with it."""
        ...

    def reads(self, content: bytes) -> bool:
        """Whether something can have been said by such a file."""
        ...

    def is_empty(self, view: View) -> bool:
        """Whether the document has nothing to say yet."""
        ...

    def render(self, view: View, like: bytes | None) -> bytes:
        """The file that says what a view says; `like` itself if it says the same."""
        ...

    def edit(self, content: bytes, base: View) -> None:
        """Make in the document what a file makes of a view that it has said."""
        ...

    def merge(self, content: bytes, base: bytes) -> None:
        """Make in the document what a file makes of what it has said before."""
        ...


class TextSide:
    """A text file is one text of a document."""

    def __init__(self, store: FileStore, name: str, style: Style) -> None:
        # As a pattern, a name stands for itself, and if it holds stars for others that do no harm.
        self.pattern = name
        self._store = store
        self._name = name
        self._style = style

    def learn(self, content: bytes) -> None:
        _, self._style = read_text(content, self._style)

    def is_blank(self, content: bytes) -> bool:
        return not self._read(content)

    def reads(self, content: bytes) -> bool:
        try:
            self._read(content)
        except FileRefusedError:
            return False
        return True

    def is_empty(self, view: View) -> bool:
        return not view.text(self._name)

    def render(self, view: View, like: bytes | None) -> bytes:
        return write_text(view.text(self._name), self._style)

    def edit(self, content: bytes, base: View) -> None:
        self._store.set_text(self._name, self._read(content), base=base)

    def merge(self, content: bytes, base: bytes) -> None:
        view = self._store.view()
        left, right = self._read(content), view.text(self._name)
        merged = merge_text(self._read(base), left=left, right=right)
        self._store.set_text(self._name, merged, base=view)

    def _read(self, content: bytes) -> str:
        return read_text(content, self._style)[0]


class JsonSide:
    """A JSON file is a whole document."""

    pattern = "**"

    def __init__(self, store: FileStore, style: Style) -> None:
        self._store = store
        self._style = style

    def learn(self, content: bytes) -> None:
        if not self.is_blank(content):
            _, self._style = read_json(content, self._style)

    def is_blank(self, content: bytes) -> bool:
        return not read_text(content, self._style)[0].strip()

    def reads(self, content: bytes) -> bool:
        try:
            return self.is_blank(content) or self._read(content) is not None
        except FileRefusedError:
            return False

    def is_empty(self, view: View) -> bool:
        return not any(map(_has_value, view.values()))

    def render(self, view: View, like: bytes | None) -> bytes:
        if like is None or self.is_blank(like):
            return write_json({name: thawed(view[name]) for name in view}, self._style, {})
        known = self._read(like)
        members = {name: _member(view[name], known.get(name)) for name in view}
        # The same is said in its own way, which is not for us to change.
        return like if is_same(members, known) else write_json(members, self._style, known)

    def edit(self, content: bytes, base: View) -> None:
        members, now = self._read(content), self._store.view()
        for name, value in members.items():
            shown, held = thawed(base.get(name)), thawed(now.get(name))
            if all(isinstance(each, dict) for each in (shown, value, held)):
                merged = merge_members(shown, left=value, right=held)
                # What the document holds already is not written once more.
                members[name] = shown if is_same(merged, held) else merged
        self._store.update(members, base=base)

    def merge(self, content: bytes, base: bytes) -> None:
        view = self._store.view()
        known = {} if self.is_blank(base) else self._read(base)
        now = {name: _member(view[name], known.get(name)) for name in view}
        is_text = _texts_of(view).__contains__
        merged = merge_members(known, left=self._read(content), right=now, is_text=is_text)
        self._store.update(merged, base=view)

    def _read(self, content: bytes) -> dict[str, Any]:
        return read_json(content, self._style)[0]


def _member(value: Any, like: Any) -> Any:
    """A value of a view as JSON; an empty list is told from an empty text by what stood there."""
    return [] if value == "" and like == [] else thawed(value)


def _has_value(value: Any) -> bool:
    return value not in ("", ()) and value != {}


def _texts_of(view: View) -> set[str]:
    return {name for name in view if isinstance(view[name], str) and view.text(name) == view[name]}

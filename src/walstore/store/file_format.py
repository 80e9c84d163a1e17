r"""What a file says, and how it says it: text or JSON, and an encoding, newlines, an indentation.

- Reading gives a value and a style; writing a value in the same style changes nothing else.
- Inside, lines end in `\n`. A file all of whose lines end in `\r\n` keeps that; one that mixes
  them is taken as it is, character by character.
- A byte order mark says what the encoding is, and is kept. Without one it is the given encoding.
- What is not text, or not JSON, is refused with a reason. Nothing is guessed, nothing is replaced.
"""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from walstore.canon import check_value, parse
from walstore.errors import MalformedError, NotJsonError, StorageError

_ENCODINGS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}

_CRLF = re.compile(r"\r\n")
_LONE = re.compile(r"(?<!\r)\n|\r(?!\n)")
_INDENT = re.compile(r"\s*\{\n([ \t]+)\"")


class FileRefusedError(StorageError):
    """What a file says, or should say, cannot be followed; neither side was touched.

    Attributes:
        reason: Why.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the file cannot be followed: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Style:
    """How a file says what it says.

    Attributes:
        unmarked: How its characters are spelled if it has no byte order mark.
        mark: Its byte order mark, empty if it has none.
        newline: How its lines end.
        indent: How members of JSON are indented; None if they are not.
        is_spaced: Whether JSON that is not indented has spaces.
        end: What stands after JSON.
    """

    unmarked: str = "utf-8"
    mark: bytes = b""
    newline: Literal["\n", "\r\n"] = "\n"
    indent: str | None = "  "
    is_spaced: bool = True
    end: str = "\n"

    @property
    def encoding(self) -> str:
        """How its characters are spelled."""
        return _ENCODINGS.get(self.mark, self.unmarked)


def read_text(content: bytes, before: Style) -> tuple[str, Style]:
    """The text of a file, and its style.

    Args:
        content: The bytes of the file.
        before: The style that it had, or a new one has: what its bytes do not tell.

    Raises:
        FileRefusedError: It is not text.
    """
    marks = [mark for mark in _ENCODINGS if content.startswith(mark)]
    style = replace(before, mark=marks[0] if marks else b"")
    try:
        text = content[len(style.mark) :].decode(style.encoding)
        is_exact = style.mark + text.encode(style.encoding) == content
    except (UnicodeError, LookupError) as error:
        raise FileRefusedError(f"not text in {style.encoding}") from error
    if not is_exact:
        raise FileRefusedError(f"not text that {style.encoding} would spell like this")
    if "\0" in text:
        raise FileRefusedError("not text: it has zero bytes")
    style = replace(style, newline=_newline_of(text, style.newline))
    return (text.replace("\r\n", "\n") if style.newline == "\r\n" else text), style


def write_text(text: str, style: Style) -> bytes:
    """The bytes of a file that says a text.

    Raises:
        FileRefusedError: The text has characters that the encoding has no spelling for.
    """
    if "\0" in text:
        raise FileRefusedError("the text has zero characters")
    spelled = text.replace("\n", "\r\n") if style.newline == "\r\n" else text
    try:
        return style.mark + spelled.encode(style.encoding)
    except (UnicodeError, LookupError) as error:
        raise FileRefusedError(f"the text has characters beyond {style.encoding}") from error


def read_json(content: bytes, before: Style) -> tuple[dict[str, Any], Style]:
    """The object that a JSON file holds, and its style.

    Raises:
        FileRefusedError: It is not JSON, not an object, has a member twice, or a value that a
            document cannot hold.
    """
    text, style = read_text(content, before)
    try:
        # Checked first by what bounds the depth, so that nothing runs off the stack.
        parse(text)
        value = json.loads(text, object_pairs_hook=_object)
        check_value(value)
    except (MalformedError, NotJsonError) as error:
        raise FileRefusedError(error.reason) from error
    if not isinstance(value, dict):
        raise FileRefusedError("not a JSON object")
    return value, _json_style(text, style)


def write_json(members: dict[str, Any], style: Style, like: dict[str, Any]) -> bytes:
    """The bytes of a JSON file.

    Args:
        members: What it is to say.
        style: How.
        like: What it says now: members stay in their order, and new ones follow.

    Raises:
        FileRefusedError: It has no spelling in the encoding.
    """
    ordered = _ordered(members, like)
    is_dense = style.indent is None and not style.is_spaced
    text = json.dumps(
        ordered,
        ensure_ascii=False,
        indent=style.indent,
        separators=(",", ":") if is_dense else None,
    )
    return write_text(text + style.end, style)


def _newline_of(text: str, before: Literal["\n", "\r\n"]) -> Literal["\n", "\r\n"]:
    has_crlf, has_lone = _CRLF.search(text) is not None, _LONE.search(text) is not None
    if has_crlf and not has_lone:
        return "\r\n"
    if has_lone and not has_crlf:
        return "\n"
    # No line says it, or they contradict each other.
    return before


def _json_style(text: str, style: Style) -> Style:
    end = text[len(text.rstrip()) :]
    indented = _INDENT.match(text)
    if indented is not None:
        return replace(style, indent=indented[1], end=end)
    if "\n" in text.rstrip() or '"' not in text:
        # Its own way to put lines, or nothing that shows one.
        return replace(style, end=end)
    return replace(style, indent=None, is_spaced='": ' in text, end=end)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise NotJsonError("an object has a member twice")
    return members


def _ordered(value: Any, like: Any) -> Any:
    if isinstance(value, dict):
        known = like if isinstance(like, dict) else {}
        names = [name for name in known if name in value]
        names += [name for name in value if name not in known]
        return {name: _ordered(value[name], known.get(name)) for name in names}
    if isinstance(value, list):
        items = like if isinstance(like, list) else []
        padded = [*items, *[None] * len(value)]
        return [_ordered(item, padded[index]) for index, item in enumerate(value)]
    return value

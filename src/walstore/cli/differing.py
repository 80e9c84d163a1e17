"""What is different between two versions of a document, as people read it and as programs do."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from walstore.cli.output import Colour, Coloured, pretty_text, put_json, put_line
from walstore.store.merging import is_same

_COLOURS: dict[str, Colour] = {"+": "green", "-": "red", "@": "cyan"}


def put_differences(before: dict[str, Any], after: dict[str, Any], *, is_json: bool) -> bool:
    """Write out what changed; whether anything did."""
    changes = list(_changes(before, after))
    if is_json:
        put_json(changes)
        return bool(changes)
    for change in changes:
        for line in _lines(change):
            put_line(Coloured(line, _COLOURS[line[0]]) if line[:1] in _COLOURS else line)
    return bool(changes)


def _changes(before: dict[str, Any], after: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            yield {"name": name, "change": "added", "after": after[name]}
        elif name not in after:
            yield {"name": name, "change": "removed", "before": before[name]}
        elif not is_same(before[name], after[name]):
            left, right = _alike(before[name], after[name]), _alike(after[name], before[name])
            yield {"name": name, "change": "changed", "before": left, "after": right}


def _alike(value: Any, other: Any) -> Any:
    """A value; a text that has nothing in it cannot be told from a list, but by its other side."""
    return "" if value == [] and isinstance(other, str) else value


def _lines(change: dict[str, Any]) -> Iterator[str]:
    """A unified diff of one value, under its name."""
    name = change["name"]
    left, right = _text(change, "before"), _text(change, "after")
    yield from difflib.unified_diff(left, right, f"{name}", f"{name}", lineterm="")


def _text(change: dict[str, Any], side: str) -> list[str]:
    if side not in change:
        return []
    value = change[side]
    return (value if isinstance(value, str) else pretty_text(value)).splitlines()

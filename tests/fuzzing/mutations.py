"""Good input made bad: by its grammar, and byte by byte.

- By grammar: a part of a JSON value is replaced, removed, repeated, moved or nested, so that what
  comes out is still read to the end.
- By bytes: a stretch of the text is replaced, so that it is read up to somewhere.
- Whatever is drawn comes from one `random.Random`: a seed is a case.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from random import Random
from typing import Any

NASTY_VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    -0.0,
    1.5,
    2**31,
    2**32 + 1,
    2**53 - 1,
    2**53,
    2**64,
    -(2**53),
    1e300,
    float("nan"),
    float("inf"),
    "",
    "__proto__",
    "constructor",
    "\x00",
    "\ud800",
    "﻿",
    "a" * 300,
    "9" * 30,
    "0@",
    [],
    {},
    [[]],
    {"": {}},
    [None] * 70,
]
NASTY_BYTES = [
    b"",
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b":",
    b'"',
    b"\\",
    rb"\ud800",
    rb"\u0000",
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"9" * 400,
    b"-",
    b"-0",
    b"1e400",
    b"NaN",
    b"Infinity",
    b"true",
    b"null",
    b"[" * 2000,
    b'{"a":' * 100,
    b"\n",
]


def mutated(chance: Random, specimens: Sequence[bytes]) -> bytes:
    """Something that begins as one of the specimens."""
    text = chance.choice(specimens)
    if chance.random() < 0.65:
        try:
            text = _by_grammar(chance, text, chance.choice(specimens))
        except (ValueError, RecursionError):
            return _patched(chance, text)
        if chance.random() < 0.9:
            return text
    return _patched(chance, text)


def _by_grammar(chance: Random, text: bytes, other: bytes) -> bytes:
    value, donor = json.loads(text), json.loads(other)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        value = _changed(chance, value, donor)
    separators = (",", ":") if chance.random() < 0.8 else (" ,", ": ")
    is_sorted = chance.random() < 0.8
    spelled = json.dumps(value, separators=separators, sort_keys=is_sorted, ensure_ascii=False)
    return spelled.encode("utf-8", "surrogatepass")


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _paths(member, (*path, name))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _paths(item, (*path, place))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def _changed(chance: Random, value: Any, donor: Any) -> Any:
    """A value with one part of it changed."""
    paths = list(_paths(value))
    path = chance.choice(paths)
    part = _at(value, path)
    if not path:
        return _replacement(chance, part, donor)
    holder, last = _at(value, path[:-1]), path[-1]
    match chance.randrange(8):
        case 0:
            del holder[last]
        case 1 if isinstance(holder, list):
            holder.insert(chance.randrange(len(holder) + 1), deepcopy(part))
        case 1:
            holder[chance.choice(["", "x", "v", "__proto__", "clock"])] = deepcopy(part)
        case 2 if isinstance(holder, list):
            chance.shuffle(holder)
        case 3:
            # From elsewhere in the same value: the right kind in the wrong place.
            holder[last] = deepcopy(_at(value, chance.choice(paths)))
        case 4 if type(part) is int:
            holder[last] = part + chance.choice((-1, 1, 2**32, -(2**32), part))
        case 5 if isinstance(part, str):
            holder[last] = _retyped(chance, part)
        case _:
            holder[last] = _replacement(chance, part, donor)
    return value


def _replacement(chance: Random, part: Any, donor: Any) -> Any:
    match chance.randrange(5):
        case 0:
            return deepcopy(_at(donor, chance.choice(list(_paths(donor)))))
        case 1:
            nested = deepcopy(part)
            for _ in range(chance.choice((1, 2, 60, 70, 200))):
                nested = [nested] if chance.random() < 0.5 else {"a": nested}
            return nested
        case _:
            return deepcopy(chance.choice(NASTY_VALUES))


def _retyped(chance: Random, text: str) -> str:
    place = chance.randrange(len(text) + 1)
    return chance.choice(
        [
            text.upper(),
            text[:place],
            text[:place] + chance.choice(["0", "z", ":", "@", "\ud800", "é", " "]) + text[place:],
            text + text,
            text[::-1],
        ]
    )


def _patched(chance: Random, text: bytes) -> bytes:
    patched = bytearray(text)
    for _ in range(chance.choice((1, 1, 2, 4))):
        start = chance.randrange(len(patched) + 1)
        end = min(len(patched), start + chance.choice((0, 1, 1, 2, 8, 64)))
        patched[start:end] = chance.choice(NASTY_BYTES) or bytes([chance.randrange(256)])
    return bytes(patched)

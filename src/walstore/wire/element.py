"""An element as it is stored and pulled: opaque data, its author and the author's signature.

- What was signed is the canonical text of `data`; it is worked out once and kept.
- The shape is checked on the way in (`read_element`); whether the author may write, and what
  is inside, is for others to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from walstore.canon import canonical_bytes, find_flaw, parse, parse_canonical
from walstore.errors import MalformedError, NotJsonError
from walstore.wire.limits import (
    DATA_DEPTH_MAX,
    ELEMENT_BYTES_MAX,
    ELEMENT_VALUES_MAX,
    TS_MAX,
)

# What is counted in one go, while nothing else runs: milliseconds, if it is all quotes.
_BLOCK_BYTES: Final = 2**16


class Element:
    """One signed batch in a log."""

    __slots__ = ("_data", "author", "canonical", "signature", "ts")

    def __init__(
        self,
        ts: int,
        canonical: bytes,
        author: str,
        signature: str,
        data: dict[str, Any] | None = None,
    ) -> None:
        """Take the canonical text of the data, and the data if they are at hand."""
        self.ts = ts
        self.canonical = canonical
        self.author = author
        self.signature = signature
        self._data = data

    @property
    def data(self) -> dict[str, Any]:
        """What the text says."""
        if self._data is None:
            self._data = cast("dict[str, Any]", parse(self.canonical))
        return self._data

    def release(self) -> None:
        """Keep the text alone: a log of parsed data is many times its size."""
        self._data = None

    def as_json(self) -> dict[str, Any]:
        """The element in the format's spelling."""
        return {
            "ts": self.ts,
            "data": self.data,
            "authorPubkey": self.author,
            "authorSignature": self.signature,
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Element) and (
            self.ts == other.ts
            and self.author == other.author
            and self.signature == other.signature
            and self.canonical == other.canonical
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Element(ts={self.ts}, author={self.author[:8]}…, {len(self.canonical)} bytes)"


def has_too_many_values(text: bytes, values_max: int = ELEMENT_VALUES_MAX) -> bool:
    """Whether a JSON text holds more values than an element may; it is not read for that."""
    if len(text) <= values_max or sum(map(_separators, _blocks(text))) < values_max:
        return False
    separators = quotes = 0
    for block in _blocks(text):
        # No quote is left but those around strings, whose commas and brackets separate nothing.
        bare = block.replace(rb"\\", b"").replace(rb"\"", b"")
        # After an odd number of quotes a string is open: what comes first is in it.
        separators += _separators(b"".join(bare.split(b'"')[quotes % 2 :: 2]))
        quotes += bare.count(b'"')
        if separators >= values_max or quotes > 2 * values_max:
            return True
    return False


def _blocks(text: bytes) -> Iterator[bytes]:
    """A text part by part, none of which ends within an escape: others run in between."""
    start = 0
    while start < len(text):
        block = text[start : start + _BLOCK_BYTES]
        if (len(block) - len(block.rstrip(b"\\"))) % 2:
            block = text[start : start + _BLOCK_BYTES + 1]
        yield block
        start += len(block)


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"{") + text.count(b"[")


def read_raw_element(ts: object, text: bytes, author: object, signature: object) -> Element:
    """Check the shape of a pulled element whose data is at hand as text.

    Raises:
        MalformedError: It is not an element, or is beyond a limit.
    """
    if (
        type(ts) is int
        and 0 <= ts <= TS_MAX
        and type(author) is str
        and type(signature) is str
        and len(text) <= ELEMENT_BYTES_MAX
        # As many brackets as levels are allowed cannot nest deeper than that.
        and text.count(b"{") + text.count(b"[") <= DATA_DEPTH_MAX
    ):
        data = parse_canonical(text)
        if type(data) is dict:
            return Element(ts, text, author, signature, data)
    return read_element(
        {"ts": ts, "data": parse(text), "authorPubkey": author, "authorSignature": signature}
    )


def read_element(value: object) -> Element:
    """Check the shape of a pulled element.

    Raises:
        MalformedError: It is not an element, or is beyond a limit.
    """
    if not isinstance(value, dict):
        raise MalformedError("element", "not an object")
    ts, data = value.get("ts"), value.get("data")
    author, signature = value.get("authorPubkey"), value.get("authorSignature")
    if type(ts) is not int or not 0 <= ts <= TS_MAX:
        raise MalformedError("element", "`ts` is not an integer from 0 to 2^53 - 1")
    if not isinstance(author, str) or not isinstance(signature, str):
        raise MalformedError("element", "the author's key or signature is not text")
    if not isinstance(data, dict):
        raise MalformedError("element", "`data` is not an object")
    flaw = find_flaw(data, depth_max=DATA_DEPTH_MAX)
    if flaw is not None:
        raise MalformedError("element", flaw)
    try:
        canonical = canonical_bytes(data)
    except NotJsonError as error:
        raise MalformedError("element", error.reason) from error
    if len(canonical) > ELEMENT_BYTES_MAX:
        raise MalformedError("element", f"{len(canonical)} bytes exceed {ELEMENT_BYTES_MAX}")
    return Element(ts, canonical, author, signature, data)

"""What a log refuses, in words that a UI can show.

- An element is refused for what it is, or for who wrote it; either way the same one will be refused
  again, and everything behind it waits until it is set aside.
- What is in it is told edit by edit, typed text as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from walstore.canon import Json
from walstore.crdt import Run
from walstore.crdt.runs import Delete, Drop, Insert, Put, Remove, Set, Verbatim
from walstore.document.journal import RefusedBodies
from walstore.document.ports import ElementRefusedError
from walstore.document.sealing import Sealed

Kind: TypeAlias = Literal["insert", "remove", "set", "delete", "put", "drop", "other"]


class NotWriterError(ElementRefusedError):
    """The owner's roster does not let this identity write: nobody would read what it sends."""

    is_of_author = True

    def __init__(self) -> None:
        super().__init__("the owner does not let this identity write", retryable=False)


class Edit(NamedTuple):
    """One edit, to be shown.

    Attributes:
        kind: What was done.
        name: The list, register or map.
        key: The key of a map; None of anything else.
        value: What was written: a text where characters were inserted, the values of a list, how
            many elements were removed; None where nothing was.
    """

    kind: Kind
    name: str
    key: str | None = None
    value: Json = None


@dataclass(frozen=True, slots=True)
class Refused:
    """An element that the log does not take, first in the queue.

    Attributes:
        reason: Why, in words.
        is_of_author: Whether nothing of this identity's is taken, whatever it is.
        size: How many bytes it has.
        message: What was said of it, if anything.
        edits: What is in it; empty if its key is not here.
    """

    reason: str
    is_of_author: bool
    size: int
    message: str | None
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class SetAside:
    """An element that was refused and set aside.

    Attributes:
        number: Its number among all that were set aside here.
        at_ms: When, in milliseconds since 1970.
        refused: What it is, and why.
    """

    number: int
    at_ms: int
    refused: Refused


def refused_of(sealed: Sealed, reason: str, *, is_of_author: bool) -> Refused:
    """A refused element, to be shown."""
    size = len(sealed.body.canonical)
    return Refused(reason, is_of_author, size, sealed.message, edits_of(sealed.runs))


def all_refused(bodies: RefusedBodies) -> list[Refused]:
    """Refused elements, to be shown."""
    of_author = bodies.is_of_author
    return [refused_of(each, bodies.reason, is_of_author=of_author) for each in bodies.bodies]


def edits_of(runs: Sequence[Run]) -> tuple[Edit, ...]:
    """What runs do, in order."""
    return tuple(map(_edit_of, runs))


def _edit_of(run: Run) -> Edit:
    match run:
        case Insert():
            values = run.values
            return Edit("insert", run.list, value=values if isinstance(values, str) else [*values])
        case Remove():
            return Edit("remove", run.list, value=run.size)
        case Set():
            return Edit("set", run.register, value=run.value)
        case Delete():
            return Edit("delete", run.register)
        case Put():
            return Edit("put", run.map, run.key, run.value)
        case Drop():
            return Edit("drop", run.map, run.key)
        case Verbatim():
            return _edit_of_op(run)


def _edit_of_op(run: Verbatim) -> Edit:
    op = run.op
    match op.get("t"):
        case "ins":
            return Edit("insert", op["list"], value=[op["value"]])
        case "rmv":
            return Edit("remove", op["list"], value=1)
        case _:
            return Edit("other", str(op.get("reg", op.get("list", ""))))

"""Operations as the version-1 format spells them: plain dictionaries, told apart by `t`.

- `set`, `del`, `ins` and `rmv` are the format's four kinds.
- `put` and `drop` are walstore's observed-remove map; readers that do not know them ignore them.
- An element id is `<counter>@<replica>`; the empty id is the head of a list.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

from walstore.canon import Json as Json
from walstore.crdt.clock import Clock


class SetOp(TypedDict):
    """Last-writer-wins write of a register."""

    t: Literal["set"]
    reg: str
    clock: Clock
    value: Json


class DelOp(TypedDict):
    """Tombstone of a register."""

    t: Literal["del"]
    reg: str
    clock: Clock


class InsOp(TypedDict):
    """Insert of element `id` after element `after` (`""` is the head)."""

    t: Literal["ins"]
    list: str
    id: str
    after: str
    clock: Clock
    value: Json


class RmvOp(TypedDict):
    """Tombstone of element `id`."""

    t: Literal["rmv"]
    list: str
    id: str
    clock: Clock


class PutOp(TypedDict):
    """Write of one key of an observed-remove map."""

    t: Literal["put"]
    map: str
    key: str
    clock: Clock
    value: Json


class DropOp(TypedDict):
    """Removal of what the dropping replica had seen of a key: the highest counter by replica."""

    t: Literal["drop"]
    map: str
    key: str
    clock: Clock
    seen: dict[str, int]


Op: TypeAlias = SetOp | DelOp | InsOp | RmvOp | PutOp | DropOp


def fresh(value: Any) -> Any:
    """A copy of a JSON value that shares no container with it."""
    if isinstance(value, dict):
        return {key: fresh(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [fresh(member) for member in value]
    return value

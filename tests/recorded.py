"""What the TypeScript packages recorded, and a log that serves it.

- Cases are parsed as a peer would parse them, so numbers have their one form.
- A recorded log hands out its elements as JSON values, gives the recorded `ts` to what is
  appended, and keeps every promise of the port.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from walstore.canon import canonical_bytes, parse
from walstore.document import Body
from walstore.document.snapshot import SNAPSHOT_SUFFIX
from walstore.net import MemorySnapshots

VECTORS = Path(__file__).with_name("vectors")


def load(name: str) -> list[dict[str, Any]]:
    """The cases of a file."""
    recorded = cast("dict[str, Any]", parse((VECTORS / name).read_bytes()))
    return cast("list[dict[str, Any]]", recorded["cases"])


def named(cases: list[dict[str, Any]]) -> pytest.MarkDecorator:
    """A test for each case, under the name of the case."""
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


class RecordedLog:
    """The log of one document, from given elements on."""

    def __init__(self, elements: Iterable[Any] = (), *, first_ts: int = 1, page: int = 3) -> None:
        self.elements: list[Any] = list(elements)
        self._next_ts = first_ts
        self._page = page

    async def append(self, document_key: str, body: Body) -> int:
        """Append an element under the next `ts`."""
        ts: int = max([self._next_ts, *[each["ts"] + 1 for each in self.elements[-1:]]])
        self.elements.append(
            {
                "ts": ts,
                "data": parse(body.canonical),
                "authorPubkey": body.author,
                "authorSignature": body.signature,
            }
        )
        return ts

    async def pull(self, document_key: str, checkpoint: int) -> list[Any]:
        """One page of elements above a checkpoint."""
        above = [each for each in self.elements if each["ts"] > checkpoint]
        return [parse(canonical_bytes(each)) for each in above[: self._page]]


async def stored(document_key: str, snapshot: dict[str, Any] | None) -> MemorySnapshots:
    """A store with one snapshot, or none, in it."""
    snapshots = MemorySnapshots()
    if snapshot is not None:
        await snapshots.write(document_key + SNAPSHOT_SUFFIX, snapshot, None)
    return snapshots

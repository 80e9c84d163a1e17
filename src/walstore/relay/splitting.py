"""Cuts what is sent into frames: worth one each, and soon on their way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from walstore.wire.limits import PULL_ELEMENTS_MAX

_FRAME_BYTES = 256 * 2**10

Item = TypeVar("Item")


def split(
    items: Sequence[Item], size_of: Callable[[Item], int], count_max: int = PULL_ELEMENTS_MAX
) -> Iterator[Sequence[Item]]:
    """Stretches of a sequence, each of them fit for a frame; one large item may exceed it alone."""
    start = size = 0
    for place, item in enumerate(items):
        if place > start and (size + size_of(item) > _FRAME_BYTES or place - start >= count_max):
            yield items[start:place]
            start, size = place, 0
        size += size_of(item)
    if start < len(items):
        yield items[start:]

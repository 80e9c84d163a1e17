"""Ranges of counters, however they are entered, against a list that is looked through whole."""

from __future__ import annotations

import random

import pytest
from hypothesis import given

from tests.strategies import randoms
from walstore.document import stamped
from walstore.document.stamped import Stamped


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> object:
    """So that a few ranges are many blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stamped, "_BLOCK_SIZE", 2)
        yield


@given(randoms())
def test_ranges_are_found_wherever_they_were_entered(rng: random.Random) -> None:
    ranges, naive = Stamped[int](), list[tuple[int, int, int]]()
    for owner in range(rng.randint(0, 40)):
        first = rng.randint(1, 200)
        last = first + rng.randint(0, 6)
        if first > ranges.last:
            ranges.append(first, last, owner)
        elif any(low <= last and first <= high for low, high, _ in naive):
            continue
        else:
            ranges.insert(first, last, owner)
        naive.append((first, last, owner))
        naive.sort()
    if naive and rng.random() < 0.3:
        first, last, owner = naive[-1]
        naive[-1] = (first, last + 3, owner)
        ranges.lengthen(last + 3)
    assert ranges.last == (naive[-1][1] if naive else 0)
    for counter in range(212):
        held = [(high, owner) for low, high, owner in naive if low <= counter <= high]
        assert ranges.find(counter) == (held[0] if held else None)
        above = [low for low, _, _ in naive if low > counter]
        assert ranges.following(counter) == (above[0] if above else None)
        upto = counter + rng.randint(0, 30)
        assert list(ranges.between(counter, upto)) == [
            (max(low, counter), min(high, upto), owner)
            for low, high, owner in naive
            if low <= upto and high >= counter
        ]

"""Runs readers on input made to break them, and keeps what breaks one.

- One seed and one number make one case.
- A reader that takes nothing, or refuses nothing, was not tested.
- What is slow is timed again: only what is slow each time is slow, whatever else the machine does.
"""

from __future__ import annotations

import time
import traceback
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.fuzzing import of_logs, of_people
from tests.fuzzing.mutations import mutated
from tests.fuzzing.reader import Reader

READERS: dict[str, Reader] = {**of_logs.READERS, **of_people.READERS}

CRASHERS = Path(__file__).parents[1] / "vectors" / "crashers"

# What one message may cost whoever reads it.
READ_MS_MAX = 50.0


class Found(NamedTuple):
    """What came of a run.

    Attributes:
        taken: How many cases were taken.
        refused: How many were refused as they should be.
        slowest_ms: What the slowest one took, in milliseconds of the processor.
        crash: What broke it, and how; None if nothing did.
    """

    taken: int
    refused: int
    slowest_ms: float
    crash: tuple[bytes, str] | None


def run(name: str, *, cases: int, seed: int) -> Found:
    """Try a reader on so many cases."""
    reader = READERS[name]
    taken = refused = 0
    slowest_ms = 0.0
    for number in range(cases):
        text = mutated(Random(f"{seed}:{name}:{number}"), reader.specimens)
        began = time.thread_time()
        try:
            is_taken = reader.takes(text)
        except Exception:  # noqa: BLE001 - whatever it raises, raising is the failure
            return Found(taken, refused, slowest_ms, (text, traceback.format_exc()))
        took_ms = (time.thread_time() - began) * 1000
        if took_ms > READ_MS_MAX:
            took_ms = min(took_ms, *(timed_ms(reader, text) for _ in range(3)))
            if took_ms > READ_MS_MAX:
                return Found(taken, refused, took_ms, (text, f"it took {took_ms:.0f} ms"))
        slowest_ms = max(slowest_ms, took_ms)
        taken += is_taken
        refused += not is_taken
    return Found(taken, refused, slowest_ms, None)


def timed_ms(reader: Reader, text: bytes) -> float:
    """What a case takes, in milliseconds of the processor."""
    began = time.thread_time()
    reader.takes(text)
    return (time.thread_time() - began) * 1000


def broken(reader: Reader, text: bytes) -> str | None:
    """How a reader breaks on a text; None if it does not."""
    try:
        reader.takes(text)
    except Exception:  # noqa: BLE001 - whatever it raises, raising is the failure
        return traceback.format_exc()
    return None


def keep(name: str, text: bytes) -> Path:
    """Keep a text that breaks a reader, for the tests to replay."""
    place = CRASHERS / name / sha256(text).hexdigest()[:16]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(text)
    return place

"""A process that appends to a log without end and says what was answered; made to be killed.

Run as `python -m tests.postgres_writer DSN NAME`. Each line is one answered element: its number,
its `ts` and its seq.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time

from walstore.relay.log import NewElement
from walstore.relay.postgres import PostgresLog

BATCH = 4


def written(name: str, number: int) -> NewElement:
    """The element that a writer of this name appends as the given one."""
    document = f"doc/{number % 3}"
    return NewElement(document, f"{name}-{number}", name, "signature", b"%d" % number)


async def _write(dsn: str, name: str) -> None:
    async with await PostgresLog.open(dsn) as log:
        for first in itertools.count(0, BATCH):
            numbers = range(first, first + BATCH)
            batch = [written(name, number) for number in numbers]
            answers = await log.append(batch, time.time_ns() // 1_000_000)
            for number, place in zip(numbers, answers, strict=True):
                sys.stdout.write(f"{number} {place.ts} {place.seq}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_write(sys.argv[1], sys.argv[2]))

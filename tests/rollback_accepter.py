"""Processes that accept a roll-back, made to be killed on the way.

- Importing is what takes long to start, so one process imports and forks; each line on its input,
  the place of a local file and the address of a relay, forks one that accepts.
- Each says how far it is: `pid` before it opens the file, `met` when the roll-back was noticed,
  `accepted` and `sent` when these calls have returned.
"""

from __future__ import annotations

import asyncio
import os
import sys

from tests.store_writer import tell
from tests.stores import ADA, store_of, until


async def accept(path: str, relay: str) -> None:
    """Go on with a log that was rolled back."""
    tell("pid", os.getpid())
    async with store_of(ADA, relay, path, autocommit_ms=None) as store:
        await until([store], lambda: store.status.rollback is not None)
        tell("met")
        await store.accept_rollback()
        tell("accepted")
        await store.flush()
        tell("sent")
        await asyncio.Event().wait()


def main() -> None:
    """Fork for each line on the input, and tell when that process has ended."""
    for line in sys.stdin:
        path, relay = line.split()
        number = os.fork()
        if not number:
            try:
                asyncio.run(accept(path, relay))
            finally:
                os._exit(1)
        os.waitpid(number, 0)
        tell("ended")


if __name__ == "__main__":
    main()

"""Writers that archive one table at once, each as often as it is told to.

`python -m tests.archive_writers DIRECTORY WRITERS COMMITS` has each in a process of its own, and
says the positions that each has been told to have reached: a line of JSON for each.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from random import Random

import anyio

from tests.archive_tables import Source, table
from walstore.archive.destination import Destination, DestinationError
from walstore.archive.jsonl import JsonlFormat
from walstore.archive.local import LocalDestination
from walstore.archive.places import MovedError
from walstore.archive.policy import Policy
from walstore.archive.writer import Writer

SEED = 5
# So few that what a writer reads is often dropped by another one.
CHURN_MAX = 4
EPOCHS = 1
WRITERS_MAX = 32


def shared_source(events: int) -> Source:
    """What they all archive."""
    source = Source()
    source.happen(Random(SEED), events)
    return source


def new_writer(destination: Destination, number: int) -> Writer:
    def now_ms() -> int:
        # No two at one time: else two manifests may be the same, and both be said to be stored.
        return time.time_ns() // 1_000_000 * WRITERS_MAX + number

    return Writer(
        table(),
        [destination],
        base_formats=[JsonlFormat()],
        diff_formats=[JsonlFormat()],
        policy=Policy(max_churn_records=CHURN_MAX),
        now_ms=now_ms,
        keep_epochs=EPOCHS,
    )


async def commit_often(
    destination: Destination, source: Source, commits: int, number: int
) -> list[int]:
    """Commit one event after the other; the positions that were said to be reached."""
    writer = new_writer(destination, number)
    is_open = False
    reached: list[int] = []
    while len(reached) < commits:
        try:
            if not is_open:
                await writer.open()
                is_open = True
            committed = await writer.commit(source.window(writer.head, writer.head + 1))
            assert committed is not None
            reached.append(committed.artifact.to_position)
        except (MovedError, DestinationError):
            # Lost, or not known: whatever is there now is where it goes on.
            is_open = False
    return reached


def _in_a_process(directory: str, source: Source, commits: int, number: int) -> int:
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        reached = anyio.run(commit_often, LocalDestination(directory), source, commits, number)
        os.write(1, json.dumps(reached).encode() + b"\n")
        code = 0
    except BaseException:  # noqa: BLE001 - the process ends right here
        traceback.print_exc()
    finally:
        os._exit(code)


def main(directory: str, writers: int, commits: int) -> int:
    """Have them all commit at once; 0 if each has."""
    source = shared_source(events_of(writers, commits))
    processes = [_in_a_process(directory, source, commits, number) for number in range(writers)]
    return max(os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in processes)


def events_of(writers: int, commits: int) -> int:
    """Enough events, also where commits are made that nobody is told of."""
    return 2 * writers * commits


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))

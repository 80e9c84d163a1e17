"""Runs the Autobahn suite against the websocket endpoint of a relay: `python -m tests.autobahn`.

- The suite wants an echo, which a relay is not. The endpoint is a relay's own, with all that it is
  set up with, and only what is done with a message is replaced.
- The suite is a program of its own, `wstest`, and needs Python 2.7: `WSTEST` in the environment
  says where it is. Without it, `tests/test_relay_framing.py` has a selection of its cases.
- Its largest messages are of 16 MiB, so that limit is raised. What is beyond the usual one is
  another test's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from walstore.relay import MemoryLog, Relay
from walstore.relay.limits import Limits

LIMITS = Limits(frame_bytes_max=2**25)

# The suite's own words for a case that is as it should be. Compression with windows that an
# endpoint does not offer is "unimplemented".
GOOD = {"OK", "NON-STRICT", "INFORMATIONAL", "UNIMPLEMENTED"}

# What is known and meant: a close between the parts of a message. The suite wants it to be answered
# with its own code, 1000. The library answers and closes as cleanly, but with 1002, "incomplete
# fragmented message".
KNOWN = {"7.1.5"}

# Fewer cases than this were no run of the suite.
CASES_MIN = 200


class Echo(Relay):
    """A relay that says what it hears."""

    async def _handle(self, socket: ServerConnection) -> None:
        try:
            async for message in socket:
                await socket.send(message)
        except ConnectionClosed:
            pass


def program() -> str | None:
    """Where the suite is, if anywhere."""
    return os.environ.get("WSTEST") or shutil.which("wstest")


async def run(wstest: str, place: Path, cases: Sequence[str], excluded: Sequence[str]) -> int:
    """Run cases of the suite and say what became of them; how many are not as they should be."""
    async with Echo.serve(MemoryLog(), limits=LIMITS) as relay:
        plan = {
            "outdir": str(place),
            "servers": [{"agent": "walstore", "url": relay.url}],
            "cases": list(cases),
            "exclude-cases": list(excluded),
        }
        (place / "plan.json").write_text(json.dumps(plan))
        command = [wstest, "-m", "fuzzingclient", "-s", str(place / "plan.json")]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=place, stdout=asyncio.subprocess.DEVNULL
        )
        await process.wait()
    found = json.loads((place / "index.json").read_text())["walstore"]
    bad = {
        case: (outcome["behavior"], outcome["behaviorClose"])
        for case, outcome in found.items()
        if not {outcome["behavior"], outcome["behaviorClose"]} <= GOOD and case not in KNOWN
    }
    for case, (behaviour, closing) in bad.items():
        print(f"{case}: {behaviour}, closing {closing}")
    counted = Counter(outcome["behavior"] for outcome in found.values())
    print(f"{len(found)} cases: {dict(counted)}, {len(bad)} are not as they should be")
    return len(bad) + (len(found) < CASES_MIN)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; 1 if a case is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.autobahn", description=__doc__)
    parser.add_argument("--cases", nargs="*", default=["*"])
    parser.add_argument("--exclude", nargs="*", default=[])
    options = parser.parse_args(arguments)
    wstest = program()
    if wstest is None:
        print("there is no wstest: set WSTEST to it")
        return 1
    with TemporaryDirectory() as place:
        bad = asyncio.run(run(wstest, Path(place), options.cases, options.exclude))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

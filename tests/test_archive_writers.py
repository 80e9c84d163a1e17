"""Sixteen writers of one archive at once, at a store that fails: nothing lost, nothing doubled.

- There should be one writer. If there are more by mistake, each that is too late reads what is
  there now and goes on from it.
- What a store says may be wrong: that it has refused what it has stored, or that it has failed.

`WALSTORE_ARCHIVE_COMMITS` says how many commits each writer makes; 200 take some minutes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.archive_tables import PREFIX, Source, rows_of
from tests.archive_writers import commit_often, events_of, shared_source
from tests.s3_server import BUCKET, Application, s3_served
from walstore.archive.checking import check_archive
from walstore.archive.destination import Destination
from walstore.archive.destinations import open_destination
from walstore.archive.local import LocalDestination
from walstore.archive.reader import Archive

WRITERS = 16
COMMITS = int(os.environ.get("WALSTORE_ARCHIVE_COMMITS", "0"))
SEED = int(os.environ.get("WALSTORE_ARCHIVE_COMMITS_SEED", "0")) or time.time_ns() % 10**6

FAULTS = {
    "409": 0.1,
    "412": 0.1,
    "500 after success": 0.1,
    "412 after success": 0.1,
    "hang up after success": 0.1,
}


class Unreliable:
    """A store whose answers to a new manifest are often wrong."""

    def __init__(self, app: Application, rng: random.Random) -> None:
        self._app, self._rng = app, rng
        self.faults: Counter[str] = Counter()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        is_manifest = environ["PATH_INFO"].endswith("manifest.json")
        if environ["REQUEST_METHOD"] != "PUT" or not is_manifest:
            return self._app(environ, start_response)
        names = [*FAULTS, ""]
        (fault,) = self._rng.choices(names, [*FAULTS.values(), 1 - sum(FAULTS.values())])
        self.faults[fault] += 1
        if not fault:
            return self._app(environ, start_response)
        if "after" in fault:
            list(self._app(environ, lambda *_: lambda _: None))
        else:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if "hang up" in fault:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError
        code = {"409": "ConditionalRequestConflict", "412": "PreconditionFailed"}
        start_response(f"{fault[:3]} Failed", [("Content-Type", "application/xml")])
        return [f"<Error><Code>{code.get(fault[:3], 'InternalError')}</Code></Error>".encode()]


async def check(destination: Destination, source: Source, reached: list[list[int]]) -> int:
    """Check that the archive is what was archived; how many commits there were."""
    told = [position for each in reached for position in each]
    assert len(set(told)) == len(told), "two writers were told to have made one commit"
    for each in reached:
        assert each == sorted(each)
    archive = Archive(destination, PREFIX)
    manifest = await archive.manifest()
    head = manifest.head_position
    assert max(told) <= head
    for before, after in zip(manifest.artifacts, manifest.artifacts[1:], strict=False):
        # Each commit was of one event. A base begins where the diffs before it end.
        assert after.to_position == before.to_position + 1
        assert after.from_position == (None if after.is_base else before.to_position)
    checked = await check_archive(archive)
    assert checked.flaws == []
    assert await rows_of(destination) == source.rows(at=head)
    return head


async def test_sixteen_writers_at_an_object_store_that_fails() -> None:
    print(f"WALSTORE_ARCHIVE_COMMITS_SEED={SEED}")
    commits = COMMITS or 4
    source = shared_source(events_of(WRITERS, commits))
    stands: list[Unreliable] = []

    def around(app: Application) -> Application:
        stands.append(Unreliable(app, random.Random(SEED)))
        return stands[0]

    with s3_served(around) as options:
        places = [
            open_destination(f"s3://{BUCKET}/x", name=f"{number}", **options)
            for number in range(WRITERS)
        ]
        reached = await asyncio.gather(
            *(commit_often(each, source, commits, number) for number, each in enumerate(places))
        )
        head = await check(places[0], source, reached)
    faults = stands[0].faults
    assert set(faults) == {*FAULTS, ""}
    told = sum(map(len, reached))
    print(f"{told} commits of {head} were told of; answers: {dict(faults)}")
    assert told == WRITERS * commits
    # A writer that was told a lie looks, and finds its commit, unless another one followed at once.
    assert head < told * 1.25


async def test_sixteen_processes_at_one_directory(tmp_path: Path) -> None:
    commits = COMMITS or 12
    arguments = [str(tmp_path), str(WRITERS), str(commits)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.archive_writers", *arguments, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    reached = [json.loads(line) for line in output.splitlines()]
    source = shared_source(events_of(WRITERS, commits))
    # A disk does what it says: each commit was told of.
    head = await check(LocalDestination(tmp_path), source, reached)
    assert head == WRITERS * commits == sum(map(len, reached))
    print(f"{head} commits of {head} were told of, in one directory")

"""The command `python -m benchmarks.spark_live`: small things on Spark, from start to end.

- A tiny job: a process starts, has a session, archives ten documents, and ends.
- Live: something is appended to a log, and a stream of Spark's has it in the manifest. Each is
  appended when the one before is there.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.spark import cpu_s
from benchmarks.spark_logs import START_MS, elements_of, settings_of
from walstore.relay.sqlite import SqliteLog
from walstore.signed import Identity

TINY_DOCUMENTS, TINY_ELEMENTS = 10, 20
APPENDS = 10
APPEND_S_MAX = 60.0


def main() -> int:
    """Measure, and print."""
    if len(sys.argv) > 1:
        print(json.dumps(_measure(Path(sys.argv[1]))))
        return 0
    with tempfile.TemporaryDirectory(prefix="walstore-spark-") as name:
        directory = Path(name)
        Identity.from_seed(bytes([9]) * 32).save(directory / "archive.key")
        for number in range(TINY_DOCUMENTS):
            _append(directory, f"notes/{number:06}", TINY_ELEMENTS)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.spark_live", name], capture_output=True, text=True
        )
    if done.returncode:
        sys.exit(done.stderr[-4000:])
    found = json.loads(done.stdout.splitlines()[-1])
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    print(f"{busy:.1f} processes wanted each core meanwhile\n")
    print(
        f"- a tiny job, its session included: {found['tiny_s']:.1f} s,"
        f" of which {found['tiny_cpu_s']:.1f} s of processors (target ≤ 30)"
    )
    live = found["live_s"]
    print(
        f"- live, append to manifest: {statistics.median(live):.2f} s,"
        f" {max(live):.2f} s at most (target ≤ 2)"
    )
    return 0


def _append(directory: Path, key: str, count: int) -> int:
    """Append a document to the log; where the log ends then."""

    async def append() -> int:
        async with SqliteLog.open(str(directory / "large.db")) as log:
            accepted = await log.append([each async for each in elements_of(key, count)], START_MS)
            return max(each.seq for each in accepted)

    return asyncio.run(append())


def _measure(directory: Path) -> dict[str, object]:
    from walstore.spark.job import ArchiveJob
    from walstore.spark.session import spark_session
    from walstore.spark.stream import ArchiveStream, StreamOptions
    from walstore.spark.work import Ran

    spark = spark_session("local[2]", is_quick=True)
    settings = settings_of(directory, "large")
    job = ArchiveJob(spark, settings, settings.tables[0], now_ms=lambda: START_MS)
    job.run()
    tiny_s, tiny_cpu_s = _age_s(), cpu_s()
    reached = threading.Condition()
    to = 0

    def took(ran: Ran) -> None:
        nonlocal to
        with reached:
            to = max(to, ran.to)
            reached.notify_all()

    def wait(seq: int) -> None:
        with reached:
            assert reached.wait_for(lambda: to >= seq, APPEND_S_MAX), "it is not archived in time"

    stream = ArchiveStream(spark, job, StreamOptions(trigger="100ms"), on_ran=took)
    running = threading.Thread(target=stream.run)
    running.start()
    live_s: list[float] = []
    try:
        for number in range(APPENDS + 1):
            seq = _append(directory, f"notes/live-{number}", 1)
            began = time.perf_counter()
            wait(seq)
            live_s.append(time.perf_counter() - began)
    finally:
        stream.stop()
        running.join()
        spark.stop()
    # The first one waits for the stream to start.
    return {"tiny_s": tiny_s, "tiny_cpu_s": tiny_cpu_s, "live_s": live_s[1:]}


def _age_s() -> float:
    """How long this process lives."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    return uptime_s - started / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())

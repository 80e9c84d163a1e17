"""The command `python -m benchmarks.spark`: the plain engine, and Spark with one and two cores.

- Every run is a process of its own that archives a tenth of the log and then all of it, each into a
  new archive. What it takes to start, and what the tenth takes, is counted apart: the *marginal*
  time is what the other nine tenths add.
- CPU time and memory are those of everything that runs: driver, Java and Python workers.
- All have to write the same archive, byte for byte, or nothing is reported.
- On a busy machine the clock says little: *by CPU* is what the clock would say if every core that
  a run may use were its own.

`benchmarks.spark_live` measures a tiny job, and how soon a stream has archived what is new.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.spark_logs import START_MS, settings_of, write_logs
from walstore.archive.service import Service
from walstore.archive.wiring import Wiring
from walstore.relay.reading import opened_source
from walstore.signed import Identity

PLAIN = "plain"
MASTERS = ("local[1]", "local[2]")
CORES = {PLAIN: 1, "local[1]": 1, "local[2]": 2}

FULL, QUICK = (2_000, 500), (200, 100)


@dataclass
class Figures:
    """What one process has measured: seconds of the clock and of all processors, and bytes."""

    start_s: float
    small_s: float
    small_cpu_s: float
    large_s: float
    large_cpu_s: float
    driver_bytes: int
    java_bytes: int
    workers_bytes: int
    digest: str


def main() -> int:
    """Measure, print, and return 1 if the archives differ."""
    options = _options()
    if options.measure is not None:
        print(json.dumps(asdict(_measure(options.measure, Path(options.directory)))))
        return 0
    documents, elements = QUICK if options.quick else FULL
    documents, elements = options.documents or documents, options.elements or elements
    total = documents * elements
    kept = options.logs and Path(options.logs) / f"{documents}-{elements}"
    with _directory(kept) as directory:
        if not (directory / "archive.key").exists():
            began = time.perf_counter()
            asyncio.run(write_logs(directory, documents, elements))
            print(f"{total:,} elements written in {time.perf_counter() - began:.0f} s", flush=True)
        _print_heading(total)
        found: dict[str, Figures] = {}
        for each in (PLAIN, *MASTERS):
            found[each] = _in_a_process(each, directory)
            _print_row(each, found[each], added=total - total // 10)
    return _report(found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="200 documents × 100 elements")
    parser.add_argument("--documents", type=int)
    parser.add_argument("--elements", type=int)
    parser.add_argument("--logs", help="where logs are kept from one run to the next")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    return parser.parse_args()


@contextmanager
def _directory(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="walstore-spark-") as name:
        yield Path(name)


# ── measuring ──────────────────────────────────────────────────────────────────────────


def _in_a_process(who: str, directory: Path) -> Figures:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.spark", "--measure", who, "--directory", str(directory)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stderr[-4000:])
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def _measure(who: str, directory: Path) -> Figures:
    began = time.perf_counter()
    archive = _plain() if who == PLAIN else _on_spark(who)
    next(archive)
    start_s = time.perf_counter() - began
    times: list[float] = []
    digest = ""
    # The first one is not counted: it loads what all others find loaded.
    for size in ("small", "small", "large"):
        shutil.rmtree(directory / "out", ignore_errors=True)
        wall, cpu = time.perf_counter(), cpu_s()
        archive.send(settings_of(directory, size))
        times += [time.perf_counter() - wall, cpu_s() - cpu]
        digest = _digest(directory / "out")
    driver, java, workers = _memory()
    archive.close()
    _, _, small_s, small_cpu_s, large_s, large_cpu_s = times
    return Figures(
        start_s, small_s, small_cpu_s, large_s, large_cpu_s, driver, java, workers, digest
    )


def _plain() -> Any:
    settings = yield
    while True:
        service = Service(
            settings,
            identity=Identity.load(settings.identity),
            destinations=Wiring({}).destinations(settings.destinations),
            sinks=[],
            open_source=lambda prefix, s=settings: opened_source(s.database, prefix),
            now_ms=lambda: START_MS,
        )
        asyncio.run(service.run_once())
        settings = yield


def _on_spark(master: str) -> Any:
    from walstore.spark.job import ArchiveJob
    from walstore.spark.session import spark_session

    spark = spark_session(master)
    settings = yield
    while True:
        ArchiveJob(spark, settings, settings.tables[0], now_ms=lambda: START_MS).run()
        settings = yield


def _digest(directory: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(directory.rglob("*.json*")):
        found.update(str(path.relative_to(directory)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def _family() -> Iterator[Path]:
    """This process and all below it, as Linux shows them."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    known = {os.getpid()}
    for number in sorted(parents):
        if parents[number] in known:
            known.add(number)
    return (Path(f"/proc/{number}") for number in known)


def cpu_s() -> float:
    """What this process and all below it have taken of all processors."""
    ticks = 0
    for path in _family():
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(each) for each in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _memory() -> tuple[int, int, int]:
    """The most that the driver, Java and the workers together have held."""
    driver = java = workers = 0
    for path in _family():
        try:
            status = (path / "status").read_text()
        except OSError:
            continue
        lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        peak = int(lines.get("VmHWM", "0 kB").split()[0]) * 1024
        if int(path.name) == os.getpid():
            driver = peak
        elif lines["Name"].strip() == "java":
            java += peak
        else:
            workers += peak
    return driver, java, workers


# ── telling ────────────────────────────────────────────────────────────────────────────


def _print_heading(total: int) -> None:
    print(f"\n{total:,} elements; times are the clock's, per element of all processors\n")
    print("| | start | a tenth | all | marginal per s | by CPU | CPU | driver | Java | workers |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)


def _print_row(name: str, each: Figures, *, added: int) -> None:
    rate = added / max(each.large_s - each.small_s, 1e-9)
    cpu_us = _marginal_cpu_s(each) / added * 1e6
    memory = " | ".join(
        f"{size / 2**20:,.0f} MiB"
        for size in (each.driver_bytes, each.java_bytes, each.workers_bytes)
    )
    print(
        f"| {name} | {each.start_s:.1f} s | {each.small_s:.1f} s | {each.large_s:.1f} s"
        f" | {rate:,.0f} | {CORES[name] * 1e6 / cpu_us:,.0f} | {cpu_us:.0f} µs | {memory} |",
        flush=True,
    )


def _marginal_cpu_s(each: Figures) -> float:
    return max(each.large_cpu_s - each.small_cpu_s, 1e-9)


def _report(found: dict[str, Figures]) -> int:
    plain, two = found[PLAIN], found["local[2]"]
    speed = (plain.large_s - plain.small_s) / max(two.large_s - two.small_s, 1e-9)
    cpu = _marginal_cpu_s(two) / _marginal_cpu_s(plain)
    growth, growth_cpu = two.large_s / two.small_s, two.large_cpu_s / two.small_cpu_s
    is_same = len({each.digest for each in found.values()}) == 1
    print(f"\n- the same archive, byte for byte: {'yes' if is_same else 'NO'}")
    print(
        f"- marginal throughput, local[2] by plain: {speed:.2f} by the clock,"
        f" {CORES['local[2]'] / cpu:.2f} by CPU (target ≥ 1.4 from 400,000 on)"
    )
    print(f"- CPU per element, local[2] by plain: {cpu:.2f} (target ≤ 1.5)")
    print(
        f"- growth, local[2], for 10 ×: {growth:.1f} by the clock, {growth_cpu:.1f} by CPU"
        " (target ≤ 11)"
    )
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())

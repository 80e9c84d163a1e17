"""A cluster of several processes: a master, two workers, and whoever hands them work."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.spark_archives import Bench
from tests.spark_cluster import connect_server, run_python, standalone, submit
from walstore.archive.manifest_json import read_manifest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

CONFIG = """
[source]
database = "relay.db"
prefix = "notes/"
identity = "archive.key"

[archive]
table = "notes"
mode = "folded"
parts = 4
writers = {members}
snapshot_role = {members}

[[destinations]]
url = "out"
"""


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the workers keep what they do."""
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def server() -> Iterator[Callable[[], str]]:
    """A server of Spark Connect, which starts while others work."""
    with connect_server("local[2]") as address:
        yield address


@pytest.fixture(scope="module")
def master(workers: Path, server: object) -> Iterator[str]:
    """A master with two workers."""
    with standalone(workers) as address:
        yield address


def test_a_submitted_archive_is_the_plain_engine_s_byte_for_byte(
    master: str, workers: Path, tmp_path: Path
) -> None:
    bench = Bench(tmp_path)
    bench.write(random.Random(3), 40)
    members = json.dumps(sorted(bench.settings.tables[0].writers))
    (tmp_path / "archive.toml").write_text(CONFIG.format(members=members))
    said = submit(master, ["archive", "--config", "archive.toml", "--json"], directory=tmp_path)
    told = json.loads(said.splitlines()[-1])
    assert told["kind"] == "snapshot"
    assert told["rejected"] > 0
    manifest = read_manifest((tmp_path / "out" / "notes" / "manifest.json").read_bytes())
    # Whoever writes the same at the same time writes the same bytes.
    bench.now_ms = manifest.artifacts[-1].created_ms
    with bench.beside():
        bench.run_plain()
        expected = bench.files()
    assert bench.files() == expected
    # Both have worked for it.
    assert all(list((workers / name).glob("app-*/*")) for name in ("worker-1", "worker-2"))


def test_all_of_it_works_over_spark_connect(server: Callable[[], str], tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="the extra spark-connect is not installed")
    run_python("tests.spark_over_connect", server(), str(tmp_path))

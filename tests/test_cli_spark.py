"""`walstore spark`: what is wrong is said in one line, before a Java is started."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from walstore.cli.main import main

CONFIG = """
[source]
database = "relay.db"
[[tables]]
table = "notes"
prefix = "notes/"
mode = "sealed"
[[tables]]
table = "maps"
prefix = "maps/"
mode = "sealed"
[[destinations]]
url = "out"
"""


@pytest.fixture(autouse=True)
def _logging_is_put_back() -> Iterator[None]:
    logger = logging.getLogger("walstore")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before


def test_it_tells_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark", "--help"]) == 0
    assert "archive" in capsys.readouterr().out
    assert main(["spark"]) == 2
    assert main(["spark", "fly"]) == 2
    assert "'fly' is not a command" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["spark", "archive"], ["archive", "run"]])
def test_who_says_nothing_is_told_what_to_say(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    assert "say what to archive, and where to, in a file: --config" in capsys.readouterr().err


def test_without_the_extra_it_says_how_to_get_it() -> None:
    # In a process of its own: here it may be loaded already.
    code = (
        "import sys; sys.modules['pyspark'] = None;"
        " from walstore.cli.main import main; sys.exit(main(['spark', 'archive']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "walstore spark: pyspark is missing; get it with: pip install 'walstore[spark]'\n"
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["archive", "--table", "none"], "there is no table 'none'"),
        (["archive", "--stream"], "one table"),
        (["archive", "--stream", "--table", "notes", "--trigger", "soon"], "soon"),
        (["archive", "--set", "archive.mod=x"], "archive.mod is unknown"),
    ],
)
def test_a_mistake_is_named_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    (tmp_path / "archive.toml").write_text(CONFIG)
    command, *rest = flags
    assert main(["spark", command, "--config", str(tmp_path / "archive.toml"), *rest]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--writers", "any"], "where the key is"),
        (["--key-file", "a", "--key-variable", "B", "--writers", "any"], "where the key is"),
        (["--key-file", "a"], "whose elements count: --writers"),
        (["--key-file", "a", "--writers", "any", "--writers", "roster"], "--writers"),
        (["--key-file", "a", "--writers", "roster"], "who may own documents"),
    ],
)
def test_a_compaction_needs_a_key_and_to_know_who_writes(
    capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    assert main(["spark", "compact", "--relay", "ws://127.0.0.1:1", *flags]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("is_variable", [True, False])
def test_a_server_of_spark_connect_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_variable: bool
) -> None:
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    pytest.importorskip("grpc", reason="the extra spark-connect is not installed")
    from walstore.spark import connect

    monkeypatch.setattr(connect, "ANSWER_S_MAX", 0.1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"sc://127.0.0.1:{free.getsockname()[1]}"
    if is_variable:
        monkeypatch.setenv("SPARK_REMOTE", nobody)
    flags = [] if is_variable else ["--master", nobody]
    compact = ["spark", "compact", "--relay", "ws://127.0.0.1:1", "--key-file", "k"]
    assert main([*compact, "--writers", "any", *flags]) == 4
    said = f"walstore spark: no Spark Connect server answers at {nobody}\n"
    assert capsys.readouterr().err == said


def test_a_module_can_be_submitted(capsys: pytest.CaptureFixture[str]) -> None:
    from walstore.spark.__main__ import main as submitted

    assert submitted(["--help"]) == 0
    assert "walstore spark <command>" in capsys.readouterr().out

"""`walstore archive export`, `reconstruct`, `verify` and `gc`: what they say, and how they end."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.archive_made import Made
from tests.archive_process import until
from tests.relay_process import Forker, forking
from walstore.archive.formats import open_format
from walstore.archive.local import LocalDestination
from walstore.archive.place_file import read_place
from walstore.archive.sealed import COLUMNS
from walstore.cli.main import main

AT = ["--prefix", "notes/"]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The archive of some documents: a base to 3, diffs to 5 and to 6."""
    asyncio.run(Made(LocalDestination(tmp_path / "out")).grow())
    return tmp_path / "out"


class Said:
    """What a command has said."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> None:
        capsys.readouterr()
        self.code = main(["archive", *map(str, arguments)])
        self.output, self.errors = capsys.readouterr()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.splitlines()]

    @property
    def seqs(self) -> list[int]:
        return sorted(row["seq"] for row in self.rows)


# ── export and reconstruct ─────────────────────────────────────────────────────────────────


def test_export_writes_the_rows_at_the_head(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = Said(capsys, "export", out, *AT)
    assert (said.code, said.errors) == (0, "")
    assert said.seqs == [1, 2, 3, 4, 5, 6]
    assert {row["document"] for row in said.rows} == {"notes/a", "notes/b", "notes/é"}


def test_an_archive_can_be_read_below_its_prefix_and_after_it_was_moved(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (out / "notes").rename(tmp_path / "elsewhere")
    assert Said(capsys, "export", tmp_path / "elsewhere").seqs == [1, 2, 3, 4, 5, 6]
    assert Said(capsys, "verify", tmp_path / "elsewhere").code == 0


@pytest.mark.parametrize(
    ("at", "reached"), [("3", 3), ("4", 3), ("5", 5), ("6", 6), ("1000000", 6)]
)
def test_reconstruct_writes_the_rows_as_of_a_position(
    out: Path, at: str, reached: int, capsys: pytest.CaptureFixture[str]
) -> None:
    said = Said(capsys, "reconstruct", out, *AT, "--at", at)
    assert said.code == 0
    assert said.seqs == list(range(1, reached + 1))
    assert said.errors == f"as of position {reached}\n"


@pytest.mark.parametrize("format", ["parquet", "protobuf", "jsonl"])
def test_export_writes_a_file_in_any_format(
    out: Path, tmp_path: Path, format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows"
    said = Said(capsys, "export", out, *AT, "--format", format, "--output", path)
    assert (said.code, said.output) == (0, "")
    rows = list(open_format(format).read_base(path.read_bytes(), COLUMNS))
    assert sorted(int(str(row["seq"])) for row in rows) == [1, 2, 3, 4, 5, 6]
    assert [each.name for each in tmp_path.glob("rows*")] == ["rows"]


def test_rows_are_utf_8_whatever_the_terminal_speaks_and_may_be_cut_off(out: Path) -> None:
    command = [sys.executable, "-m", "walstore", "archive", "export", str(out), *AT]
    environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=environ, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "notes/é" in done.stdout.decode()
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.fixture
def forker(tmp_path: Path) -> Iterator[Forker]:
    with forking(tmp_path) as forker:
        yield forker


async def test_follow_replaces_once_and_then_tells_what_changes(
    forker: Forker, tmp_path: Path
) -> None:
    made = Made(LocalDestination(tmp_path / "out"), mode="folded")
    await made.write("notes/a", "one ")
    await made.engine.run_once()
    follow = ["archive", "export", str(tmp_path / "out"), *AT, "--follow", "--state", "state"]
    follow += ["--poll", "20ms"]
    number, output = forker.fork(*follow)
    with output:
        replaced = json.loads(await asyncio.to_thread(output.readline))
        assert replaced["position"] == "1"
        assert [row["value"]["last"] for row in replaced["replace"]] == ["one "]
        await made.write("notes/a", "two ")
        await made.engine.run_once()
        moved = json.loads(await asyncio.to_thread(output.readline))
        assert moved["position"] == "2"
        (change,) = moved["change"]
        assert (change["action"], change["key"]) == ("UPDATE", ["notes/a"])
        assert change["new"]["value"]["last"] == "two "

        async def is_marked() -> bool:
            place = read_place(tmp_path / "state")
            return place is not None and place.position == 2

        # Whoever is killed before that is told the same once more.
        await until(is_marked)
        forker.kill(number)
    # It goes on where it was, and not from the beginning.
    await made.write("notes/b", "three ")
    await made.engine.run_once()
    number, output = forker.fork(*follow)
    with output:
        (change,) = json.loads(await asyncio.to_thread(output.readline))["change"]
        assert (change["action"], change["key"]) == ("INSERT", ["notes/b"])
        # What no chain leads on from is replaced.
        await made.write("notes/a", "four ")
        await made.engine.run_once()
        await made.engine.flush(is_base_wanted=True)
        lines = [json.loads(await asyncio.to_thread(output.readline))]
        while "replace" not in lines[-1]:
            lines.append(json.loads(await asyncio.to_thread(output.readline)))
        assert [row["value"]["last"] for row in lines[-1]["replace"]] == ["four ", "three "]
        forker.kill(number)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run"], 2, "--config archive.toml"),
        (["run", "--config", "nowhere.toml"], 2, "nowhere.toml: cannot be read"),
        (["export", "out"], 1, "does it have a prefix, such as notes/?"),
        (["export", "out", "--prefix", "note/"], 1, "is the prefix right?"),
        (["export", "out", "--prefix", "notes"], 1, "is the prefix notes/ meant?"),
        (["export", "nowhere"], 1, "there is no archive"),
        (["export", "nowhere", "--follow"], 1, "there is no archive"),
        (["export", "out", *AT, "--follow", "--output", "x"], 2, "takes no file"),
        (["export", "out", *AT, "--state", "x"], 2, "--state is for --follow"),
        (["export", "out", *AT, "--output", "no/such/x"], 1, "No such file"),
        (["export", "out", "--prefix", "../x/"], 2, "a segment of dots"),
        (["export", "ftp://out"], 2, "ftp://out"),
        (["reconstruct", "out", *AT, "--at", "2"], 2, "no base at or before 2"),
        (["reconstruct", "nowhere", "--at", "2"], 1, "there is no archive"),
        (["verify", "nowhere"], 1, "there is no archive"),
        (["gc", "nowhere"], 1, "there is no archive"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(out.parent)
    said = Said(capsys, *arguments)
    assert (said.code, said.output) == (code, "")
    assert message in said.errors
    assert said.errors.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export"], "archive"),
        (["export", "out", "--format", "csv"], "--format"),
        (["export", "out", "--at", "5"], "--at"),
        (["reconstruct", "out", "--at", "yesterday"], "'yesterday' is not a position"),
        (["reconstruct", "out", "--at", "-1"], "'-1' is not a position"),
        (["reconstruct", "out", "--follow"], "--follow"),
        (["export", "out", "--follow", "--poll", "0s"], "'0s' is not a time"),
        (["verify", "out", "--deep"], "--deep"),
        (["gc", "out", "--grace", "soon"], "--grace soon is not a time"),
        (["gc", "out", "--grace", "59s"], "--grace 59s is below 1m"),
        (["gc", "out", "--dry"], "--dry"),
    ],
)
def test_what_is_misspelled_ends_with_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["archive", *arguments])
    except SystemExit as ended:
        code = int(str(ended.code))
    shown = capsys.readouterr()
    assert (code, shown.out) == (2, "")
    assert message in shown.err


def test_what_is_no_command_is_told_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    said = Said(capsys)
    assert (said.code, said.output) == (2, "")
    assert "reconstruct" in said.errors
    mistyped = Said(capsys, "expotr")
    assert (mistyped.code, mistyped.output) == (2, "")
    assert "did you mean export?" in mistyped.errors


# ── verify ─────────────────────────────────────────────────────────────────────────────────


def test_verify_says_that_all_is_well(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = Said(capsys, "verify", out, *AT)
    assert (said.code, said.errors) == (0, "")
    assert said.output.endswith("6 rows, every signature checked: sound\n")
    (told,) = Said(capsys, "verify", out, *AT, "--json").rows
    assert told["sound"] is True
    assert (told["rows"], told["objects"], told["head_position"]) == (6, 3, "6")
    assert (told["mode"], told["flaws"], told["notes"]) == ("sealed", [], [])


@pytest.mark.parametrize("damage", ["changed", "removed", "manifest"])
def test_verify_ends_with_3_when_something_is_wrong(
    out: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = out / "notes/epoch=1/diff-3-5.jsonl"
    if damage == "manifest":
        path = out / "notes/manifest.json"
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b"5", b"7", 1))
    said = Said(capsys, "verify", out, *AT)
    assert said.code == 3
    assert said.output.startswith("wrong: ")
    assert "NOT SOUND: 1 flaw" in said.output
    (told,) = Said(capsys, "verify", out, *AT, "--json").rows
    assert (told["sound"], len(told["flaws"])) == (False, 1)


def test_a_manifest_of_a_later_version_is_not_called_damaged(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (out / "notes/manifest.json").write_text('{"manifest_version":99}')
    said = Said(capsys, "verify", out, *AT)
    assert (said.code, said.output) == (1, "")
    assert "99" in said.errors


# ── gc ─────────────────────────────────────────────────────────────────────────────────────


def test_gc_removes_what_is_old_and_nobody_names(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, young = out / "notes/epoch=1/diff-6-7.jsonl", out / "notes/epoch=1/diff-6-8.jsonl"
    other = out / "notes/readme.txt"
    for each in (old, young, other):
        each.write_text("{}\n")
    os.utime(old, (1, 1))
    os.utime(other, (1, 1))
    said = Said(capsys, "gc", out, *AT, "--dry-run")
    assert (said.code, said.output) == (0, "notes/epoch=1/diff-6-7.jsonl\n")
    assert "1 objects, 3 bytes would be removed" in said.errors
    assert old.exists()
    (told,) = Said(capsys, "gc", out, *AT, "--json").rows
    assert told == {
        "removed": True,
        "objects": [{"key": "notes/epoch=1/diff-6-7.jsonl", "size_bytes": 3}],
    }
    assert not old.exists()
    assert young.exists()
    assert other.exists()
    # Below a minute somebody may be about to commit it.
    a_while_ago = time.time() - 90
    os.utime(young, (a_while_ago, a_while_ago))
    assert Said(capsys, "gc", out, *AT, "--grace", "1m").code == 0
    assert not young.exists()
    assert Said(capsys, "verify", out, *AT).code == 0

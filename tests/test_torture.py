"""A run of a release that does too little is no run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.autobahn import main as autobahn
from tests.torture import ROOT, Outcome, fault_of, main, row, settings_of
from tests.torture_parts import PARTS, Part

KILLS = Part("G1", "kills", ("pytest", "tests"), 100, "KILLS", (r"(\d+) edits", 1))


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("340 edits\n1 passed in 2 s", None),
        ("60 edits\n1 passed\n60 edits\n1 passed", None),
        ("99 edits\n1 passed in 2 s", "it was idle"),
        ("1 passed in 2 s", "it was idle"),
        ("340 edits\nno tests ran", "no test was run"),
        ("340 edits\n1 passed, 1 skipped in 2 s", "a test was skipped"),
    ],
)
def test_what_was_said_decides(said: str, fault: str | None) -> None:
    found = fault_of(KILLS, 100, 0, said)
    assert found == fault or (fault is not None and found is not None and fault in found)


def test_a_run_that_failed_shows_how_it_ended() -> None:
    assert fault_of(KILLS, 100, 1, "340 edits\n1 passed\nAssertionError") is not None
    assert "FAILED" in row(Outcome(KILLS, 100, 2.0, "AssertionError"))
    assert "| 100 | passed | 2 s |" in row(Outcome(KILLS, 100, 2.0, None))


def test_what_is_timed_has_the_compiled_core_where_there_is_one(tmp_path: Path) -> None:
    timed = KILLS._replace(is_compiled=True)
    assert settings_of(timed, 7, tmp_path) == {"KILLS": "7", "PYTHONPATH": str(tmp_path)}
    assert settings_of(KILLS, 7, tmp_path) == {"KILLS": "7"}
    assert settings_of(timed, 7, tmp_path / "none") == {"KILLS": "7"}


def test_without_the_autobahn_suite_a_release_is_told_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ("tests.autobahn",) in [part.command for part in PARTS]
    monkeypatch.delenv("WSTEST", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert autobahn([]) == 1
    assert "there is no wstest" in capsys.readouterr().out


def test_without_atheris_a_release_is_told_so() -> None:
    (part, *_) = [part for part in PARTS if "tests.fuzzing.coverage_led" in part.command]
    without = "import runpy, sys; sys.modules['atheris'] = None; sys.argv[1:] = ['envelope']; "
    run = f"runpy.run_module({part.command[0]!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", without + run],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "there is no atheris" in (fault_of(part, 100, done.returncode, done.stdout) or "")


def test_kills_of_relays_that_had_nothing_to_do_are_no_run() -> None:
    (kills,) = [part for part in PARTS if part.variable == "WALSTORE_RELAY_KILLS"]
    said = "seed 1: 10 kills, 0 more of idle relays; {} elements, 7 sent again\n"
    busy, idle = said.format(900) * 2, said.format(20) * 2
    assert fault_of(kills, 10, 0, f"{busy}2 passed in 9 s") is None
    assert "idle" in (fault_of(kills, 10, 0, f"{idle}2 passed in 9 s") or "")
    skipped = fault_of(kills, 10, 0, f"{busy}1 passed, 1 skipped in 9 s")
    assert skipped == "a test was skipped"


def test_no_promise_of_that_name_is_no_run() -> None:
    assert main(["G99"]) == 1


def test_what_would_be_done_can_be_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["g4", "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == len([part for part in PARTS if part.goal == "G4"])

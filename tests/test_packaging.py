"""What is installed: whole, light, and with a word about what is missing.

- The wheel and the source distribution are built from a copy of the tree, with the build backend
  that is installed; nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_string
from pathlib import Path
from typing import Any

import pytest

import walstore
from tests.make_api import MODULES, reference

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]

# What a plain installation brings, and no more: everything else is in an extra.
LIGHT = {"anyio", "orjson", "pynacl", "rapidfuzz"}

# walstore itself, unpacked, without what Python makes of it.
INSTALLED_BYTES_MAX = 6 * 2**20

# The processor's time; the clock's says more about what else runs. Measured: 0.1 and 0.5 seconds.
IMPORT_S_MAX = 0.6
STORE_S_MAX = 2.0

_BUILD = """
import sys
import setuptools.build_meta as backend
out = sys.argv[1]  # the backend puts arguments of its own in their place
backend.build_wheel(out)
backend.build_sdist(out)
"""

# Refuses to import some packages, as if they were not installed.
_WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the source distribution."""
    setuptools = pytest.importorskip("setuptools", reason="the build backend is not installed")
    if int(setuptools.__version__.partition(".")[0]) < 77:
        pytest.skip("the build backend is older than the project asks for: setuptools 77")
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", tree / "src", ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    subprocess.run(
        [sys.executable, "-c", _BUILD, str(out)],
        cwd=tree,
        # The pure build, which works everywhere.
        env={**os.environ, "WALSTORE_COMPILE": "0"},
        check=True,
        capture_output=True,
        timeout=120,
    )
    return out


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the wheel is unpacked, as an installation is."""
    directory = tmp_path_factory.mktemp("installed")
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
    return directory


def sources() -> Iterator[str]:
    """Every file of the package that is not made by Python."""
    for path in (ROOT / "src" / "walstore").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(ROOT / "src").as_posix()


# ── what is built ──────────────────────────────────────────────────────────────────────


def test_the_wheel_holds_every_file_of_the_package(unpacked: Path) -> None:
    missing = [name for name in sources() if not (unpacked / name).exists()]
    assert not missing


def test_the_source_distribution_builds_the_same_package(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE"} <= names
    assert {f"src/{name}" for name in sources()} <= names


def test_its_metadata_names_licence_extras_and_command(unpacked: Path) -> None:
    (directory,) = unpacked.glob("walstore-*.dist-info")
    metadata = message_from_string((directory / "METADATA").read_text(encoding="utf-8"))
    assert metadata["License-Expression"] == "MIT"
    assert set(metadata.get_all("Provides-Extra") or ()) == set(EXTRAS)
    assert metadata["Requires-Python"] == ">=3.11"
    assert "walstore.cli.main:main" in (directory / "entry_points.txt").read_text()
    assert (directory / "licenses" / "LICENSE").exists()


def test_what_is_installed_runs_from_anywhere(unpacked: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    said = subprocess.run(
        [sys.executable, "-c", "import walstore; print(walstore.__file__)"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(said.stdout.strip()).is_relative_to(unpacked)
    helped = subprocess.run(
        [sys.executable, "-m", "walstore", "--help"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "inspect" in helped.stdout


# ── light ──────────────────────────────────────────────────────────────────────────────


def test_a_plain_installation_brings_four_packages() -> None:
    names = {re.split(r"[<>=\[; ]", each)[0] for each in PROJECT["project"]["dependencies"]}
    assert names == LIGHT


def test_it_is_small(unpacked: Path) -> None:
    size = sum(path.stat().st_size for path in unpacked.rglob("*") if path.is_file())
    assert size < INSTALLED_BYTES_MAX, f"{size:,} bytes"


@pytest.mark.parametrize(
    ("statement", "seconds_max"),
    [("import walstore", IMPORT_S_MAX), ("from walstore import WalStore", STORE_S_MAX)],
)
def test_importing_takes_no_time_and_no_extra(statement: str, seconds_max: float) -> None:
    def spent(code: str) -> tuple[float, str]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime, ran.stdout

    told = "; import json, sys; print(json.dumps(list(sys.modules)))"
    seconds, modules = min(spent(statement + told) for _ in range(2))
    assert seconds < seconds_max
    loaded = {name.partition(".")[0] for name in json.loads(modules)}
    heavy = "websockets textual httpx h11 pyarrow google psycopg boto3 obstore pyspark cryptography"
    assert not loaded & set(heavy.split())


# ── extras ─────────────────────────────────────────────────────────────────────────────


_MISSING = {
    "net": (
        "websockets",
        "from walstore import Identity, net\nnet.WebSocketTransport('ws://x', identity=None)",
    ),
    "starfish": (
        "httpx",
        "from walstore import Identity\nfrom walstore.net.starfish_http import StarfishClient\n"
        "StarfishClient('http://127.0.0.1:9', identity=Identity.generate(),"
        " capability=None)",
    ),
    "relay": ("h11", "from walstore.cli.main import main\nmain(['relay', '--port', '0'])"),
    "postgres": (
        "psycopg",
        "import asyncio\nfrom walstore.relay.reading import opened_source\n"
        "async def read():\n"
        "    async with opened_source('postgresql://x'): pass\n"
        "asyncio.run(read())",
    ),
    "textual": (
        "textual",
        "from walstore.cli.main import main\nimport sys, io\n"
        "class Terminal(io.StringIO):\n"
        "    isatty = lambda self: True\n"
        "sys.stdin = Terminal()\nsys.stdout = Terminal()\n"
        "from walstore import Identity\nfrom walstore.local import LocalFile\n"
        "key = Identity.generate().public_key\n"
        "LocalFile.open(sys.argv[1], document_key='x', author=key).close()\n"
        "main(['inspect', sys.argv[1]])",
    ),
    "archive": (
        "obstore",
        "from walstore.archive.destinations import open_destination\n"
        "open_destination('s3://bucket/archive')",
    ),
    "parquet": (
        "pyarrow",
        "from walstore.archive.formats import open_format\nopen_format('parquet')",
    ),
    "protobuf": (
        "google",
        "from walstore.archive.formats import open_format\nopen_format('protobuf')",
    ),
    "aws": (
        "boto3",
        "from walstore.archive.credentials import Credentials\nCredentials()",
    ),
    "spark": ("pyspark", "from walstore.cli.main import main\nmain(['spark', 'archive', 'x'])"),
}


@pytest.mark.parametrize("extra", sorted(_MISSING))
def test_a_missing_extra_says_the_command_that_gets_it(extra: str, tmp_path: Path) -> None:
    package, code = _MISSING[extra]
    ran = subprocess.run(
        [sys.executable, "-c", _WITHOUT.format(missing={package}) + code, str(tmp_path / "x.db")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = ran.stderr.strip().splitlines()[-1]
    assert f"pip install 'walstore[{extra}]'" in said, ran.stderr


def test_every_extra_is_documented() -> None:
    installing = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    for extra in set(EXTRAS) - {"dev"}:
        assert f"| `{extra}` |" in installing, extra


def test_all_is_everything_that_a_user_may_want() -> None:
    (everything,) = EXTRAS["all"]
    named = set(re.findall(r"[\w-]+", everything)) - {"walstore"}
    assert named <= set(EXTRAS)
    # Java, Spark and pictures are large and wanted by few; a keychain is not everywhere.
    apart = {name for name in EXTRAS if name.startswith("spark")}
    assert set(EXTRAS) - named <= apart | {"all", "dev", "keychain", "notebook"}


# ── who may use it, and whom to thank ──────────────────────────────────────────────────


def test_the_citation_names_this_version_and_the_designs() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {PROJECT['project']['version']}\n" in citation
    assert "license: MIT" in citation
    for design in ("RGA", "Lamport", "Local-first", "starfish-wal"):
        assert design in citation


def test_the_interpreters_that_are_promised_are_classified() -> None:
    classifiers = PROJECT["project"]["classifiers"]
    for version in ("3.11", "3.12", "3.13"):
        assert f"Programming Language :: Python :: {version}" in classifiers


def test_the_map_names_every_document() -> None:
    index = ROOT / "docs" / "index.md"
    linked = re.findall(r"\]\(([^)#]+)\)", index.read_text(encoding="utf-8"))
    named = {(index.parent / target).resolve() for target in linked}
    assert set((ROOT / "docs").glob("**/*.md")) - {index} <= named
    assert "docs/index.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_reference_says_what_the_docstrings_say() -> None:
    assert (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == reference(), (
        "python -m tests.make_api writes it anew"
    )


def test_the_reference_lists_all_that_the_facade_promises() -> None:
    assert set(MODULES["walstore"]) == set(walstore.__all__) - {"Op", "Run"}

"""The façade: exactly the names it promises, each documented, and cheap to import."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

import walstore

ROOT = Path(__file__).resolve().parent.parent

# A further name is a promise for years: it has to be made here as well.
NAMES = [
    "ALLOW_ANY",
    "Change",
    "Identity",
    "LamportClock",
    "Marks",
    "MemorySnapshots",
    "MemoryTransport",
    "Op",
    "PeerError",
    "Run",
    "StorageError",
    "TransportError",
    "UsageError",
    "View",
    "WalCrdt",
    "WalDocument",
    "WalStore",
    "WalStoreError",
    "Writer",
    "compare_clocks",
    "derive_replica_id",
    "pack_ops",
    "to_ops",
    "to_runs",
    "unpack_ops",
]

# What an application that holds documents in memory must not pay for.
HEAVY = {
    "aiohttp",
    "cryptography",
    "httpx",
    "multiprocessing",
    "psycopg",
    "pyarrow",
    "pyspark",
    "sqlite3",
    "textual",
    "websockets",
}

LOADED_BY_IMPORT = """
import sys
before = set(sys.modules)
import walstore
import json
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_the_facade_promises_exactly_these_names() -> None:
    assert walstore.__all__ == NAMES
    assert sorted(NAMES) == NAMES


def test_the_facade_holds_nothing_public_that_it_does_not_promise() -> None:
    for name in NAMES:
        getattr(walstore, name)
    public = {
        name
        for name, value in vars(walstore).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public == set(NAMES)
    assert dir(walstore) == [*NAMES, "__version__"] or set(NAMES) <= set(dir(walstore))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        walstore.nothing  # noqa: B018


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_documented(name: str) -> None:
    promised = getattr(walstore, name)
    # An alias has no docstring of its own: each of the classes that it stands for has one.
    for documented in get_args(promised) or (promised,):
        assert documented.__doc__
        assert documented.__module__.startswith("walstore.")


@pytest.mark.parametrize(
    "member",
    [
        pytest.param(member, id=f"{owner.__name__}.{name}")
        for owner in (walstore.WalCrdt, walstore.Writer, walstore.LamportClock)
        for name, member in vars(owner).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    ],
)
def test_every_public_method_is_documented(member: object) -> None:
    assert member.__doc__


def test_every_exception_is_a_walstore_error() -> None:
    for name in NAMES:
        if name.endswith("Error"):
            assert issubclass(getattr(walstore, name), walstore.WalStoreError)


def test_importing_walstore_loads_nothing_heavy() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", LOADED_BY_IMPORT], capture_output=True, text=True, check=True
    )
    loaded = {str(module).partition(".")[0] for module in json.loads(answer.stdout)}
    assert "walstore" in loaded
    assert not loaded & HEAVY


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert walstore.__version__ == project["version"]

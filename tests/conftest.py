"""What tests share, which of them run beside one another, and which begin."""

import gc
import os

import pytest
from hypothesis import settings

from tests.spark_session import spark
from walstore.net.backoff import Backoff

__all__ = ["spark"]

# How many examples a law is tried on that does not say it itself: others on every change, and many
# for a release. On a machine that does something else, any example may take long.
EXAMPLES = int(os.environ.get("WALSTORE_EXAMPLES", "60"))
settings.register_profile("walstore", deadline=None, max_examples=EXAMPLES)
settings.load_profile("walstore")

_SPARK = "spark"

# What takes longest begins, so that nobody waits for it at the end. The first of those who need
# Spark makes what makes Java start soon: the others come when that is done.
_LONG = (
    _SPARK,
    "test_simulator.py",
    "test_store_kills.py",
    "test_relay_kills.py",
    "test_spark_cluster.py",
    "test_spark_kills.py",
    "test_archive_kills.py",
    "test_textual_editor.py",
    "test_textual_text_area.py",
    "test_archive_interleavings.py",
    "test_textual_memory.py",
    "test_relay_abuse.py",
    "test_soak.py",
    "test_mutants.py",
    "test_textual_together.py",
    "test_textual_leaving.py",
    "test_docs.py",
    "test_packaging.py",
    "test_compiled.py",
    "test_archive_writers.py",
    "test_fault_sweep.py",
    "test_relay_log_postgres.py",
    "test_wire_envelope.py",
)


@pytest.fixture
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever loses a relay tries again at once, unless told otherwise."""
    hasty = Backoff(quick_ms_min=0, quick_ms_max=2, pause_ms_min=1, pause_ms_max=20, lasting_ms=0)
    monkeypatch.setattr(Backoff.__new__, "__defaults__", tuple(hasty))


# Before pytest-xdist looks for groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file together, and all that share the Spark session."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=lambda item: _rank(_group(item)))


def pytest_collection_finish() -> None:
    """Thousands of tests stay until the end."""
    _set_apart()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """So does what a file of tests has loaded."""
    if nextitem is not None and nextitem.path != item.path:
        _set_apart()


def _set_apart() -> None:
    """Leave what is there alone: whoever looks for garbage later would look through all of it."""
    gc.collect()
    gc.freeze()


def _group(item: pytest.Item) -> str:
    needs_spark = "spark" in getattr(item, "fixturenames", ())
    return _SPARK if needs_spark else item.path.name


def _rank(group: str) -> int:
    return _LONG.index(group) if group in _LONG else len(_LONG)

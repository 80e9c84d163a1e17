"""Everything that reads bytes of others, against input made to break it.

- `WALSTORE_FUZZ_CASES` says how many cases each reader gets; the seed is printed, and
  `WALSTORE_FUZZ_SEED` sets it.
- What has ever broken a reader is in `vectors/crashers`, one file for each case.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzzing.mutations import mutated
from tests.fuzzing.run import CRASHERS, READ_MS_MAX, READERS, broken, run, timed_ms

CASES = int(os.environ.get("WALSTORE_FUZZ_CASES", "600"))
SEED = int(os.environ.get("WALSTORE_FUZZ_SEED", "0")) or time.time_ns() % 10**6


@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_or_refuses_whatever_comes(name: str) -> None:
    found = run(name, cases=CASES, seed=SEED)
    assert found.crash is None, f"SEED={SEED}: {found.crash}"
    # Where nothing is taken or nothing refused, nothing was tried.
    assert found.refused > CASES // 200
    assert found.taken > CASES // 200 or READERS[name].is_exact
    print(f"{name}: {found.taken} taken, {found.refused} refused, {found.slowest_ms:.1f} ms")


@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_what_is_good(name: str) -> None:
    reader = READERS[name]
    assert all(reader.takes(specimen) for specimen in reader.specimens)


@settings(deadline=None)
@given(st.data())
def test_a_reader_takes_or_refuses_any_bytes(data: st.DataObject) -> None:
    reader = READERS[data.draw(st.sampled_from(sorted(READERS)))]
    assert broken(reader, data.draw(st.binary(max_size=300))) is None


@settings(deadline=None)
@given(st.data())
def test_a_reader_takes_or_refuses_any_json(data: st.DataObject) -> None:
    reader = READERS[data.draw(st.sampled_from(sorted(READERS)))]
    chance = Random(data.draw(st.integers(0, 2**32)))
    text = mutated(chance, [mutated(chance, reader.specimens), *reader.specimens])
    assert broken(reader, text) is None


def crashers() -> list[Path]:
    return sorted(path for path in CRASHERS.glob("*/*") if path.is_file())


def test_there_is_something_that_could_break_each_reader() -> None:
    assert {path.parent.name for path in crashers()} == set(READERS)


@pytest.mark.parametrize("path", crashers(), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_broke_a_reader_once_does_not_break_it_again(path: Path) -> None:
    reader, text = READERS[path.parent.name], path.read_bytes()
    assert broken(reader, text) is None
    # What a fuzzer has found is named by its hash, and may be taken or refused.
    if path.suffix:
        assert path.suffix == (".taken" if reader.takes(text) else ".refused")
    assert min(timed_ms(reader, text) for _ in range(3)) <= READ_MS_MAX


# ── input that is large, deep or repetitive on purpose ─────────────────────────────────

DEEP = [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000]
LARGE = [
    b"9" * 2**20,
    b'"' + b"a" * 2**20 + b'"',
    b'{"a":' * 2000 + b"1" + b"}" * 2000,
    b'{"__proto__":{"constructor":[1e400,NaN]}}',
    b'{"a":1,"a":2}',
    b"\xef\xbb\xbf{}",
    b"{}\x00",
    b'["\\ud800"]',
    b"[1,]",
    b"-0",
    b"",
]

# Whoever reads these makes hundreds of thousands of objects first, which takes longer than one
# message may: they are refused or taken, and not timed.
MANY = [b"[" + b"0," * 2**19 + b"0]", b'["X"' + b",[]" * (2**20 // 3 - 2) + b"]"]


@pytest.mark.parametrize("name", READERS)
def test_a_reader_survives_what_is_deep_or_large_and_takes_no_time_for_it(name: str) -> None:
    reader = READERS[name]
    for text in [*DEEP, *LARGE]:
        assert broken(reader, text) is None, text[:40]
        took_ms = timed_ms(reader, text)
        if took_ms > READ_MS_MAX:
            took_ms = min(timed_ms(reader, text) for _ in range(3))
        assert took_ms <= READ_MS_MAX, text[:40]


@pytest.mark.parametrize("name", READERS)
def test_a_reader_survives_what_has_many_parts(name: str) -> None:
    for text in MANY:
        assert broken(READERS[name], text) is None, text[:40]

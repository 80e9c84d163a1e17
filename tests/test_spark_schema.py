"""Events as columns: the rows of a sealed archive, there and back."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.spark_archives import Bench
from walstore.archive.folded import part_of
from walstore.archive.sealed import sealed_row
from walstore.canon import canonical_text

pytest.importorskip("pyarrow", reason="the extra parquet is not installed")

from walstore.spark.address import Address
from walstore.spark.events import events_of
from walstore.spark.schema import EVENT_NAMES, events_batch

NO_UTF8 = (b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80")


def events(directory: Path) -> list[Any]:
    bench = Bench(directory)
    bench.write(random.Random(5), 60)
    address = Address(database=str(directory / "relay.db"))
    return [event for page in address.pages(0, 1000) for event in page]


def test_a_batch_has_the_rows_of_a_sealed_archive(tmp_path: Path) -> None:
    given = events(tmp_path)
    expected = [{**row, "vc": canonical_text(row["vc"])} for row in map(sealed_row, given)]
    assert events_batch(given).to_pylist() == expected
    assert {"element", "snapshot"} == {row["kind"] for row in expected}
    # Some of it is no text, and the rest is there all the same.
    assert {None} < {row["data"] for row in expected}
    some = ("data", "document")
    assert events_batch(given, some).to_pylist() == [
        {name: row[name] for name in some} for row in expected
    ]


def test_what_is_read_of_a_batch_is_what_was_put_in(tmp_path: Path) -> None:
    given = events(tmp_path)
    found = list(events_of(events_batch(given)))
    names = ("document", "seq", "kind", "id", "ts", "author", "signature", "accepted_ms")
    for back, event in zip(found, given, strict=True):
        assert [getattr(back, name) for name in names] == [getattr(event, name) for name in names]
        assert (back.vc, back.is_deletion) == (event.vc, event.is_deletion)
        assert back.payload == event.payload or event.payload in NO_UTF8


@pytest.mark.parametrize("payload", NO_UTF8)
def test_bytes_that_are_no_text_are_left_out(tmp_path: Path, payload: bytes) -> None:
    first, second, *_ = (each for each in events(tmp_path) if each.payload not in NO_UTF8)
    batch = events_batch([first, second._replace(payload=payload)])
    assert batch.column("data").to_pylist() == [first.payload.decode(), None]
    assert batch.schema.names == list(EVENT_NAMES)


@pytest.mark.parametrize("payload", NO_UTF8)
def test_bytes_that_are_no_text_are_as_good_as_gone_in_a_batch_and_outside(
    tmp_path: Path, payload: bytes
) -> None:
    first, second, *_ = (each for each in events(tmp_path) if each.kind == "element")
    given = [first, second._replace(payload=payload)]
    part = part_of(given, None)
    assert part == part_of(events_of(events_batch(given)), None)
    assert part.gone_upto == second.ts

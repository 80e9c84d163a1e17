"""The data source, without a Spark around it: what it is told, and what it reads."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.spark_archives import Bench

pytest.importorskip("pyspark", reason="the extra spark is not installed")

import itertools

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from walstore.errors import UsageError
from walstore.spark.schema import EVENT_NAMES
from walstore.spark.signer import Signer, SignerError
from walstore.spark.source import (
    RANGE_MIN,
    EventsReader,
    EventsStreamReader,
    NarrowingReader,
    Options,
    Range,
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    bench = Bench(tmp_path_factory.mktemp("source"))
    bench.write(random.Random(5), 60)
    return bench


def options_of(bench: Bench, **given: str) -> Options:
    return Options.read({"database": bench.settings.database or "", "prefix": "notes/", **given})


def read(reader: Any, ranges: Any) -> list[dict[str, Any]]:
    rows = [row for each in ranges for batch in reader.read(each) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: int(row["seq"]))


def every(bench: Bench) -> list[dict[str, Any]]:
    reader = EventsReader(options_of(bench))
    return read(reader, reader.partitions())


# ── options ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "one of database, relay, archive"),
        ({"database": "a", "relay": "b"}, "one of database, relay, archive"),
        ({"database": "a", "since": "-1"}, "since"),
        ({"database": "a", "until": "1.5"}, "until"),
        ({"database": "a", "partitions": "many"}, "partitions"),
        ({"database": "a", "maxRowsPerBatch": "²"}, "maxrowsperbatch"),
        ({"database": "a", "columns": "document,nothing"}, "nothing"),
    ],
)
def test_what_cannot_be_used_is_named(given: dict[str, str], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        Options.read(given)


def test_names_of_options_are_read_in_any_case(bench: Bench) -> None:
    found = options_of(bench, Since="3", MAXROWSPERBATCH="7", Columns=" seq , document ")
    assert (found.since, found.rows_max, found.columns) == (3, 7, ("seq", "document"))


def test_a_range_is_cut_where_that_is_worth_it() -> None:
    options = Options.read({"database": "a", "partitions": "4"})
    assert options.ranges(0, RANGE_MIN) == [Range(0, RANGE_MIN)]
    for until in (RANGE_MIN * 2, RANGE_MIN * 3 + 1, RANGE_MIN * 1000 + 7):
        ranges = options.ranges(5, until)
        assert 1 <= len(ranges) <= 4
        assert (ranges[0].since, ranges[-1].until) == (5, until)
        assert all(left.until == right.since for left, right in itertools.pairwise(ranges))
    # Spark reads something even where there is nothing.
    assert options.ranges(7, 7) == [Range(7, 7)]


# ── reading ────────────────────────────────────────────────────────────────────────────


def test_everything_is_read_once(bench: Bench) -> None:
    rows = every(bench)
    assert rows
    assert {row["document"].split("/")[0] for row in rows} == {"notes"}
    assert tuple(rows[0]) == EVENT_NAMES
    seqs = [row["seq"] for row in rows]
    assert len(set(seqs)) == len(seqs)


def test_columns_are_those_that_were_asked_for(bench: Bench) -> None:
    reader = EventsReader(options_of(bench, columns="seq,document"))
    assert {tuple(row) for row in read(reader, reader.partitions())} == {("seq", "document")}


@pytest.mark.parametrize(
    ("filters", "keeps"),
    [
        ([EqualTo(("seq",), 9)], lambda row: row["seq"] == 9),
        ([GreaterThan(("seq",), 9), LessThan(("seq",), 21)], lambda row: 9 < row["seq"] < 21),
        (
            [GreaterThanOrEqual(("seq",), 9), LessThanOrEqual(("seq",), 21)],
            lambda row: 9 <= row["seq"] <= 21,
        ),
        ([EqualTo(("document",), "notes/a")], lambda row: row["document"] == "notes/a"),
        (
            [In(("document",), ("notes/a", "notes/é")), EqualTo(("document",), "notes/é")],
            lambda row: row["document"] == "notes/é",
        ),
        (
            [StringStartsWith(("document",), "notes/b")],
            lambda row: row["document"].startswith("notes/b"),
        ),
        ([EqualTo(("seq",), 10**9)], lambda row: False),
        ([LessThan(("seq",), -5)], lambda row: False),
    ],
)
def test_filters_narrow_what_is_read(bench: Bench, filters: list[Any], keeps: Any) -> None:
    reader = NarrowingReader(options_of(bench))
    assert list(reader.pushFilters(filters)) == []
    assert read(reader, reader.partitions()) == [row for row in every(bench) if keeps(row)]


def test_filters_that_mean_nothing_here_are_left_to_spark(bench: Bench) -> None:
    reader = NarrowingReader(options_of(bench))
    left = [EqualTo(("kind",), "element"), IsNotNull(("seq",)), In(("document",), (None, "a"))]
    assert list(reader.pushFilters([*left, GreaterThan(("seq",), 3)])) == left


# ── streams ────────────────────────────────────────────────────────────────────────────


def test_a_stream_takes_everything_or_as_much_as_it_may(bench: Bench) -> None:
    head = options_of(bench).address.status()[2]
    plain = EventsStreamReader(options_of(bench))
    assert plain.initialOffset() == {"seq": 0}
    assert isinstance(plain.getDefaultReadLimit(), ReadAllAvailable)
    assert plain.latestOffset({"seq": 4}, ReadAllAvailable()) == {"seq": head}
    assert plain.reportLatestOffset() == {"seq": head}
    small = EventsStreamReader(options_of(bench, since="2", maxRowsPerBatch="9"))
    limit = small.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    offset, rows = small.initialOffset(), []
    while (end := small.latestOffset(offset, limit)) != offset:
        assert end["seq"] - offset["seq"] <= 9
        rows += read(small, small.partitions(offset, end))
        offset = end
    assert offset == {"seq": head}
    assert rows == [row for row in every(bench) if row["seq"] > 2]


def test_a_stream_reads_nothing_below_where_it_was_told_to_begin(bench: Bench) -> None:
    # An older checkpoint would have it read what is in the archive already, or gone.
    reader = EventsStreamReader(options_of(bench, since="30"))
    rows = read(reader, reader.partitions({"seq": 3}, {"seq": 40}))
    assert rows == [row for row in every(bench) if 30 < row["seq"] <= 40]
    assert read(reader, reader.partitions({"seq": 3}, {"seq": 12})) == []


def test_an_offset_never_goes_back(bench: Bench) -> None:
    reader = EventsStreamReader(options_of(bench, until="10"))
    assert reader.latestOffset({"seq": 50}, ReadAllAvailable()) == {"seq": 50}


# ── keys ───────────────────────────────────────────────────────────────────────────────


def test_a_key_is_read_where_it_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.rigged import ALICE

    ALICE.save(tmp_path / "key")
    assert Signer.at(str(tmp_path / "key")).load().public_key == ALICE.public_key
    monkeypatch.setenv("ROLE_KEY", (bytes([1]) * 32).hex())
    signer = Signer.at("env:ROLE_KEY")
    assert signer.load().public_key == ALICE.public_key
    assert "0101" not in repr(signer)


@pytest.mark.parametrize("text", [None, "", "01", "x" * 64])
def test_a_key_that_is_none_is_told_without_showing_it(
    text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is None:
        monkeypatch.delenv("ROLE_KEY", raising=False)
    else:
        monkeypatch.setenv("ROLE_KEY", text)
    with pytest.raises(SignerError) as caught:
        Signer(variable="ROLE_KEY").load()
    assert not text or text not in str(caught.value)
    with pytest.raises(UsageError):
        Signer()

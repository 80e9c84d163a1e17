"""For notebooks: tables that can be read, and a picture of who wrote what, and how it grew.

- Keys are long. `readable` shortens them, or says the names that it is given.
- Only what was added up is brought to the driver, and of many authors and documents the largest.
- A picture needs matplotlib, the extra `notebook`; see `picture`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from walstore.errors import UsageError
from walstore.spark.analytics import activity, growth
from walstore.spark.picture import FINER, OTHERS, UNITS, Bars, History, Line, check_drawing, draw

# What is drawn one by one; the rest of the authors is drawn together, of documents left out.
AUTHORS_MAX: Final = 6
DOCUMENTS_MAX: Final = 6

_KEYS: Final = ("author", "other_author")
_SHORT: Final = 8

# Above this many bars a longer unit reads better.
_BARS_MAX: Final = 130


def readable(frame: DataFrame, names: Mapping[str, str] | None = None) -> DataFrame:
    """The same rows, with the keys of authors shortened or replaced by names.

    Args:
        frame: Any of the DataFrames of this package.
        names: By key, who it is.
    """
    known = dict(names or {})
    for column in _KEYS:
        if column in frame.columns:
            short = sql.concat(sql.substring(column, 1, _SHORT), sql.lit("…"))
            for key, name in known.items():
                short = sql.when(sql.col(column) == key, sql.lit(name)).otherwise(short)
            frame = frame.withColumn(column, short)
    return frame


def plot_history(
    ops: DataFrame,
    path: str | Path | None = None,
    *,
    names: Mapping[str, str] | None = None,
    unit: str | None = None,
    title: str = "Who wrote, and how documents grew",
) -> Any:
    """Draw who wrote how much, and how large documents became.

    Args:
        ops: What `explode_ops` gives.
        path: The file to draw to, `.png`, `.svg` or `.pdf`; none if left out.
        names: By key, who it is.
        unit: "minute", "hour", "day" or "week"; the shortest that can be read if left out.
        title: What stands above.

    Returns:
        The figure of matplotlib, which a notebook shows.

    Raises:
        UsageError: There is no such unit.
        ExtraMissingError: matplotlib is not installed.
    """
    if unit is not None and unit not in UNITS:
        raise UsageError(f"there is no unit {unit!r}; there are {', '.join(UNITS)}")
    check_drawing()
    is_cached = ops.is_cached
    held = ops if is_cached else ops.cache()
    try:
        unit = unit or _fitting_unit(held)
        finer = FINER[unit]
        history = History(_written(held, unit, dict(names or {})), unit, _sizes(held, finer), finer)
    finally:
        if not is_cached:
            held.unpersist()
    figure = draw(history, title)
    if path is not None:
        figure.savefig(path)
    return figure


# ── what is drawn ──────────────────────────────────────────────────────────────────────


def _fitting_unit(ops: DataFrame) -> str:
    first, last = ops.agg(sql.min("accepted_ms"), sql.max("accepted_ms")).collect()[0]
    span = timedelta(milliseconds=0 if first is None else last - first)
    fitting = (unit for unit, length in UNITS.items() if span / length <= _BARS_MAX)
    return next(fitting, "week")


def _written(ops: DataFrame, unit: str, names: Mapping[str, str]) -> dict[str, Bars]:
    """By author, the largest first, how much was inserted when."""
    inserted = ops.where("kind = 'insert'").groupBy("author").agg(sql.sum("size").alias("most"))
    largest = _most(inserted, "author", AUTHORS_MAX)
    author = sql.when(sql.col("author").isin(largest), sql.col("author")).otherwise(OTHERS)
    drawn = ops.where("author is not null").withColumn("author", author)
    written: dict[str, Bars] = {each: {} for each in [*largest, OTHERS]}
    for row in activity(drawn, unit=unit).where("inserted > 0").collect():
        written[row["author"]][_utc(row["time"])] = row["inserted"]
    named: dict[str, Counter[datetime]] = {}
    for key, bars in written.items():
        # Somebody with two devices has two keys, and one name.
        named.setdefault(_name(key, names), Counter()).update(bars)
    return {name: dict(bars) for name, bars in named.items() if bars}


def _sizes(ops: DataFrame, unit: str) -> dict[str, Line]:
    """By document, those that were written most first, how large it was when."""
    most = ops.groupBy("document").agg(sql.sum("size").alias("most"))
    chosen = _most(most, "document", DOCUMENTS_MAX)
    rows = growth(ops.where(sql.col("document").isin(chosen)), unit=unit)
    lines: dict[str, Line] = {document: [] for document in chosen}
    for row in rows.orderBy("time").collect():
        lines[row["document"]].append((_utc(row["time"]), row["size"]))
    return lines


def _most(sums: DataFrame, column: str, count: int) -> list[str]:
    rows = sums.orderBy(sql.desc("most"), column).limit(count).collect()
    return [str(row[column]) for row in rows]


def _name(author: str, names: Mapping[str, str]) -> str:
    return OTHERS if author == OTHERS else names.get(author, f"{author[:_SHORT]}…")


def _utc(time: datetime) -> datetime:
    """A time of Spark, which comes without a zone, in the session's: UTC."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)

"""A small table that changes at random, and the archives that are written of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from walstore.archive.collapse import change_of, collapsed
from walstore.archive.destination import Destination
from walstore.archive.jsonl import JsonlFormat
from walstore.archive.policy import Policy
from walstore.archive.reader import Archive
from walstore.archive.rows import Action, Column, Row, RowChange, Window, key_of
from walstore.archive.writer import Table, Writer

PREFIX = "people/"
FIELDS = ("team", "id")
COLUMNS = (Column("team", "text"), Column("id", "integer"), Column("value", "json"))
TRUNCATE = RowChange(Action.TRUNCATE, ())


def table(parts: int = 1) -> Table:
    return Table("people", PREFIX, FIELDS, COLUMNS, parts=parts)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class Source:
    """Everything that ever happened to the table; its position is the number of events."""

    events: list[RowChange] = field(default_factory=list)

    def happen(self, random: Random, count: int = 1) -> None:
        for _ in range(count):
            self.events.append(self._event(random))

    def _event(self, random: Random) -> RowChange:
        rows = self.rows()
        if random.random() < 0.02:
            return TRUNCATE
        if rows and random.random() < 0.3:
            old = random.choice(rows)
            return RowChange(Action.DELETE, key_of(old, FIELDS), old)
        new: Row = {
            "team": random.choice(["red", "green", "blue", "é"]),
            "id": random.randrange(20),
            "value": [random.randrange(1000), {"nested": random.choice(["a", None, True])}],
        }
        old_rows = {key_of(each, FIELDS): each for each in rows}
        return change_of(key_of(new, FIELDS), old_rows.get(key_of(new, FIELDS)), new)

    def put(self, team: str, id: int, value: int = 0) -> None:
        """Insert a row that is not there yet."""
        new: Row = {"team": team, "id": id, "value": value}
        self.events.append(RowChange(Action.INSERT, key_of(new, FIELDS), None, new))

    def window(self, since: int, to: int | None = None) -> Window:
        reached = len(self.events) if to is None else to
        happened = self.events[since:reached]
        return Window(since, reached, collapsed(happened, FIELDS), len(happened))

    def rows(self, at: int | None = None) -> list[Row]:
        """The rows after the first events, the plain way."""
        rows: dict[tuple[object, ...], Row] = {}
        for event in self.events[: len(self.events) if at is None else at]:
            if event.action is Action.TRUNCATE:
                rows.clear()
            elif event.new is None:
                rows.pop(event.key, None)
            else:
                rows[event.key] = event.new
        return sorted(rows.values(), key=_order)


def _order(row: Row) -> str:
    return repr(sorted(row.items(), key=lambda item: item[0]))


def writer(
    destinations: Sequence[Destination],
    *,
    policy: Policy | None = None,
    clock: Clock | None = None,
    parts: int = 1,
    keep_epochs: int = 0,
) -> Writer:
    return Writer(
        table(parts),
        destinations,
        base_formats=[JsonlFormat()],
        diff_formats=[JsonlFormat()],
        policy=Policy() if policy is None else policy,
        now_ms=Clock() if clock is None else clock,
        keep_epochs=keep_epochs,
    )


async def rows_of(destination: Destination, at: int | None = None) -> list[Row]:
    """The rows of an archive, in the order of `Source.rows`."""
    archive = Archive(destination, PREFIX)
    return sorted([row async for row in archive.rows(at=at)], key=_order)


async def keys_of(destination: Destination) -> list[str]:
    return [each.key async for each in destination.list("")]

"""What waits behind an element that the log refuses, made anew as if that had never been edited.

    read ─► refused ─► waiting          read ─► made anew
            (session a)                         (session b)

- What waits may be anchored on what was refused, and would be shown to nobody. So it is not sent
  as it is: what it comes to without the refused edit is edited once more, by another session.
- What the refused edit removed is there again, and is the same as before; what it wrote is not,
  unless what waits has written it again.
- Elements of lists are told apart by their ids, so what others wrote is not touched.
- A message ends a commit, and so it stays with what it was said of.
- Nothing here changes what it is given, but for the fold that is edited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from walstore.canon import canonical_text
from walstore.crdt import Run, WalCrdt, Writer
from walstore.crdt.elements import Ids, ids_of
from walstore.crdt.runs import Insert, Verbatim
from walstore.document.realignment import edits_between, keys_of
from walstore.document.undoing import Stamp, add_ids

# A list, a register or a map; elements or a write of it; the clock of what stands for them now.
Alias: TypeAlias = tuple[str, Ids, Stamp]


class Commit(NamedTuple):
    """Edits that are sealed together, and what is said of them."""

    runs: list[Run]
    message: str | None = None


class Remade(NamedTuple):
    """What has become of what waited.

    Attributes:
        commits: The same edits, less the refused one.
        aliases: Which elements and writes they have taken the place of.
    """

    commits: list[Commit]
    aliases: list[Alias]


def remake(
    fold: WalCrdt, *, refused: Sequence[Run], waiting: Sequence[Commit], replica: str
) -> Remade:
    """Edit a fold so that it reads as it would had something not been edited.

    Args:
        fold: What was read of the log; it is edited.
        refused: The edit that is left out.
        waiting: What was edited after it.
        replica: Who edits now; it has written nothing yet.
    """
    wanted, writer = fold.clone(), Writer(fold, replica)
    _fold_traces(wanted, refused)
    remade = Remade([], [])
    for runs, message in _by_message(waiting):
        wanted.fold_runs(runs)
        remade.aliases.extend(_lead(fold, wanted, writer))
        commit = Commit(writer.take(), message)
        if commit.runs or message is not None:
            remade.commits.append(commit)
    return remade


def _by_message(waiting: Sequence[Commit]) -> Iterator[Commit]:
    """The commits, with those that have no message joined to the next one."""
    runs: list[Run] = []
    for commit in waiting:
        runs += commit.runs
        if commit.message is not None:
            yield Commit(runs, commit.message)
            runs = []
    if runs:
        yield Commit(runs)


def _fold_traces(crdt: WalCrdt, runs: Sequence[Run]) -> None:
    """Fold of edits only what others may be anchored on: what they inserted, removed at once."""
    inserts = [run for run in runs if isinstance(run, Insert) or _is_insert(run)]
    crdt.fold_runs(inserts)
    writer = Writer(crdt, "")
    for name, ids in map(_inserted, inserts):
        writer.remove_ids(name, ids)


def _is_insert(run: Run) -> bool:
    return isinstance(run, Verbatim) and run.op.get("t") == "ins"


def _inserted(run: Run) -> tuple[str, Ids]:
    if isinstance(run, Insert):
        return run.list, (run.replica, run.counter, len(run.values))
    assert isinstance(run, Verbatim)
    return run.op["list"], ids_of(run.op["id"])


def _lead(fold: WalCrdt, wanted: WalCrdt, writer: Writer) -> Iterator[Alias]:
    """Edit a fold until it reads as another one."""
    for name in fold.names():
        if fold.has_register(name) and not wanted.has_register(name):
            writer.delete(name)
    for name in sorted({*fold.list_names(), *wanted.list_names()}):
        yield from _lead_list(fold, wanted, writer, name)
    for name in wanted.names():
        if wanted.has_register(name) and not _is_same_register(fold, wanted, name):
            writer.set(name, wanted.get_register(name))
            yield from _write_alias(name, wanted.register_clock(name), fold.register_clock(name))
    for name in sorted({*fold.map_names(), *wanted.map_names()}):
        yield from _lead_map(fold, wanted, writer, name)


def _lead_list(fold: WalCrdt, wanted: WalCrdt, writer: Writer, name: str) -> Iterator[Alias]:
    edits = edits_between(keys_of(fold, name), keys_of(wanted, name))
    if not edits:
        return
    ids, values, shift = wanted.list_ids(name), wanted.list_values(name), 0
    for at, removed, inserted in edits:
        start = at + shift
        shift += inserted - removed
        writer.remove(name, start, removed)
        counter = fold.counter + 1
        writer.insert(name, start, values[start : start + inserted])
        for old in _ranges(ids[start : start + inserted]):
            yield name, old, (counter, writer.replica)
            counter += old[2]


def _lead_map(fold: WalCrdt, wanted: WalCrdt, writer: Writer, name: str) -> Iterator[Alias]:
    here, there = fold.map_items(name), wanted.map_items(name)
    for key in sorted(here.keys() - there.keys()):
        writer.drop(name, key)
    for key, value in sorted(there.items()):
        if key not in here or canonical_text(here[key]) != canonical_text(value):
            writer.put(name, key, value)
            yield from _write_alias(name, wanted.map_clock(name, key), fold.map_clock(name, key))


def _is_same_register(left: WalCrdt, right: WalCrdt, name: str) -> bool:
    if not left.has_register(name):
        return False
    return canonical_text(left.get_register(name)) == canonical_text(right.get_register(name))


def _write_alias(name: str, old: Stamp | None, new: Stamp | None) -> Iterator[Alias]:
    if old is not None and new is not None:
        yield name, (old[1], old[0], 1), new


def _ranges(ids: Sequence[str]) -> list[Ids]:
    ranges: list[Ids] = []
    for id in ids:
        counted = ids_of(id)
        if ranges and ranges[-1][1] and counted[1] == sum(ranges[-1][1:]):
            add_ids(ranges, counted)
        else:
            ranges.append(counted)
    return ranges

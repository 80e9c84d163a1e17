"""A batch of runs as JSON arrays: small on the wire, quick to write and to read.

- `[replicas, row, row, ...]`: replica ids stand once, in the table; rows name them by index.
- A row is one run, told apart by its first entry, or a whole stretch of typing and deleting:
  runs of one list and one replica whose counters follow each other.
- A stretch keeps all its text in one string and two columns of small numbers: the size of
  each run, and how far its anchor or target lies from the element touched just before.
- Reading trusts nothing: what `unpack_ops` returns is complete, in range and of bounded size.

The format is specified in docs/wire.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from walstore.crdt.clock import COUNTER_MAX, REPLICA_SIZE_MAX
from walstore.crdt.convert import to_run
from walstore.crdt.runs import Delete, Drop, Insert, Put, Remove, Run, Set, Verbatim, as_values
from walstore.errors import MalformedError, UsageError

# How many elements one batch may remove. An insert is as long as its values, but a remove of
# 10^15 elements takes no more bytes than a remove of one.
BATCH_REMOVES_MAX: Final = 2**24

_COUNTER_END: Final = COUNTER_MAX + 1

# The first entry of a row.
_INSERT: Final = 0
_REMOVE: Final = 1
_SET: Final = 2
_DELETE: Final = 3
_PUT: Final = 4
_DROP: Final = 5
_VERBATIM: Final = 6
_STRETCH: Final = 7


class BatchTooLargeError(UsageError):
    """More removes than one batch may hold: no peer would read it; pack several batches.

    Attributes:
        removes: How many elements the batch would remove.
    """

    def __init__(self, removes: int) -> None:
        super().__init__(f"{removes} removes exceed the {BATCH_REMOVES_MAX} of one batch")
        self.removes = removes


def is_scalar_text(text: str) -> bool:
    """Whether `text` has no surrogates, so that JSON keeps its code points apart as they are."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def pack_ops(runs: Sequence[Run]) -> list[Any]:
    """Write runs as JSON arrays.

    `unpack_ops` gives back equal runs, with exceptions that mean the same: an anchor at the head
    has the replica `""`, and characters are apart from other values and from surrogates.

    Raises:
        BatchTooLargeError: The runs remove more than `BATCH_REMOVES_MAX` elements.
    """
    if len(runs) == 1:
        keystroke = _keystroke(runs[0])
        if keystroke is not None:
            return keystroke
    removes = sum([run.size for run in runs if type(run) is Remove])
    if removes > BATCH_REMOVES_MAX:
        raise BatchTooLargeError(removes)
    table = _table(runs)
    packed: list[Any] = [list(table)]
    start = 0
    while start < len(runs):
        end = _stretch_end(runs, start)
        stretch = _stretch_row(runs[start:end], table) if end - start > 1 else None
        if stretch is None:
            packed += [_row(run, table) for run in runs[start:end]]
        else:
            packed.append(stretch)
        start = end
    return packed


def _keystroke(run: Run) -> list[Any] | None:
    """The batch of one typed or deleted character next to the writer's own text.

    This is what a live connection carries, so it gets a short path to the same arrays.
    """
    if type(run) is Insert:
        replica, values = run.replica, run.values
        if run.after_replica == replica and run.after_counter and len(values) == 1:
            if type(values) is str and not is_scalar_text(values):
                return None
            return [
                [replica],
                [_INSERT, run.list, 0, run.counter, 0, run.after_counter, values],
            ]
    elif type(run) is Remove:
        replica = run.replica
        if run.target_replica == replica and run.size == 1 and run.step == 1:
            return [[replica], [_REMOVE, run.list, 0, run.counter, 0, run.target_counter]]
    return None


def _table(runs: Sequence[Run]) -> dict[str, int]:
    """The index of each replica: the order in which the runs first name them."""
    table: dict[str, int] = {}
    for run in runs:
        if isinstance(run, Verbatim):
            continue
        table.setdefault(run.replica, len(table))
        if type(run) is Insert:
            if run.after_counter:
                table.setdefault(run.after_replica, len(table))
        elif type(run) is Remove:
            table.setdefault(run.target_replica, len(table))
        elif type(run) is Drop:
            for replica in sorted(run.seen):
                table.setdefault(replica, len(table))
    return table


def _row(run: Run, table: dict[str, int]) -> list[Any]:
    if isinstance(run, Insert):
        return _insert_row(run, table)
    if isinstance(run, Remove):
        return _remove_row(run, table)
    if isinstance(run, Set):
        return [_SET, run.register, table[run.replica], run.counter, run.value]
    if isinstance(run, Delete):
        return [_DELETE, run.register, table[run.replica], run.counter]
    if isinstance(run, Put):
        return [_PUT, run.map, run.key, table[run.replica], run.counter, run.value]
    if isinstance(run, Drop):
        seen = [entry for r in sorted(run.seen) for entry in (table[r], run.seen[r])]
        return [_DROP, run.map, run.key, table[run.replica], run.counter, seen]
    return [_VERBATIM, run.op]


def _insert_row(run: Insert, table: dict[str, int]) -> list[Any]:
    values = run.values
    if type(values) is str and not is_scalar_text(values):
        values = list(values)
    after = table[run.after_replica] if run.after_counter else 0
    author = table[run.replica]
    return [_INSERT, run.list, author, run.counter, after, run.after_counter, values]


def _remove_row(run: Remove, table: dict[str, int]) -> list[Any]:
    target = table[run.target_replica]
    row = [_REMOVE, run.list, table[run.replica], run.counter, target, run.target_counter]
    if run.size != 1 or run.step != 1:
        row += [run.size, run.step]
    return row


def _stretch_end(runs: Sequence[Run], start: int) -> int:
    """Where the longest stretch that begins at `start` ends; at least one run further on."""
    first = runs[start]
    if type(first) is not Insert and type(first) is not Remove:
        return start + 1
    name, replica, counter = first.list, first.replica, first.counter
    for index in range(start, len(runs)):
        run = runs[index]
        if type(run) is Insert:
            values = run.values
            size = len(values)
            if type(values) is not str or not is_scalar_text(values):
                return max(index, start + 1)
        elif type(run) is Remove:
            size = run.size
        else:
            return index
        if run.counter != counter or run.replica != replica or run.list != name:
            return index
        counter += size
    return len(runs)


def _stretch_row(runs: Sequence[Run], table: dict[str, int]) -> list[Any] | None:
    """A stretch as one row, or None if a step is beyond what every peer reads exactly."""
    count = len(table)
    first = runs[0]
    assert isinstance(first, Insert | Remove)
    author = table[first.replica]
    cursor = (first.counter - 1) * count + author
    text: list[str] = []
    sizes: list[int] = []
    steps: list[int] = []
    for run in runs:
        if type(run) is Insert:
            size = len(run.values)
            after = run.after_counter
            stamp = after * count + table[run.after_replica] if after else 0
            text.append(run.values)  # type: ignore[arg-type]
            sizes.append(size)
            steps.append(stamp - cursor)
            cursor = (run.counter + size - 1) * count + author
        elif type(run) is Remove:
            stamp = run.target_counter * count + table[run.target_replica]
            # Even for a step down, odd for a step up.
            sizes.append(-2 * run.size + (run.step == 1))
            steps.append(stamp - cursor)
            cursor = stamp + (run.size - 1) * run.step * count
    if max(steps) > COUNTER_MAX or min(steps) < -COUNTER_MAX:
        return None
    return [_STRETCH, first.list, author, first.counter, "".join(text), sizes, steps]


def unpack_ops(packed: object) -> list[Run]:
    """Read what `pack_ops` wrote.

    Args:
        packed: Any parsed JSON value.

    Raises:
        MalformedError: It is not a packed batch, or removes more than `BATCH_REMOVES_MAX`.
    """
    if type(packed) is not list or not packed:
        raise _malformed("not an array that begins with a table of replicas")
    if len(packed) == 2:
        keystroke = _read_keystroke(packed[0], packed[1])
        if keystroke is not None:
            return [keystroke]
    return _unpack(packed)


def _read_keystroke(replicas: object, row: object) -> Run | None:
    """What `_keystroke` wrote of ASCII; None for anything else, be it well-formed or not."""
    if type(replicas) is not list or type(row) is not list or len(replicas) != 1:
        return None
    replica = replicas[0]
    if type(replica) is not str or len(replica) > REPLICA_SIZE_MAX:
        return None
    if len(row) == 7:
        kind, name, author, counter, after, after_counter, values = row
        if (
            int is type(kind) is type(author) is type(counter) is type(after) is type(after_counter)
            and kind == author == after == 0
            and 0 < counter < _COUNTER_END
            and 0 < after_counter < _COUNTER_END
            and type(name) is str
            and type(values) is str
            and len(values) == 1
            and values.isascii()
        ):
            return Insert(name, replica, counter, replica, after_counter, values)
    elif len(row) == 6:
        kind, name, author, counter, target, target_counter = row
        if (
            int
            is type(kind)
            is type(author)
            is type(counter)
            is type(target)
            is type(target_counter)
            and kind == _REMOVE
            and author == target == 0
            and 0 < counter < _COUNTER_END
            and 0 < target_counter < _COUNTER_END
            and type(name) is str
        ):
            return Remove(name, replica, counter, replica, target_counter)
    return None


def _unpack(packed: list[Any]) -> list[Run]:
    replicas = packed[0]
    if type(replicas) is not list:
        raise _malformed("the table of replicas is not an array")
    for replica in replicas:
        if type(replica) is not str:
            raise _malformed("a replica is not text")
        if len(replica) > REPLICA_SIZE_MAX:
            raise _malformed("a replica is too long a text")
    if len(replicas) > 1 and len(set(replicas)) != len(replicas):
        raise _malformed("a replica stands twice in the table")
    runs: list[Run] = []
    removes = 0
    for row in packed[1:]:
        if type(row) is not list or not row:
            raise _malformed("a row is not an array, or empty")
        kind = row[0]
        if type(kind) is not int:
            raise _malformed("the kind of a row is not an integer")
        if kind == _INSERT:
            insert = _insert(row, replicas)
            if type(insert.values) is str:
                runs.append(insert)
            else:
                runs += _split(insert)
        elif kind == _REMOVE:
            remove = _remove(row, replicas)
            removes += remove.size
            runs.append(remove)
        elif kind == _STRETCH:
            removes += _stretch(row, replicas, runs)
        else:
            runs.append(_other(kind, row, replicas))
    if removes > BATCH_REMOVES_MAX:
        raise _malformed("it removes more elements than one batch may")
    return runs


def _insert(row: list[Any], replicas: list[str]) -> Insert:
    if len(row) != 7:
        raise _malformed("an insert has not seven entries")
    _, name, author, counter, after, after_counter, values = row
    if not (
        int is type(author) is type(counter) is type(after) is type(after_counter)
        and type(name) is str
    ):
        raise _malformed("an entry of an insert has the wrong type")
    count = len(replicas)
    if not (0 <= author < count and 0 <= after < count):
        raise _malformed("an insert names a replica that is not in the table")
    if type(values) is str:
        if not (values.isascii() or is_scalar_text(values)):
            raise _malformed("the text of an insert holds a surrogate")
    elif type(values) is not list:
        raise _malformed("the values of an insert are neither text nor an array")
    size = len(values)
    if not size:
        raise _malformed("an insert has no values")
    if not (0 < counter <= _COUNTER_END - size and 0 <= after_counter < _COUNTER_END):
        raise _malformed("a counter of an insert is out of range")
    anchor = replicas[after] if after_counter else ""
    return Insert(name, replicas[author], counter, anchor, after_counter, values)


def _split(insert: Insert) -> list[Insert]:
    """An insert of an array as those of its characters and of its other values: text is text,
    whatever stands beside it and however it was written.
    """
    inserts: list[Insert] = []
    counter = insert.counter
    after_replica, after_counter = insert.after_replica, insert.after_counter
    for values in as_values(insert.values):  # type: ignore[arg-type]
        inserts.append(
            Insert(insert.list, insert.replica, counter, after_replica, after_counter, values)
        )
        counter += len(values)
        after_replica, after_counter = insert.replica, counter - 1
    return inserts


def _remove(row: list[Any], replicas: list[str]) -> Remove:
    # Nothing is known yet of what a row holds.
    size: Any = 1
    step: Any = 1
    if len(row) == 6:
        _, name, author, counter, target, target_counter = row
    elif len(row) == 8:
        _, name, author, counter, target, target_counter, size, step = row
    else:
        raise _malformed("a remove has neither six nor eight entries")
    if not (
        int is type(author) is type(counter) is type(target) is type(target_counter)
        and int is type(size) is type(step)
        and type(name) is str
    ):
        raise _malformed("an entry of a remove has the wrong type")
    count = len(replicas)
    if not (0 <= author < count and 0 <= target < count):
        raise _malformed("a remove names a replica that is not in the table")
    if size < 1 or (step != 1 and step != -1):
        raise _malformed("a remove has an impossible size or step")
    end = target_counter + (size - 1) * step
    if not (
        0 < counter <= _COUNTER_END - size
        and 0 < target_counter < _COUNTER_END
        and 0 < end < _COUNTER_END
    ):
        raise _malformed("a counter of a remove is out of range")
    return Remove(name, replicas[author], counter, replicas[target], target_counter, size, step)


def _stretch(row: list[Any], replicas: list[str], runs: list[Run]) -> int:
    """Append the runs of a stretch to `runs`; how many elements they remove."""
    if len(row) != 7:
        raise _malformed("a stretch has not seven entries")
    _, name, author, counter, text, sizes, steps = row
    replica, first = _check_clock(author, counter, replicas)
    if type(name) is not str or type(text) is not str:
        raise _malformed("the list or the text of a stretch is not text")
    if not is_scalar_text(text):
        raise _malformed("the text of a stretch holds a surrogate")
    _check_columns(sizes, steps)
    count = len(replicas)
    cursor = (counter - 1) * count + author
    taken = 0
    for size, step in zip(sizes, steps, strict=True):
        stamp = cursor + step
        if count == 1:
            other, other_counter = replica, stamp
        else:
            other_counter, index = divmod(stamp, count)
            other = replicas[index]
        if size > 0:
            if not 0 <= other_counter < _COUNTER_END:
                raise _malformed("an anchor in a stretch is out of range")
            values = text[taken : taken + size]
            taken += size
            anchor = other if other_counter else ""
            runs.append(Insert(name, replica, counter, anchor, other_counter, values))
            counter += size
            cursor = (counter - 1) * count + author
        else:
            direction = 1 if size & 1 else -1
            size = (1 - size) >> 1
            end = other_counter + (size - 1) * direction
            if not (0 < other_counter < _COUNTER_END and 0 < end < _COUNTER_END):
                raise _malformed("a target in a stretch is out of range")
            runs.append(Remove(name, replica, counter, other, other_counter, size, direction))
            counter += size
            cursor = stamp + (size - 1) * direction * count
    if taken != len(text):
        raise _malformed("the text of a stretch is not as long as its inserts")
    if counter > _COUNTER_END:
        raise _malformed("a stretch runs out of counters")
    return int(counter - first - taken)


def _check_columns(sizes: object, steps: object) -> None:
    if type(sizes) is not list or type(steps) is not list or len(sizes) != len(steps):
        raise _malformed("the columns of a stretch are not two arrays of one length")
    if not set(map(type, sizes)) | set(map(type, steps)) <= {int}:
        raise _malformed("a number in a stretch is not an integer")
    if 0 in sizes:
        raise _malformed("a run in a stretch has no size")


def _other(kind: int, row: list[Any], replicas: list[str]) -> Run:
    """A run that touches no list element."""
    if kind == _SET:
        _, register, author, counter, value = _entries(row, 5)
        return Set(_text(register), *_check_clock(author, counter, replicas), value)
    if kind == _DELETE:
        _, register, author, counter = _entries(row, 4)
        return Delete(_text(register), *_check_clock(author, counter, replicas))
    if kind == _PUT:
        _, name, key, author, counter, value = _entries(row, 6)
        return Put(_text(name), _text(key), *_check_clock(author, counter, replicas), value)
    if kind == _DROP:
        _, name, key, author, counter, seen = _entries(row, 6)
        clock = _check_clock(author, counter, replicas)
        return Drop(_text(name), _text(key), *clock, _seen(seen, replicas))
    if kind == _VERBATIM:
        _, op = _entries(row, 2)
        # What a run can say stands in a row of its own, so that a batch has one form only.
        try:
            run = to_run(op)
        except MalformedError as error:
            raise _malformed(error.reason) from error
        if type(run) is not Verbatim:
            raise _malformed("a verbatim op that is a run")
        return run
    raise _malformed("a row of an unknown kind")


def _seen(entries: object, replicas: list[str]) -> dict[str, int]:
    if type(entries) is not list or len(entries) % 2:
        raise _malformed("what a drop has seen is not an array of pairs")
    pairs = zip(entries[::2], entries[1::2], strict=True)
    seen = dict(_check_clock(index, counter, replicas) for index, counter in pairs)
    if 2 * len(seen) != len(entries):
        raise _malformed("a drop has seen one replica twice")
    return seen


def _entries(row: list[Any], length: int) -> list[Any]:
    if len(row) != length:
        raise _malformed("a row has the wrong number of entries")
    return row


def _text(value: object) -> str:
    if type(value) is not str:
        raise _malformed("a name or key is not text")
    return value


def _check_clock(index: object, counter: object, replicas: list[str]) -> tuple[str, int]:
    if type(index) is not int or not 0 <= index < len(replicas):
        raise _malformed("a replica is not an index of the table")
    if type(counter) is not int or not 1 <= counter <= COUNTER_MAX:
        raise _malformed("a counter is not an integer from 1 to 2^53 - 1")
    return replicas[index], counter


def _malformed(reason: str) -> MalformedError:
    return MalformedError("packed ops", reason)

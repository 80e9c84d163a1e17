"""Version-1 ops in, runs out, and back: the edge where dictionaries are checked.

- Every op is checked before any of them is folded; what the format does not allow raises
  `MalformedError`. Numbers are the format's doubles: `3.0` is the counter 3.
- Ops that follow on from one another become one run; `to_ops(to_runs(ops)) == ops`.
- Kinds that nobody knows yet, and ids that are no clock's, are kept as `Verbatim`.
- Values are copied, so that nobody's later edit of a dictionary reaches into a document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, assert_never, cast

from walstore.canon import find_flaw
from walstore.crdt.clock import COUNTER_MAX, Clock
from walstore.crdt.ids import element_id, parse_element_id
from walstore.crdt.ops import Json, Op, fresh
from walstore.crdt.runs import (
    Delete,
    Drop,
    Insert,
    InsertColumns,
    Put,
    Remove,
    Run,
    Set,
    Values,
    Verbatim,
    is_character,
)
from walstore.errors import MalformedError

# Follows the last op.
_END: Final = object()

# Lengthening a run copies it; past this length a new run, chained to it, is cheaper.
RUN_SIZE_MAX: Final = 4096


def to_runs(ops: Iterable[object]) -> list[Run]:
    """Check version-1 ops and join them into runs.

    Raises:
        MalformedError: One of them is not an op of the format.
    """
    runs: list[Run] = []
    last: Run | None = None
    rest = iter(ops)
    op: Any = next(rest, _END)
    while op is not _END:
        run = to_run(op)
        if last is None or not joined(last, run):
            runs.append(run)
            last = run
        before, op = op, next(rest, _END)
        if (
            isinstance(last, Insert)
            and isinstance(op, dict)
            and op.get("after") == before["id"]
            and isinstance(last.values, str)
        ):
            op = _type_on(last, op, rest)
    return runs


def _type_on(insert: Insert, op: Any, rest: Iterator[object]) -> object:
    """Give an insert the characters that follow on; the first op that is none of them."""
    name, replica = insert.list, insert.replica
    counter = insert.counter + len(insert.values)
    characters = [cast("str", insert.values)]
    id = f"{counter - 1}@{replica}"
    try:
        while isinstance(op, dict):
            clock, after, value = op["clock"], id, op["value"]
            id = f"{counter}@{replica}"
            if not (
                op["after"] == after
                and counter <= COUNTER_MAX
                and op["id"] == id
                and isinstance(clock, dict)
                and clock["c"] == counter
                and clock["r"] == replica
                and len(clock) == 2
                and op["t"] == "ins"
                and op["list"] == name
                and isinstance(value, str)
                and len(value) == 1
                and not "\ud800" <= value <= "\udfff"
            ):
                break
            characters.append(value)
            counter += 1
            op = next(rest, _END)
    except KeyError:
        pass  # It is no such op, and is looked at as what it is.
    insert.values = "".join(characters)
    return op


def plain_inserts(name: str, ops: list[Any]) -> InsertColumns | None:
    """Ops that each insert one character into one list, at its head or after one another.

    Returns:
        The inserts; None if there is anything else among the ops, or if most of them
        seem to follow on from one another, which is better said by runs.
    """
    replicas: list[str] = []
    counters: list[int] = []
    ids: list[str] = []
    afters: list[str] = []
    values: list[Values] = []
    table: dict[str, str] = {}
    try:
        if ops[1]["after"] == ops[0]["id"]:
            return None
        for op in ops:
            clock, id, after, value = op["clock"], op["id"], op["after"], op["value"]
            counter, replica = clock["c"], clock["r"]
            if not (
                isinstance(op, dict)
                and op["t"] == "ins"
                and op["list"] == name
                and isinstance(clock, dict)
                and len(clock) == 2
                and type(counter) is int
                and 1 <= counter <= COUNTER_MAX
                and isinstance(replica, str)
                and id == f"{counter}@{replica}"
                and isinstance(after, str)
                and isinstance(value, str)
                and len(value) == 1
                and not "\ud800" <= value <= "\udfff"
            ):
                return None
            # One text for one replica, however often it was parsed.
            replicas.append(table.setdefault(replica, replica))
            counters.append(counter)
            ids.append(id)
            afters.append(after)
            values.append(value)
        if not any(afters):
            return InsertColumns(replicas, counters, afters, [0] * len(afters), values)
        places = dict(zip(ids, range(len(ids)), strict=True))
        hung = [places[after] if after else -1 for after in afters]
    except (KeyError, TypeError, IndexError):
        return None
    return InsertColumns(
        replicas,
        counters,
        [replicas[place] if place >= 0 else "" for place in hung],
        [counters[place] if place >= 0 else 0 for place in hung],
        values,
    )


def to_run(op: object) -> Run:
    """Check one version-1 op.

    Raises:
        MalformedError: It is not an op of the format.
    """
    if not isinstance(op, dict):
        raise MalformedError("op", "not an object")
    fields: dict[str, Any] = op
    insert = _plain_insert(fields)
    if insert is not None:
        return insert
    counter, replica = read_clock(fields.get("clock"), "op")
    match fields.get("t"):
        case "ins":
            return _insert(fields, counter, replica)
        case "rmv":
            return _remove(fields, counter, replica)
        case "set":
            return Set(_text(fields, "reg"), replica, counter, _value(fields))
        case "del":
            return Delete(_text(fields, "reg"), replica, counter)
        case "put":
            return Put(_text(fields, "map"), _text(fields, "key"), replica, counter, _value(fields))
        case "drop":
            seen = read_counters(fields.get("seen"), "op")
            return Drop(_text(fields, "map"), _text(fields, "key"), replica, counter, seen)
        case str():
            return _verbatim(fields, counter, replica)
        case _:
            raise MalformedError("op", "`t` is not text")


def _plain_insert(op: dict[str, Any]) -> Insert | None:
    """Most ops there are, read without a detour: the insert of a character; else None."""
    try:
        if op["t"] != "ins":
            return None
        clock, name, after, value = op["clock"], op["list"], op["after"], op["value"]
        if not isinstance(clock, dict) or len(clock) != 2:
            return None
        counter, replica = clock["c"], clock["r"]
        if not (
            type(counter) is int
            and 1 <= counter <= COUNTER_MAX
            and isinstance(replica, str)
            and op["id"] == f"{counter}@{replica}"
            and isinstance(name, str)
            and isinstance(after, str)
            and isinstance(value, str)
            and len(value) == 1
            and not 0xD800 <= ord(value) <= 0xDFFF
        ):
            return None
    except (KeyError, TypeError):
        return None
    if not after:
        return Insert(name, replica, counter, "", 0, value)
    anchor = parse_element_id(after)
    return None if anchor is None else Insert(name, replica, counter, anchor[1], anchor[0], value)


def joined(last: Run, run: Run) -> bool:
    """Lengthen `last` by `run` if that says the same; whether it did."""
    if isinstance(last, Insert):
        return isinstance(run, Insert) and _joined_insert(last, run)
    if isinstance(last, Remove):
        return isinstance(run, Remove) and _joined_remove(last, run)
    return False


def _joined_insert(last: Insert, run: Insert) -> bool:
    size = len(last.values)
    end = last.counter + size
    if (
        run.counter != end
        or size >= RUN_SIZE_MAX
        or run.after_counter != end - 1
        or not last.replica == run.replica == run.after_replica
        or run.list != last.list
    ):
        return False
    return lengthened(last, run.values)


def lengthened(insert: Insert, values: Values) -> bool:
    """Give an insert further values of the same kind; whether they are."""
    before = insert.values
    if isinstance(before, str):
        if not isinstance(values, str):
            return False
        insert.values = before + values
        return True
    if isinstance(values, str):
        return False
    insert.values = before + values
    return True


def _joined_remove(last: Remove, run: Remove) -> bool:
    if (
        run.counter != last.counter + last.size
        or run.target_replica != last.target_replica
        or run.replica != last.replica
        or run.list != last.list
    ):
        return False
    step = last.step
    if last.size == 1:
        step = 1 if run.target_counter > last.target_counter else -1
    if run.target_counter != last.target_counter + last.size * step:
        return False
    if run.size > 1 and run.step != step:
        return False
    last.size += run.size
    last.step = step
    return True


def to_ops(runs: Iterable[Run]) -> list[Op]:
    """Spell runs out as version-1 ops."""
    ops: list[Op] = []
    for run in runs:
        match run:
            case Insert():
                ops.extend(_insert_ops(run))
            case Remove():
                ops.extend(_remove_ops(run))
            case Set():
                clock = _clock(run)
                ops.append({"t": "set", "reg": run.register, "clock": clock, "value": run.value})
            case Delete():
                ops.append({"t": "del", "reg": run.register, "clock": _clock(run)})
            case Put():
                ops.append(
                    {
                        "t": "put",
                        "map": run.map,
                        "key": run.key,
                        "clock": _clock(run),
                        "value": run.value,
                    }
                )
            case Drop():
                ops.append(
                    {
                        "t": "drop",
                        "map": run.map,
                        "key": run.key,
                        "clock": _clock(run),
                        "seen": dict(run.seen),
                    }
                )
            case Verbatim():
                ops.append(cast("Op", run.op))
            case _:
                assert_never(run)
    return ops


def read_clock(clock: object, what: str) -> tuple[int, str]:
    """Counter and replica of a received clock.

    Raises:
        MalformedError: It is not a clock.
    """
    if not isinstance(clock, dict) or len(clock) != 2:
        raise MalformedError(what, "`clock` is not an object of `c` and `r`")
    replica = clock.get("r")
    if not isinstance(replica, str):
        raise MalformedError(what, "`clock.r` is not text")
    return read_counter(clock.get("c"), what), replica


def read_counter(counter: object, what: str) -> int:
    """A received counter.

    Raises:
        MalformedError: It is not an integer from 1 to 2^53 − 1.
    """
    if isinstance(counter, float) and counter.is_integer():
        counter = int(counter)
    if type(counter) is not int or not 1 <= counter <= COUNTER_MAX:
        raise MalformedError(what, "a counter is not an integer from 1 to 2^53 - 1")
    return counter


def read_counters(counters: object, what: str) -> dict[str, int]:
    """A received table of counters by replica.

    Raises:
        MalformedError: It is not such a table.
    """
    if not isinstance(counters, dict):
        raise MalformedError(what, "counters by replica are not an object")
    for replica in counters:
        if not isinstance(replica, str):
            raise MalformedError(what, "a replica is not text")
    return {replica: read_counter(counter, what) for replica, counter in counters.items()}


def read_value(value: object, what: str) -> Json:
    """A copy of a received value.

    Raises:
        MalformedError: It is not a JSON value.
    """
    if isinstance(value, str):
        return value
    flaw = find_flaw(value)
    if flaw is not None:
        raise MalformedError(what, flaw)
    return cast("Json", fresh(value))


def _text(fields: dict[str, Any], member: str) -> str:
    text = fields.get(member)
    if not isinstance(text, str):
        raise MalformedError("op", f"`{member}` is not text")
    return text


def _value(fields: dict[str, Any]) -> Json:
    if "value" not in fields:
        raise MalformedError("op", "`value` is missing")
    return read_value(fields["value"], "op")


def _id(fields: dict[str, Any]) -> str:
    id = _text(fields, "id")
    if not id:
        raise MalformedError("op", "`id` is empty")
    return id


def _insert(fields: dict[str, Any], counter: int, replica: str) -> Run:
    name, id, after = _text(fields, "list"), _id(fields), _text(fields, "after")
    value = _value(fields)
    anchor = parse_element_id(after) if after else (0, "")
    if anchor is None or id != f"{counter}@{replica}":
        return _verbatim(fields, counter, replica)
    values: Values = cast("str", value) if is_character(value) else [value]
    return Insert(name, replica, counter, anchor[1], anchor[0], values)


def _remove(fields: dict[str, Any], counter: int, replica: str) -> Run:
    name, id = _text(fields, "list"), _id(fields)
    target = parse_element_id(id)
    if target is None:
        return _verbatim(fields, counter, replica)
    return Remove(name, replica, counter, target[1], target[0])


def _verbatim(fields: dict[str, Any], counter: int, replica: str) -> Verbatim:
    for member in fields:
        if not isinstance(member, str):
            raise MalformedError("op", "a member name is not text")
    flaw = find_flaw(fields)
    if flaw is not None:
        raise MalformedError("op", flaw)
    return Verbatim({**fresh(fields), "clock": {"c": counter, "r": replica}})


def _clock(run: Set | Delete | Put | Drop) -> Clock:
    return {"c": run.counter, "r": run.replica}


def _insert_ops(run: Insert) -> Iterable[Op]:
    replica = run.replica
    after = element_id(run.after_counter, run.after_replica) if run.after_counter else ""
    for counter, value in enumerate(run.values, run.counter):
        id = element_id(counter, replica)
        clock: Clock = {"c": counter, "r": replica}
        yield {
            "t": "ins",
            "list": run.list,
            "id": id,
            "after": after,
            "clock": clock,
            "value": value,
        }
        after = id


def _remove_ops(run: Remove) -> Iterable[Op]:
    for offset in range(run.size):
        id = element_id(run.target_counter + offset * run.step, run.target_replica)
        clock: Clock = {"c": run.counter + offset, "r": run.replica}
        yield {"t": "rmv", "list": run.list, "id": id, "clock": clock}

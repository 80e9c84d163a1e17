"""JSON values as the types of dataclass fields, and back.

- Known are text, numbers, booleans, None, `Any`, literals, enumerations (by value), lists, tuples
  of any length, dictionaries by text, unions, and dataclasses of these. Other types are refused
  when a schema is made, not when a value comes.
- A whole number is a float where one is wanted, and a float without a fraction is an int: JSON
  does not tell them apart. Nothing else is converted.
- Whatever is wrong with a value is told with its path; nothing else raises.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from walstore.errors import UsageError

# Reads a value that stands at a path, or raises `Invalid`.
Read: TypeAlias = Callable[[Any, str], Any]

# Classes whose fields are remembered; past that they are looked up anew.
_CACHED_MAX = 1024

_LISTS = (list, Sequence)
_DICTS = (dict, Mapping)


class Problem(NamedTuple):
    """What is wrong with a value, and where it stands.

    Attributes:
        path: Names and positions from the root on: `items[2].name`.
        reason: What is wrong.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class Invalid(Exception):  # noqa: N818 - it never leaves this package
    """Problems of a value, on their way to whoever reports them."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems


class FieldTypeError(UsageError):
    """A field has a type that no JSON value stands for.

    Attributes:
        hint: The type.
    """

    def __init__(self, hint: object) -> None:
        super().__init__(f"{hint!r} is no type of a field; use msgspec or pydantic for more types")
        self.hint = hint


def reader(hint: Any, inside: frozenset[type] = frozenset()) -> Read:
    """What reads values of a type.

    Args:
        hint: The type.
        inside: The dataclasses that it is part of, which are known to be readable.

    Raises:
        FieldTypeError: Nothing does.
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return reader(args[0], inside)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is Literal:
        return _one_of({_key(value): value for value in args}, hint)
    if origin in (Union, types.UnionType):
        return _any_of([reader(each, inside) for each in args])
    if origin in _LISTS or hint is list:
        return _list_of(reader(args[0], inside) if args else _anything, list)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return _list_of(reader(args[0], inside), tuple)
    if hint is dict or (origin in _DICTS and args[0] is str):
        return _dict_of(reader(args[1], inside) if args else _anything)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _one_of({_key(each.value): each for each in hint}, hint.__name__)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _object_of(hint, inside)
    raise FieldTypeError(hint)


def plain(value: Any) -> Any:
    """A value as JSON; what has no such form is left as it is, to be refused by the store."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


@lru_cache(maxsize=_CACHED_MAX)
def hints_of(model: type) -> dict[str, Any]:
    """The types of the fields of a class, annotations included."""
    return get_type_hints(model, include_extras=True)


# ── inside ─────────────────────────────────────────────────────────────────────────────


def _anything(value: Any, path: str) -> Any:
    return value


def _text(value: Any, path: str) -> str:
    return str(_checked(value, isinstance(value, str), path, "text"))


def _boolean(value: Any, path: str) -> bool:
    return bool(_checked(value, isinstance(value, bool), path, "true or false"))


def _nothing(value: Any, path: str) -> None:
    _checked(value, value is None, path, "null")


def _whole(value: Any, path: str) -> int:
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return int(_checked(value, is_whole and not isinstance(value, bool), path, "a whole number"))


def _number(value: Any, path: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return float(_checked(value, is_number, path, "a number"))
    except OverflowError as error:
        raise Invalid(Problem(path, "a number that no double can hold")) from error


def _checked(value: Any, is_right: bool, path: str, wanted: str) -> Any:
    if not is_right:
        raise Invalid(Problem(path, f"{wanted} is wanted, not {_described(value)}"))
    return value


_PLAIN: dict[Any, Read] = {
    Any: _anything,
    str: _text,
    bool: _boolean,
    int: _whole,
    float: _number,
    None: _nothing,
    type(None): _nothing,
}


def _described(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return "text"
        case int() | float():
            return "a number"
        case list() | tuple():
            return "a list"
        case _:
            return "an object"


def _key(value: Any) -> tuple[bool, Any]:
    """Tells 1 from true."""
    return isinstance(value, bool), value


def _one_of(choices: Mapping[tuple[bool, Any], Any], name: object) -> Read:
    def read(value: Any, path: str) -> Any:
        is_plain = isinstance(value, str | int | float | None)
        if not is_plain or _key(value) not in choices:
            raise Invalid(Problem(path, f"not one of {name}"))
        return choices[_key(value)]

    return read


def _any_of(readers: Sequence[Read]) -> Read:
    def read(value: Any, path: str) -> Any:
        problems: list[Problem] = []
        for each in readers:
            try:
                return each(value, path)
            except Invalid as invalid:
                problems += invalid.problems
        # What went wrong deepest is what was meant.
        raise Invalid(max(problems, key=lambda problem: len(problem.path)))

    return read


def _list_of(read_item: Read, kind: Callable[[list[Any]], Any]) -> Read:
    def read(value: Any, path: str) -> Any:
        _checked(value, isinstance(value, list | tuple), path, "a list")
        items = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
        return kind(list(_read_all([(read_item, item, place) for place, item in items])))

    return read


def _dict_of(read_member: Read) -> Read:
    def read(value: Any, path: str) -> Any:
        _checked(value, isinstance(value, Mapping), path, "an object")
        members = [(read_member, member, f"{path}.{name}") for name, member in value.items()]
        return dict(zip(value, _read_all(members), strict=True))

    return read


def _object_of(model: type, inside: frozenset[type]) -> Read:
    def read(value: Any, path: str) -> Any:
        _checked(value, isinstance(value, Mapping), path, "an object")
        return read_object(model, value, f"{path}.")

    if model not in inside:
        # The readers themselves are made when they are needed: a type may hold itself.
        for hint in hints_of(model).values():
            reader(hint, inside | {model})
    return read


def read_object(model: type, members: Mapping[str, Any], prefix: str) -> Any:
    """A dataclass from members; raises `Invalid` with all that is wrong."""
    wanted = [field for field in dataclasses.fields(model) if field.init]
    problems = [
        Problem(f"{prefix}{field.name}", "missing")
        for field in wanted
        if field.name not in members
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    given = [field.name for field in wanted if field.name in members]
    try:
        values = _read_all(
            [(_reader(model, name), members[name], f"{prefix}{name}") for name in given]
        )
    except Invalid as invalid:
        raise Invalid(*problems, *invalid.problems) from None
    if problems:
        raise Invalid(*problems)
    try:
        return model(**dict(zip(given, values, strict=True)))
    except (TypeError, ValueError) as error:
        # A class may check more than its types say.
        raise Invalid(Problem(prefix.rstrip("."), str(error))) from error


@lru_cache(maxsize=_CACHED_MAX)
def _reader(model: type, name: str) -> Read:
    return reader(hints_of(model)[name])


def _read_all(reads: Sequence[tuple[Read, Any, str]]) -> list[Any]:
    values: list[Any] = []
    problems: list[Problem] = []
    for read, value, path in reads:
        try:
            values.append(read(value, path))
        except Invalid as invalid:
            problems += invalid.problems
    if problems:
        raise Invalid(*problems)
    return values


def fields_of(model: type) -> Iterator[str]:
    """The names of the fields that a dataclass is made of."""
    return (field.name for field in dataclasses.fields(model) if field.init)

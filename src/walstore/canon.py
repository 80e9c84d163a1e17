"""Canonical JSON text: the one spelling that signatures, hashes and comparisons are made over.

- Members are ordered by code point, nothing is padded, text is raw but for the JSON escapes.
- Numbers are doubles, spelled as ECMAScript spells them: `1.0` is `1`, 2^56 is `72057594037927940`.
- A lone surrogate is escaped; two halves of a pair are the one character that they mean.
- What has no such text is refused, never bent: non-finite numbers, names that are not text,
  subclasses and foreign types, values nested too deep.
- Reading is strict RFC 8259 and gives numbers one form: an `int` if the number is whole and
  within ±(2^53 − 1), however it was spelled, and a finite `float` otherwise.
- orjson does the work wherever its bytes are the canonical ones, an exact writer the rest.
- Nothing here recurses, so no input can exhaust the stack.
"""

from __future__ import annotations

import hashlib
import json.encoder
import math
import re
from collections.abc import Iterator
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, Final, TypeAlias, cast

import orjson

from walstore.errors import MalformedError, NotJsonError

# What a JSON text can hold. The recursion is cut at one level because a type checker
# would otherwise refuse ordinary dictionaries of callers.
Json: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None

# The largest integer that every peer reads exactly.
INTEGER_MAX: Final = 2**53 - 1

# How many containers a value that an application writes may nest: what still fits when the
# document is published as a plain snapshot, whose body a server refuses beyond 64 levels.
VALUE_DEPTH_MAX: Final = 58

# How many containers a received text may nest: the 64 of a body, and as many for what wraps it.
PARSE_DEPTH_MAX: Final = 128

# How many containers a canonical text may nest. Anything that was parsed can still be wrapped
# to be signed; and orjson, which writes 254 levels of lists but counts no tuples and would run
# off the stack with them, is never asked for as many.
CANON_DEPTH_MAX: Final = 192

# Member names that peers lose or trip over; an application must not write them.
FORBIDDEN_NAMES: Final = frozenset(
    {"__proto__", "constructor", "prototype", "__class__", "__dict__"}
)

_CONTAINERS: Final = frozenset({dict, list, tuple})
_TEXT: Final = frozenset({str})

# How many containers of one level are looked into without asking whether some are the same.
_LEVEL_LEN_MAX: Final = 4096

_ORJSON_OPTIONS: Final = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_STRICT_INTEGER
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)

_NOT_FINITE = "a number that is not finite"
_NOT_A_DOUBLE = "a number that no double can hold"

# How an integer beyond 53 bits stands in a text; in a string it does no harm.
_MAYBE_LARGE: Final = re.compile(rb"(?:^|[-:,\[])[0-9]{16}")

_SURROGATE: Final = re.compile("[\ud800-\udfff]")

# Stands for what orjson cannot read, followed by four hex digits; it also stands for itself.
_MARK = "\ufdd0"
_MARKED = re.compile(f"{_MARK}([0-9a-f]{{4}})")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
# Pairs and all other escapes are matched too, and left alone: `\\ud800` is not a surrogate.
_TO_MARK = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|\\u(?P<escaped>[dD][89a-fA-F][0-9a-fA-F]{2}|[fF][dD][dD]0)"
    r"|\\."
    rf"|(?P<raw>{_MARK})",
    re.DOTALL,
)


def canonical_text(value: object) -> str:
    """The canonical text of a JSON value; a tuple counts as a list.

    Raises:
        NotJsonError: The value has no canonical text.
    """
    return canonical_bytes(value).decode()


def canonical_bytes(value: object) -> bytes:
    """The canonical text in UTF-8: what is signed and hashed.

    Raises:
        NotJsonError: The value has no canonical text.
    """
    # Once the floats are replaced, only exact dictionaries, lists, tuples, text, integers,
    # booleans and `None` are left. For these orjson's bytes are the canonical ones: it puts no
    # white space, has the same escapes, and orders members by their UTF-8 bytes, which is the
    # order of code points. What it would spell otherwise it refuses: integers beyond 53 bits,
    # surrogates, names that are not text.
    plain = _respelled(value) if _has_float(value) else value
    try:
        return orjson.dumps(plain, option=_ORJSON_OPTIONS)
    except orjson.JSONEncodeError:
        return _exact_text(value).encode()


def plain_bytes(value: object) -> bytes:
    """The same of a value that is known to be JSON without floats: it is not looked through.

    Raises:
        NotJsonError: The value has no canonical text.
    """
    try:
        return orjson.dumps(value, option=_ORJSON_OPTIONS)
    except orjson.JSONEncodeError:
        return canonical_bytes(value)


def content_hash(value: object) -> str:
    """The SHA-256 of the canonical text, in lower-case hex.

    Raises:
        NotJsonError: The value has no canonical text.
    """
    return hashlib.sha256(canonical_bytes(value)).hexdigest()


def parse(text: str | bytes) -> Json:
    """Read one JSON text that came from outside.

    Of members with one name the last wins; the escape of a lone surrogate gives that surrogate.

    Raises:
        MalformedError: The text is not RFC 8259 JSON in UTF-8, holds a number that no double
            can hold, or nests deeper than `PARSE_DEPTH_MAX`.
    """
    # The root is put into a list so that it can be replaced like any other value.
    root = [_load(text)]
    level: list[Any] = [root]
    for _ in range(PARSE_DEPTH_MAX + 1):
        below: list[Any] = []
        for held in level:
            _settle_numbers(held, below)
        if not below:
            return cast(Json, root[0])
        level = below
    raise MalformedError("JSON", _too_deep(PARSE_DEPTH_MAX))


def parse_canonical(text: bytes) -> Json | None:
    """The value of a text that is canonical already; None for any other text.

    Cheaper than parsing a text and making the canonical one of its value, and gives the same.
    """
    if _MAYBE_LARGE.search(text):
        # An integer beyond 53 bits is a double to everybody else.
        return None
    try:
        value = orjson.loads(text)
        is_canonical = canonical_bytes(value) == text
    except (orjson.JSONDecodeError, NotJsonError):
        return None
    return cast(Json, value) if is_canonical else None


def check_value(value: object, *, depth_max: int = VALUE_DEPTH_MAX) -> None:
    """Check a value that an application wants to write.

    Raises:
        NotJsonError: It is not made of dictionaries with text names, lists, tuples, text,
            booleans, `None`, integers within ±(2^53 − 1) and finite floats; or it has a member
            with one of the `FORBIDDEN_NAMES`; or it nests more than `depth_max` containers.
    """
    if type(value) is str:
        return
    flaw = _find_flaw(value, depth_max, writing=True)
    if flaw is not None:
        raise NotJsonError(flaw)


def find_flaw(value: object, *, depth_max: int = PARSE_DEPTH_MAX) -> str | None:
    """What keeps a received value from having a canonical text, in a few words.

    Returns:
        The reason: a foreign type, a number that is not finite, a name that is not text, too
        many levels. `None` if the value is sound; names and integers that only a writer must
        avoid are sound.
    """
    if type(value) is str:
        return None
    return _find_flaw(value, depth_max, writing=False)


def _has_float(value: object) -> bool:
    """Whether a float is in the value; refuses foreign types, subclasses and too many levels."""
    found = False
    level: list[Any] = [(value,)]
    for _ in range(CANON_DEPTH_MAX + 1):
        below: list[Any] = []
        for held in level:
            for item in held.values() if type(held) is dict else held:
                kind = type(item)
                if kind is str or kind is int:
                    continue
                if kind in _CONTAINERS:
                    below.append(item)
                elif kind is float:
                    found = True
                elif item is not None and kind is not bool:
                    raise NotJsonError(_foreign(kind))
        if not below:
            return found
        level = _distinct(below)
    raise NotJsonError(_too_deep(CANON_DEPTH_MAX))


def _respelled(value: object) -> Any:
    """A copy of the value, each float as a fragment of canonical text that orjson takes as is."""
    root = [value]
    containers: list[Any] = [root]
    for copy in containers:
        for place, item in copy.items() if type(copy) is dict else enumerate(copy):
            kind = type(item)
            if kind is str or kind is int:
                continue
            if kind in _CONTAINERS:
                copy[place] = item.copy() if kind is dict else list(item)
                containers.append(copy[place])
            elif kind is float:
                copy[place] = orjson.Fragment(_float_text(item))
    return root[0]


def _settle_numbers(holder: Any, below: list[Any]) -> None:
    """Give the numbers in a parsed container their one form; queue the containers in it."""
    for place, item in holder.items() if type(holder) is dict else enumerate(holder):
        kind = type(item)
        if kind is str:
            continue
        if kind is dict or kind is list:
            below.append(item)
        elif kind is int:
            if not -INTEGER_MAX <= item <= INTEGER_MAX:
                holder[place] = float(item)
        elif kind is float and item.is_integer() and -INTEGER_MAX <= item <= INTEGER_MAX:
            holder[place] = int(item)


def _find_flaw(value: object, depth_max: int, *, writing: bool) -> str | None:
    level: list[Any] = [(value,)]
    for _ in range(depth_max + 1):
        below: list[Any] = []
        for held in level:
            flaw = _flaw_in(held, below, writing=writing)
            if flaw is not None:
                return flaw
        if not below:
            return None
        level = _distinct(below)
    return _too_deep(depth_max)


def _flaw_in(holder: Any, below: list[Any], *, writing: bool) -> str | None:
    """What is wrong with a container, but for the containers in it: those are queued."""
    flaw = _names_flaw(holder, writing=writing) if type(holder) is dict else None
    for item in holder.values() if type(holder) is dict else holder:
        if type(item) is str:
            continue
        if type(item) in _CONTAINERS:
            below.append(item)
        else:
            flaw = flaw or _scalar_flaw(item, writing=writing)
    return flaw


def _names_flaw(members: dict[Any, Any], *, writing: bool) -> str | None:
    if not _TEXT.issuperset(map(type, members)):
        return "a member name that is not text"
    if writing and not FORBIDDEN_NAMES.isdisjoint(members):
        return f"the member name {min(FORBIDDEN_NAMES.intersection(members))!r} is reserved"
    # Only names with surrogates can be two names in Python and one in JSON.
    if not all(map(str.isascii, members)) and len(set(map(_join_pairs, members))) < len(members):
        return "two members with one name"
    return None


def _scalar_flaw(value: object, *, writing: bool) -> str | None:
    if value is None or type(value) is bool:
        return None
    if type(value) is float:
        return None if math.isfinite(value) else _NOT_FINITE
    if type(value) is not int:
        return _foreign(type(value))
    if -INTEGER_MAX <= value <= INTEGER_MAX:
        return None
    if writing:
        return "an integer beyond ±(2^53 − 1)"
    return _NOT_A_DOUBLE if _as_double(value) is None else None


def _distinct(level: list[Any]) -> list[Any]:
    """The containers of a level, each one once if they are many."""
    # A value that holds itself, or one part many times over, would else double at each level.
    if len(level) <= _LEVEL_LEN_MAX:
        return level
    return list({id(container): container for container in level}.values())


def _exact_text(value: object) -> str:
    """Write a value of JSON types piece by piece; the stack holds the containers still open."""
    out: list[str] = []
    stack: list[Iterator[tuple[str, Any]]] = [iter([("", value)])]
    closers = [""]
    while stack:
        for before, item in stack[-1]:
            out.append(before)
            if type(item) not in _CONTAINERS:
                out.append(_scalar_text(item))
                continue
            is_object = type(item) is dict
            out.append("{" if is_object else "[")
            closers.append("}" if is_object else "]")
            stack.append(_members(item) if is_object else zip(_commas(), item, strict=False))
            break
        else:
            stack.pop()
            out.append(closers.pop())
    return "".join(out)


def _commas() -> Iterator[str]:
    """What stands before each value of a list."""
    return chain([""], repeat(","))


def _members(members: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Each value of an object, in canonical order, with the text that stands before it."""
    flaw = _names_flaw(members, writing=False)
    if flaw is not None:
        raise NotJsonError(flaw)
    joined = [(_join_pairs(name), value) for name, value in members.items()]
    joined.sort(key=itemgetter(0))
    for comma, (name, value) in zip(_commas(), joined, strict=False):
        yield f"{comma}{_quoted(name)}:", value


def _scalar_text(value: Any) -> str:
    if type(value) is str:
        return _quoted(_join_pairs(value))
    if type(value) is int:
        return _integer_text(value)
    if type(value) is float:
        return _float_text(value)
    return "null" if value is None else "true" if value else "false"


def _integer_text(number: int) -> str:
    if -INTEGER_MAX <= number <= INTEGER_MAX:
        return str(number)
    double = _as_double(number)
    if double is None:
        raise NotJsonError(_NOT_A_DOUBLE)
    return _float_text(double)


def _float_text(number: float) -> str:
    """ECMAScript's Number::toString, and `0` for minus zero."""
    if not math.isfinite(number):
        raise NotJsonError(_NOT_FINITE)
    # Python finds the same shortest digits that round-trip; only the layout differs.
    mantissa, _, exponent = repr(number).partition("e")
    if not exponent:
        return "0" if number == 0 else mantissa.removesuffix(".0")
    sign = "-" if number < 0 else ""
    digits = mantissa.removeprefix("-").replace(".", "")
    # The value is 0.<digits> × 10^point. Python writes an exponent below 10^−4 and from 10^16 on;
    # there are at most 17 digits, so from there on the decimal point is never among them.
    point = int(exponent) + 1
    if 0 < point <= 21:
        return f"{sign}{digits}{'0' * (point - len(digits))}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1:+d}"


def _as_double(number: int) -> float | None:
    """The nearest double, or `None` if there is no finite one."""
    try:
        return float(number)
    except OverflowError:
        return None


def _quoted(text: str) -> str:
    # The standard library has the same escapes, in lower case too, but for surrogates.
    quoted = json.encoder.encode_basestring(text)
    if quoted.isascii():
        return quoted
    return _SURROGATE.sub(lambda lone: f"\\u{ord(lone[0]):04x}", quoted)


def _join_pairs(text: str) -> str:
    """The text with each surrogate pair as the one character that it means."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _load(text: str | bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        # The escape of a lone surrogate is the one thing in JSON that orjson does not read.
        marked = _mark_surrogates(text)
        if marked is None:
            raise MalformedError("JSON", error.msg) from error
    try:
        return _unmark_surrogates(orjson.loads(marked))
    except orjson.JSONDecodeError as error:
        raise MalformedError("JSON", error.msg) from error


def _mark_surrogates(text: str | bytes) -> str | None:
    """The text with its lone surrogates as marks, or `None` if it has no such escape.

    A mark takes the place of an escape inside a string and is refused outside of one as an
    escape is, so the marked text is well-formed exactly if the text is.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError:
        return None
    if not _SURROGATE_ESCAPE.search(decoded):
        return None
    return _TO_MARK.sub(_marked, decoded)


def _marked(found: re.Match[str]) -> str:
    code = found["escaped"] or (found["raw"] and f"{ord(_MARK):04x}")
    return f"{_MARK}{code.lower()}" if code else found[0]


def _unmark_surrogates(value: Any) -> Any:
    root = [value]
    containers: list[Any] = [root]
    for held in containers:
        if type(held) is dict:
            members = [(_unmarked(name), _unmarked(item)) for name, item in held.items()]
            held.clear()
            held.update(members)
            containers.extend(item for item in held.values() if type(item) in _CONTAINERS)
        else:
            held[:] = map(_unmarked, held)
            containers.extend(item for item in held if type(item) in _CONTAINERS)
    return root[0]


def _unmarked(value: Any) -> Any:
    if type(value) is str and _MARK in value:
        return _MARKED.sub(lambda mark: chr(int(mark[1], 16)), value)
    return value


def _foreign(kind: type) -> str:
    return f"a value of type {kind.__name__}"


def _too_deep(depth_max: int) -> str:
    return f"nested deeper than {depth_max} levels"

"""Canonical text against the recorded cases, against its laws, and against JavaScript itself."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import hashlib
import inspect
import json
import math
import random
import shutil
import struct
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from walstore.canon import (
    CANON_DEPTH_MAX,
    FORBIDDEN_NAMES,
    INTEGER_MAX,
    PARSE_DEPTH_MAX,
    VALUE_DEPTH_MAX,
    _exact_text,
    canonical_bytes,
    canonical_text,
    check_value,
    content_hash,
    find_flaw,
    parse,
    parse_canonical,
)
from walstore.errors import MalformedError, NotJsonError

T = TypeVar("T")

# A busy machine must not fail a law.
law = settings(deadline=None)

VECTORS = Path(__file__).parent / "vectors"


def cases(name: str) -> list[Any]:
    found: list[Any] = json.loads((VECTORS / f"{name}.json").read_text("utf-8"))["cases"]
    return found


def names(vectors: list[Any]) -> list[str]:
    return [case["name"] for case in vectors]


def nested(levels: int, wrap: Callable[[Any], Any], core: Any = 1) -> Any:
    for _ in range(levels):
        core = wrap(core)
    return core


WRAPS: dict[str, Callable[[Any], Any]] = {
    "list": lambda held: [held],
    "tuple": lambda held: (held,),
    "object": lambda held: {"a": held},
}


def joined(text: str) -> str:
    """Surrogate pairs as real characters, found pair by pair."""
    out = ""
    for char in text:
        if out and "\ud800" <= out[-1] <= "\udbff" and "\udc00" <= char <= "\udfff":
            high, low = ord(out[-1]) - 0xD800, ord(char) - 0xDC00
            out = out[:-1] + chr(0x10000 + high * 0x400 + low)
        else:
            out += char
    return out


def as_parsed(value: Any) -> Any:
    """What a reader must get for a value that was written, tagged so that 1 is not True."""
    match value:
        case bool() | None:
            return value, "constant"
        case str():
            return joined(value)
        case int() | float():
            double = float(value)
            is_exact = double.is_integer() and abs(double) <= INTEGER_MAX
            return (int(double), "int") if is_exact else (double, "float")
        case list() | tuple():
            return [as_parsed(item) for item in value]
        case _:
            return {joined(name): as_parsed(item) for name, item in value.items()}


def as_is(value: Any) -> Any:
    """A parsed value, tagged like `as_parsed`."""
    match value:
        case bool() | None:
            return value, "constant"
        case int() | float():
            return value, type(value).__name__
        case list():
            return [as_is(item) for item in value]
        case dict():
            return {name: as_is(item) for name, item in value.items()}
        case _:
            return value


texts = st.text(
    st.characters(exclude_categories=())
    | st.sampled_from(
        '"\\/\b\t\n\f\r\x00\x1f\x7f\u2028\ud800\ud83d\ude00\udfff\ue000\ufdd0\uffff😀'
    )
)
numbers = (
    st.integers(-INTEGER_MAX, INTEGER_MAX)
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.0, -0.0, 1.0, 1e15, 1e16, 1e20, 1e21, 1e-4, 1e-5, 1e-6, 1e-7, 2.0**56])
)
# Any name but those that no application may write, which some laws are about.
member_names = texts.map(joined).filter(lambda name: name not in FORBIDDEN_NAMES)
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars,
    lambda held: (
        st.lists(held, max_size=5)
        | st.lists(held, max_size=5).map(tuple)
        | st.dictionaries(member_names, held, max_size=5)
    ),
    max_leaves=20,
)


# --- the recorded cases


@pytest.mark.parametrize("case", cases("canonical"), ids=names(cases("canonical")))
def test_a_recorded_text_has_its_recorded_canonical_text_and_hash(case: dict[str, str]) -> None:
    if case["name"] == "-1e400":
        # The peer reads an infinity and writes null; a strict reader refuses the number.
        with pytest.raises(MalformedError, match="infinity"):
            parse(case["json"])
        return
    value = parse(case["json"])
    assert canonical_text(value) == case["canonical"]
    assert canonical_bytes(value) == case["canonical"].encode()
    assert content_hash(value) == case["sha256"]
    assert as_is(parse(case["json"].encode())) == as_is(value)
    assert _exact_text(value) == case["canonical"]


def test_every_recorded_number_is_spelled_as_recorded() -> None:
    spelled = [[text, canonical_text(parse(text))] for text, _ in cases("numbers")]
    assert spelled == cases("numbers")


def test_every_recorded_number_is_spelled_as_recorded_when_python_read_it() -> None:
    # Python's own reader keeps wide integers and whole floats as they are.
    spelled = [[text, canonical_text(json.loads(text))] for text, _ in cases("numbers")]
    assert spelled == cases("numbers")


@pytest.mark.parametrize("case", cases("hostile_json"), ids=names(cases("hostile_json")))
def test_hostile_text_is_treated_as_required(case: dict[str, Any]) -> None:
    if case["required"] == "parse, same canonical form":
        assert canonical_text(parse(case["json"])) == case["peer"]["canonical"]
    else:
        assert "refuse" in case["required"]
        with pytest.raises(MalformedError):
            parse(case["json"])


@pytest.mark.parametrize("case", cases("depth"), ids=lambda case: str(case["levels"]))
def test_levels_are_counted_as_recorded(case: dict[str, Any]) -> None:
    array = nested(case["levels"], WRAPS["list"])
    members = nested(case["levels"], WRAPS["object"])
    assert (find_flaw(array, depth_max=64) is None) == case["array_within_64"]
    assert (find_flaw(members, depth_max=64) is None) == case["object_within_64"]


# --- laws


@law
@given(values)
def test_what_was_written_is_read_back(value: Any) -> None:
    assert as_is(parse(canonical_text(value))) == as_parsed(value)


@law
@given(values)
def test_orjson_and_the_exact_writer_agree(value: Any) -> None:
    assert canonical_text(value) == _exact_text(value)


@law
@given(values)
def test_canonical_text_is_its_own_canonical_text(value: Any) -> None:
    text = canonical_text(value)
    assert canonical_text(parse(text)) == text


@law
@given(values)
def test_the_hash_is_that_of_the_utf8_text(value: Any) -> None:
    text = canonical_text(value).encode()
    assert canonical_bytes(value) == text
    assert content_hash(value) == hashlib.sha256(text).hexdigest()


@law
@given(values)
def test_any_spelling_of_a_text_is_read_as_the_same_value(value: Any) -> None:
    for indent in (None, 1):
        respelled = json.dumps(value, ensure_ascii=True, indent=indent)
        assert canonical_text(parse(respelled)) == canonical_text(value)


@law
@given(values)
def test_writing_leaves_the_value_as_it_was(value: Any) -> None:
    before = repr(value)
    canonical_text(value)
    assert repr(value) == before


@law
@given(st.dictionaries(member_names, st.none(), min_size=2))
def test_members_are_ordered_by_code_point(members: dict[str, None]) -> None:
    written = parse(canonical_text(members))
    assert isinstance(written, dict)
    assert list(written) == sorted(members, key=lambda name: [ord(char) for char in name])


@law
@given(numbers)
def test_a_number_is_read_as_the_double_nearest_to_its_text(number: float) -> None:
    for text in (repr(number), f"{float(number):.25e}"):
        assert parse(text) == float(text)


@law
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_spelled_number_is_the_same_double(number: float) -> None:
    assert float(canonical_text(number)) == number


@law
@given(values | st.lists(st.integers(-(2**70), 2**70), max_size=4))
@example(2.0**53)
def test_a_canonical_text_is_read_as_any_other(value: Any) -> None:
    text = canonical_bytes(value)
    read = parse_canonical(text)
    assert read is None or repr(read) == repr(parse(text))


@law
@given(values)
def test_a_parsed_value_has_no_flaw(value: Any) -> None:
    assert find_flaw(parse(canonical_text(value))) is None


@law
@given(st.binary(max_size=40) | st.text(st.characters(exclude_categories=()), max_size=40))
def test_any_input_is_read_or_refused_and_nothing_else(text: str | bytes) -> None:
    try:
        value = parse(text)
    except MalformedError:
        return
    canonical_bytes(value)


json_pieces = st.sampled_from(
    [
        *("{", "}", "[", "]", ":", ",", '"', '""', '"a":', " ", "true", "null"),
        *("0", "1", "-", ".", "e", "\\", "\\\\", "\\u", "\\ud83d", "\\ude00", "\\ud800"),
        *("d800", "dc00", "fdd0", "\\ufdd0", "\ufdd0", "\ud800"),
    ]
)


@settings(law, max_examples=500)
@given(st.lists(json_pieces, max_size=12).map("".join))
def test_text_is_accepted_exactly_when_python_accepts_it_as_utf8(text: str) -> None:
    try:
        text.encode()
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(MalformedError):
            parse(text)
    else:
        assert as_is(parse(text)) == as_parsed(expected)


# --- JavaScript as the oracle

NODE_ORACLE = """
const points = (text) => Array.from(text, (char) => char.codePointAt(0));
const order = (left, right) => {
  const [a, b] = [points(left), points(right)];
  for (let i = 0; i < a.length && i < b.length; i++) if (a[i] !== b[i]) return a[i] - b[i];
  return a.length - b.length;
};
const canon = (value) => {
  if (Array.isArray(value)) return "[" + value.map(canon).join(",") + "]";
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const member = (name) => JSON.stringify(name) + ":" + canon(value[name]);
  return "{" + Object.keys(value).sort(order).map(member).join(",") + "}";
};
const lines = require("fs").readFileSync(0, "utf8").trim().split("\\n");
process.stdout.write(JSON.stringify(lines.map((line) => canon(JSON.parse(line)))));
"""


def ask_node(lines: list[str]) -> list[str]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: there is no JavaScript to compare with")
    answer = subprocess.run(
        [node, "-e", NODE_ORACLE],
        input="\n".join(lines).encode(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    spelled: list[str] = json.loads(answer.stdout)
    return spelled


def random_doubles(chance: random.Random, count: int) -> list[float]:
    """Any bit pattern, decimals of ordinary size, and the neighbours of powers of two and ten."""
    found: list[float] = []
    while len(found) < count:
        bits: float = struct.unpack("<d", chance.randbytes(8))[0]
        near_two = math.nextafter(2.0 ** chance.randint(-80, 80), chance.choice([0, math.inf]))
        near_ten = math.nextafter(10.0 ** chance.randint(-9, 24), chance.choice([0, math.inf]))
        decimal = chance.randint(-(10**6), 10**6) / 10 ** chance.randint(0, 9)
        wide = float(chance.randint(-(2**70), 2**70))
        found += filter(math.isfinite, (bits, near_two, near_ten, decimal, wide))
    return found


def random_value(chance: random.Random, levels: int = 3) -> Any:
    kind = chance.randrange(7 if levels else 5)
    if kind == 0:
        return chance.choice([None, True, False])
    if kind == 1:
        return chance.choice(random_doubles(chance, 5))
    if kind == 2:
        return chance.randint(-(2**60), 2**60)
    if kind in (3, 4):
        return random_text(chance)
    held = [random_value(chance, levels - 1) for _ in range(chance.randrange(6))]
    return held if kind == 5 else {joined(random_text(chance)): item for item in held}


def random_text(chance: random.Random) -> str:
    ranges = [(0, 0x7F), (0x20, 0x7E), (0x80, 0x2FFF), (0xD7F0, 0xE00F), (0xFFF0, 0x1000F)]
    return "".join(chr(chance.randint(*chance.choice(ranges))) for _ in range(chance.randrange(8)))


def test_doubles_are_spelled_as_javascript_spells_them() -> None:
    doubles = random_doubles(random.Random(20), 6000)
    spelled = ask_node([f"{double:.17e}" for double in doubles])
    assert [canonical_text(double) for double in doubles] == spelled


def test_wide_integers_are_spelled_as_javascript_spells_them() -> None:
    chance = random.Random(21)
    integers = [chance.randint(-(2**bits), 2**bits) for bits in range(50, 120) for _ in range(20)]
    spelled = ask_node([str(integer) for integer in integers])
    assert [canonical_text(integer) for integer in integers] == spelled


def test_values_have_the_canonical_text_that_javascript_gives_them() -> None:
    chance = random.Random(22)
    made = [random_value(chance) for _ in range(2000)]
    # `json.dumps` keeps a pair of surrogates as two escapes and every digit of an integer.
    lines = [json.dumps(value) for value in made]
    spelled = ask_node(lines)
    assert [canonical_text(value) for value in made] == spelled
    assert [canonical_text(parse(line)) for line in lines] == spelled


# --- what is spelled how


def test_integers_beyond_53_bits_are_spelled_as_the_nearest_double() -> None:
    assert canonical_text(2**53 + 1) == "9007199254740992"
    assert canonical_text([2**56, -(2**60)]) == "[72057594037927940,-1152921504606847000]"
    assert canonical_text(10**21) == "1e+21"


def test_whole_floats_and_minus_zero_are_spelled_as_integers() -> None:
    assert canonical_text([1.0, -0.0, 1e15, 1e20, {"a": -2.0}]) == (
        '[1,0,1000000000000000,100000000000000000000,{"a":-2}]'
    )


def test_two_halves_of_a_pair_are_one_character() -> None:
    assert canonical_text({"\ud83d\ude00": "\ud83d\ude00\ud83d"}) == '{"😀":"😀\\ud83d"}'


def test_a_tuple_is_a_list() -> None:
    assert canonical_text((1, (2, ()), {"a": (3.5,)})) == '[1,[2,[]],{"a":[3.5]}]'


def test_two_names_that_are_one_in_json_are_refused() -> None:
    clash = {"\ud83d\ude00": 1, "😀": 2}
    with pytest.raises(NotJsonError, match="two members with one name"):
        canonical_text(clash)
    with pytest.raises(NotJsonError, match="two members with one name"):
        check_value([clash])


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Real(float):
    pass


class Record(dict[str, int]):
    pass


class Row(list[int]):
    pass


@dataclasses.dataclass
class Point:
    x: int = 1


Pair = collections.namedtuple("Pair", "left right")

FOREIGN = [
    *(Colour.RED, Level.LOW, Word.YES, Text("a"), Number(1), Real(1.5), Record(a=1), Row([1])),
    *(Point(), Pair(1, 2), collections.OrderedDict(a=1), uuid.UUID(int=1), orjson.Fragment("1")),
    *(datetime.datetime(2020, 1, 1), datetime.date(2020, 1, 1), datetime.time(1), b"a"),
    *(bytearray(b"a"), {1}, 1j, object(), range(3)),
]


@pytest.mark.parametrize("foreign", FOREIGN, ids=lambda foreign: type(foreign).__name__)
@pytest.mark.parametrize("core", [None, 1.5], ids=["alone", "beside a float"])
def test_subclasses_and_foreign_types_are_refused(foreign: Any, core: Any) -> None:
    kind = type(foreign).__name__
    for value in (foreign, [core, foreign], {"a": (core, foreign)}):
        with pytest.raises(NotJsonError, match=f"a value of type {kind}"):
            canonical_text(value)
        with pytest.raises(NotJsonError, match=f"a value of type {kind}"):
            check_value(value)
        assert find_flaw(value) == f"a value of type {kind}"


@pytest.mark.parametrize("name", [1, 1.5, None, True, ("a",), b"a", Text("a"), Word.YES])
@pytest.mark.parametrize("core", [None, 1.5], ids=["alone", "beside a float"])
def test_names_that_are_not_text_are_refused(name: Any, core: Any) -> None:
    value = [{name: core}]
    with pytest.raises(NotJsonError, match="a member name that is not text"):
        canonical_text(value)
    with pytest.raises(NotJsonError, match="a member name that is not text"):
        check_value(value)
    assert find_flaw(value) == "a member name that is not text"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(number: float) -> None:
    for value in (number, [number], {"a": ["\ud800", number]}):
        with pytest.raises(NotJsonError, match="not finite"):
            canonical_text(value)
        with pytest.raises(NotJsonError, match="not finite"):
            check_value(value)
        assert find_flaw(value) == "a number that is not finite"


@pytest.mark.parametrize("number", [2**1024, -(2**1024), 10**5000], ids=int.bit_length)
def test_integers_that_no_double_can_hold_are_refused(number: int) -> None:
    for value in (number, [number, 1.5]):
        with pytest.raises(NotJsonError, match="no double can hold"):
            canonical_text(value)
        assert find_flaw(value) == "a number that no double can hold"


# --- depth


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
@pytest.mark.parametrize("core", [1, 1.5, "\ud800", []], ids=["int", "float", "surrogate", "list"])
def test_writing_stops_at_its_limit_and_not_before(wrap: Callable[[Any], Any], core: Any) -> None:
    levels = CANON_DEPTH_MAX - (1 if core == [] else 0)
    assert canonical_text(nested(levels, wrap, core)) == _exact_text(nested(levels, wrap, core))
    for deeper in (levels + 1, 300, 100_000):
        with pytest.raises(NotJsonError, match="nested deeper"):
            canonical_text(nested(deeper, wrap, core))


@pytest.mark.parametrize(("left", "right"), [("[", "]"), ('{"a":', "}")], ids=["list", "object"])
@pytest.mark.parametrize("core", ["1", '"\\ud800"', "[]"], ids=["int", "surrogate", "list"])
def test_reading_stops_at_its_limit_and_not_before(left: str, right: str, core: str) -> None:
    levels = PARSE_DEPTH_MAX - (core == "[]")
    text = left * levels + core + right * levels
    assert canonical_text(parse(text)) == text
    for deeper in (levels + 1, 1000, 100_000):
        with pytest.raises(MalformedError):
            parse(left * deeper + core + right * deeper)
    with pytest.raises(MalformedError):
        parse(left * 100_000)


def test_whatever_was_parsed_can_be_wrapped_to_be_signed() -> None:
    deepest = parse("[" * PARSE_DEPTH_MAX + "]" * PARSE_DEPTH_MAX)
    assert canonical_text({"k": "key", "d": deepest}).startswith('{"d":[[')


def test_application_values_may_nest_58_containers() -> None:
    assert VALUE_DEPTH_MAX == 58
    for wrap in WRAPS.values():
        check_value(nested(58, wrap))
        for levels in (59, 100_000):
            with pytest.raises(NotJsonError, match="nested deeper than 58"):
                check_value(nested(levels, wrap))
        check_value(nested(3, wrap), depth_max=3)
        with pytest.raises(NotJsonError, match="nested deeper than 3"):
            check_value(nested(4, wrap), depth_max=3)


def test_a_value_that_holds_itself_is_refused_at_once() -> None:
    twice: list[Any] = []
    twice += [twice, (twice,), {"a": twice}]
    with pytest.raises(NotJsonError, match="nested deeper"):
        canonical_text(twice)
    with pytest.raises(NotJsonError, match="nested deeper"):
        check_value(twice)
    assert find_flaw(twice) == f"nested deeper than {PARSE_DEPTH_MAX} levels"


def test_one_part_met_many_times_is_written_each_time() -> None:
    part = {"a": [1.5]}
    many = [part] * 10_000
    assert canonical_text(many) == "[" + ",".join(['{"a":[1.5]}'] * 10_000) + "]"
    check_value(many)


def with_little_stack(act: Callable[[], T]) -> T:
    """Run with room for a few dozen calls, far fewer than the value has levels."""

    def descend(calls: int) -> T:
        return descend(calls - 1) if calls else act()

    return descend(sys.getrecursionlimit() - len(inspect.stack(0)) - 40)


@pytest.mark.parametrize("core", [1, 1.5, "\ud800"])
def test_depth_costs_no_stack(core: Any) -> None:
    value = nested(PARSE_DEPTH_MAX, WRAPS["list"], core)
    text = with_little_stack(lambda: canonical_text(value))
    assert canonical_text(with_little_stack(lambda: parse(text))) == text
    assert with_little_stack(lambda: find_flaw(value)) is None


# --- reading


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "nul", "NaN", "[NaN]", "Infinity", "[-Infinity]", "undefined", "True"),
        *("[1,]", '{"a":1,}', "[,1]", '{"a"}', "{1:2}", "[1 2]", "{}{}", "1 1", "[1]x", "1\x00"),
        *("01", "-01", "+1", ".5", "1.", "1.e1", "1e", "1e+", "-", "0x10", "1_000", "١"),
        *('"', '"\t"', '"\n"', '"\x00"', "'a'", '"\\x41"', '"\\u12"', '"\\u00g0"', '"\\'),
        *('"\\ud800', '["\\ud800"', '\\ud800"a"', '"\\ud800\\x"', '"\\ud800\n"', '"\\ud8"'),
        *(
            "\ufeff{}",
            "\ufeff",
            "[1]//",
            "[1/**/]",
            "\u00a01",
            "\x0c1",
            "\ufdd0",
            '["\\ud800"]\ufdd0',
        ),
        *('"\ud800"', '"\ud83d\ude00"', '["\\ud800","\ud800"]', "\ud800"),
        *(b"\xef\xbb\xbf{}", b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"'),
        *(b'["\\ud800","\xff"]', b"\xff\xfe[\x00]\x00", "[1]".encode("utf-16-le")),
    ],
    ids=ascii,
)
def test_text_that_is_not_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(MalformedError) as caught:
        parse(text)
    assert caught.value.what == "JSON"
    assert caught.value.reason


@pytest.mark.parametrize("digits", ["1e400", "-1e309", "9" * 310, "-" + "9" * 5000, "1e999999999"])
@pytest.mark.parametrize("beside", ["1", '"\\ud800"'], ids=["plain", "surrogate"])
def test_numbers_that_no_double_can_hold_are_refused(digits: str, beside: str) -> None:
    with pytest.raises(MalformedError):
        parse(f"[{beside},{digits}]")


def test_a_whole_number_is_an_int_however_it_is_spelled() -> None:
    read = parse('[1, 1.0, 1e0, 10E-1, -0, -0.0, 0e5, {"a": 9007199254740991.0}, 0.1e-400]')
    assert as_is(read) == as_is([1, 1, 1, 1, 0, 0, 0, {"a": INTEGER_MAX}, 0])
    assert repr(parse("1.0")) == "1"


def test_an_integer_beyond_53_bits_is_the_double_that_a_peer_reads() -> None:
    read = parse("[9007199254740993, -9007199254740993, 18446744073709551615, 1" + "0" * 30 + "]")
    assert as_is(read) == as_is([2.0**53, -(2.0**53), 2.0**64, 1e30])
    assert repr(parse(str(2**53))) == "9007199254740992.0"


def test_of_members_with_one_name_the_last_wins() -> None:
    assert parse('{"a":1,"b":2,"\\u0061":3}') == {"a": 3, "b": 2}
    assert parse('{"\\ud800":1,"\\uD800":{"\\udfff":2}}') == {"\ud800": {"\udfff": 2}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"\\ud800"', "\ud800"),
        ('"\\uDBFFx\\uDc00"', "\udbffx\udc00"),
        ('"\\ude00\\ud83d"', "\ude00\ud83d"),
        ('"\\ud83d\\ud83d\\ude00"', "\ud83d😀"),
        ('"\\\\ud800\\ud800"', "\\ud800\ud800"),
        ('"\\\\\\ud800"', "\\\ud800"),
        ('"\\ud800d800"', "\ud800d800"),
        # The stand-in for a surrogate is read as itself, raw or escaped, whatever follows it.
        ('"\\ud800\ufdd0d800\\ufdd0\\uFDD0d800"', "\ud800\ufdd0d800\ufdd0\ufdd0d800"),
        ('{"\\ud800":["\\udfff",{"\ufdd0":1.0}]}', {"\ud800": ["\udfff", {"\ufdd0": 1}]}),
    ],
)
def test_the_escape_of_a_lone_surrogate_is_read_as_that_surrogate(text: str, expected: Any) -> None:
    assert as_is(parse(text)) == as_is(expected)
    assert as_is(parse(text.encode())) == as_is(expected)


# --- checks at the call


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, INTEGER_MAX, -INTEGER_MAX, 1.5, -0.0, 1e300, "", "\ud800", [], {}, ()),
        *([{"a": ("x", 1, None)}], {"proto": {"é": [False]}}, ["__proto__", "constructor"]),
    ],
    ids=ascii,
)
def test_a_value_of_json_types_may_be_written(value: Any) -> None:
    check_value(value)
    assert find_flaw(value) is None


@pytest.mark.parametrize("number", [2**53, -(2**53), 10**5000], ids=int.bit_length)
def test_integers_beyond_53_bits_must_not_be_written(number: int) -> None:
    for value in (number, [number], {"a": {"b": number}}):
        with pytest.raises(NotJsonError, match="an integer beyond"):
            check_value(value)


def test_the_forbidden_names_are_those_of_the_format() -> None:
    assert sorted(FORBIDDEN_NAMES) == [
        *("__class__", "__dict__", "__proto__", "constructor", "prototype")
    ]


@pytest.mark.parametrize("name", sorted(FORBIDDEN_NAMES))
def test_forbidden_names_must_not_be_written_but_may_be_read(name: str) -> None:
    for value in ({name: 1}, [{"a": [{name: None}]}]):
        with pytest.raises(NotJsonError, match=f"'{name}' is reserved"):
            check_value(value)
        assert find_flaw(value) is None
        assert parse(canonical_text(value)) == value


def test_a_wide_integer_of_a_peer_is_no_flaw() -> None:
    assert find_flaw({"a": [2**60, -(2**70)]}) is None


@law
@given(values)
def test_what_may_be_written_is_read_back_without_a_flaw(value: Any) -> None:
    # Read once, a wide integer is a float, which may be written.
    settled = parse(canonical_text(value))
    check_value(settled)
    assert canonical_text(settled) == canonical_text(value)

"""Writes the vectors of the packed forms: `python -m tests.make_vectors`.

- A run or record is spelled `[class name, field, ...]` in the order of its constructor.
- Deflated bytes differ between versions of zlib, so a case marked `deflated` is only to be read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from walstore.crdt.clock import COUNTER_MAX
from walstore.crdt.packed_ops import BATCH_REMOVES_MAX, pack_ops
from walstore.crdt.packed_state import pack_state
from walstore.crdt.runs import Delete, Drop, Insert, Put, Remove, Run, Set, Verbatim
from walstore.crdt.state import ListState, MapEntry, Piece, Register, State

FOLDER = Path(__file__).parent / "vectors"
RUNS = {kind.__name__: kind for kind in (Insert, Remove, Set, Delete, Put, Drop, Verbatim)}

# The counter of every state here; no clock in them is above it.
COUNTER = COUNTER_MAX

ANN = "a1" * 32 + ":7f"
BOB = "b2" * 32 + ":0"


def runs_from_json(rows: list[list[Any]]) -> list[Run]:
    """The runs that a vector spells out."""
    return [RUNS[kind](*fields) for kind, *fields in rows]


def state_from_json(spelled: dict[str, Any]) -> State:
    """The state that a vector spells out."""
    return State(
        {name: Register(*fields) for name, fields in spelled["registers"].items()},
        {name: _list_from_json(entry) for name, entry in spelled["lists"].items()},
        {
            name: {key: _map_entry_from_json(entry) for key, entry in entries.items()}
            for name, entries in spelled["maps"].items()
        },
        COUNTER,
    )


def _list_from_json(entry: dict[str, Any]) -> ListState:
    if "nodes" in entry:
        return ListState.of_nodes(entry["nodes"])
    return ListState.of_pieces([Piece(*fields) for fields in entry["pieces"]])


def _map_entry_from_json(entry: dict[str, Any]) -> MapEntry:
    return MapEntry({r: (c, value) for r, (c, value) in entry["puts"].items()}, entry["seen"])


OPS: dict[str, list[list[Any]]] = {
    "an empty batch": [],
    "one typed character": [["Insert", "body", ANN, 8, ANN, 7, "x"]],
    "one deleted character": [["Remove", "body", ANN, 9, ANN, 8, 1, 1]],
    "the first character of a list": [["Insert", "body", ANN, 1, "", 0, "é"]],
    "a word typed after another's": [["Insert", "body", ANN, 8, BOB, 7, "word"]],
    "a range deleted forwards, another backwards": [
        ["Remove", "body", ANN, 5, BOB, 2, 3, 1],
        ["Remove", "notes", ANN, 8, BOB, 9, 4, -1],
    ],
    "typing with corrections": [
        ["Insert", "body", ANN, 1, "", 0, "helo"],
        ["Remove", "body", ANN, 5, ANN, 4, 1, 1],
        ["Insert", "body", ANN, 6, ANN, 3, "lo, wrld"],
        ["Remove", "body", ANN, 14, ANN, 13, 3, -1],
        ["Insert", "body", ANN, 17, ANN, 10, "orld"],
    ],
    "typing into another's text": [
        ["Insert", "body", ANN, 30, BOB, 12, "ab"],
        ["Remove", "body", ANN, 32, BOB, 13, 2, 1],
        ["Insert", "body", ANN, 34, "", 0, "😀"],
        ["Remove", "body", ANN, 35, ANN, 31, 1, -1],
    ],
    "a gap in the counters begins a new row": [
        ["Insert", "body", ANN, 1, "", 0, "a"],
        ["Insert", "body", ANN, 2, ANN, 1, "b"],
        ["Insert", "body", ANN, 9, ANN, 2, "c"],
    ],
    "values that are not text": [
        ["Insert", "todo", ANN, 1, "", 0, [{"done": False}, "two", None]],
        ["Insert", "todo", ANN, 4, ANN, 3, [1.5]],
    ],
    "registers": [
        ["Set", "title", ANN, 1, {"a": [1, None]}],
        ["Delete", "title", BOB, 2],
    ],
    "maps": [
        ["Put", "users", "bob", BOB, 3, "Bob"],
        ["Drop", "users", "bob", ANN, 4, {BOB: 3, ANN: 1}],
        ["Drop", "users", "eve", ANN, 5, {}],
    ],
    "an op that no run can say": [["Verbatim", {"t": "later", "clock": {"c": 1, "r": ANN}}]],
    "the highest counters": [
        ["Insert", "body", ANN, COUNTER_MAX - 1, ANN, COUNTER_MAX, "yz"],
        ["Remove", "body", ANN, 1, BOB, COUNTER_MAX, 1, 1],
        ["Remove", "body", ANN, 2, ANN, COUNTER_MAX, 1, 1],
    ],
}

_KEY = [0, "body", 0, 8, 0, 7, "x"]
_STRETCH = [7, "body", 0, 1, "ab", [1, -1, 1], [0, 0, 0]]

MALFORMED_OPS: dict[str, Any] = {
    "null": None,
    "an object": {},
    "no table": [],
    "a table that is text": [ANN, _KEY],
    "a replica that is a number": [[1], _KEY],
    "a replica twice": [[ANN, ANN], _KEY],
    "a row that is no array": [[ANN], 7],
    "an empty row": [[ANN], []],
    "an unknown kind": [[ANN], [8, "body", 0, 1]],
    "a kind that is a boolean": [[ANN], [False, *_KEY[1:]]],
    "an index out of the table": [[ANN], [0, "body", 1, 8, 0, 7, "x"]],
    "a negative index": [[ANN], [0, "body", 0, 8, -1, 7, "x"]],
    "an index in an empty table": [[], [3, "title", 0, 1]],
    "a counter of 0": [[ANN], [3, "title", 0, 0]],
    "a counter that is a fraction": [[ANN], [3, "title", 0, 1.0]],
    "a counter beyond 2^53 - 1": [[ANN], [3, "title", 0, COUNTER_MAX + 1]],
    "an insert that runs out of counters": [[ANN], [0, "body", 0, COUNTER_MAX, 0, 7, "xy"]],
    "an insert of nothing": [[ANN], [0, "body", 0, 8, 0, 7, ""]],
    "an insert of an object": [[ANN], [0, "body", 0, 8, 0, 7, {"a": 1}]],
    "an insert of a surrogate": [[ANN], [0, "body", 0, 8, 0, 7, "\ud800"]],
    "an insert with an entry too many": [[ANN], [*_KEY, 1]],
    "a remove of size 0": [[ANN], [1, "body", 0, 8, 0, 7, 0, 1]],
    "a remove with a step of 2": [[ANN], [1, "body", 0, 8, 0, 7, 2, 2]],
    "a remove with a size but no step": [[ANN], [1, "body", 0, 8, 0, 7, 2]],
    "a remove of the head": [[ANN], [1, "body", 0, 8, 0, 0]],
    "a remove below the first counter": [[ANN], [1, "body", 0, 8, 0, 2, 3, -1]],
    "a remove of too much": [[ANN], [1, "body", 0, 8, 0, 1, BATCH_REMOVES_MAX + 1, 1]],
    "a drop with half a pair": [[ANN], [5, "users", "bob", 0, 1, [0]]],
    "a drop that saw a replica twice": [[ANN], [5, "users", "bob", 0, 1, [0, 1, 0, 2]]],
    "a verbatim op that is text": [[ANN], [6, "op"]],
    "a stretch with columns of two lengths": [[ANN], [*_STRETCH[:5], [1, 1], [0]]],
    "a stretch with a size of 0": [[ANN], [*_STRETCH[:5], [2, 0], [0, 0]]],
    "a stretch with a boolean": [[ANN], [*_STRETCH[:5], [1, True], [0, 0]]],
    "a stretch with a surrogate": [[ANN], [7, "body", 0, 1, "a\udc00", [1, 1], [0, 0]]],
    "a stretch with too much text": [[ANN], [*_STRETCH[:5], [1], [0]]],
    "a stretch with too little text": [[ANN], [*_STRETCH[:5], [3], [0]]],
    "a stretch with an anchor below the head": [[ANN], [*_STRETCH[:5], [2], [-1]]],
    "a stretch that removes the head": [[ANN], [*_STRETCH[:5], [2, -1], [0, -2]]],
}


def _state(**parts: Any) -> dict[str, Any]:
    return {"registers": {}, "lists": {}, "maps": {}, **parts}


def _pieces(*pieces: list[Any]) -> dict[str, Any]:
    return {"pieces": list(pieces)}


# Long enough that its structure and its removed text are worth deflating.
_LONG = "".join(f"Line {n} of a text that somebody wrote, and wrote again.\n" for n in range(9))
_LONG_PIECES = [
    ["r", 2 * n + 1, "r" if n else "", 2 * n - 1 if n else 0, char, n % 3 == 0]
    for n, char in enumerate(_LONG)
]

STATES: dict[str, dict[str, Any]] = {
    "nothing": _state(),
    "registers": _state(
        registers={
            "b": [3, ANN, {"x": [1]}, False],
            "a": [4, BOB, None, True],
            "c": [5, BOB, None, False],
            "d": [6, BOB, "kept", True],
        }
    ),
    "an empty list": _state(lists={"body": _pieces()}),
    "text that was typed at once": _state(lists={"body": _pieces([ANN, 1, "", 0, "hello", False])}),
    "a chain that was typed into": _state(
        lists={
            "body": _pieces(
                [ANN, 1, "", 0, "hel", False],
                [ANN, 5, ANN, 3, "l", False],
                [ANN, 4, ANN, 3, "o", False],
            )
        }
    ),
    "removed in the middle": _state(
        lists={
            "body": _pieces(
                [ANN, 10, "", 0, "ab", False],
                [ANN, 12, ANN, 11, "cd", True],
                [ANN, 14, ANN, 13, "é", False],
            )
        }
    ),
    "two replicas at one place": _state(
        lists={
            "body": _pieces(
                [BOB, 1, "", 0, "!", True],
                [ANN, 1, "", 0, "a", False],
                [BOB, 2, ANN, 1, "xyz", False],
                [ANN, 2, ANN, 1, "bcd", False],
            )
        }
    ),
    "a child of the middle of an overlapping chain": _state(
        lists={
            "body": _pieces(
                [ANN, 1, "", 0, "abcdef", False],
                [BOB, 3, ANN, 3, "x", False],
            )
        }
    ),
    "values that are not text": _state(
        lists={
            "todo": _pieces(
                [ANN, 1, "", 0, [{"done": True}, "two"], False],
                [ANN, 3, ANN, 2, [None, 3, None, None], True],
            )
        }
    ),
    "a list that is not regular": _state(
        lists={
            "body": {
                "nodes": [
                    {
                        "id": "x",
                        "after": "gone",
                        "clock": {"c": 1, "r": ANN},
                        "value": "v",
                        "deleted": False,
                        "pending": False,
                    }
                ]
            }
        }
    ),
    "maps": _state(
        maps={
            "users": {
                "bob": {"puts": {BOB: [3, "Bob"], ANN: [5, None]}, "seen": {BOB: 4}},
                "eve": {"puts": {}, "seen": {ANN: 2}},
            },
            "empty": {},
        }
    ),
    "a long text": _state(lists={"body": {"pieces": _LONG_PIECES}}),
}

_ROW = ["body", "ab", 0, [], 1, "AAIBAgEC"]

MALFORMED_STATES: dict[str, Any] = {
    "null": None,
    "four entries": [1, [], [], []],
    "a counter that is missing": [1, [], [], [], [], None],
    "a counter that is negative": [1, [], [], [], [], -1],
    "a counter beyond the last": [1, [], [], [], [], COUNTER_MAX + 1],
    "another version": [2, [], [], [], []],
    "a version that is a boolean": [True, [], [], [], []],
    "a table that is not sorted": [1, [BOB, ANN], [], [], []],
    "a replica twice": [1, [ANN, ANN], [], [], []],
    "a name twice": [1, [ANN], [["a", 0, 1], ["a", 0, 2]], [], []],
    "a register without a clock": [1, [ANN], [["a"]], [], []],
    "a register of an unknown replica": [1, [ANN], [["a", 1, 1]], [], []],
    "a register with a flag of 2": [1, [ANN], [["a", 0, 1, "v", 2]], [], []],
    "a list that is an object": [1, [ANN], [], [{}], []],
    "nodes that are not objects": [1, [ANN], [], [["body", [1]]], []],
    "live values that are a number": [1, [ANN], [], [["body", 1, *_ROW[2:]]], []],
    "more pieces than elements": [1, [ANN], [], [["body", "ab", 0, [], 3, "AA=="]], []],
    "elements but no pieces": [1, [ANN], [], [["body", "ab", 0, [], 0, "AA=="]], []],
    "elements but no replica": [1, [], [], [_ROW], []],
    "a negative number of removed elements": [1, [ANN], [], [["body", "ab", -1, [], 1, ""]], []],
    "live text with a surrogate": [1, [ANN], [], [["body", "\ud800b", *_ROW[2:]]], []],
    "a counter beyond 2^53 - 1": [
        1,
        [ANN],
        [],
        # A step to 2^53 - 1, then a second element.
        [[*_ROW[:5], "AAIBAgf+//////8/"]],
        [],
    ],
    "a structure that is not base64": [1, [ANN], [], [[*_ROW[:5], "AAI"]], []],
    "an unknown kind of bytes": [1, [ANN], [], [[*_ROW[:5], "AgIBAgEC"]], []],
    "an unknown kind of piece": [1, [ANN], [], [[*_ROW[:5], "AAgBAgEC"]], []],
    "a size of 0": [1, [ANN], [], [[*_ROW[:5], "AAIBAAEC"]], []],
    "a size that is too large": [1, [ANN], [], [[*_ROW[:5], "AAIBAwEC"]], []],
    "a width of 0": [1, [ANN], [], [[*_ROW[:5], "AAIAAgEC"]], []],
    "a step to below the first counter": [1, [ANN], [], [[*_ROW[:5], "AAIBAgEB"]], []],
    "a chain resumed that was not interrupted": [1, [ANN], [], [[*_ROW[:5], "AAEBAgE="]], []],
    "a chain interrupted that is not resumed": [1, [ANN], [], [[*_ROW[:5], "AAMBAgEC"]], []],
    "an element twice": [1, [ANN], [], [["body", "ab", 0, [], 2, "AAICAQEBAQIA"]], []],
    "bytes after the structure": [1, [ANN], [], [[*_ROW[:5], "AAIBAgECAA=="]], []],
    "removed values that are missing": [
        1,
        [ANN],
        [],
        [["body", "", 2, [["a"]], 1, "AAYBAgEC"]],
        [],
    ],
    "removed text that is not UTF-8": [1, [ANN], [], [["body", "", 1, "AP8=", 1, "AAYBAQEC"]], []],
    "a map key without its drops": [1, [ANN], [], [], [["users", ["bob", [0, 1, "v"]]]]],
    "a put by a replica twice": [
        1,
        [ANN],
        [],
        [],
        [["users", ["bob", [0, 1, "v", 0, 2, "w"], []]]],
    ],
}


def _has_parts(packed: object) -> bool:
    return isinstance(packed, list) and len(packed) == 5


def ops_vectors() -> dict[str, Any]:
    """The content of packed_ops.json."""
    return {
        "cases": [
            {"name": name, "runs": rows, "packed": pack_ops(runs_from_json(rows))}
            for name, rows in OPS.items()
        ],
        "malformed": [{"name": n, "packed": packed} for n, packed in MALFORMED_OPS.items()],
    }


def state_vectors() -> dict[str, Any]:
    """The content of packed_state.json."""
    return {
        "cases": [
            {
                "name": name,
                "state": spelled,
                "packed": pack_state(state_from_json(spelled)),
                "deflated": name == "a long text",
            }
            for name, spelled in STATES.items()
        ],
        "malformed": [
            # The counter of the document closes every state that is malformed elsewhere.
            {"name": name, "packed": [*packed, COUNTER] if _has_parts(packed) else packed}
            for name, packed in MALFORMED_STATES.items()
        ],
    }


def spell(vectors: dict[str, Any]) -> str:
    """Vectors as JSON text with one case a line."""
    parts = [
        f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, cases)) + "\n]"
        for name, cases in vectors.items()
    ]
    return "{" + ",\n".join(parts) + "}\n"


def main() -> None:
    """Write both files."""
    for name, vectors in (("packed_ops", ops_vectors()), ("packed_state", state_vectors())):
        (FOLDER / f"{name}.json").write_text(spell(vectors))


if __name__ == "__main__":
    main()

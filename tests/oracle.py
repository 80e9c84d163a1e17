"""The plainest fold that obeys the format: what the real one is compared with.

- One dictionary entry per register, one per list element, one per key of a map; nothing is cached.
- Ops are taken as well-formed: refusing the others is not the fold's business.
- A register, list or map called `__proto__` is ignored, because peers cannot hold one.
- The canonical text is made here too, so that no code under test takes part in a comparison.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, TypeAlias

# A dictionary that has the shape of an op, or that a test claims has it.
AnyOp: TypeAlias = Any
Node: TypeAlias = dict[str, Any]

HEAD = ""
IGNORED_NAME = "__proto__"
NODE_MEMBERS = ("id", "after", "clock", "value", "deleted", "pending")

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Oracle:
    """The registers, lists and maps of one document."""

    def __init__(self) -> None:
        self.registers: dict[str, dict[str, Any]] = {}
        self.lists: dict[str, dict[str, Node]] = {}
        self.maps: dict[str, dict[str, Key]] = {}
        self.counter = 0

    def fold(self, ops: Iterable[AnyOp]) -> Oracle:
        """Apply ops in the order given; returns itself."""
        for op in ops:
            self.apply(op)
        return self

    def apply(self, op: AnyOp) -> None:
        """Apply one op; one of an unknown kind moves the counter only."""
        self.counter = max(self.counter, op["clock"]["c"])
        match op["t"]:
            case "set":
                self._write_register(op["reg"], op["clock"], op["value"], deleted=False)
            case "del":
                self._write_register(op["reg"], op["clock"], None, deleted=True)
            case "ins" if op["list"] != IGNORED_NAME:
                self._insert(self.lists.setdefault(op["list"], {}), op)
            case "rmv" if op["list"] != IGNORED_NAME:
                self._remove(self.lists.setdefault(op["list"], {}), op)
            case "put" if op["map"] != IGNORED_NAME:
                self._key(op).put(op["clock"], op["value"])
            case "drop" if op["map"] != IGNORED_NAME:
                self._key(op).drop(op["seen"])

    def _write_register(self, name: str, clock: Any, value: Any, *, deleted: bool) -> None:
        if name == IGNORED_NAME:
            return
        stored = self.registers.get(name)
        if stored is None or clock_order(clock) > clock_order(stored["clock"]):
            self.registers[name] = {"clock": clock, "value": value, "deleted": deleted}

    def _insert(self, nodes: dict[str, Node], op: AnyOp) -> None:
        known = nodes.get(op["id"])
        placed = {"after": op["after"], "clock": op["clock"], "value": op["value"]}
        if known is None:
            nodes[op["id"]] = {"id": op["id"], **placed, "deleted": False, "pending": False}
        elif known["pending"]:
            known.update(placed, pending=False)

    def _remove(self, nodes: dict[str, Node], op: AnyOp) -> None:
        if op["id"] in nodes:
            nodes[op["id"]]["deleted"] = True
            return
        nodes[op["id"]] = {
            "id": op["id"],
            "after": HEAD,
            "clock": op["clock"],
            "value": None,
            "deleted": True,
            "pending": True,
        }

    def _key(self, op: AnyOp) -> Key:
        return self.maps.setdefault(op["map"], {}).setdefault(op["key"], Key())

    def list_names(self) -> list[str]:
        """Every list there ever was, by code point."""
        return sorted(self.lists)

    def list_ids(self, name: str) -> list[str]:
        """The ids of the live elements in document order."""
        return [node["id"] for node in self._live(name)]

    def list_values(self, name: str) -> list[Any]:
        """The live values in document order."""
        return [node["value"] for node in self._live(name)]

    def text(self, name: str) -> str:
        """The live values that are strings, joined."""
        return "".join(value for value in self.list_values(name) if isinstance(value, str))

    def materialize(self) -> dict[str, Any]:
        """The document as an application sees it: a register hides a list, a list hides a map."""
        shown: dict[str, Any] = {}
        for name, keys in self.maps.items():
            shown[name] = {key: entry.value() for key, entry in keys.items() if entry.is_live()}
        for name in self.lists:
            shown[name] = self.list_values(name)
        for name, register in self.registers.items():
            if not register["deleted"]:
                shown[name] = register["value"]
        return dict(sorted(shown.items()))

    def import_state(self, state: dict[str, Any]) -> Oracle:
        """Take over the registers and lists of a version-1 state; returns itself."""
        self.registers = dict(state["regs"])
        self.lists = {
            name: {node["id"]: {"pending": False, **node} for node in nodes}
            for name, nodes in state["lists"].items()
            if name != IGNORED_NAME
        }
        self.registers.pop(IGNORED_NAME, None)
        return self

    def export_state(self) -> dict[str, Any]:
        """The version-1 state, nodes in order of arrival; maps in the extension member."""
        lists = {name: list(nodes.values()) for name, nodes in self.lists.items()}
        state: dict[str, Any] = {"v": 1, "regs": self.registers, "lists": lists}
        if self.maps:
            maps = {
                name: {key: entry.export() for key, entry in keys.items()}
                for name, keys in self.maps.items()
            }
            state["x"] = {"maps": maps}
        return state

    def canonical_state(self) -> str:
        """The text that two equal documents have in common."""
        state = self.export_state()
        parts = canonical_parts(state)
        if self.maps:
            parts["maps"] = state["x"]["maps"]
        return canon(parts)

    def walk(self, name: str) -> list[Node]:
        """The elements that hang on the head, removed ones too, in document order."""
        return in_document_order(self.lists.get(name, {}).values())

    def _live(self, name: str) -> list[Node]:
        return [node for node in self.walk(name) if not node["deleted"]]


class Key:
    """One key of an observed-remove map."""

    def __init__(self) -> None:
        self.puts: dict[str, tuple[int, Any]] = {}
        self.seen: dict[str, int] = {}

    def put(self, clock: dict[str, Any], value: Any) -> None:
        """Keep the highest write of each replica, the first one if a clock comes twice."""
        if clock["c"] > self.puts.get(clock["r"], (0, None))[0]:
            self.puts[clock["r"]] = (clock["c"], value)

    def drop(self, seen: dict[str, int]) -> None:
        """Keep the pointwise highest counters that anyone had seen when dropping the key."""
        for replica, counter in seen.items():
            self.seen[replica] = max(counter, self.seen.get(replica, 0))

    def is_live(self) -> bool:
        """Whether some write was not seen by any drop."""
        return bool(self._live_puts())

    def value(self) -> Any:
        """The newest write that is live."""
        return max(self._live_puts(), key=lambda put: put[:2])[2]

    def export(self) -> dict[str, Any]:
        """What has to be kept: the live writes, and what was dropped."""
        puts = {replica: [counter, value] for counter, replica, value in self._live_puts()}
        return {"puts": puts, "seen": self.seen}

    def _live_puts(self) -> list[tuple[int, str, Any]]:
        return [
            (counter, replica, value)
            for replica, (counter, value) in self.puts.items()
            if counter > self.seen.get(replica, 0)
        ]


def in_document_order(nodes: Iterable[Node]) -> list[Node]:
    """Walk depth-first from the head, the newest child first."""
    children: dict[str, list[Node]] = {}
    for node in nodes:
        children.setdefault(node["after"], []).append(node)
    for siblings in children.values():
        siblings.sort(key=node_order)
    walked: list[Node] = []
    # The stack holds the siblings oldest first, so that the newest is popped next.
    stack = children.get(HEAD, [])[:]
    while stack:
        node = stack.pop()
        walked.append(node)
        stack.extend(children.get(node["id"], []))
    return walked


def clock_order(clock: dict[str, Any]) -> tuple[int, str]:
    """The sort key of a clock: the counter, then the replica by code point."""
    return (clock["c"], clock["r"])


def node_order(node: Node) -> tuple[tuple[int, str], str]:
    """The sort key of an element: its clock, then its id by code point."""
    return (clock_order(node["clock"]), node["id"])


def canonical_parts(state: dict[str, Any]) -> dict[str, Any]:
    """What a version-1 state says, whatever the order of its nodes and whatever extends it."""
    lists = {
        name: [
            {member: node.get(member, False) for member in NODE_MEMBERS}
            for node in sorted(nodes, key=node_order)
        ]
        for name, nodes in state["lists"].items()
    }
    return {"regs": state["regs"], "lists": lists}


def canon(value: Any) -> str:
    """The canonical JSON text of a value."""
    if isinstance(value, dict):
        members = (f"{canon(key)}:{canon(value[key])}" for key in sorted(value))
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(canon(item) for item in value) + "]"
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return _canon_number(value)


def _canon_number(number: int | float) -> str:
    if number == 0:
        return "0"
    sign, decimals, exponent = Decimal(repr(float(number))).as_tuple()
    assert isinstance(exponent, int), "a JSON number is finite"
    written = "".join(map(str, decimals))
    digits = written.rstrip("0")
    point = len(written) + exponent
    return ("-" if sign else "") + _place_point(digits, point)


def _place_point(digits: str, point: int) -> str:
    """Write 0.`digits` × 10^`point` as ECMAScript does."""
    if len(digits) <= point <= 21:
        return digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"

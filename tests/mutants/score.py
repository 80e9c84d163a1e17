"""How many small faults the tests notice: `python -m tests.mutants --score 40`.

- A fault is one change of one place: another comparison, a condition that always or never holds, a
  number that is off by one, a statement that is left out.
- A sample is drawn by a seed from each area; the tests of the area run against each.
- Some faults change nothing that anybody could see. They count as not noticed all the same.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple, cast

from tests.mutants.tree import Ending, Tree, copied


class Area(NamedTuple):
    """Modules that have one purpose, and the tests that are to notice faults in them.

    Tests that take long come last: what others notice never gets to them.
    """

    modules: Sequence[str]
    tests: Sequence[str]


AREAS = {
    "fold": Area(
        [
            "walstore/crdt/crdt.py",
            "walstore/crdt/registers.py",
            "walstore/crdt/maps.py",
            "walstore/crdt/sequence.py",
            "walstore/crdt/nodes.py",
        ],
        [
            "tests/test_crdt_shape.py",
            "tests/test_crdt_vectors.py",
            "tests/test_crdt_malformed.py",
            "tests/test_crdt_writer.py",
            "tests/test_crdt_packed.py",
            "tests/test_crdt_at_once.py",
            "tests/test_crdt_bursts.py",
            "tests/test_crdt_collection.py",
            "tests/test_crdt_oracle.py",
            "tests/test_document_scenarios.py",
            "tests/test_document_undo.py",
        ],
    ),
    "validation": Area(
        ["walstore/wire/element.py", "walstore/wire/envelope.py", "walstore/crdt/convert.py"],
        [
            "tests/test_crdt_convert.py",
            "tests/test_wire_envelope.py",
            "tests/test_crdt_malformed.py",
            "tests/test_crdt_vectors.py",
            "tests/test_packed_ops.py",
            "tests/test_weaknesses.py",
            "tests/test_document_malformed.py",
            "tests/test_document_attacks.py",
            "tests/test_document_keystrokes.py",
        ],
    ),
    "queue": Area(
        ["walstore/document/outbox.py", "walstore/document/sealing.py"],
        [
            "tests/test_document_outbox.py",
            "tests/test_weaknesses.py",
            "tests/test_document_refused.py",
            "tests/test_document_versions.py",
            "tests/test_document_pruning.py",
            "tests/test_store_refused.py",
            "tests/test_store_offline.py",
            "tests/test_document_attacks.py",
            "tests/test_document_keystrokes.py",
            "tests/test_document_commit.py",
        ],
    ),
    "rollback": Area(
        ["walstore/document/opening.py", "walstore/document/gaps.py"],
        [
            "tests/test_document_outbox.py",
            "tests/test_weaknesses.py",
            "tests/test_document_attacks.py",
            "tests/test_document_snapshots.py",
            "tests/test_document_pruning.py",
            "tests/test_document_forgetting.py",
            "tests/test_document_revoked.py",
            "tests/test_document_snapshots_vectors.py",
            "tests/test_document_folding.py",
            "tests/test_store_marks.py",
            "tests/test_store_rollback.py",
        ],
    ),
}

# A fault may make an end endless; so much longer than without it is long enough.
PATIENCE = 4
PATIENCE_S_MIN = 60.0


class Site(NamedTuple):
    """A place where something can be changed.

    Attributes:
        number: Which node of the module it is, counted as they are walked.
        kind: What is changed there.
        line: Where that is.
    """

    number: int
    kind: str
    line: int


_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def sites(text: str) -> Iterator[Site]:
    """Every place of a module where a fault can be put in."""
    tree = ast.parse(text)
    skipped = _names_and_notes(tree)
    for number, node in enumerate(ast.walk(tree)):
        if node in skipped:
            continue
        for kind in _kinds(node):
            yield Site(number, kind, getattr(node, "lineno", 0))


def changed(text: str, site: Site) -> str:
    """The module with one fault."""
    tree = ast.parse(text)
    node = next(each for number, each in enumerate(ast.walk(tree)) if number == site.number)
    replacement = _fault(node, site.kind)
    if replacement is not node:
        _Replacing(node, replacement).visit(tree)
    return ast.unparse(ast.fix_missing_locations(tree))


def _names_and_notes(tree: ast.Module) -> set[ast.AST]:
    """What nobody runs: annotations, notes, messages, and what only types need."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        match node:
            case ast.arg():
                parts = [node.annotation]
            case ast.AnnAssign():
                parts = [node.annotation]
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                parts = [node.returns, *node.decorator_list]
            case ast.Raise():
                parts = [node.exc]
            case ast.Assert():
                parts = [node]
            case ast.Expr(value=ast.Constant()):
                parts = [node]
        for part in parts:
            found.update(ast.walk(part) if part is not None else ())
    return found


def _kinds(node: ast.AST) -> list[str]:
    match node:
        case ast.Compare(ops=[_]):
            return ["compare"]
        case ast.BoolOp():
            return ["and or"]
        case ast.UnaryOp(op=ast.Not()):
            return ["not"]
        case ast.If() | ast.IfExp():
            return ["always", "never"]
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return ["plus minus"]
        case ast.Constant(value=bool()):
            return ["true false"]
        case ast.Constant(value=int()):
            return ["off by one"]
        case ast.Raise() | ast.AugAssign() | ast.Delete():
            return ["left out"]
        case ast.Expr(value=ast.Call()):
            return ["left out"]
        case ast.Assign(targets=[ast.Attribute()]):
            return ["left out"]
        case ast.Break() | ast.Continue():
            return ["break continue"]
    return []


def _fault(node: Any, kind: str) -> ast.AST:
    """Change a node, or give another one for it."""
    match kind:
        case "compare":
            node.ops = [_COMPARISONS[type(node.ops[0])]()]
        case "and or":
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case "not":
            return cast("ast.AST", node.operand)
        case "always" | "never":
            node.test = ast.Constant(kind == "always")
        case "plus minus":
            node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        case "true false":
            node.value = not node.value
        case "off by one":
            node.value += 1
        case "break continue":
            return ast.Continue() if isinstance(node, ast.Break) else ast.Break()
        case _:
            return ast.Pass()
    return cast("ast.AST", node)


class _Replacing(ast.NodeTransformer):
    """Puts another node in the place of one."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> Any:
        """Replace, or look inside."""
        return self._new if node is self._old else self.generic_visit(node)


# ── the score ──────────────────────────────────────────────────────────────────────────


class Score(NamedTuple):
    """How many faults were put in, and which were not noticed."""

    faults: int
    unnoticed: list[str]

    @property
    def share(self) -> float:
        """How many of them were noticed, out of one."""
        return 1 - len(self.unnoticed) / self.faults if self.faults else 0.0


def score(name: str, *, count: int, seed: int, say: Callable[[str], None]) -> Score:
    """Put a sample of faults into an area, one at a time."""
    area = AREAS[name]
    with copied() as tree:
        began = time.monotonic()
        assert tree.run(area.tests) is Ending.PASSED, "the tests fail without any fault"
        seconds_max = max(PATIENCE_S_MIN, PATIENCE * (time.monotonic() - began))
        places = [(path, site) for path in area.modules for site in sites(tree.read(path))]
        chosen = Random(f"{seed}:{name}").sample(places, min(count, len(places)))
        unnoticed: list[str] = []
        faults = 0
        for path, site in chosen:
            ending = _run_with(tree, path, site, area.tests, seconds_max)
            where = f"{path}:{site.line} {site.kind}"
            say(f"{name}: {where}: the tests {ending.value}")
            # What cannot even be imported is no fault that tests would have to notice.
            faults += ending is not Ending.BROKEN
            if ending is Ending.PASSED:
                unnoticed.append(where)
        return Score(faults, unnoticed)


def _run_with(
    tree: Tree, path: str, site: Site, tests: Sequence[str], seconds_max: float
) -> Ending:
    whole = tree.read(path)
    try:
        tree.write(path, changed(whole, site))
        return tree.run(tests, seconds_max=seconds_max)
    finally:
        tree.write(path, whole)

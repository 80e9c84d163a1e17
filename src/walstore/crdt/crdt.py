"""The document's content: registers, lists and maps, folded from ops in any order.

- Folding commutes and may be repeated, for ops whose clocks are each used once.
- A malformed op or state raises before anything has changed.
- `counter` is the highest counter seen anywhere: in ops, own or foreign, in ops of unknown
  kinds, and in every clock of an imported state. A new clock is always above it.
- What goes in and what comes out is copied: nobody shares a container with the document.
- Removed elements of lists may be let go once everybody has seen them. Up to `horizon`, what is not
  there was let go; an op that names it all the same is taken as `walstore.crdt.collection` says.
  The same holds of replicas that are cut off: what is not there of them never comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, assert_never

from walstore.canon import canonical_text, find_flaw
from walstore.crdt import exchange
from walstore.crdt.build import build_sequence, build_text
from walstore.crdt.changes import Change, ListChanged, MapChanged, RegisterChanged
from walstore.crdt.clock import COUNTER_MAX
from walstore.crdt.collection import moved, present, without_removed
from walstore.crdt.collector import CollectorPaused
from walstore.crdt.convert import plain_inserts, to_run, to_runs
from walstore.crdt.exchange import IGNORED_NAME
from walstore.crdt.ids import element_id, parse_element_id
from walstore.crdt.maps import ObservedRemoveMap
from walstore.crdt.nodes import Node, NodeSequence
from walstore.crdt.ops import Json, fresh
from walstore.crdt.packed_sequence import PackedSequence
from walstore.crdt.packed_state import pack_state, unpack_state
from walstore.crdt.registers import Registers
from walstore.crdt.runs import Delete, Drop, Insert, InsertColumns, Put, Remove, Run, Set, Verbatim
from walstore.crdt.sequence import RunSequence
from walstore.errors import MalformedError

Sequence = RunSequence | NodeSequence

# From here on, laying a new list out at once is cheaper than placing run after run.
BUILD_RUNS_MIN: Final = 64


class Hand:
    """Who edits a document, and may have put off some of the folding until somebody looks."""

    __slots__ = ()

    def settle(self) -> None:
        """Fold what was put off."""
        raise NotImplementedError


class WalCrdt:
    """Registers, lists and maps by name."""

    __slots__ = (
        "_befores",
        "_maps",
        "_registers",
        "comes_upto",
        "counter",
        "displaced",
        "folded",
        "hand",
        "horizon",
        "last_coming",
    )

    def __init__(self) -> None:
        self._registers = Registers()
        # Lists out of a packed state stay packed until more is needed than what they show.
        self.folded: dict[str, Sequence | PackedSequence] = {}
        # Who is to be asked before anybody looks at lists.
        self.hand: Hand | None = None
        self._maps: dict[str, ObservedRemoveMap] = {}
        self.counter = 0
        # Elements with a counter up to this one that are not here were removed and let go.
        self.horizon = 0
        # The counter above which elements of a replica that are not here never come, but for those
        # that are known to: of a list and a replica, the highest counter below another one.
        self.comes_upto: Callable[[str], int] = _without_end
        self.last_coming: Callable[[str, str, int], int] = _nothing
        # What lists of nodes showed before the runs that are being folded.
        self._befores: dict[str, list[Node]] = {}
        # The inserts whose anchor was gone, for somebody to take note of.
        self.displaced: list[Insert] = []

    @property
    def lists(self) -> dict[str, Sequence | PackedSequence]:
        """The lists, whose edits are all folded."""
        if self.hand is not None:
            self.hand.settle()
        return self.folded

    # ── folding ────────────────────────────────────────────────────────────────────────

    def apply(self, op: object, changes: list[Change] | None = None) -> None:
        """Fold one op.

        Args:
            op: The op, in the version-1 format.
            changes: If given, what changed is appended to it.

        Raises:
            MalformedError: The op is not of the format; nothing has changed.
        """
        self.fold_runs((to_run(op),), changes)

    def fold(self, ops: Iterable[object], changes: list[Change] | None = None) -> None:
        """Fold ops.

        Args:
            ops: The ops, in the version-1 format.
            changes: If given, what changed is appended to it.

        Raises:
            MalformedError: One of the ops is not of the format; nothing has changed.
        """
        if isinstance(ops, list) and len(ops) >= BUILD_RUNS_MIN:
            with CollectorPaused():
                if not self._fold_plain(ops, changes):
                    self.fold_runs(to_runs(ops), changes)
        else:
            self.fold_runs(to_runs(ops), changes)

    def fold_runs(self, runs: Iterable[Run], changes: list[Change] | None = None) -> None:
        """Fold runs that were checked when they were read.

        Args:
            runs: The runs; their values belong to the document from now on.
            changes: If given, what changed is appended to it.
        """
        if isinstance(runs, list) and len(runs) >= BUILD_RUNS_MIN:
            with CollectorPaused():
                runs = self._build_lists(runs, changes)
        lists = self.lists
        if self._befores:
            # Left over from runs that could not be folded to the end.
            self._befores = {}
        for run in runs:
            # The two kinds that a key-press makes come first.
            if isinstance(run, Insert):
                last = run.counter + len(run.values) - 1
                sequence = lists.get(run.list)
                if not isinstance(sequence, RunSequence) or not sequence.insert_run(run, changes):
                    self._insert(run, changes)
            elif isinstance(run, Remove):
                last = run.counter + run.size - 1
                sequence = lists.get(run.list)
                if not isinstance(sequence, RunSequence) or not sequence.remove_run(run, changes):
                    self._remove(run, changes)
            elif isinstance(run, Verbatim):
                last = run.op["clock"]["c"]
                self._fold_verbatim(run.op, changes)
            else:
                last = run.counter
                self._fold_entry(run, changes)
            if last > self.counter:
                self.counter = last
        if self._befores:
            self._compare(changes)

    def join(self, other: WalCrdt) -> None:
        """Take in everything that another document holds; the other one stays as it is."""
        self._registers.join(other._registers)
        for name, theirs in other._maps.items():
            self._map(name).join(theirs)
        for name in list(other.lists):
            theirs_now = other._opened(name)
            if theirs_now is not None:
                self._join_list(name, theirs_now)
        self.counter = max(self.counter, other.counter)

    # ── reading ────────────────────────────────────────────────────────────────────────

    def materialize(self) -> dict[str, Any]:
        """The document as a JSON object, members in code-point order.

        A live register hides a list or map of the same name, a list hides a map.
        """
        return {name: self._member(name) for name in self.names()}

    def names(self) -> list[str]:
        """The names of everything that shows, in code-point order."""
        live = {name for name in self._registers.entries if self._registers.live(name)}
        return sorted(live.union(self.lists, self._maps))

    def has_register(self, name: str) -> bool:
        """Whether a register has a value."""
        return self._registers.live(name) is not None

    def has_map(self, name: str) -> bool:
        """Whether there is a map of a name, emptied or not."""
        return name in self._maps

    def has_replica(self, replica: str) -> bool:
        """Whether anything that is held was stamped by a replica."""
        return (
            any(entry.replica == replica for entry in self._registers.entries.values())
            or any(self.sequence(name).has_replica(replica) for name in list(self.lists))
            or any(entries.has_replica(replica) for entries in self._maps.values())
        )

    def unmet(self) -> Iterator[tuple[int, str]]:
        """Counter and replica of the list elements that are named and not there; of those in a
        row, of the last one.
        """
        for sequence in self.lists.values():
            if isinstance(sequence, NodeSequence):
                yield from sequence.unmet()

    def inserted_by(self, author: str) -> dict[str, int]:
        """The highest counter of the list elements of each replica of an author."""
        counters: dict[str, int] = {}
        for name in list(self.lists):
            for replica, counter in self.sequence(name).newest():
                if replica.partition(":")[0] == author:
                    counters[replica] = max(counters.get(replica, 0), counter)
        return counters

    def is_text(self, name: str) -> bool:
        """Whether a list shows nothing but characters; so does one that is not there."""
        sequence = self._shown(name)
        return sequence is None or sequence.is_text()

    def get_register(self, name: str, default: Any = None) -> Any:
        """The value of a register, or `default` if it is absent or deleted."""
        entry = self._registers.live(name)
        return default if entry is None else fresh(entry.value)

    def list_values(self, name: str) -> list[Any]:
        """The live values of a list; empty if there is no such list."""
        sequence = self._shown(name)
        return [] if sequence is None else sequence.values()

    def list_ids(self, name: str) -> list[str]:
        """The ids of the live elements of a list."""
        sequence = self._settled(name)
        return [] if sequence is None else sequence.ids()

    def list_length(self, name: str) -> int:
        """How many elements a list shows."""
        sequence = self._shown(name)
        return 0 if sequence is None else len(sequence)

    def text(self, name: str) -> str:
        """The live values of a list that are strings, joined."""
        sequence = self._shown(name)
        return "" if sequence is None else sequence.text()

    def list_names(self) -> list[str]:
        """The names of all lists, emptied ones too, in code-point order."""
        return sorted(self.lists)

    def map_items(self, name: str) -> dict[str, Any]:
        """The live keys of a map with their values, in code-point order."""
        entries = self._maps.get(name)
        return {} if entries is None else fresh(entries.items())

    def map_value(self, name: str, key: str, default: Any = None) -> Any:
        """The value of a key of a map, or a default."""
        entries = self._maps.get(name)
        value = default if entries is None else entries.value(key, default)
        return default if value is default else fresh(value)

    def map_names(self) -> list[str]:
        """The names of all maps, emptied ones too, in code-point order."""
        return sorted(self._maps)

    def map_seen(self, name: str, key: str) -> dict[str, int]:
        """The highest counter by replica of a key's live puts: what a drop of it names."""
        entries = self._maps.get(name)
        return {} if entries is None else entries.seen(key)

    def register_clock(self, name: str) -> tuple[int, str] | None:
        """Counter and replica of what wrote or deleted a register last."""
        entry = self._registers.entries.get(name)
        return None if entry is None else (entry.counter, entry.replica)

    def map_clock(self, name: str, key: str) -> tuple[int, str] | None:
        """Counter and replica of the write that a live key shows."""
        seen = self.map_seen(name, key)
        return max(((counter, replica) for replica, counter in seen.items()), default=None)

    def id_at(self, name: str, position: int) -> str:
        """The id of the live element at a position.

        Raises:
            IndexError: There is no such position.
        """
        sequence = self._settled(name)
        if sequence is None or not 0 <= position < len(sequence):
            raise IndexError(f"no position {position} in the list {name!r}")
        if isinstance(sequence, NodeSequence):
            return sequence.live()[position].id
        return element_id(*sequence.clock_at(position))

    def position_of(self, name: str, id: str) -> int | None:
        """The position of a live element, or None if it is removed or unknown."""
        found = self.find_element(name, id)
        return found[0] if found is not None and found[1] else None

    def find_element(self, name: str, id: str) -> tuple[int, bool] | None:
        """Where an element is: how many live ones stand before it, and whether it is live.

        A removed element keeps its place, so a caret that was anchored to it still has one.
        """
        sequence = self._settled(name)
        if isinstance(sequence, NodeSequence):
            return sequence.find(id)
        clock = parse_element_id(id)
        if sequence is None or clock is None:
            return None
        return sequence.find(clock[1], clock[0])

    # ── states ─────────────────────────────────────────────────────────────────────────

    def export_state(self) -> dict[str, Any]:
        """The full state in the version-1 format, nodes in order of arrival.

        Maps, which version 1 does not know, are in the extension member `x`.

        Raises:
            StateTooLargeError: It would be far longer than what anybody can read.
        """
        return exchange.export_state(self._registers, self.lists, self._maps)

    def import_state(self, state: object) -> None:
        """Replace everything by a version-1 state.

        Raises:
            MalformedError: The state is not of the format; nothing has changed.
        """
        self._replace(exchange.import_state(state))

    def export_packed(self, *, keep_removed: bool = True) -> list[Any]:
        """The state in the packed format.

        Args:
            keep_removed: Whether to keep the values of removed list elements. Nothing that shows
                depends on them, but without them the canonical state is another one.

        Raises:
            StateTooLargeError: No reader would accept it.
        """
        state = exchange.to_state(self._registers, self.lists, self._maps, self.counter)
        packed = pack_state(state, keep_removed=keep_removed)
        return [fresh(part) for part in packed]

    def import_packed(self, packed: object, *, lazy: bool = False) -> None:
        """Replace everything by a packed state.

        Args:
            packed: The state.
            lazy: Leave the structure of lists packed until it is needed: what they show is
                there at once. A malformed structure then raises at the first use that needs it.

        Raises:
            MalformedError: The state is not of the format; nothing has changed.
        """
        flaw = find_flaw(packed)
        if flaw is not None:
            raise MalformedError("packed state", flaw)
        content = exchange.from_state(unpack_state(fresh(packed)))
        if not lazy:
            for name, sequence in content.lists.items():
                if isinstance(sequence, PackedSequence):
                    content.lists[name] = sequence.opened()
        self._replace(content)

    def canonical_state(self, *, maps: bool = True) -> str:
        """The canonical text that two documents of equal content share.

        It is the format's: registers and lists. Maps, an extension, take part if there are any,
        unless they are left out for comparing with a peer that does not know them.

        Raises:
            StateTooLargeError: It would be far longer than what anybody can read.
        """
        own = self._maps if maps else {}
        return canonical_text(exchange.canonical_parts(self._registers, self.lists, own))

    def is_same(self, other: WalCrdt, *, maps: bool = True) -> bool:
        """Whether two documents have the same canonical text, which may be far longer than they."""
        left, right = (
            exchange.compared_parts(each._registers, each.lists, each._maps if maps else {})
            for each in (self, other)
        )
        return canonical_text(left) == canonical_text(right)

    def clone(self) -> WalCrdt:
        """An independent copy."""
        copy = WalCrdt()
        copy._registers.join(self._registers)
        for name, entries in self._maps.items():
            copy._map(name).join(entries)
        copy.folded = {
            name: sequence if isinstance(sequence, PackedSequence) else sequence.copy()
            for name, sequence in self.lists.items()
        }
        copy.counter = self.counter
        copy.horizon = self.horizon
        copy.comes_upto, copy.last_coming = self.comes_upto, self.last_coming
        return copy

    def collected(self) -> WalCrdt:
        """A copy that has let go of the removed elements of lists, and shows the same.

        It must not be joined with a document that has not; see `walstore.document.snapshot`.
        """
        copy = self.clone()
        for name in copy.lists:
            sequence = copy._settled(name)
            if sequence is not None:
                copy.lists[name] = without_removed(sequence)
        # After a deletion nothing tells how high the counters were of what is gone.
        copy.horizon = max(copy.horizon, copy.counter)
        return copy

    def check(self) -> None:
        """Check every invariant, slowly.

        Raises:
            AssertionError: One is broken, which is a defect of walstore.
        """
        for name in list(self.lists):
            sequence = self._opened(name)
            if isinstance(sequence, RunSequence):
                sequence.check()

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def sequence(self, name: str) -> Sequence:
        """The list of a name, made if need be, as runs if its shape allows."""
        sequence = self._settled(name)
        if sequence is None:
            sequence = self.lists[name] = RunSequence()
        return sequence

    def _opened(self, name: str) -> Sequence | None:
        """The list of a name with its structure, whatever its shape."""
        sequence = self.lists.get(name)
        if isinstance(sequence, PackedSequence):
            sequence = self.lists[name] = sequence.opened()
        return sequence

    def _shown(self, name: str) -> Sequence | PackedSequence | None:
        """The list of a name as far as what it shows is concerned."""
        sequence = self.lists.get(name)
        if isinstance(sequence, RunSequence | PackedSequence):
            return sequence
        return self._settled(name)

    def _settled(self, name: str) -> Sequence | None:
        """The list of a name, as runs if its shape allows."""
        sequence = self._opened(name)
        if isinstance(sequence, NodeSequence):
            settled = sequence.settled()
            if settled is not None:
                self.lists[name] = settled
                return settled
        return sequence

    def _map(self, name: str) -> ObservedRemoveMap:
        entries = self._maps.get(name)
        if entries is None:
            entries = self._maps[name] = ObservedRemoveMap()
        return entries

    def _member(self, name: str) -> Any:
        entry = self._registers.live(name)
        if entry is not None:
            return fresh(entry.value)
        return self.list_values(name) if name in self.lists else self.map_items(name)

    def _write(
        self, run: Set | Delete, value: Json, changes: list[Change] | None, *, deleted: bool
    ) -> None:
        name = run.register
        if name == IGNORED_NAME:
            return
        newest = self._registers.write(name, run.counter, run.replica, value, deleted=deleted)
        if newest and changes is not None:
            changes.append(RegisterChanged(name))

    def _fold_entry(self, run: Set | Delete | Put | Drop, changes: list[Change] | None) -> None:
        match run:
            case Set():
                self._write(run, run.value, changes, deleted=False)
            case Delete():
                self._write(run, None, changes, deleted=True)
            case Put() | Drop():
                self._fold_map(run, changes)
            case _:
                assert_never(run)

    def _fold_map(self, run: Put | Drop, changes: list[Change] | None) -> None:
        if run.map == IGNORED_NAME:
            return
        entries = self._map(run.map)
        if isinstance(run, Put):
            changed = entries.put(run.key, run.counter, run.replica, run.value)
        else:
            changed = entries.drop(run.key, run.seen)
        if changed and changes is not None:
            changes.append(MapChanged(run.map, run.key))

    def _build_lists(self, runs: list[Run], changes: list[Change] | None) -> list[Run]:
        """Lay out those lists that these runs begin; the runs that are left to fold."""
        inserts: dict[str, list[Insert]] = {}
        removes: dict[str, list[Remove]] = {}
        entries: list[Run] = []
        # Before which insert each remove came; past the last element of each replica by then; and
        # where something may have been removed before it came.
        places: dict[str, list[int]] = {}
        ends: dict[str, int] = {}
        early: set[str] = set()
        for run in runs:
            if isinstance(run, Insert):
                inserts.setdefault(run.list, []).append(run)
                end = ends.get(run.replica, 0)
                if run.counter < end and run.list in removes:
                    early.add(run.list)
                ends[run.replica] = max(end, run.counter + len(run.values))
            elif isinstance(run, Remove):
                removes.setdefault(run.list, []).append(run)
                places.setdefault(run.list, []).append(len(inserts.get(run.list, ())))
                if run.first_target + run.size > ends.get(run.target_replica, 0):
                    early.add(run.list)
            elif isinstance(run, Verbatim):
                # What no run can say may need its place in between.
                return runs
            else:
                entries.append(run)
        built: set[str] = set()
        for name, own in inserts.items():
            before = places[name] if name in early else []
            if self._build_list(name, own, removes.get(name, []), before, changes):
                built.add(name)
        if built.issuperset(inserts) and built.issuperset(removes):
            return entries
        return [run for run in runs if not (isinstance(run, Insert | Remove) and run.list in built)]

    def _fold_plain(self, ops: list[object], changes: list[Change] | None) -> bool:
        """Fold ops that only insert characters into one new list; False if they do not."""
        first = ops[0]
        name = first.get("list") if isinstance(first, dict) else None
        if not isinstance(name, str) or name in self.lists or name == IGNORED_NAME:
            return False
        inserts = plain_inserts(name, ops)
        sequence = None if inserts is None else build_text(inserts)
        if inserts is None or sequence is None:
            return False
        self._begin_list(name, sequence, changes)
        self.counter = max(self.counter, *inserts.counters)
        return True

    def _build_list(
        self,
        name: str,
        inserts: list[Insert],
        removes: list[Remove],
        places: list[int],
        changes: list[Change] | None,
    ) -> bool:
        """Lay out a list that these ops begin; False if they have to be folded one by one."""
        if len(inserts) < BUILD_RUNS_MIN or name in self.lists or name == IGNORED_NAME:
            return False
        sequence = build_sequence(InsertColumns.of(inserts), removes, places)
        if sequence is None:
            return False
        self._begin_list(name, sequence, changes)
        self.counter = max(
            self.counter,
            *[run.counter + len(run.values) - 1 for run in inserts],
            *[run.counter + run.size - 1 for run in removes],
        )
        return True

    def _begin_list(
        self, name: str, sequence: PackedSequence | RunSequence, changes: list[Change] | None
    ) -> None:
        self.lists[name] = sequence
        if changes is not None:
            changes.append(ListChanged(name, 0, 0, sequence.values()))

    def _insert(self, run: Insert, changes: list[Change] | None) -> None:
        sequence = self.lists.get(run.list)
        if type(sequence) is not RunSequence:
            sequence = self._foldable(run.list)
            if sequence is None:
                return
        if isinstance(sequence, RunSequence) and sequence.insert_run(run, changes):
            return
        if run.after_counter and self._never_comes(run.list, run.after_replica, run.after_counter):
            coming = self.last_coming(run.list, run.after_replica, run.after_counter)
            moved_run = moved(run, self._opened(run.list), coming)
            if moved_run is not None:
                self.displaced.append(run)
                self._insert(moved_run, changes)
                return
        self._fold_nodes(run.list, lambda nodes: nodes.insert_run(run), changes)

    def _remove(self, run: Remove, changes: list[Change] | None) -> None:
        sequence = self.lists.get(run.list)
        if type(sequence) is not RunSequence:
            if sequence is None and not present(run, None, self._never_comes):
                return
            sequence = self._foldable(run.list)
            if sequence is None:
                return
        if isinstance(sequence, RunSequence) and sequence.remove_run(run, changes):
            return
        last = run.first_target + run.size - 1
        if self.horizon or last > self.comes_upto(run.target_replica):
            parts = present(run, sequence, self._never_comes)
            if parts != [run]:
                for part in parts:
                    self._remove(part, changes)
                return
        self._fold_nodes(run.list, lambda nodes: nodes.remove_run(run), changes)

    def _never_comes(self, name: str, replica: str, counter: int) -> bool:
        """Whether an element of a list, if it is not here, never comes."""
        if counter <= self.horizon:
            return True
        return (
            counter > self.comes_upto(replica)
            and self.last_coming(name, replica, counter + 1) != counter
        )

    def _foldable(self, name: str) -> Sequence | None:
        """The list that an op names, made if need be; None for the name that everyone ignores."""
        if name == IGNORED_NAME:
            return None
        opened = self._opened(name)
        if opened is None:
            opened = self.lists[name] = RunSequence()
        return opened

    def _fold_verbatim(self, op: dict[str, Any], changes: list[Change] | None) -> None:
        if op["t"] not in ("ins", "rmv") or op["list"] == IGNORED_NAME:
            return
        counter, replica = op["clock"]["c"], op["clock"]["r"]

        def fold(nodes: NodeSequence) -> None:
            if op["t"] == "ins":
                nodes.insert(op["id"], op["after"], counter, replica, op["value"])
            else:
                nodes.remove(op["id"], counter, replica)

        self._fold_nodes(op["list"], fold, changes)

    def _fold_nodes(
        self, name: str, fold: Callable[[NodeSequence], None], changes: list[Change] | None
    ) -> None:
        """Fold what breaks the causal shape; what all of it changed is found by comparison."""
        nodes = self._opened(name)
        if not isinstance(nodes, NodeSequence):
            nodes = self.lists[name] = NodeSequence.of(nodes)
        if changes is not None and name not in self._befores:
            self._befores[name] = nodes.live()
        fold(nodes)

    def _compare(self, changes: list[Change] | None) -> None:
        """Note what was changed in lists of nodes, once for each list."""
        befores, self._befores = self._befores, {}
        for name, before in befores.items():
            nodes = self.folded[name]
            if changes is not None and isinstance(nodes, NodeSequence):
                changes.extend(_differences(name, before, nodes.live()))

    def _join_list(self, name: str, theirs: Sequence) -> None:
        if name not in self.lists:
            self.lists[name] = RunSequence()
        if isinstance(theirs, RunSequence):
            for run in theirs.as_runs(name):
                if isinstance(run, Insert):
                    self._insert(run, None)
                else:
                    self._remove(run, None)
        else:
            self._fold_nodes(name, lambda nodes: nodes.join(theirs), None)

    def _replace(self, content: exchange.Content) -> None:
        if self.hand is not None:
            self.hand.settle()
        self._registers, self.folded, self._maps, self.counter = content


def _without_end(replica: str) -> int:
    return COUNTER_MAX


def _nothing(name: str, replica: str, counter: int) -> int:
    return 0


def _differences(name: str, before: list[Node], after: list[Node]) -> Iterator[Change]:
    """The deltas from one order of live nodes to another: each that stays is left alone."""
    start, end = _common_ends(before, after)
    before, after = before[start : len(before) - end], after[start : len(after) - end]
    stay = {node.id for node in before}.intersection([node.id for node in after])
    old = new = 0
    while old < len(before) or new < len(after):
        past_old, past_new = _past(before, old, stay), _past(after, new, stay)
        if past_old == old and past_new == new:
            if before[old] is after[new]:
                old, new = old + 1, new + 1
                continue
            # What stays has moved: the rest is told at once.
            past_old, past_new = len(before), len(after)
        inserted = [fresh(node.value) for node in after[new:past_new]]
        yield ListChanged(name, start + new, past_old - old, inserted)
        old, new = past_old, past_new


def _common_ends(before: list[Node], after: list[Node]) -> tuple[int, int]:
    """How many nodes two orders have in common at the head, and at the end."""
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and before[start] is after[start]:
        start += 1
    end = 0
    while end < shorter - start and before[-1 - end] is after[-1 - end]:
        end += 1
    return start, end


def _past(nodes: list[Node], place: int, stay: set[str]) -> int:
    """The place of the first node, from a place on, that stays."""
    while place < len(nodes) and nodes[place].id not in stay:
        place += 1
    return place

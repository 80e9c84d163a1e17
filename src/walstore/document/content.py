"""What a document holds, to read and to edit at once: no network, no waiting.

- Edits are folded when they are made, and recorded to be committed.
- `set_text`, `set_list` and `update` take the value that is wanted and make the fewest edits
  that lead there, against the value that was shown: a `base` view, or what was last read.
- A name is a register, a list or a map for ever; an edit that would change its kind is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from walstore.canon import (
    FORBIDDEN_NAMES,
    VALUE_DEPTH_MAX,
    canonical_text,
    check_value,
    find_flaw,
)
from walstore.crdt import (
    Change,
    Json,
    ListChanged,
    MapChanged,
    RegisterChanged,
    Run,
    WalCrdt,
    Writer,
)
from walstore.crdt.elements import Ids
from walstore.crdt.packed_ops import is_scalar_text
from walstore.crdt.runs import is_character
from walstore.document.bases import Bases, Edit, ListBase, Shown, edited_base
from walstore.document.differences import changed_list, changed_values
from walstore.document.realignment import edits_between, keys_of
from walstore.document.view import View, frozen, thawed
from walstore.errors import NameRefusedError, NotJsonError, UsageError
from walstore.reconcile import Hunk, diff_items, diff_text
from walstore.wire.limits import MAP_VALUE_DEPTH_MAX

_ABSENT = object()


class KindError(UsageError):
    """An edit would make a register of a list, or the other way round.

    Attributes:
        name: The name.
        kind: What it is: "register", "list", "text" or "map".
        wanted: What the edit needs.
    """

    def __init__(self, name: str, kind: str, wanted: str) -> None:
        super().__init__(
            f"{name!r} is a {kind} and cannot be used as a {wanted}; use another name, "
            f"or delete it with migrate({name!r}) first"
        )
        self.name = name
        self.kind = kind
        self.wanted = wanted


class Befores:
    """What was there before edits wrote registers and keys of maps.

    Attributes:
        registers: Of each register the clock, and the canonical text of its value or None if it was
            deleted; None where nobody had written it.
        keys: Of each key what it showed, with its clock; None where there was nothing.
    """

    __slots__ = ("keys", "registers")

    def __init__(self) -> None:
        self.registers: dict[str, tuple[tuple[int, str], str | None] | None] = {}
        self.keys: dict[tuple[str, str], tuple[tuple[int, str], str] | None] = {}


class Content:
    """The registers, lists and maps of a document, for one writer."""

    __slots__ = (
        "_bases",
        "_befores",
        "_changes",
        "_check",
        "_check_name_size",
        "_migrated",
        "_named",
        "_writer",
        "crdt",
        "version",
    )

    def __init__(
        self,
        crdt: WalCrdt,
        replica: str,
        check: Callable[[object], None] | None = None,
        check_name: Callable[[str], None] | None = None,
    ) -> None:
        """Edit `crdt` as `replica`; the checks refuse values and names that could not be sent."""
        self.crdt = crdt
        # Counts the changes, own and foreign.
        self.version = 0
        self._writer = Writer(crdt, replica)
        self._bases = Bases()
        # What local edits, and another fold, have changed; None if nobody asks.
        self._changes: list[Change] | None = None
        # What was there before the edits since the last time; None if nobody asks.
        self._befores: Befores | None = None
        self._check = check
        self._check_name_size = check_name
        # Names that were checked before.
        self._named: set[str] = set()
        # Names that were emptied to be used for another kind of value.
        self._migrated: set[str] = set()

    # ── reading ────────────────────────────────────────────────────────────────────────

    def materialize(self) -> dict[str, Any]:
        """The document as JSON, lists of characters as lists."""
        document = self.crdt.materialize()
        for name, value in document.items():
            if isinstance(value, list) and self._is_list(name):
                self._bases.show(name, self._shown(name))
        self._bases.show_whole()
        return document

    def view(self) -> View:
        """The document as an immutable value that remembers its version."""
        bases = {name: self._bases.show(name, self._shown(name)) for name in self.crdt.list_names()}
        self._bases.show_whole()
        members: dict[str, Any] = {}
        for name in self.crdt.names():
            kind = self.kind(name)
            if kind in ("list", "text"):
                members[name] = bases[name].value
            elif kind == "map":
                members[name] = frozen(self.crdt.map_items(name))
            else:
                members[name] = frozen(self.crdt.get_register(name))
        return View(members, bases, owner=self, version=self.version)

    def text(self, name: str) -> str:
        """A text, or the strings of a list joined."""
        if self.crdt.is_text(name):
            shown = self._text(name)
            self._bases.show(name, shown)
            return shown
        return self.crdt.text(name)

    def values(self, name: str) -> list[Any]:
        """The values of a list."""
        self._bases.show(name, self._shown(name))
        return self.crdt.list_values(name)

    def kind(self, name: str) -> str | None:
        """What a name is: "register", "list", "text" (a list of characters only) or "map"."""
        if self._is_list(name):
            return "text" if self.crdt.is_text(name) and self.crdt.list_length(name) else "list"
        if self.crdt.has_register(name):
            return "register"
        return "map" if self.crdt.has_map(name) else None

    def _is_list(self, name: str) -> bool:
        """Whether a name is a list, of characters or not."""
        return name in self.crdt.lists and not self.crdt.has_register(name)

    def _shown(self, name: str) -> Shown:
        if self.crdt.is_text(name):
            return self._text(name)
        return tuple([frozen(value) for value in self.crdt.list_values(name)])

    def _text(self, name: str) -> str:
        """A text; what was shown last is at hand, and often still all of it."""
        latest = self._bases.latest.get(name)
        text = None if latest is None else latest.text_of_all(self.crdt.list_length(name))
        return self.crdt.text(name) if text is None else text

    def listen(self) -> None:
        """Note from now on what is changed here."""
        self._changes = []

    def take_changes(self) -> list[Change]:
        """Hand over what was changed here since the last time."""
        changes, self._changes = self._changes, None if self._changes is None else []
        return changes or []

    def _changed(self, change: Change) -> None:
        if self._changes is not None:
            self._changes.append(change)

    def remember(self) -> None:
        """Note from now on what was there before it was written."""
        self._befores = Befores()

    def take_befores(self) -> Befores | None:
        """Hand over what was there before the edits since the last time; None if nobody asked."""
        befores = self._befores
        if befores is not None and (befores.registers or befores.keys):
            self.remember()
        return befores

    def _remember_register(self, name: str) -> None:
        befores = self._befores
        if befores is not None and name not in befores.registers:
            value, clock = self.crdt.get_register(name, _ABSENT), self.crdt.register_clock(name)
            text = None if value is _ABSENT else canonical_text(value)
            befores.registers[name] = None if clock is None else (clock, text)

    def _remember_key(self, name: str, key: str) -> None:
        befores = self._befores
        if befores is not None and (name, key) not in befores.keys:
            clock = self.crdt.map_clock(name, key)
            text = "" if clock is None else canonical_text(self.crdt.map_value(name, key))
            befores.keys[name, key] = None if clock is None else (clock, text)

    # ── plain edits ────────────────────────────────────────────────────────────────────

    def set_field(self, name: str, value: Json) -> None:
        """Write a register."""
        self._need(name, "register")
        self._check_size(value)
        self._remember_register(name)
        self._writer.set(name, thawed(value))
        self.version += 1
        self._changed(RegisterChanged(name))

    def delete_field(self, name: str) -> None:
        """Delete a register."""
        self._need(name, "register")
        self._remember_register(name)
        self._writer.delete(name)
        self.version += 1
        self._changed(RegisterChanged(name))

    def insert(self, name: str, index: int, value: Json) -> None:
        """Insert a value before a position of a list."""
        self._need(name, "list")
        self._check_size(value)
        self._insert(name, index, [thawed(value)])

    def insert_text(self, name: str, index: int, text: str) -> None:
        """Insert characters before a position of a text."""
        self._need(name, "list")
        _check_text(text)
        self._insert(name, index, text)

    def remove(self, name: str, index: int, count: int = 1) -> None:
        """Remove elements from a position on; positions outside the list are passed over."""
        self._need(name, "list")
        self._remove(name, index, count)

    def splice(self, name: str, index: int, count: int, inserted: str | Sequence[Json]) -> None:
        """Put values, or the characters of a text, in the place of elements of a list."""
        self._need(name, "list")
        values = inserted
        # Whatever cannot be inserted is refused before anything is removed.
        if isinstance(inserted, str):
            if type(inserted) is not str:
                raise NotJsonError(f"text cannot be a {type(inserted).__name__}")
            _check_text(inserted)
        else:
            values = [thawed(value) for value in inserted]
            for value in values:
                self._check_value(value)
        self._remove(name, index, count)
        if values:
            self._insert(name, index, values)

    def put(self, name: str, key: str, value: Json) -> None:
        """Write a key of an observed-remove map."""
        self._need(name, "map")
        self._check_name(key)
        self._check_value(thawed(value), MAP_VALUE_DEPTH_MAX)
        self._remember_key(name, key)
        self._writer.put(name, key, thawed(value))
        self.version += 1
        self._changed(MapChanged(name, key))

    def drop(self, name: str, key: str) -> None:
        """Remove a key of an observed-remove map."""
        self._need(name, "map")
        self._remember_key(name, key)
        self._writer.drop(name, key)
        self.version += 1
        self._changed(MapChanged(name, key))

    def migrate(self, name: str) -> None:
        """Empty a name of whatever kind it has, so that a register may take its place.

        A map can also become a list. A list cannot become a map: it would hide it, emptied or not.
        """
        self._migrated.add(name)
        if self.crdt.has_register(name):
            self._remember_register(name)
            self._writer.delete(name)
            self._changed(RegisterChanged(name))
        if name in self.crdt.lists:
            self._remove(name, 0, self.crdt.list_length(name))
        for key in self.crdt.map_items(name):
            self._remember_key(name, key)
            self._writer.drop(name, key)
            self._changed(MapChanged(name, key))
        self.version += 1

    # ── edits by id ────────────────────────────────────────────────────────────────────

    @property
    def replica(self) -> str:
        """Who edits."""
        return self._writer.replica

    def insert_after(self, name: str, anchor: Ids, values: Sequence[Json]) -> int:
        """Insert values right after an element, which may be removed.

        Returns:
            The counter of the first value; the others count up from it.

        Raises:
            UsageError: A value cannot be written here; nothing has changed.
        """
        for value in values:
            if not is_character(value):
                self._check_value(value)
        changes: list[Change] = []
        first = self._writer.insert_after(name, anchor, values, changes)
        self._made(changes)
        return first

    def remove_ids(self, name: str, ids: Ids) -> None:
        """Remove elements, which are all live."""
        changes: list[Change] = []
        self._writer.remove_ids(name, ids, changes)
        self._made(changes)

    def set_back(self, name: str, value: Json) -> None:
        """Write a register, also where a list or a map was emptied since.

        Raises:
            UsageError: The name is something else by now, or the value cannot be written here.
        """
        if not self.crdt.list_length(name) and not self.crdt.map_items(name):
            self._migrated.add(name)
        self._check_value(value)
        self.set_field(name, value)

    def withdraw(self, name: str, key: str, clock: tuple[int, str]) -> None:
        """Take back one write of a key of a map; what others have written stays."""
        self._remember_key(name, key)
        self._writer.withdraw(name, key, clock)
        self.version += 1
        self._changed(MapChanged(name, key))

    def _made(self, changes: Sequence[Change]) -> None:
        """Keep up with own edits by id."""
        self.version += 1
        for change in changes:
            assert isinstance(change, ListChanged)
            name, at = change.list, change.position
            if change.removed:
                self._bases.edit(name, at, change.removed, "")
            if change.inserted:
                self._bases.edit(name, at, 0, _as_shown(change.inserted))
            self._changed(change)

    # ── reconcile ──────────────────────────────────────────────────────────────────────

    def set_text(
        self, name: str, text: str, *, base: View | None = None, caret: int | None = None
    ) -> None:
        """Make a text read as given, with the fewest edits.

        Args:
            name: The text.
            text: What it should read.
            base: The view that `text` was edited from; without one, what was last read.
            caret: Where the cursor stands in `text` after the edit; tells equal edits apart.
        """
        self._need(name, "list")
        _check_text(text)
        shown = self._base(name, base)
        old = _as_shown(shown.value)
        if not isinstance(old, str):
            raise KindError(name, "list", "text")
        self._apply(name, shown, diff_text(old, text, caret=caret), text)

    def set_list(
        self,
        name: str,
        values: Sequence[Json],
        *,
        base: View | None = None,
        key: str | Callable[[Any], object] | None = None,
    ) -> None:
        """Make a list hold the given values, with the fewest edits.

        Args:
            name: The list.
            values: What it should hold.
            base: The view that `values` were edited from; without one, what was last read.
            key: What makes an item the same item after an edit: a member name, or a function.
        """
        self._need(name, "list")
        if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Sequence):
            raise NotJsonError("a list is needed")
        wanted = [thawed(value) for value in values]
        shown = self._base(name, base)
        hunks = self._list_hunks(shown, wanted, key)
        after: Shown = tuple([frozen(value) for value in wanted])
        self._apply(name, shown, hunks, after)

    def update(self, wanted: Mapping[str, Any], *, base: View | None = None) -> None:
        """Make the document read as given.

        Lists go through `set_list`, strings of names that are texts through `set_text`, objects
        of names that are maps key by key, and everything else is a register, written if it
        differs. Members that are gone from what was shown are deleted or emptied.

        Args:
            wanted: The whole document.
            base: The view that it was edited from; without one, the document as it is.
        """
        shown: Mapping[str, Any] = self.view() if base is None else base
        for name, value in wanted.items():
            self._check_member(name, value, shown.get(name, _ABSENT), base)
        for name, value in wanted.items():
            self._update_member(name, value, shown.get(name, _ABSENT), base)
        for name in shown:
            if name not in wanted:
                self._clear_member(name, shown[name], base)

    def revert_to(self, fold: WalCrdt) -> None:
        """Make the document read as another fold of it does, with the fewest edits.

        Raises:
            UsageError: A name is of another kind by now, or a value cannot be written here; nothing
                has changed.
        """
        wanted = fold.materialize()
        for name, value in wanted.items():
            was_list = name in fold.lists and not fold.has_register(name)
            if was_list and self._is_list(name) and fold.is_text(name) and self.crdt.is_text(name):
                wanted[name] = "".join(value)
        self.update(wanted)

    def _check_member(self, name: str, value: Any, shown: Any, base: View | None) -> None:
        """Refuse what cannot become of a name, before anything is changed."""
        plain = thawed(value)
        if shown is not _ABSENT and _same(plain, shown):
            return
        self._check_name(name)
        if isinstance(plain, str) and self._takes_text(name, shown):
            _check_text(plain)
            return
        if isinstance(plain, dict) and self.kind(name) == "map":
            for key, part in plain.items():
                if not _holds(shown, key, part):
                    self._check_name(key)
                    self._check_value(part, MAP_VALUE_DEPTH_MAX)
            return
        self._need(name, "list" if isinstance(plain, list) else "register")
        if isinstance(plain, list):
            self._check_items(name, plain, base)
        else:
            self._check_value(plain)

    def _check_items(self, name: str, wanted: list[Any], base: View | None) -> None:
        try:
            for value in wanted:
                self._check_value(value)
        except UsageError:
            # What others wrote may stay, whatever it is; only what is new has to be writable.
            self._list_hunks(self._base(name, base), wanted, None)

    def _list_hunks(
        self, base: ListBase, wanted: list[Any], key: str | Callable[[Any], object] | None
    ) -> list[Hunk[Any]]:
        """The edits that make of a shown list what is wanted; refuses what cannot be written."""
        for value in wanted:
            flaw = find_flaw(value)
            if flaw is not None:
                raise NotJsonError(flaw)
        old = [thawed(value) for value in base.value]
        hunks: list[Hunk[Any]] = []
        if key is None:
            hunks += diff_items(old, wanted)
        else:
            # Each item stays where it is among what came in between, so they are not joined.
            hunks += [
                edit if isinstance(edit, Hunk) else Hunk(edit.start, 1, [edit.item])
                for edit in diff_items(old, wanted, key=key)
            ]
        for hunk in hunks:
            for value in hunk.inserted:
                self._check_value(value)
        return hunks

    def _takes_text(self, name: str, shown: Any) -> bool:
        """Whether a string for a name is a text: it is one now, or was when it was shown."""
        return self._is_list(name) and (self.crdt.is_text(name) or isinstance(shown, str))

    def _update_member(self, name: str, value: Any, shown: Any, base: View | None) -> None:
        if shown is not _ABSENT and _same(value, shown):
            # Whatever it has become by now, this is not what the caller has edited.
            return
        if isinstance(value, str) and self._takes_text(name, shown):
            self.set_text(name, value, base=base)
        elif isinstance(value, (list, tuple)):
            self.set_list(name, value, base=base)
        elif isinstance(value, Mapping) and self.kind(name) == "map":
            self._update_map(name, value, shown if isinstance(shown, Mapping) else {})
        else:
            self.set_field(name, value)

    def _update_map(self, name: str, wanted: Mapping[str, Any], shown: Mapping[str, Any]) -> None:
        for key, value in wanted.items():
            if not _holds(shown, key, value):
                self.put(name, key, value)
        for key in shown:
            if key not in wanted:
                self.drop(name, key)

    def _clear_member(self, name: str, shown: Any, base: View | None) -> None:
        kind = self.kind(name)
        if kind in ("list", "text"):
            base_list = self._base(name, base)
            empty: Shown = "" if isinstance(base_list.value, str) else ()
            whole = [Hunk(0, len(base_list.value), empty)] if base_list.value else []
            self._apply(name, base_list, whole, empty)
        elif kind == "map" and isinstance(shown, Mapping):
            self._update_map(name, {}, shown)
        elif kind == "register" and _same(self.crdt.get_register(name), shown):
            # A value that arrived since it was shown is not what the caller meant to delete.
            self.delete_field(name)

    # ── others' edits ──────────────────────────────────────────────────────────────────

    def follow(self, changes: Sequence[Change]) -> None:
        """Keep up with what a fold of others' edits has changed."""
        self.version += len(changes)
        edits: dict[str, list[Edit]] = {}
        for change in changes:
            if isinstance(change, ListChanged):
                edit = change.position, change.removed, len(change.inserted)
                edits.setdefault(change.list, []).append(edit)
        for name, of_list in edits.items():
            self._bases.follow(name, of_list)

    def recorded(self) -> list[Run]:
        """What was recorded and not taken yet."""
        return self._writer.recorded()

    def replace(self, crdt: WalCrdt) -> None:
        """Go on with another fold of the same document; what was shown is found in it again."""
        before = {name: keys_of(self.crdt, name) for name in self.crdt.list_names()}
        crdt.counter = max(crdt.counter, self.crdt.counter)
        if self._changes is not None:
            self._changes += changed_values(self.crdt, crdt)
        self.crdt = crdt
        self.version += 1
        self._writer.move_to(crdt)
        for name in before.keys() | crdt.lists.keys():
            edits = edits_between(before.get(name, []), keys_of(crdt, name))
            self._bases.shift_all(name, edits)
            if self._changes is not None:
                self._changes += changed_list(crdt, name, edits)

    def begin(self, replica: str) -> None:
        """Edit as another replica from now on; nothing is recorded that was not taken."""
        self._writer = Writer(self.crdt, replica)

    def take(self) -> list[Run]:
        """Hand over what was recorded since the last time."""
        return self._writer.take()

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _need(self, name: str, wanted: str) -> None:
        if type(name) is not str or name not in self._named:
            self._check_name(name)
            self._named.add(name)
        if wanted == "list" and self._is_list(name):
            return
        kind = self.kind(name)
        if kind is None or kind == wanted:
            return
        if not self._may_become(name, kind, wanted):
            raise KindError(name, kind, wanted)

    def _may_become(self, name: str, kind: str, wanted: str) -> bool:
        """Whether a name was emptied to make room, and nobody has filled it since."""
        if name not in self._migrated or self.crdt.list_length(name) or self.crdt.map_items(name):
            return False
        return wanted == "register" or (wanted == "list" and kind == "map")

    def _check_name(self, name: str) -> None:
        if not isinstance(name, str):
            raise NotJsonError(f"a name cannot be a {type(name).__name__}")
        if name in FORBIDDEN_NAMES:
            raise NameRefusedError(name)
        if self._check_name_size is not None:
            self._check_name_size(name)

    def _check_value(self, value: Any, depth_max: int = VALUE_DEPTH_MAX) -> None:
        check_value(value, depth_max=depth_max)
        self._check_size(value)

    def _check_size(self, value: Any) -> None:
        if self._check is not None:
            self._check(thawed(value))

    def _base(self, name: str, view: View | None) -> ListBase:
        if view is None:
            latest = self._bases.last(name)
            return latest or self._bases.show(name, self._shown(name))
        base = view.base_of(name, self)
        # A list that was not there when the view was taken was shown empty.
        return base if base is not None else ListBase("" if self.crdt.is_text(name) else ())

    def _apply(self, name: str, base: ListBase, hunks: Sequence[Hunk[Any]], value: Shown) -> None:
        """Make the edits of a shown list in the list of now."""
        if not hunks:
            return
        ranges = [each for hunk in hunks for each in base.ranges(hunk.start, hunk.removed)]
        gaps = [base.gap(hunk.start, hunk.removed) for hunk in hunks]
        gone = 0
        for _, size, at in ranges:
            self._writer.remove(name, at - gone, size)
            self._changed(ListChanged(name, at - gone, size, ""))
            gone += size
        edits = [(at, size, 0) for _, size, at in ranges]
        places: list[int] = []
        come = before = passed = 0
        for hunk, gap in zip(hunks, gaps, strict=True):
            while passed < len(ranges) and ranges[passed][2] < gap:
                before += ranges[passed][1]
                passed += 1
            places.append(gap - before + come)
            if hunk.inserted:
                self._write(name, places[-1], hunk.inserted)
                self._changed(ListChanged(name, places[-1], 0, _as_inserted(hunk.inserted)))
                come += len(hunk.inserted)
                edits.append((gap, 0, len(hunk.inserted)))
        self.version += 1
        # Of several edits at one position the inserts come first, in their order.
        self._bases.shift_all(name, sorted(edits, key=lambda edit: edit[:2]))
        self._bases.keep(name, edited_base(base, hunks, places, value))

    def _write(self, name: str, index: int, values: Any) -> None:
        if isinstance(values, str):
            self._writer.insert_text(name, index, values)
        else:
            self._writer.insert(name, index, values)

    def _insert(self, name: str, index: int, values: Any) -> None:
        index = max(min(index, self.crdt.list_length(name)), 0)
        self._write(name, index, values)
        self.version += 1
        self._bases.edit(name, index, 0, _as_shown(values))
        if self._changes is not None:
            self._changes.append(ListChanged(name, index, 0, _as_inserted(values)))

    def _remove(self, name: str, index: int, count: int) -> None:
        if index < 0:
            index, count = 0, count + index
        count = min(count, self.crdt.list_length(name) - index)
        if count > 0:
            self._writer.remove(name, index, count)
            self.version += 1
            self._bases.edit(name, index, count, "")
            if self._changes is not None:
                self._changes.append(ListChanged(name, index, count, ""))


def _check_text(text: object) -> None:
    """Refuse what would make a list of a text, for everybody and for good."""
    if not isinstance(text, str):
        raise NotJsonError(f"text cannot be a {type(text).__name__}")
    if not is_scalar_text(text):
        raise NotJsonError(
            "text cannot hold half a character (a lone surrogate, as of bytes that are not UTF-8)"
        )


def _as_shown(values: str | Sequence[Any]) -> Shown:
    """Inserted values as they are shown: characters as a text, others as a list."""
    if isinstance(values, str):
        return values
    if all(map(is_character, values)):
        return "".join(values)
    return tuple([frozen(value) for value in values])


def _as_inserted(values: str | Sequence[Any]) -> str | list[Any]:
    """Inserted values as a change names them."""
    return values if isinstance(values, str) else [thawed(value) for value in values]


def _holds(shown: Any, key: str, value: Any) -> bool:
    """Whether a map was shown with a value for a key."""
    return isinstance(shown, Mapping) and key in shown and _same(value, shown[key])


def _same(left: Any, right: Any) -> bool:
    """Whether two values are equal as JSON: 1 and 1.0 are, 1 and true are not."""
    return canonical_text(thawed(left)) == canonical_text(thawed(right))

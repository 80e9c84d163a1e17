"""Documents as values of a class: read as one, edited by giving another one.

    class Note:                                    Schema(Note, version=2, migrations={1: rename})
        title: str                                  a register
        body: Annotated[str, Text] = ""             a text, whose characters merge
        tasks: Annotated[list[Task], Key("id")]     a list, whose items keep their identity

- Everything in a document may come from others. What does not fit is told with its path, and the
  rest can still be read; a field that cannot be read and was not changed is left as it is.
- Only fields that were changed are written: what is not there reads as its default, and stays away
  until it is something else. A default that is another one each time, such as a new id, is written
  by the first update. Members that the class does not know stay.
- A text or a list is never None: an empty one stands for nothing.
- A document carries the version of its schema in a register. An older one is migrated whenever it
  is read, and written that way by the next update; one that carries none is of version 1, and an
  empty one of the current version. A newer one can be read as far as it goes, and not written.
- A migration gives a field another kind (a register becomes a text) under a new name only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)
from weakref import ref

from walstore.document.view import View, thawed
from walstore.errors import PeerError, UsageError
from walstore.store.merging import is_same, merge_members
from walstore.store.references import NotWeakError
from walstore.store.typed_models import model_of
from walstore.store.typed_values import Invalid, Problem

T = TypeVar("T")

# From the members of one version to those of the next.
Migration: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]

# The register that holds the version.
VERSION_NAME = "schema"


class Text:
    """Marks a field as a text: `Annotated[str, Text]`."""


@dataclass(frozen=True, slots=True)
class Key:
    """Marks a field as a list whose items are told apart: `Annotated[list[Task], Key("id")]`.

    Attributes:
        member: The member that makes an item the same item after an edit.
    """

    member: str


class SchemaError(UsageError):
    """A schema contradicts itself.

    Attributes:
        reason: How.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"not a schema: {reason}")
        self.reason = reason


class NewerSchemaError(UsageError):
    """A document was written by a newer version of the app, and can only be read here.

    Attributes:
        found: The version of its schema.
        known: The newest one that is known.
    """

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"the document has schema version {found}, and only {known} is known here: "
            "update the app to edit it"
        )
        self.found = found
        self.known = known


class InvalidDocumentError(PeerError):
    """A document does not fit its schema; nothing has changed.

    Attributes:
        problems: What is wrong, and where.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


class TypedStore(Protocol):
    """What a schema needs of a store."""

    def view(self) -> View:
        """The document as it is now."""
        ...

    def batch(self) -> AbstractContextManager[None]:
        """Make several edits one."""
        ...

    def update(self, wanted: Mapping[str, Any], *, base: View | None = None) -> None:
        """Make the document read as given."""
        ...

    def set_text(self, name: str, text: str, *, base: View | None = None) -> None:
        """Make a text read as given."""
        ...

    def set_list(
        self, name: str, values: Sequence[Any], *, base: View | None = None, key: str | None = None
    ) -> None:
        """Make a list hold the given values."""
        ...


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """What could be read of a document.

    Attributes:
        value: The document, with defaults in place of what could not be read; None if there are
            no defaults for that.
        members: The members that fit, as JSON.
        problems: What does not fit.
        version: The version that the document has.
    """

    value: T | None
    members: Mapping[str, Any]
    problems: tuple[Problem, ...]
    version: int


class Schema(Generic[T]):
    """How documents and values of a class become each other.

    Attributes:
        version: The version of this description.
        model: The class.
    """

    def __init__(
        self,
        model: type[T],
        *,
        version: int = 1,
        migrations: Mapping[int, Migration] | None = None,
    ) -> None:
        """Describe documents.

        Args:
            model: A dataclass, a msgspec struct or a pydantic model.
            version: The version of this description.
            migrations: By version, what makes members of the next version of members of it.

        Raises:
            SchemaError: A migration is missing, a field has the version's name, or a text or a list
                may be None.
            NotAModelError: It is no such class.
            FieldTypeError: A field has a type that no JSON value stands for.
        """
        self.version: Final = version
        self.model: Final = model
        self._migrations = dict(migrations or {})
        self._model = model_of(model)
        hints = self._model.hints()
        self._texts = {name for name, hint in hints.items() if Text in _marks(hint)}
        self._keys = {
            name: mark.member
            for name, hint in hints.items()
            for mark in _marks(hint)
            if isinstance(mark, Key)
        }
        self._names = set(hints)
        self._lists = {name for name, hint in hints.items() if _is_list(hint)}
        for name, hint in hints.items():
            choices = _choices(hint)
            is_sequence = name in self._texts or any(map(_is_sequence, choices))
            if is_sequence and type(None) in choices:
                raise SchemaError(f"{name!r} may be None, and a text or a list is at most empty")
        if VERSION_NAME in hints:
            raise SchemaError(f"a field is called {VERSION_NAME!r}, as the version is")
        if set(self._migrations) != set(range(1, version)):
            raise SchemaError(f"version {version} needs a migration from each version before it")

    # ── reading ────────────────────────────────────────────────────────────────────────

    def read(self, document: Mapping[str, Any]) -> T:
        """A document as a value.

        Args:
            document: A view, or what `materialize` returns.

        Raises:
            InvalidDocumentError: It does not fit.
            NewerSchemaError: It does not fit, being newer than what is known here.
        """
        reading = self.try_read(document)
        if not reading.problems and reading.value is not None:
            return reading.value
        error = InvalidDocumentError(reading.problems)
        if reading.version > self.version:
            raise NewerSchemaError(reading.version, self.version) from error
        raise error

    def try_read(self, document: Mapping[str, Any]) -> Reading[T]:
        """What can be read of a document, whatever it holds."""
        version, members, problems = self._migrated(document)
        known = {name: self._prepared(name, members[name]) for name in self._names & set(members)}
        value: T | None = None
        while value is None:
            try:
                value = self._model.read(known)
            except Invalid as invalid:
                problems += invalid.problems
                bad = {name for name in known if _concerns(name, invalid.problems)}
                if not bad:
                    break
                known = {name: member for name, member in known.items() if name not in bad}
        # Without what does not fit, it is found missing as well.
        places = {_root(problem.path) for problem in problems if problem.reason != "missing"}
        told = [
            problem
            for problem in problems
            if problem.reason != "missing" or problem.path not in places
        ]
        return Reading(value, known, tuple(dict.fromkeys(told)), version)

    # ── writing ────────────────────────────────────────────────────────────────────────

    def write(self, value: T) -> dict[str, Any]:
        """The members of a value, its version among them, as JSON."""
        return {**self._model.write(value), VERSION_NAME: self.version}

    def is_text(self, name: str) -> bool:
        """Whether a member is a text, whose characters merge."""
        return name in self._texts

    def update(
        self,
        store: TypedStore,
        value: T,
        *,
        base: View | None = None,
        said: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a document read as a value; what arrived since `base` is kept.

        Args:
            store: The document.
            value: What it should read.
            base: The view that the value was read from; the document as it is if left out.
            said: What the value said by then, as `write` tells; what it says still is no edit. What
                the view says if left out.

        Raises:
            NewerSchemaError: It can only be read here; nothing has changed.
            InvalidDocumentError: It is older, and its migration fails; nothing has changed.
            UsageError: A member cannot be written.
        """
        now = store.view()
        view = now if base is None else base
        version, members, problems = self._migrated(view)
        # Somebody may have migrated it since it was shown.
        newest = max(version, _version_of(now.get(VERSION_NAME)) or version)
        if newest > self.version:
            raise NewerSchemaError(newest, self.version)
        if any(problem.path == "" for problem in problems):
            raise InvalidDocumentError(problems)
        changed = self._changed(view, members, value, said)
        wanted = {**members, **changed, VERSION_NAME: self.version}
        apart = {
            name: wanted[name]
            for name in [*self._texts, *self._keys]
            if name in wanted and (name not in view or not is_same(wanted[name], members.get(name)))
        }
        # What is edited apart is no change to the rest.
        for name in apart:
            del wanted[name]
            if name in view:
                wanted[name] = view[name]
        with store.batch():
            for name, member in apart.items():
                if name in self._texts:
                    store.set_text(name, member, base=view)
                else:
                    store.set_list(name, member, base=view, key=self._keys[name])
            store.update(wanted, base=view)
            for name in (self._texts | self._lists) & set(changed) - set(now):
                if not changed[name]:
                    self._make_empty(store, name)

    def _make_empty(self, store: TypedStore, name: str) -> None:
        """Let a text or a list be there and empty, which it is only if something was in it."""
        if name in self._texts:
            store.set_text(name, " ")
            store.set_text(name, "")
        else:
            store.set_list(name, [None])
            store.set_list(name, [])

    def _changed(
        self, view: View, members: dict[str, Any], value: T, said: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """The members that are not what the document says already."""
        reading, written = self.try_read(view), self._model.write(value)
        read = None if reading.value is None else self._model.write(reading.value)
        if said is None:
            said = read
        # Where nothing can be read, this value says what is missing, and defaults say the rest.
        now = self._fitting(reading, written if said is None else said)
        wanted = merge_members(
            now if said is None else said, left=written, right=now, is_text=self.is_text
        )
        for name in set(read or ()) & set(now) & set(written) - set(members):
            if read is not None and not is_same(read[name], now[name]):
                # Its default is another one each time, and what the value says is to stay.
                wanted[name] = written[name]
        return {
            name: member
            for name, member in wanted.items()
            if name not in now or not is_same(now[name], member)
        }

    def _fitting(self, reading: Reading[T], said: Mapping[str, Any]) -> Mapping[str, Any]:
        """The members that fit, as a value says them; in that, the others are as was `said`."""
        others: dict[str, Any] = {}
        wrong = self._wrong(said, reading.problems)
        while True:
            others |= wrong
            try:
                value = self._model.read({**reading.members, **others})
                break
            except Invalid as invalid:
                # Not every class tells at once all that it misses.
                wrong = self._wrong(said, invalid.problems)
                if wrong.keys() <= others.keys():
                    # Each of them fits, and no value holds all of them.
                    return reading.members
        written = self._model.write(value)
        return {name: member for name, member in written.items() if name not in others}

    def _wrong(self, said: Mapping[str, Any], problems: Sequence[Problem]) -> dict[str, Any]:
        """What was said of members that something is wrong with."""
        return {name: said[name] for name in self._names & set(said) if _concerns(name, problems)}

    # ── inside ─────────────────────────────────────────────────────────────────────────

    def _migrated(self, document: Mapping[str, Any]) -> tuple[int, dict[str, Any], list[Problem]]:
        """The version of a document, its members in the current one, and what went wrong."""
        members = {name: thawed(document[name]) for name in document}
        found = _version_of(members.pop(VERSION_NAME, 1 if members else self.version))
        if found is None:
            problem = Problem(VERSION_NAME, "a version is a whole number from 1 on")
            return self.version, members, [problem]
        for version in range(found, self.version):
            try:
                members = dict(self._migrations[version](thawed(members)))
            except Exception as error:  # noqa: BLE001 - the app's code, on data from anywhere
                reason = f"the migration from version {version} fails: {error!r}"
                return found, members, [Problem("", reason)]
        return found, members, []

    def _prepared(self, name: str, member: Any) -> Any:
        """A member as its field takes it: a list of characters is a text, and the other way."""
        is_characters = isinstance(member, list) and all(isinstance(each, str) for each in member)
        if name in self._texts and is_characters:
            return "".join(member)
        return list(member) if name in self._lists and isinstance(member, str) else member


def _version_of(value: Any) -> int | None:
    """The version that a register holds, None if that is none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 1 else None


def _marks(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _is_list(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return _is_list(get_args(hint)[0])
    return hint in (list, tuple) or get_origin(hint) in (list, tuple, Sequence)


def _is_sequence(hint: Any) -> bool:
    return _is_list(hint) or Text in _marks(hint)


def _choices(hint: Any) -> Sequence[Any]:
    """The types of a union; one of any other type."""
    if get_origin(hint) is Annotated:
        return _choices(get_args(hint)[0])
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint]


def _root(path: str) -> str:
    return path.split(".")[0].split("[")[0]


def _concerns(name: str, problems: Sequence[Problem]) -> bool:
    """Whether something is wrong with a member, or in it."""
    return any(path == name or path.startswith((f"{name}.", f"{name}[")) for path, _ in problems)


@dataclass(frozen=True, slots=True)
class _Handed:
    """What a value was by when it was read, or written last.

    Attributes:
        value: The value, which its holder may have changed since. It lives no longer for this.
        members: What it said then.
        view: The document by then.
    """

    value: ref[Any]
    members: Mapping[str, Any]
    view: View


class Typed(Generic[T]):
    """A document as a value of a class: read, edit, hand back."""

    def __init__(self, store: TypedStore, schema: Schema[T]) -> None:
        """Made by `WalStore.typed`.

        Raises:
            NotWeakError: Values of the class cannot be referenced weakly, so that nobody could tell
                what a value was read from for as long as somebody holds it.
        """
        if not schema.model.__weakrefoffset__:
            raise NotWeakError(
                f"a {schema.model.__name__}",
                "read it with `Schema.read`, and update with `Schema.update` and its view",
            )
        self._store = store
        self._schema = schema
        # By the value's id, for as long as the app holds the value.
        self._handed: dict[int, _Handed] = {}
        self._last: _Handed | None = None

    @property
    def value(self) -> T:
        """The document as it is now.

        Raises:
            InvalidDocumentError: A member is not what the class says.
            NewerSchemaError: It was written by a newer version.
        """
        view = self._store.view()
        value = self._schema.read(view)
        self._remember(value, view)
        return value

    def update(self, value: T, *, of: T | None = None) -> None:
        """Make the document read as a value that was read before; what arrived since is kept.

        The same value may be changed and handed back again, however much was read meanwhile. One
        that was not read here is a copy with changes: it counts as an edit of the one that it is a
        copy of.

        Args:
            value: What the document should read.
            of: The value that it is a copy of, as it was handed out or back; what was read or
                written last if left out.

        Raises:
            NewerSchemaError: It was written by a newer version.
            UsageError: A field cannot be written, or `of` was not read here.
        """
        if of is not None and id(of) not in self._handed:
            raise UsageError("a copy is one of a value that was read or written here")
        known = self._handed.get(id(value if of is None else of), self._last)
        if known is None:
            self._schema.update(self._store, value)
        else:
            self._schema.update(self._store, value, base=known.view, said=known.members)
        self._remember(value, self._store.view())

    def _remember(self, value: T, view: View) -> None:
        number, handed = id(value), self._handed
        # Another value may have its id as soon as this one is gone.
        value_ref = ref(value, lambda _: handed.pop(number, None))
        self._last = handed[number] = _Handed(value_ref, self._schema.write(value), view)

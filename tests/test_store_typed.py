"""Typed documents: read as a class, written by fields, whatever others have written."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import count
from typing import Annotated, Any, Literal, Optional

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walstore.document.content import KindError
from walstore.errors import PeerError, UsageError
from walstore.net.memory import MemoryTransport
from walstore.signed import Identity
from walstore.store.references import NotWeakError
from walstore.store.store import WalStore
from walstore.store.typed import (
    VERSION_NAME,
    InvalidDocumentError,
    Key,
    NewerSchemaError,
    Schema,
    SchemaError,
    Text,
)
from walstore.store.typed_models import NotAModelError
from walstore.store.typed_values import FieldTypeError

ADA, BOB = (Identity.from_seed(bytes([n]) * 32) for n in (1, 2))


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Task:
    id: int
    title: str = ""
    parts: list[Task] = field(default_factory=list)


@dataclass(frozen=True)
class Note:
    title: str
    body: Annotated[str, Text] = ""
    tasks: Annotated[list[Task], Key("id")] = field(default_factory=list)
    tags: tuple[str, ...] = ()
    size: float = 1.0
    count: int = 0
    color: Color = Color.RED
    mode: Literal["a", "b", 1] = "a"
    parent: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    is_done: bool = False


NOTES = Schema(Note)


def local() -> WalStore:
    return WalStore.open("notes/a", identity=ADA, autocommit_ms=None)


def problems_of(schema: Schema[Any], document: Mapping[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(InvalidDocumentError) as caught:
        schema.read(document)
    assert isinstance(caught.value, PeerError)
    return [tuple(problem) for problem in caught.value.problems]  # type: ignore[misc]


# ── there and back ─────────────────────────────────────────────────────────────────────


async def test_a_document_reads_as_it_was_written() -> None:
    note = Note(
        "Notes",
        "hello\n",
        [Task(1, "one", [Task(2)]), Task(3)],
        ("a", "b"),
        2.5,
        3,
        Color.BLUE,
        1,
        "up",
        {"x": [1, None]},
        True,
    )
    async with local() as store:
        NOTES.update(store, note)
        assert NOTES.read(store.view()) == note
        assert NOTES.read(store.materialize()) == note
        assert store.text("body") == "hello\n"
        assert store[VERSION_NAME] == 1


tasks = st.builds(Task, st.integers(0, 99), st.text(max_size=3))
notes = st.builds(
    Note,
    title=st.text(max_size=5),
    body=st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    tasks=st.lists(tasks, max_size=3, unique_by=lambda task: task.id),
    tags=st.lists(st.text(max_size=2), max_size=3).map(tuple),
    size=st.floats(allow_nan=False, allow_infinity=False),
    count=st.integers(-(2**53) + 1, 2**53 - 1),
    color=st.sampled_from(Color),
    mode=st.sampled_from(["a", "b", 1]),
    parent=st.none() | st.text(max_size=3),
    is_done=st.booleans(),
)


@given(notes, notes)
async def test_any_value_can_follow_any_other(first: Note, second: Note) -> None:
    async with local() as store:
        for note in (first, second):
            NOTES.update(store, note)
            assert NOTES.read(store.view()) == note
            assert NOTES.read(store.materialize()) == note


def test_defaults_stand_for_what_is_not_there() -> None:
    assert NOTES.read({"title": "x"}) == Note("x")
    assert Schema(Task).read({"id": 5}) == Task(5)


async def test_texts_merge_and_items_keep_their_identity() -> None:
    transport, keys = MemoryTransport(), [ADA.public_key, BOB.public_key]
    stores = [
        WalStore.open("notes/a", identity=who, relay=transport, writers=keys, autocommit_ms=None)
        for who in (ADA, BOB)
    ]
    async with stores[0] as ada, stores[1] as bob:
        NOTES.update(ada, Note("Notes", "one two", [Task(1, "one"), Task(2, "two")]))
        await ada.commit()
        await bob.pull()
        base = bob.view()
        note = NOTES.read(base)
        NOTES.update(
            ada, replace(note, body="one 2", tasks=[Task(2, "two"), Task(1, "uno")], count=1)
        )
        await ada.commit()
        await bob.pull()
        edited = replace(note, body="zero one two", tasks=[*note.tasks, Task(3)], title="Bob's")
        NOTES.update(bob, edited, base=base)
        merged = NOTES.read(bob.view())
        assert (merged.title, merged.body, merged.count) == ("Bob's", "zero one 2", 1)
        assert {task.id: task.title for task in merged.tasks} == {2: "two", 1: "uno", 3: ""}


@dataclass
class Place:
    title: str = ""
    place: str = ""
    body: Annotated[str, Text] = "Bring cake."
    tags: list[str] = field(default_factory=lambda: ["new"])


class StructPlace(msgspec.Struct, weakref=True):
    title: str
    day: str
    place: str = ""
    body: Annotated[str, Text] = "Bring cake."
    tags: list[str] = msgspec.field(default_factory=lambda: ["new"])


@pytest.mark.parametrize(
    ("by_ada", "by_bob", "merged"),
    [
        (
            Place(title="Picnic"),
            Place(place="lake", body="Bring cake. And tea.", tags=["x"]),
            Place("Picnic", "lake", "Bring cake. And tea.", ["x"]),
        ),
        (
            StructPlace("Picnic", "Sunday"),
            StructPlace("Picnic", "Sunday", "lake", "Bring cake. And tea.", ["x"]),
            StructPlace("Picnic", "Sunday", "lake", "Bring cake. And tea.", ["x"]),
        ),
    ],
)
@pytest.mark.parametrize("is_ada_first", [True, False])
async def test_the_first_values_of_two_people_merge(
    by_ada: Any, by_bob: Any, merged: Any, is_ada_first: bool
) -> None:
    transport, keys = MemoryTransport(), [ADA.public_key, BOB.public_key]
    stores = [
        WalStore.open("notes/a", identity=who, relay=transport, writers=keys, autocommit_ms=None)
        for who in (ADA, BOB)
    ]
    schema = Schema(type(by_ada))
    async with stores[0] as ada, stores[1] as bob:
        edits = [(ada, by_ada), (bob, by_bob)]
        for store, value in edits if is_ada_first else reversed(edits):
            store.typed(schema).update(value)
        for store in (ada, bob, ada):
            await store.commit()
            await store.pull()
        assert schema.read(ada.view()) == schema.read(bob.view()) == merged


places = st.builds(
    Place, st.text(max_size=2), st.text(max_size=2), st.text("ab ", max_size=2), st.just([])
)


@given(st.lists(places, max_size=3))
async def test_what_has_a_default_may_be_empty(values: list[Place]) -> None:
    async with local() as store:
        for value in values:
            Schema(Place).update(store, value)
            assert Schema(Place).read(store.view()) == value


async def test_a_default_that_is_another_one_each_time_stays_with_the_first_update() -> None:
    numbers = count(1)

    @dataclass
    class Numbered:
        title: str = ""
        id: int = field(default_factory=lambda: next(numbers))

    async with local() as store:
        typed = store.typed(Schema(Numbered))
        value = typed.value
        value.title = "Picnic"
        typed.update(value)
        assert typed.value == value


@dataclass
class Draft:
    title: str = ""
    body: Annotated[str, Text] = ""
    tags: list[str] = field(default_factory=list)


@asynccontextmanager
async def two_drafts() -> AsyncIterator[tuple[WalStore, WalStore]]:
    """Ada's and Bob's store, both with the same draft."""
    transport, keys = MemoryTransport(), [ADA.public_key, BOB.public_key]
    stores = [
        WalStore.open("notes/a", identity=who, relay=transport, writers=keys, autocommit_ms=None)
        for who in (ADA, BOB)
    ]
    async with stores[0] as ada, stores[1] as bob:
        Schema(Draft).update(ada, Draft("Lake", "Meet at the lake.", ["x"]))
        await ada.commit()
        await bob.pull()
        yield ada, bob


async def bobs_edit(ada: WalStore, bob: WalStore) -> None:
    bob.set_text("body", "Sunday: " + bob.text("body"))
    bob["title"] = "Picnic"
    await bob.commit()
    await ada.pull()


@pytest.mark.parametrize("is_read_elsewhere", [False, True])
async def test_a_value_is_an_edit_of_what_it_was_read_from(is_read_elsewhere: bool) -> None:
    async with two_drafts() as (ada, bob):
        typed = ada.typed(Schema(Draft))
        form = typed.value
        await bobs_edit(ada, bob)
        if is_read_elsewhere:
            assert typed.value.title == "Picnic"
        form.tags.append("y")
        typed.update(form)
        assert typed.value == Draft("Picnic", "Sunday: Meet at the lake.", ["x", "y"])


async def test_the_same_value_may_be_changed_and_handed_back_again() -> None:
    async with two_drafts() as (ada, bob):
        typed = ada.typed(Schema(Draft))
        form = typed.value
        form.title, form.body = "Draft", "Meet at the old lake."
        typed.update(form)
        form.title, form.body = "Lake", "Meet at the old lake. Now."
        form.tags.append("y")
        typed.update(form)
        assert typed.value == form
        # What others edit meanwhile stays, and is not taken back by the next time.
        form = typed.value
        await ada.commit()
        await bob.pull()
        await bobs_edit(ada, bob)
        form.body += " Or later."
        typed.update(form)
        form.tags.append("z")
        typed.update(form)
        now = Draft("Picnic", "Sunday: Meet at the old lake. Now. Or later.", ["x", "y", "z"])
        assert typed.value == now


@pytest.mark.parametrize("is_copy", [False, True])
async def test_a_value_is_known_for_as_long_as_it_is_held(is_copy: bool) -> None:
    async with two_drafts() as (ada, bob):
        typed = ada.typed(Schema(Draft))
        form = typed.value
        await bobs_edit(ada, bob)
        # A screen that is drawn again and again.
        for _ in range(100):
            assert typed.value.title == "Picnic"
        if is_copy:
            typed.update(replace(form, tags=["y"]), of=form)
        else:
            form.tags = ["y"]
            typed.update(form)
        assert typed.value == Draft("Picnic", "Sunday: Meet at the lake.", ["y"])
        with pytest.raises(UsageError, match="read or written here"):
            typed.update(form, of=Draft())


async def test_a_value_that_nobody_holds_is_not_held_either() -> None:
    async with local() as store:
        typed = store.typed(Schema(Draft))
        values = [typed.value for _ in range(3)]
        ends = [weakref.ref(value) for value in values]
        del values
        gc.collect()
        assert [end() for end in ends] == [None, None, None]
        assert typed._handed == {}


async def test_a_class_whose_values_cannot_be_referenced_weakly_is_refused() -> None:
    async with local() as store:
        with pytest.raises(NotWeakError, match=r"a StructNote .*__weakref__.*Schema.update"):
            store.typed(Schema(StructNote))


async def test_copies_with_changes_go_on_from_one_another() -> None:
    async with two_drafts() as (ada, bob):
        typed = ada.typed(Schema(Draft))
        copy = replace(typed.value, body="Meet at the old lake.")
        typed.update(copy)
        await ada.commit()
        await bob.pull()
        await bobs_edit(ada, bob)
        copy = replace(copy, body="Meet at the old lake. Now.")
        typed.update(copy)
        copy = replace(copy, body="Meet at the old lake. Now!")
        typed.update(copy)
        assert typed.value == Draft("Picnic", "Sunday: Meet at the old lake. Now!", ["x"])


@dataclass
class Form:
    title: str
    count: int
    size: int = 1
    tasks: Annotated[list[Task], Key("id")] = field(default_factory=list)
    note: str = ""

    def __post_init__(self) -> None:
        if self.size > self.count:
            raise ValueError("too large")


@pytest.mark.parametrize(
    "by_others",
    [
        {"title": "by others", "count": "does not fit"},
        {"title": "by others", "count": "does not fit", "size": "does not fit"},
        {"title": "by others", "count": 2, "size": 3},
        {"title": "by others", "size": "does not fit"},
    ],
)
async def test_a_value_is_handed_back_again_to_a_document_that_does_not_fit_by_then(
    by_others: dict[str, Any],
) -> None:
    async with local() as store:
        Schema(Form).update(store, Form("old", 5, 4))
        typed = store.typed(Schema(Form))
        form = typed.value
        store.update({**store.materialize(), **by_others})
        for note in ("1", "12"):
            form.note = note
            typed.update(form)
            assert store.materialize().items() >= {**by_others, "note": note}.items()
        # What is changed counts, also if it becomes what stands for what cannot be read.
        form.count, form.size = 7, 1
        typed.update(form)
        assert typed.value == Form("by others", 7, 1, note="12")


async def test_a_required_field_that_others_removed_is_written_once_it_is_changed() -> None:
    async with local() as store:
        Schema(Form).update(store, Form("old", 5))
        typed = store.typed(Schema(Form))
        form = typed.value
        del store["title"]
        for note in ("1", "12"):
            form.note = note
            typed.update(form)
            assert "title" not in store.materialize()
        form.title = "new"
        typed.update(form)
        assert typed.value == form


async def test_an_item_that_leaves_out_defaults_is_edited_where_something_else_does_not_fit() -> (
    None
):
    async with local() as store:
        store.update({"title": "old", "count": 5})
        store.set_list("tasks", [{"id": 1}, {"id": 2}])
        typed = store.typed(Schema(Form))
        form = typed.value
        store["count"] = "does not fit"
        form.note = "1"
        typed.update(form)
        form.tasks[0] = Task(1, "one")
        typed.update(form)
        assert [task["title"] for task in store["tasks"]] == ["one", ""]


async def test_a_first_value_may_be_handed_back_again() -> None:
    async with local() as store:
        typed, draft = store.typed(Schema(Draft)), Draft(body="hello", tags=["x"])
        typed.update(draft)
        draft.body, draft.tags = "hello world", ["x", "y"]
        typed.update(draft)
        assert typed.value == draft


async def test_only_what_changed_is_written() -> None:
    async with local() as store:
        store["title"] = "Notes"
        store["unknown"] = {"by": "others"}
        store["extra"] = {"x": 1}
        NOTES.update(store, NOTES.read(store.view()))
        version = store.view().version
        NOTES.update(store, NOTES.read(store.view()))
        assert store.view().version == version
        NOTES.update(store, replace(NOTES.read(store.view()), count=1))
        assert store.view().version == version + 1
        assert store["unknown"] == {"by": "others"}


async def test_members_inside_that_the_class_does_not_know_stay_with_an_unchanged_field() -> None:
    @dataclass
    class Holder:
        task: Task
        count: int = 0

    schema = Schema(Holder)
    async with local() as store:
        store["task"] = {"id": 1, "later": True}
        holder = schema.read(store.view())
        holder.count = 5
        schema.update(store, holder)
        assert store["task"] == {"id": 1, "later": True}
        assert store["count"] == 5


async def test_a_text_is_not_made_of_a_register_and_nothing_else_is_written_then() -> None:
    async with local() as store:
        store["title"] = "Notes"
        store["body"] = "a register"
        note = NOTES.read(store.view())
        before = dict(store.view())
        with pytest.raises(KindError):
            NOTES.update(store, replace(note, title="new", body="edited"))
        assert dict(store.view()) == before


# ── what does not fit ──────────────────────────────────────────────────────────────────


def test_what_does_not_fit_is_told_with_its_path() -> None:
    document = {
        "body": 5,
        "tasks": [{"id": 1}, {"id": "x", "parts": [{"title": 1}]}],
        "tags": "ab",
        "count": True,
        "size": 3,
        "color": "green",
        "mode": True,
        "parent": [],
        "extra": [],
    }
    assert problems_of(NOTES, document) == [
        ("title", "missing"),
        ("body", "text is wanted, not a number"),
        ("tasks[1].id", "a whole number is wanted, not text"),
        ("tasks[1].parts[0].id", "missing"),
        ("tasks[1].parts[0].title", "text is wanted, not a number"),
        ("count", "a whole number is wanted, not true"),
        ("color", "not one of Color"),
        ("mode", "not one of typing.Literal['a', 'b', 1]"),
        ("parent", "text is wanted, not a list"),
        ("extra", "an object is wanted, not a list"),
    ]


def test_the_rest_can_still_be_read() -> None:
    reading = NOTES.try_read({"title": "x", "count": "many", "tags": ["a"]})
    assert reading.value == Note("x", tags=("a",))
    assert reading.members == {"title": "x", "tags": ["a"]}
    assert [problem.path for problem in reading.problems] == ["count"]
    reading = NOTES.try_read({"title": 5, "count": 7})
    assert reading.value is None
    assert reading.members == {"count": 7}
    assert [problem.path for problem in reading.problems] == ["title"]


async def test_what_could_not_be_read_is_left_as_it_is() -> None:
    async with local() as store:
        store["title"] = "x"
        store["count"] = "many"
        note = NOTES.try_read(store.view()).value
        assert note is not None
        NOTES.update(store, replace(note, title="y"))
        assert (store["title"], store["count"]) == ("y", "many")
        NOTES.update(store, replace(note, count=5))
        assert store["count"] == 5


def test_what_a_class_checks_itself_is_told_as_well() -> None:
    @dataclass
    class Even:
        number: int

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError("odd")

    assert problems_of(Schema(Even), {"number": 1}) == [("", "odd")]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
field_names = st.sampled_from(
    [
        "title",
        "body",
        "tasks",
        "tags",
        "size",
        "count",
        "color",
        "mode",
        "parent",
        "extra",
        "schema",
    ]
)


@given(st.dictionaries(field_names, json_values))
def test_noise_is_read_or_told_and_raises_nothing_else(document: dict[str, Any]) -> None:
    for schema in (NOTES, Schema(StructNote), Schema(ModelNote)):
        reading = schema.try_read(document)
        if reading.problems:
            with pytest.raises((InvalidDocumentError, NewerSchemaError)):
                schema.read(document)
        else:
            schema.read(document)


# ── versions ───────────────────────────────────────────────────────────────────────────


def _renamed(members: dict[str, Any]) -> dict[str, Any]:
    members["title"] = members.pop("name")
    return members


def _split(members: dict[str, Any]) -> dict[str, Any]:
    return {**members, "tags": members["tags"].split(","), "body": "new"}


THIRD = Schema(Note, version=3, migrations={1: _renamed, 2: _split})


async def test_an_older_document_is_migrated_when_read_and_written_by_the_next_update() -> None:
    async with local() as store:
        store["name"] = "Old"
        store["tags"] = "a,b"
        store["unknown"] = 1
        note = THIRD.read(store.view())
        assert note == Note("Old", "new", tags=("a", "b"))
        assert store["name"] == "Old"
        with pytest.raises(KindError):
            # A register does not become a list; a migration gives it another name.
            THIRD.update(store, note)


async def test_a_migration_renames_and_adds() -> None:
    schema = Schema(Note, version=2, migrations={1: lambda m: {**_renamed(m), "body": "new"}})
    async with local() as store:
        store["name"] = "Old"
        store["unknown"] = 1
        schema.update(store, replace(schema.read(store.view()), count=5))
        assert "name" not in store.materialize()
        assert (store["title"], store["count"], store["unknown"]) == ("Old", 5, 1)
        assert store.text("body") == "new"
        assert store[VERSION_NAME] == 2
        assert schema.read(store.view()) == Note("Old", "new", count=5)


async def test_a_newer_document_is_read_as_far_as_it_goes_and_not_written() -> None:
    async with local() as store:
        store["title"] = "Notes"
        store[VERSION_NAME] = 2
        note = NOTES.read(store.view())
        assert note == Note("Notes")
        before = dict(store.view())
        with pytest.raises(NewerSchemaError, match="version 2, and only 1 is known"):
            NOTES.update(store, replace(note, count=1))
        assert dict(store.view()) == before
        store["title"] = 5
        with pytest.raises(NewerSchemaError) as caught:
            NOTES.read(store.view())
        assert isinstance(caught.value.__cause__, InvalidDocumentError)


async def test_an_edit_of_what_was_shown_before_a_migration_is_refused() -> None:
    async with local() as store:
        NOTES.update(store, Note("Notes"))
        base = store.view()
        store[VERSION_NAME] = 2
        with pytest.raises(NewerSchemaError):
            NOTES.update(store, Note("edited"), base=base)
        assert store["title"] == "Notes"


async def test_a_migration_that_fails_is_told_and_changes_nothing() -> None:
    def fail(members: dict[str, Any]) -> dict[str, Any]:
        members.clear()
        raise KeyError("name")

    schema = Schema(Note, version=2, migrations={1: fail})
    async with local() as store:
        store["title"] = "x"
        assert problems_of(schema, store.view()) == [
            ("", "the migration from version 1 fails: KeyError('name')")
        ]
        assert schema.try_read(store.view()).value == Note("x")
        with pytest.raises(InvalidDocumentError):
            schema.update(store, Note("y"))
        assert store["title"] == "x"


@pytest.mark.parametrize("version", [0, -1, 1.5, float("inf"), "1", None, True, [1]])
def test_a_version_that_is_none_is_told(version: Any) -> None:
    document = {"title": "x", VERSION_NAME: version}
    assert [path for path, _ in problems_of(NOTES, document)] == [VERSION_NAME]
    assert NOTES.try_read(document).value == Note("x")


# ── schemas ────────────────────────────────────────────────────────────────────────────


def test_a_schema_that_contradicts_itself_is_refused() -> None:
    @dataclass
    class Taken:
        schema: int

    @dataclass
    class Odd:
        inner: list[complex]

    @dataclass
    class NoText:
        body: Annotated[str | None, Text] = None

    @dataclass
    class NoMarkedText:
        body: Annotated[str, Text] | None = None

    @dataclass
    class NoList:
        tags: list[str] | None = None

    class NoStructs(msgspec.Struct):
        tasks: Annotated[Optional[tuple[StructTask, ...]], Key("id")] = None  # noqa: UP045

    for model, more, error in (
        (NoText, {}, SchemaError),
        (NoMarkedText, {}, SchemaError),
        (NoList, {}, SchemaError),
        (NoStructs, {}, SchemaError),
        (Note, {"version": 3, "migrations": {1: _renamed}}, SchemaError),
        (Note, {"migrations": {1: _renamed}}, SchemaError),
        (Taken, {}, SchemaError),
        (Odd, {}, FieldTypeError),
        (int, {}, NotAModelError),
    ):
        with pytest.raises(error) as caught:
            Schema(model, **more)
        assert isinstance(caught.value, UsageError)


# ── other classes ──────────────────────────────────────────────────────────────────────


class StructTask(msgspec.Struct):
    id: int
    title: str = ""


class StructNote(msgspec.Struct, rename={"is_done": "isDone"}):
    title: str
    body: Annotated[str, Text] = ""
    tasks: Annotated[list[StructTask], Key("id")] = []
    count: int = 0
    is_done: bool = False


class ModelTask(pydantic.BaseModel):
    id: int
    title: str = ""


class ModelNote(pydantic.BaseModel):
    title: str
    body: Annotated[str, Text] = ""
    tasks: Annotated[list[ModelTask], Key("id")] = []
    count: Annotated[int, pydantic.Field(ge=0)] = 0
    is_done: bool = pydantic.Field(False, alias="isDone")


@pytest.mark.parametrize(
    ("model", "value"),
    [
        (StructNote, StructNote("Notes", "text", [StructTask(1, "one")], 2, True)),
        (
            ModelNote,
            ModelNote(
                title="Notes",
                body="text",
                tasks=[ModelTask(id=1, title="one")],
                count=2,
                isDone=True,
            ),
        ),
    ],
)
async def test_structs_and_models_work_alike(model: type, value: Any) -> None:
    schema: Schema[Any] = Schema(model)
    async with local() as store:
        schema.update(store, value)
        assert schema.read(store.view()) == value
        assert store.text("body") == "text"
        assert store["isDone"] is True
    document = {"tasks": [{"id": 1}, {"title": "x"}], "count": "many"}
    reading = schema.try_read({"title": "x", **document})
    assert reading.value is not None
    assert (reading.value.title, reading.value.count, reading.value.tasks) == ("x", 0, [])
    assert {problem.path for problem in reading.problems} == {"tasks[1].id", "count"}
    reading = schema.try_read(document)
    assert reading.value is None
    assert {problem.path for problem in reading.problems} >= {"title"}

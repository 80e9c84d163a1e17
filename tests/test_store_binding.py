"""Bindings: an attribute and a path show the same, as long as both live, and without an echo."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest

from walstore.document.content import KindError
from walstore.errors import NotJsonError
from walstore.net.memory import MemoryTransport
from walstore.signed import Identity
from walstore.store.binding import bind
from walstore.store.references import NotWeakError
from walstore.store.store import WalStore

ADA, BOB = (Identity.from_seed(bytes([n]) * 32) for n in (1, 2))


def local() -> WalStore:
    return WalStore.open("notes/a", identity=ADA, autocommit_ms=None)


class Field:
    """A widget: it shows a value, and tells whoever listens of every new one, whoever set it."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Any], None]] = []
        self.history: list[Any] = []

    @property
    def value(self) -> Any:
        return self.history[-1]

    @value.setter
    def value(self, value: Any) -> None:
        self.history.append(value)
        for listener in self.listeners.copy():
            listener(value)

    def show(self, value: Any) -> None:
        self.value = value

    def listen(self, fn: Callable[[Any], None]) -> Callable[[], None]:
        self.listeners.append(fn)
        return lambda: self.listeners.remove(fn)


async def test_an_attribute_shows_what_stands_at_a_path() -> None:
    async with local() as store:
        field = Field()
        bind(store, field, "value", "title", default="untitled")
        store["title"] = "one"
        store["other"] = 1
        store["title"] = "two"
        store["title"] = "two"
        assert field.history == ["untitled", "one", "two"]
        del store["title"]
        assert field.value == "untitled"


@pytest.mark.parametrize("setter", [Field.show, lambda field, value: field.show(value)])
async def test_a_function_may_show_it(setter: Callable[[Any, Any], None]) -> None:
    async with local() as store:
        field = Field()
        bind(store, field, setter, "title", show=lambda value: f"<{value}>")
        store["title"] = "one"
        assert field.history == ["<None>", "<one>"]


async def test_lists_texts_and_keys_of_maps_are_shown_too() -> None:
    async with local() as store:
        items, body, key = Field(), Field(), Field()
        bind(store, items, "value", "items")
        bind(store, body, "value", "body", as_text=True)
        bind(store, key, "value", "people/ada")
        store.set_list("items", [1, {"a": [2]}])
        store.set_text("body", "hello")
        store.put("people", "bob", 1)
        store.put("people", "ada", 2)
        assert items.history == [None, (1, {"a": (2,)})]
        assert body.history == ["", "hello"]
        assert key.history == [None, 2]
        store.drop("people", "ada")
        assert key.value is None


async def test_a_key_is_shown_anew_when_its_name_is_written() -> None:
    transport, keys = MemoryTransport(), [ADA.public_key, BOB.public_key]
    stores = [
        WalStore.open("notes/a", identity=who, relay=transport, writers=keys, autocommit_ms=None)
        for who in (ADA, BOB)
    ]
    async with stores[0] as ada, stores[1] as bob:
        of_register, of_map = Field(), Field()
        ada["settings"] = {"theme": "dark"}
        ada.put("people", "ada", 1)
        bind(ada, of_register, "value", "settings/theme")
        binding = bind(ada, of_map, "value", "people/ada", default="nobody")
        ada["settings"] = {"theme": "light"}
        assert of_register.history == ["dark", "light"]
        # A register that somebody writes at the same time hides the map.
        bob["people"] = "plain"
        await bob.commit()
        await ada.pull()
        assert of_map.history == [1, "nobody"]
        binding.close()
        del ada["people"]
        assert of_map.history == [1, "nobody"]


async def test_edits_are_written_and_nothing_is_set_twice() -> None:
    async with local() as store:
        field = Field()
        changes: list[Any] = []
        bind(store, field, "value", "title", listen=field.listen)
        store.subscribe("title", lambda change: changes.append(store["title"]))
        field.value = "mine"
        field.value = "mine"
        assert (store["title"], changes) == ("mine", ["mine"])
        assert field.history == [None, "mine", "mine"]
        store["title"] = "theirs"
        assert field.history == [None, "mine", "mine", "theirs"]
        assert changes == ["mine", "theirs"]


async def test_what_a_widget_makes_of_a_value_is_no_edit() -> None:
    class Shouting(Field):
        def show(self, value: Any) -> None:
            self.value = str(value).upper()

    async with local() as store:
        field = Shouting()
        bind(store, field, field.show, "title", listen=field.listen)
        store["title"] = "quiet"
        assert field.value == "QUIET"
        assert store["title"] == "quiet"


async def test_two_widgets_follow_each_other() -> None:
    async with local() as store:
        left, right = Field(), Field()
        bind(store, left, "value", "size", listen=left.listen)
        bind(store, right, "value", "size", listen=right.listen)
        left.value = 1
        right.value = 2
        assert (left.value, right.value, store["size"]) == (2, 2, 2)


@pytest.mark.parametrize(
    ("path", "before", "edited"),
    [("items", [1, 2], [1, 2, 3]), ("people/ada", None, 5), ("flag", True, 1), ("a/b", 1, 2)],
)
async def test_each_kind_of_path_takes_edits(path: str, before: Any, edited: Any) -> None:
    async with local() as store:
        if isinstance(before, list):
            store.set_list(path, before)
        elif before is not None:
            store[path] = before
        field = Field()
        binding = bind(store, field, "value", path, listen=field.listen)
        field.value = edited
        shown = tuple(edited) if isinstance(edited, list) else edited
        assert binding.value == shown
        assert type(binding.value) is type(shown)


async def test_what_arrived_while_it_was_shown_stays() -> None:
    transport, keys = MemoryTransport(), [ADA.public_key, BOB.public_key]
    stores = [
        WalStore.open("notes/a", identity=who, relay=transport, writers=keys, autocommit_ms=None)
        for who in (ADA, BOB)
    ]
    async with stores[0] as ada, stores[1] as bob:
        ada.set_text("body", "one two")
        await ada.commit()
        await bob.pull()
        field = Field()
        bind(bob, field, "value", "body", listen=field.listen)
        with bob.batch():
            # Within a batch nobody is told yet, so the widget still shows the old text.
            bob.set_text("body", "zero one two")
            field.value = "one two three"
        assert bob.text("body") == "zero one two three"
        assert field.value == "zero one two three"


@pytest.mark.parametrize(
    ("edited", "error"),
    [({"an": "object"}, KindError), (float("nan"), NotJsonError), (object(), NotJsonError)],
)
async def test_what_the_document_does_not_take_is_shown_as_it_was(
    edited: object, error: type[Exception]
) -> None:
    async with local() as store:
        store.set_list("items", [1])
        field = Field()
        bind(store, field, "value", "items", listen=field.listen)
        with pytest.raises(error):
            field.value = edited
        assert field.value == (1,)


async def test_a_binding_ends_with_its_object() -> None:
    async with local() as store:
        field = Field()
        shown: list[Any] = []
        bind(store, field, lambda field, value: shown.append(value), "title", listen=field.listen)
        bind(store, field, field.show, "title")
        gone = ref(field)
        del field
        gc.collect()
        assert gone() is None
        store["title"] = "one"
        assert shown == [None]


async def test_nothing_is_left_of_bindings_that_ended() -> None:
    async with local() as store:
        left = []
        for _ in range(50):
            field = Field()
            bind(store, field, "value", "title", listen=field.listen)
            left += [ref(field), ref(field.listeners[0].__self__)]  # type: ignore[attr-defined]
            del field
        gc.collect()
        store["title"] = "one"
        gc.collect()
        assert [each for each in left if each() is not None] == []


async def test_a_closed_binding_shows_and_takes_nothing() -> None:
    async with local() as store:
        field = Field()
        binding = bind(store, field, "value", "title", listen=field.listen)
        binding.close()
        binding.close()
        store["title"] = "one"
        field.value = "two"
        binding.edit("three")
        assert field.history == [None, "two"]
        assert field.listeners == []
        assert store["title"] == "one"


async def test_an_object_without_weak_references_is_refused() -> None:
    async with local() as store:
        with pytest.raises(NotWeakError):
            bind(store, 5, "value", "title")

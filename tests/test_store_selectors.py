"""Selectors: computed again only when what they read has changed, and never out of date."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.board import Board
from walstore.errors import UsageError
from walstore.store.selectors import Selector, SelectorError, SelectorView, is_same, select
from walstore.store.subscriptions import FeedbackLoopError


class Counted:
    """A selector's function that counts how often it ran."""

    def __init__(self, fn: Callable[[SelectorView], Any]) -> None:
        self.runs = 0
        self._fn = fn

    def __call__(self, view: SelectorView) -> Any:
        self.runs += 1
        return self._fn(view)


@pytest.fixture
def board() -> Board:
    """A document of all kinds."""
    board = Board()
    board.set("title", "Tea")
    board.type("body", 0, "water")
    board.edit(lambda writer: writer.insert("todo", 0, ["boil", {"done": False}]))
    board.put("prefs", "dark", True)
    board.put("prefs", "size", 12)
    return board


def selected(board: Board, fn: Callable[[SelectorView], Any]) -> tuple[Selector[Any], Counted]:
    """A selector that was computed once."""
    counted = Counted(fn)
    selector = select(counted, board.tracker)
    assert counted.runs == 0
    assert selector.value == selector.value
    assert counted.runs == 1
    return selector, counted


# What a function reads, an edit that changes that, and one that does not.
READS: list[
    tuple[
        Callable[[SelectorView], Any], Callable[[Board], object], Callable[[Board], object] | None
    ]
] = [
    (lambda v: v["title"], lambda b: b.set("title", 1), lambda b: b.set("other", 1)),
    (lambda v: v["body"], lambda b: b.type("body", 0, "x"), lambda b: b.set("title", 1)),
    (lambda v: v.text("body"), lambda b: b.type("body", 0, "x"), lambda b: b.type("b", 0, "x")),
    (lambda v: v.text("todo"), lambda b: b.remove("todo", 0), lambda b: b.type("body", 0, "x")),
    (lambda v: v["todo"][0], lambda b: b.remove("todo", 0), lambda b: b.put("todo2", "a", 1)),
    (
        lambda v: v["prefs"]["dark"],
        lambda b: b.put("prefs", "dark", False),
        lambda b: b.put("prefs", "size", 13),
    ),
    (
        lambda v: v["prefs"].get("font"),
        lambda b: b.put("prefs", "font", "serif"),
        lambda b: b.put("prefs", "size", 13),
    ),
    (lambda v: len(v["prefs"]), lambda b: b.put("prefs", "x", 1), lambda b: b.set("title", 1)),
    (lambda v: sorted(v["prefs"]), lambda b: b.drop("prefs", "size"), lambda b: b.set("a", 1)),
    (lambda v: v["prefs"], lambda b: b.put("prefs", "size", 13), lambda b: b.set("a", 1)),
    (lambda v: v.get("none"), lambda b: b.set("none", 1), lambda b: b.set("a", 1)),
    (
        lambda v: v.get("none", {}).get("key", 0),
        lambda b: b.put("none", "key", 1),
        lambda b: b.put("other", "key", 1),
    ),
    (lambda v: "none" in v, lambda b: b.type("none", 0, "x"), lambda b: b.set("a", 1)),
    (lambda v: v["prefs"]["dark"], lambda b: b.set("prefs", {"dark": 0}), lambda b: b.set("a", 1)),
    (lambda v: len(v), lambda b: b.set("any", 1), None),
    (lambda v: sorted(v), lambda b: b.put("any", "key", 1), None),
    (lambda v: dict(v)["title"], lambda b: b.set("title", 1), None),
]


@pytest.mark.parametrize("case", range(len(READS)))
def test_only_what_was_read_makes_a_selector_run_again(board: Board, case: int) -> None:
    fn, matters, does_not = READS[case]
    selector, counted = selected(board, fn)
    before = selector.value
    if does_not is not None:
        does_not(board)
        assert is_same(selector.value, before)
        assert counted.runs == 1
    matters(board)
    assert counted.runs == 1
    assert not is_same(selector.value, before)
    assert counted.runs == 2


NAMES = ("a", "b", "c")


class Step(NamedTuple):
    """An edit, for whatever is there."""

    what: str
    name: str
    key: str
    number: int


steps = st.builds(
    Step,
    st.sampled_from(["set", "delete", "type", "remove", "put", "drop"]),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
    st.integers(0, 3),
)


def make(board: Board, step: Step) -> None:
    """Make an edit; names do not keep to one kind."""
    match step.what:
        case "set":
            board.set(step.name, step.number)
        case "delete":
            board.edit(lambda writer: writer.delete(step.name))
        case "type":
            board.type(step.name, step.number, "x")
        case "remove":
            board.remove(step.name, step.number)
        case "put":
            board.put(step.name, step.key, step.number)
        case "drop":
            board.drop(step.name, step.key)


def plain(value: Any) -> Any:
    """A value that outlives the view it was read in."""
    return dict(value) if isinstance(value, Mapping) else value


LOOKS: list[Callable[[SelectorView], Any]] = [
    lambda view: plain(view.get("a")),
    lambda view: view.text("a"),
    lambda view: view["a"].get("b") if isinstance(view.get("a"), Mapping) else None,
    lambda view: view.get("b") if view.get("a") == 1 else view.get("c", 0),
    lambda view: len(view["b"]) if isinstance(view.get("b"), Mapping) else -1,
    lambda view: "c" in view,
    lambda view: {name: plain(view[name]) for name in view},
]


@given(st.lists(steps, max_size=20), st.sets(st.integers(0, 19)))
def test_a_selector_always_has_the_value_of_a_fresh_one(made: list[Step], unread: set[int]) -> None:
    board = Board()
    selectors = [select(look, board.tracker) for look in LOOKS]
    for number, step in enumerate(made):
        make(board, step)
        if number in unread:
            continue
        for look, selector in zip(LOOKS, selectors, strict=True):
            assert is_same(selector.value, select(look, board.tracker).value)


# ── reading ────────────────────────────────────────────────────────────────────────────


def test_a_value_is_never_out_of_date_even_inside_of_callbacks(board: Board) -> None:
    seen: list[Any] = []
    selector = select(lambda view: view["title"], board.tracker)

    def look(change: object) -> None:
        seen.append(selector.value)
        if len(seen) == 1:
            board.set("title", "third")
            # Nobody was told of this yet.
            seen.append(selector.value)

    board.hub.subscribe("title", look)
    assert selector.value == "Tea"
    board.set("title", "second")
    assert seen == ["second", "third", "third"]


def test_what_is_no_longer_read_is_no_longer_followed(board: Board) -> None:
    board.set("which", "title")
    selector, counted = selected(board, lambda view: view[view["which"]])
    board.set("which", "body")
    assert selector.value == "water"
    board.set("title", "not read")
    assert selector.value == "water"
    assert counted.runs == 2


def test_what_was_selected_outlives_the_view_and_keeps_its_type(board: Board) -> None:
    selector = select(lambda view: {"prefs": view["prefs"], "list": [view["todo"]]}, board.tracker)
    value: Any = selector.value
    assert dict(value["prefs"]) == {"dark": True, "size": 12}
    assert type(value) is dict
    assert value["list"] == [("boil", {"done": False})]
    board.put("prefs", "dark", False)
    assert value["prefs"]["dark"] is True
    with pytest.raises(TypeError):
        value["prefs"]["dark"] = False


def test_the_view_is_not_for_later(board: Board) -> None:
    kept: list[SelectorView] = []
    assert select(lambda view: kept.append(view), board.tracker).value is None
    with pytest.raises(UsageError, match="while it runs"):
        kept[0]["title"]


def test_what_is_missing_is_missing(board: Board) -> None:
    def look(view: Mapping[Any, Any]) -> list[bool]:
        return ["none" in view, 3 in view, "none" in view["prefs"], 3 in view["prefs"]]

    assert select(look, board.tracker).value == [False, False, False, False]
    assert select(lambda view: view.text("none"), board.tracker).value == ""
    assert select(lambda view: view.text("title"), board.tracker).value == ""


def test_selectors_may_read_one_another(board: Board) -> None:
    inner = select(lambda view: len(view["body"]), board.tracker)
    outer, counted = selected(board, lambda view: f"{view['title']}: {inner.value}")
    assert outer.value == "Tea: 5"
    board.type("body", 5, "!")
    assert outer.value == "Tea: 6"
    board.set("other", 1)
    assert outer.value == "Tea: 6"
    assert counted.runs == 2


def test_a_selector_that_reads_itself_is_refused(board: Board) -> None:
    loop: list[Selector[Any]] = []
    loop.append(select(lambda view: loop[0].value, board.tracker))
    with pytest.raises(SelectorError, match="reads itself"):
        _ = loop[0].value


def test_what_a_function_raises_is_raised_to_who_reads_until_it_is_well_again(
    board: Board,
) -> None:
    selector = select(lambda view: 10 // view["divisor"], board.tracker)
    with pytest.raises(KeyError):
        _ = selector.value
    board.set("divisor", 0)
    with pytest.raises(ZeroDivisionError):
        _ = selector.value
    board.set("divisor", 5)
    assert selector.value == 2


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        ("a", "a", True),
        ((1, 2), [1, 2], True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (None, 0, False),
        ({1, 2}, {2, 1}, True),
        ({1}, {2}, False),
        (float("nan"), 1, False),
    ],
)
def test_values_are_compared_as_json(left: object, right: object, same: bool) -> None:
    assert is_same(left, right) == same


# ── subscribing ────────────────────────────────────────────────────────────────────────


def test_a_subscriber_is_told_only_values_that_differ(board: Board) -> None:
    told: list[int] = []
    selector, counted = selected(board, lambda view: len(view["body"]))
    selector.subscribe(told.append)
    board.edit(
        lambda writer: writer.insert_text("body", 0, "a"), lambda writer: writer.remove("body", 3)
    )
    assert told == []
    board.type("body", 0, "a")
    board.set("title", "other")
    assert told == [6]
    assert counted.runs == 3


def test_one_fold_of_much_that_was_read_runs_a_selector_once(board: Board) -> None:
    told: list[Any] = []
    selector, counted = selected(board, lambda view: [view["title"], view["body"], view["prefs"]])
    selector.subscribe(told.append)
    board.edit(
        lambda writer: writer.set("title", 1),
        lambda writer: writer.insert_text("body", 0, "x"),
        lambda writer: writer.put("prefs", "dark", False),
    )
    assert len(told) == 1
    assert counted.runs == 2


def test_who_reads_first_does_not_keep_subscribers_from_being_told(board: Board) -> None:
    told: list[Any] = []
    selector = select(lambda view: view["title"], board.tracker)
    board.hub.subscribe("title", lambda change: selector.value)
    selector.subscribe(told.append)
    board.set("title", 1)
    board.set("title", 2)
    assert told == [1, 2]


def test_an_error_goes_to_the_subscribers_owner(board: Board) -> None:
    told: list[Any] = []
    errors: list[tuple[BaseException, Any]] = []
    selector = select(lambda view: 10 // view.get("divisor", 1), board.tracker)
    selector.subscribe(told.append, on_error=lambda error, about: errors.append((error, about)))
    board.set("divisor", 0)
    ((error, about),) = errors
    assert isinstance(error, ZeroDivisionError)
    assert about is selector
    board.set("divisor", 2)
    assert told == [5]


def test_a_subscriber_that_writes_what_it_reads_for_ever_is_closed(board: Board) -> None:
    errors: list[BaseException] = []
    board.set("n", 0)
    selector = select(lambda view: view["n"], board.tracker)
    subscription = selector.subscribe(
        lambda value: board.set("n", value + 1), on_error=lambda error, _: errors.append(error)
    )
    board.set("n", 1)
    assert [type(error) for error in errors] == [FeedbackLoopError]
    assert subscription.is_closed
    assert selector.value == board.register("n")


async def test_a_slow_async_subscriber_is_told_the_latest_value_only(board: Board) -> None:
    told: list[Any] = []
    gate = asyncio.Event()

    async def show(value: Any) -> None:
        told.append(value)
        await gate.wait()

    select(lambda view: view["title"], board.tracker).subscribe(show)
    board.set("title", 1)
    await asyncio.sleep(0)
    for number in range(2, 100):
        board.set("title", number)
    gate.set()
    await board.settle()
    assert told == [1, 99]


# ── lifetimes ──────────────────────────────────────────────────────────────────────────


class Widget:
    """Somebody who selects and shows."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def compute(self, view: SelectorView) -> Any:
        return view["title"]

    def show(self, value: Any) -> None:
        self.told.append(value)


def is_free(board: Board) -> bool:
    """Whether nothing is followed, and nobody told, after the next change."""
    gc.collect()
    board.set("unrelated", 1)
    return board.tracker._index._exact == {} and board.hub._places == {}


def test_a_selector_that_nobody_holds_follows_nothing(board: Board) -> None:
    selector = select(lambda view: view["title"], board.tracker)
    assert selector.value == "Tea"
    assert not is_free(board)
    del selector
    assert is_free(board)


def test_a_subscription_keeps_its_selector_until_it_is_closed(board: Board) -> None:
    told: list[Any] = []
    subscription = select(lambda view: view["title"], board.tracker).subscribe(told.append)
    gc.collect()
    board.set("title", 1)
    assert told == [1]
    subscription.close()
    del subscription
    assert is_free(board)


def test_a_widget_that_selects_and_shows_with_its_methods_is_not_kept_alive(board: Board) -> None:
    widget = Widget()
    select(widget.compute, board.tracker).subscribe(widget.show)
    board.set("title", 1)
    assert widget.told == [1]
    gone = weakref.ref(widget)
    del widget
    gc.collect()
    assert gone() is None
    assert is_free(board)


def test_a_selector_is_closed_with_its_owner(board: Board) -> None:
    told: list[Any] = []
    owner = Widget()
    selector = select(lambda view: view["title"], board.tracker, owner=owner)
    selector.subscribe(told.append)
    del owner
    gc.collect()
    with pytest.raises(SelectorError, match="is closed"):
        _ = selector.value
    board.set("title", 1)
    assert told == []
    assert is_free(board)


def test_a_closed_selector_has_no_value_and_tells_nobody(board: Board) -> None:
    told: list[Any] = []
    with select(lambda view: view["title"], board.tracker) as selector:
        subscription = selector.subscribe(told.append)
    selector.close()
    board.set("title", 1)
    assert told == []
    assert subscription.is_closed
    with pytest.raises(SelectorError, match="is closed"):
        selector.subscribe(told.append)
    assert is_free(board)

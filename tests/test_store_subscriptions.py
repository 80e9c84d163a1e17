"""Subscriptions: everybody is told once, in order, after the fold, and troubles nobody else."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.board import Board, paths
from tests.counting import calls_of
from walstore.errors import UsageError
from walstore.store.change import (
    ABSENT,
    INSERTED_MAX,
    SPLICES_MAX,
    Assigned,
    Change,
    Deleted,
    Splices,
    apply_delta,
)
from walstore.store.paths import FOUND_PATHS_MAX, PathIndex, Pattern
from walstore.store.references import NotWeakError
from walstore.store.subscription import Subscription
from walstore.store.subscriptions import (
    ANSWERS_MAX,
    ROUNDS_MAX,
    FeedbackLoopError,
    HubClosedError,
)
from walstore.store.waiting import BUFFER_DEFAULT, SlowConsumerError


@pytest.fixture
def board() -> Board:
    """An empty document."""
    return Board()


# ── paths ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("body", ["body"], ["bod", "body/", "bodyx", "Body", ""]),
        ("", [""], ["a"]),
        ("prefs/*", ["prefs/a", "prefs/"], ["prefs", "prefs/a/b", "xprefs/a"]),
        ("*", ["", "body"], ["prefs/a"]),
        ("**", ["", "body", "prefs/a/b"], []),
        ("***", ["", "prefs/a/b"], []),
        ("*/done", ["a/done", "/done"], ["done", "a/b/done", "a/done/"]),
        ("**/done", ["a/done", "a/b/done"], ["done", "a/doneness"]),
        ("a*b**c", ["abc", "axbc", "ab/x/c"], ["a/bc", "abcd"]),
        ("a.b[c]", ["a.b[c]"], ["axbc"]),
        ("*😀*", ["😀", "a😀\n"], ["😀/"]),
    ],
)
def test_a_pattern_matches_its_paths_and_no_others(
    pattern: str, matching: list[str], others: list[str]
) -> None:
    compiled = Pattern(pattern)
    assert [path for path in matching + others if compiled.matches(path)] == matching


def as_expression(pattern: str) -> re.Pattern[str]:
    """The same set of paths, as a regular expression."""
    parts = re.split(r"(\*+)", pattern)
    wild = {1: "[^/]*"}
    return re.compile(
        "".join([wild.get(len(p), ".*") if i % 2 else re.escape(p) for i, p in enumerate(parts)]),
        re.DOTALL,
    )


@given(st.text("ab/*", max_size=8), st.text("ab/", max_size=10))
def test_patterns_say_what_the_regular_expression_says(pattern: str, path: str) -> None:
    assert Pattern(pattern).matches(path) == (as_expression(pattern).fullmatch(path) is not None)


def test_a_long_path_of_somebody_else_does_not_take_for_ever() -> None:
    # Backtracking would try some 10**18 ways.
    assert not Pattern("**a" * 12 + "b").matches("a" * 2_000)


def test_an_exact_pattern_takes_stars_as_they_are() -> None:
    assert Pattern.exact("a*").matches("a*")
    assert not Pattern.exact("a*").matches("ab")
    assert Pattern.under("a*").matches("a*/key/x")
    assert not Pattern.under("a*").matches("ab/key")
    assert Pattern.exact("a*") != Pattern("a*")
    assert len({Pattern("a"), Pattern.exact("a"), Pattern("a/**"), Pattern.under("a")}) == 2


patterns = st.sampled_from(["a", "b", "a/b", "*", "**", "a/*", "*/b"])


@given(
    st.lists(st.one_of(patterns, st.integers(0, 9), st.sampled_from(["?a", "?b", "?a/b", "?c"])))
)
def test_the_index_finds_what_a_search_finds_in_order(steps: list[str | int]) -> None:
    index: PathIndex[int] = PathIndex()
    held: list[tuple[Pattern, int, int]] = []
    for number, step in enumerate(steps):
        if isinstance(step, int):
            if held:
                pattern, ticket, _ = held.pop(step % len(held))
                index.remove(pattern, ticket)
        elif step.startswith("?"):
            wanted = [item for pattern, _, item in held if pattern.matches(step[1:])]
            assert index.matching(step[1:]) == tuple(wanted)
        else:
            pattern = Pattern(step)
            held.append((pattern, index.add(pattern, number), number))


def test_the_index_remembers_a_bounded_number_of_paths() -> None:
    index: PathIndex[int] = PathIndex()
    index.add(Pattern("**"), 1)
    for number in range(FOUND_PATHS_MAX * 2 + 1):
        assert index.matching(f"prefs/{number}") == (1,)
    assert len(index._found) <= FOUND_PATHS_MAX


def test_a_thousand_exact_paths_cost_no_pattern_matching(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Change] = []
    for number in range(1_000):
        board.hub.subscribe(f"field{number}", told.append)
    matches: list[str] = []
    monkeypatch.setattr(Pattern, "matches", lambda _, path: matches.append(path))
    board.set("field7", 1)
    assert paths(told) == ["field7"]
    assert matches == []


# ── telling ────────────────────────────────────────────────────────────────────────────


def test_everybody_is_told_once_in_order_after_the_fold(board: Board) -> None:
    told: list[tuple[str, str, Any]] = []

    def listen(name: str) -> Callable[[Change], None]:
        return lambda change: told.append((name, change.path, board.register("b")))

    board.hub.subscribe("**", listen("first"))
    board.hub.subscribe("a", listen("second"))
    board.hub.subscribe("*", listen("third"))
    board.edit(lambda w: w.set("a", 1), lambda w: w.set("b", 2))
    assert told == [
        ("first", "a", 2),
        ("second", "a", 2),
        ("third", "a", 2),
        ("first", "b", 2),
        ("third", "b", 2),
    ]


def test_what_a_callback_writes_is_told_to_all_in_the_next_round(board: Board) -> None:
    told: list[tuple[str, int]] = []

    def answer(change: Change) -> None:
        told.append((f"answers {change.path}", board.version))
        if change.path == "a":
            board.set("b", 1)
            board.set("c", 1)
            # An edit is there at once, and nobody was told inside of it.
            assert board.register("c") == 1
            assert len(told) == 1

    board.hub.subscribe("**", answer)
    board.hub.subscribe("**", lambda change: told.append((change.path, change.version)))
    board.set("a", 1)
    assert told == [
        ("answers a", 1),
        ("a", 1),
        ("answers b", 3),
        ("b", 2),
        ("answers c", 3),
        ("c", 3),
    ]


def test_a_long_chain_of_answers_does_not_recurse(board: Board) -> None:
    depth = ROUNDS_MAX - 1

    def count(change: Change) -> None:
        number = board.register("n")
        if number < depth:
            board.set("n", number + 1)

    board.hub.subscribe("n", count, on_error=_unexpected)
    board.set("n", 0)
    assert board.register("n") == depth


def test_who_subscribes_in_a_callback_is_told_only_what_comes_later(board: Board) -> None:
    late: list[int] = []
    handles: list[Subscription[Change]] = []

    def begin(change: Change) -> None:
        if not handles:
            board.set("a", 2)
            # This subscriber can read 2 already.
            handles.append(board.hub.subscribe("a", lambda later: late.append(later.version)))
            board.set("a", 3)

    board.hub.subscribe("a", begin)
    board.set("a", 1)
    assert late == [3]


def test_who_is_closed_in_a_callback_is_not_told_even_of_the_same_change(board: Board) -> None:
    told: list[str] = []
    handles: list[Subscription[Change]] = []

    def close_all(change: Change) -> None:
        told.append("first")
        for handle in handles:
            handle.close()

    handles.append(board.hub.subscribe("a", close_all))
    handles.append(board.hub.subscribe("a", lambda change: told.append("second")))
    board.set("a", 1)
    board.set("a", 2)
    assert told == ["first"]


def test_a_subscription_closes_with_its_block_and_closing_twice_is_no_error(board: Board) -> None:
    told: list[Change] = []
    with board.hub.subscribe("a", told.append) as subscription:
        board.set("a", 1)
    board.set("a", 2)
    subscription.close()
    assert subscription.is_closed
    assert len(told) == 1


def test_a_closed_handle_holds_nothing_of_its_subscriber(board: Board) -> None:
    def begin() -> tuple[Subscription[Change], weakref.ref[Widget]]:
        widget = Widget()
        kept = board.hub.subscribe("a", lambda change: widget.show(change))
        return kept, weakref.ref(widget)

    subscription, widget = begin()
    gc.collect()
    assert widget() is not None
    subscription.close()
    gc.collect()
    assert widget() is None


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.text("xyz", max_size=3))))
def test_replaying_what_a_subscriber_was_told_gives_what_is_there(
    edits: list[tuple[str, int, str]],
) -> None:
    board = Board()
    values: dict[str, Any] = {}

    def replay(change: Change) -> None:
        values[change.path] = apply_delta(values.get(change.path, ABSENT), change.delta)

    def mirror(change: Change) -> None:
        # Written inside of callbacks, and told all the same.
        board.type("mirror", 0, "m")

    board.hub.subscribe("a", mirror)
    board.hub.subscribe("**", replay)
    for name, position, text in edits:
        board.type(name, position, text)
        board.remove(name, position)
    for name in board.crdt.list_names():
        assert values.get(name, "") == board.crdt.text(name)


# ── errors ─────────────────────────────────────────────────────────────────────────────


class TroubleError(Exception):
    """What a callback raises."""


def _fail(change: Change) -> None:
    raise TroubleError(change.path)


def _unexpected(error: BaseException, change: Any) -> None:
    raise AssertionError("nothing should fail here") from error


def test_an_error_goes_to_its_owner_and_to_nobody_else(board: Board) -> None:
    told: list[str] = []
    mine: list[tuple[str, str]] = []
    board.hub.subscribe("a", lambda change: told.append("before"))
    board.hub.subscribe(
        "a", _fail, on_error=lambda error, change: mine.append((repr(error), change.path))
    )
    board.hub.subscribe("a", lambda change: told.append("after"), on_error=_unexpected)
    board.set("a", 1)
    assert told == ["before", "after"]
    assert mine == [("TroubleError('a')", "a")]
    assert board.unhandled == []


def test_an_error_without_owner_is_logged_once_by_name_and_always_handed_on(
    board: Board, caplog: pytest.LogCaptureFixture
) -> None:
    board.hub.subscribe("a", _fail)
    with caplog.at_level(logging.ERROR, logger="walstore.store"):
        board.set("a", 1)
        board.set("a", 2)
    assert [record.name for record in caplog.records] == ["walstore.store"]
    assert "_fail on 'a'" in caplog.text
    assert [type(error) for error in board.unhandled] == [TroubleError, TroubleError]


def test_an_owner_that_fails_as_well_troubles_nobody_either(board: Board) -> None:
    told: list[Change] = []

    def fail_again(error: BaseException, change: Change) -> None:
        raise TroubleError("again") from error

    board.hub.subscribe("a", _fail, on_error=fail_again)
    board.hub.subscribe("a", told.append)
    board.set("a", 1)
    assert [str(error) for error in board.unhandled] == ["again"]
    assert len(told) == 1


def test_a_cancelled_future_in_a_callback_does_not_cancel_the_editor(board: Board) -> None:
    errors: list[BaseException] = []

    def look(change: Change) -> None:
        raise asyncio.CancelledError

    board.hub.subscribe("a", look, on_error=lambda error, change: errors.append(error))
    board.set("a", 1)
    assert [type(error) for error in errors] == [asyncio.CancelledError]


def test_an_interrupt_is_raised_when_all_were_told(board: Board) -> None:
    told: list[Change] = []

    def interrupt(change: Change) -> None:
        raise KeyboardInterrupt

    first = board.hub.subscribe("a", interrupt)
    board.hub.subscribe("a", told.append)
    with pytest.raises(KeyboardInterrupt):
        board.set("a", 1)
    first.close()
    board.set("a", 2)
    assert len(told) == 2


def test_two_who_answer_each_other_for_ever_are_told_so_and_closed(board: Board) -> None:
    errors: list[tuple[str, BaseException]] = []
    derived: list[int] = []
    told: list[Change] = []

    def owner(name: str) -> Callable[[BaseException, Change], None]:
        return lambda error, change: errors.append((name, error))

    def lower(change: Change) -> None:
        if board.register("a") == "X":
            board.set("a", "x")

    def upper(change: Change) -> None:
        if board.register("a") == "x":
            board.set("a", "X")

    def derive(change: Change) -> None:
        derived.append(change.version)
        board.set("copy", board.register("a"))

    loops = [
        board.hub.subscribe("a", lower, on_error=owner("lower")),
        board.hub.subscribe("a", upper, on_error=owner("upper")),
    ]
    innocent = board.hub.subscribe("a", derive, on_error=owner("derive"))
    board.hub.subscribe("**", told.append)
    board.set("a", "x")
    assert sorted(name for name, _ in errors) == ["lower", "upper"]
    assert all(isinstance(error, FeedbackLoopError) for _, error in errors)
    assert [loop.is_closed for loop in loops] == [True, True]
    assert not innocent.is_closed
    # Everything that was written was told, and what is told is what is there.
    assert [change.version for change in told] == list(range(1, board.version + 1))
    assert board.register("copy") == board.register("a")
    board.set("a", "x")
    assert board.register("a") == "x"


def test_a_loop_that_takes_turns_is_found_after_its_rounds(board: Board) -> None:
    errors: list[BaseException] = []

    def count(change: Change) -> None:
        board.set("a", board.register("a") + 1)

    board.hub.subscribe("a", count, on_error=lambda error, change: errors.append(error))
    board.set("a", 0)
    (error,) = errors
    assert isinstance(error, FeedbackLoopError)
    assert error.rounds == ROUNDS_MAX + 1
    assert board.register("a") == ROUNDS_MAX


def test_many_writes_in_answer_to_one_change_are_no_loop(board: Board) -> None:
    told: list[Change] = []

    def fill(change: Change) -> None:
        for number in range(ANSWERS_MAX + 1):
            board.set(f"field{number}", 1)

    subscription = board.hub.subscribe("a", fill, on_error=_unexpected)
    board.hub.subscribe("field*", told.append)
    board.set("a", 1)
    assert len(told) == ANSWERS_MAX + 1
    assert not subscription.is_closed


def test_an_error_handler_that_writes_for_ever_is_a_loop_as_well(board: Board) -> None:
    errors: list[BaseException] = []

    def write(error: BaseException, change: Change) -> None:
        errors.append(error)
        board.set("a", len(errors))

    subscription = board.hub.subscribe("a", _fail, on_error=write)
    board.set("a", 0)
    assert subscription.is_closed
    assert isinstance(errors[-1], FeedbackLoopError)
    assert len(errors) == ROUNDS_MAX + 1


# ── lifetimes ──────────────────────────────────────────────────────────────────────────


class Widget:
    """Somebody with methods."""

    def __init__(self) -> None:
        self.told: list[Change] = []
        self.errors: list[BaseException] = []

    def show(self, change: Change) -> None:
        self.told.append(change)

    def fail(self, change: Change) -> None:
        raise TroubleError

    def note(self, error: BaseException, change: Change) -> None:
        self.errors.append(error)


def test_a_method_is_told_while_its_object_lives_and_ends_with_it(board: Board) -> None:
    widget = Widget()
    subscription = board.hub.subscribe("a", widget.show, on_error=widget.note)
    board.set("a", 1)
    assert len(widget.told) == 1
    gone = weakref.ref(widget)
    del widget
    gc.collect()
    assert gone() is None
    assert subscription.is_closed
    board.set("a", 2)
    assert board.hub._places == {}
    assert board.unhandled == []


def test_a_method_that_takes_errors_does_not_keep_its_object_alive(board: Board) -> None:
    widget = Widget()
    gone = weakref.ref(widget)
    board.hub.subscribe("a", _fail, on_error=widget.note)
    board.set("a", 1)
    assert [type(error) for error in widget.errors] == [TroubleError]
    del widget
    gc.collect()
    assert gone() is None
    board.set("a", 2)
    assert [type(error) for error in board.unhandled] == [TroubleError]


def test_a_function_is_kept_and_ends_with_its_owner(board: Board) -> None:
    told: list[int] = []
    owner = Widget()
    board.hub.subscribe("a", lambda change: told.append(1), owner=owner)
    board.hub.subscribe("a", lambda change: told.append(2))
    gc.collect()
    board.set("a", 1)
    del owner
    gc.collect()
    board.set("a", 2)
    assert told == [1, 2, 2]


def test_what_cannot_be_held_weakly_is_refused(board: Board) -> None:
    class Slotted:
        __slots__ = ()

        def show(self, change: Change) -> None:
            raise AssertionError

    with pytest.raises(NotWeakError, match="show"):
        board.hub.subscribe("a", Slotted().show)
    with pytest.raises(NotWeakError, match="int"):
        board.hub.subscribe("a", print, owner=3)
    board.set("a", 1)


def test_after_the_hub_is_closed_nobody_is_told_and_nobody_can_subscribe(board: Board) -> None:
    told: list[str] = []

    def close(change: Change) -> None:
        told.append("first")
        board.set("a", 2)
        board.hub.close()

    first = board.hub.subscribe("a", close)
    board.hub.subscribe("a", lambda change: told.append("second"))
    board.set("a", 1)
    board.set("a", 3)
    assert told == ["first"]
    assert first.is_closed
    with pytest.raises(HubClosedError):
        board.hub.subscribe("a", print)
    with pytest.raises(HubClosedError):
        board.hub.changes("a")


# ── async callbacks ────────────────────────────────────────────────────────────────────


async def test_async_callbacks_run_one_at_a_time_in_order(board: Board) -> None:
    told: list[str] = []

    async def show(change: Change) -> None:
        told.append(f"begin {change.version}")
        await asyncio.sleep(0)
        told.append(f"end {change.version}")

    board.hub.subscribe("a", show)
    board.set("a", 1)
    board.set("a", 2)
    assert told == []
    await board.settle()
    assert told == ["begin 1", "end 1", "begin 2", "end 2"]
    board.set("a", 3)
    await board.settle()
    assert told[4:] == ["begin 3", "end 3"]


async def test_a_lambda_around_a_coroutine_is_async_too(board: Board) -> None:
    told: list[int] = []

    async def show(change: Change) -> None:
        await asyncio.sleep(0)
        told.append(change.version)

    board.hub.subscribe("a", lambda change: show(change))
    board.set("a", 1)
    board.set("a", 2)
    await board.settle()
    assert told == [1, 2]


async def test_an_error_of_an_async_callback_goes_to_its_owner_and_the_next_is_told(
    board: Board,
) -> None:
    told: list[int] = []
    errors: list[tuple[type, int]] = []

    async def show(change: Change) -> None:
        told.append(change.version)
        if change.version == 1:
            raise TroubleError
        if change.version == 2:
            raise asyncio.CancelledError

    board.hub.subscribe(
        "a", show, on_error=lambda error, change: errors.append((type(error), change.version))
    )
    for number in range(3):
        board.set("a", number)
    await board.settle()
    assert told == [1, 2, 3]
    assert errors == [(TroubleError, 1), (asyncio.CancelledError, 2)]


async def test_a_task_that_is_cancelled_ends(board: Board) -> None:
    async def hang(change: Change) -> None:
        await asyncio.Event().wait()

    board.hub.subscribe("a", hang, on_error=_unexpected)
    board.set("a", 1)
    await asyncio.sleep(0)
    (task,) = board.tasks
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_closed_async_subscription_is_told_nothing_that_waited(board: Board) -> None:
    told: list[int] = []

    async def show(change: Change) -> None:
        told.append(change.version)

    subscription = board.hub.subscribe("a", show)
    board.set("a", 1)
    subscription.close()
    await board.settle()
    assert told == []


async def test_closing_the_hub_lets_async_callbacks_have_what_waits(board: Board) -> None:
    told: list[int] = []

    async def show(change: Change) -> None:
        told.append(change.version)

    board.hub.subscribe("a", show)
    board.set("a", 1)
    board.set("a", 2)
    board.hub.close()
    board.set("a", 3)
    await board.settle()
    assert told == [1, 2]


async def test_an_async_loop_lets_others_run(board: Board) -> None:
    async def answer(change: Change) -> None:
        board.set("a", board.register("a") + 1)

    subscription = board.hub.subscribe("a", answer)
    board.set("a", 0)
    while board.register("a") < 10 * ROUNDS_MAX:
        await asyncio.sleep(0)
    subscription.close()
    await board.settle()


async def test_without_a_loop_to_run_in_an_async_callback_is_its_owners_trouble() -> None:
    board = Board()
    errors: list[BaseException] = []

    def refuse(coroutine: object) -> object:
        raise RuntimeError("no running event loop")

    board.hub.spawn = refuse

    async def show(change: Change) -> None:
        raise AssertionError

    board.hub.subscribe("a", show, on_error=lambda error, change: errors.append(error))
    board.hub.subscribe("a", lambda c: show(c), on_error=lambda error, change: errors.append(error))
    board.set("a", 1)
    assert [type(error) for error in errors] == [RuntimeError, RuntimeError]


class Gate:
    """An async callback that waits to be let on."""

    def __init__(self) -> None:
        self.told: list[Change] = []
        self.open = asyncio.Event()

    async def show(self, change: Change) -> None:
        self.told.append(change)
        await self.open.wait()


async def test_a_stuck_callback_holds_a_bounded_number_and_misses_nothing(board: Board) -> None:
    gate = Gate()
    subscription = board.hub.subscribe("**", gate.show)
    values: dict[str, Any] = {}
    for number in range(3 * BUFFER_DEFAULT):
        board.set("title", number)
        board.type("body", number // 2, "x")
        board.type("notes", 0, "y" if number % 2 else "z")
    assert len(subscription._waiting) == 3
    gate.open.set()
    await board.settle()
    for change in gate.told:
        values[change.path] = apply_delta(values.get(change.path, ABSENT), change.delta)
    assert values == {
        "title": 3 * BUFFER_DEFAULT - 1,
        "body": board.crdt.text("body"),
        "notes": board.crdt.text("notes"),
    }


async def test_too_many_places_for_a_stuck_callback_become_the_value_itself(board: Board) -> None:
    board.type("body", 0, "." * 10_000)
    gate = Gate()
    board.hub.subscribe("body", gate.show)
    value = "." * 10_000
    for number in range(BUFFER_DEFAULT + 2):
        board.type("body", (number * 37) % 9_000, "x")
    for number in range(SPLICES_MAX * 2):
        board.type("body", number * 20, "y")
    gate.open.set()
    await board.settle()
    assert isinstance(gate.told[-1].delta, Assigned)
    assert gate.told[-1].kind == "text"
    for change in gate.told:
        value = apply_delta(value, change.delta)
    assert value == board.crdt.text("body")


async def test_a_value_that_is_written_after_too_many_places_counts(board: Board) -> None:
    changes = board.hub.changes("body", buffer=1)
    for number in range(SPLICES_MAX + 2):
        board.type("body", 0, "xx")
        board.type("body", number * 2, "y")
        board.remove("body", 1)
    board.type("body", 0, "x" * (INSERTED_MAX + 1))
    board.set("body", "a register")
    assert (await anext(changes)).delta == Assigned("a register")


async def test_what_a_batch_holds_back_is_not_told_twice_to_a_slow_reader(board: Board) -> None:
    changes, others = board.hub.changes("body", buffer=1), board.hub.changes("body")
    text = ""
    for letter in "xy":
        board.type("body", 0, letter * (INSERTED_MAX - 1))
    with board.hub.hold():
        board.type("body", 0, "one ")
        # Too much to be told apart: it is read from the document, which is ahead of what was told.
        text = apply_delta(text, (await anext(changes)).delta)
        assert text == board.crdt.text("body")
        board.type("body", 0, "two ")
    board.type("body", 0, "three ")
    text = apply_delta(text, (await anext(changes)).delta)
    assert text == board.crdt.text("body")
    board.hub.close()
    assert [change async for change in changes] == []
    mirror = ""
    async for change in others:
        mirror = apply_delta(mirror, change.delta)
    assert mirror == text


async def test_what_waits_is_not_told_after_the_owner_is_gone(board: Board) -> None:
    told: list[int] = []
    gate = asyncio.Event()
    owner = Widget()

    async def show(change: Change) -> None:
        told.append(change.version)
        await gate.wait()

    board.hub.subscribe("a", show, owner=owner)
    board.set("a", 1)
    board.set("a", 2)
    await asyncio.sleep(0)
    del owner
    gc.collect()
    gate.set()
    await board.settle()
    assert told == [1]


async def test_a_callback_stuck_behind_too_many_paths_is_closed_and_its_owner_told(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("walstore.store.waiting.PATHS_MAX", BUFFER_DEFAULT)
    errors: list[BaseException] = []
    gate = Gate()
    subscription = board.hub.subscribe(
        "prefs/*", gate.show, on_error=lambda error, change: errors.append(error)
    )
    for number in range(BUFFER_DEFAULT + 10):
        board.put("prefs", str(number), 1)
    assert [type(error) for error in errors] == [SlowConsumerError]
    assert subscription.is_closed
    assert len(subscription._waiting) == 0
    gate.open.set()
    await board.settle()


# ── iterating ──────────────────────────────────────────────────────────────────────────


async def test_changes_are_iterated_from_the_call_on_until_the_hub_closes(board: Board) -> None:
    board.set("a", 0)
    changes = board.hub.changes("a")
    board.set("a", 1)
    board.set("b", 1)
    board.set("a", 2)
    board.hub.close()
    assert [change.version async for change in changes] == [2, 4]


async def test_an_iterator_waits_without_polling_and_wakes_with_a_change(board: Board) -> None:
    changes = board.hub.changes("a")
    waiting = asyncio.ensure_future(anext(changes))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    board.set("a", 1)
    assert (await waiting).version == 1


async def test_closing_an_iterator_ends_it_for_whoever_waits(board: Board) -> None:
    async with board.hub.changes("a") as changes:
        waiting = asyncio.ensure_future(anext(changes, None))
        await asyncio.sleep(0)
    assert await waiting is None
    board.set("a", 1)
    assert await anext(changes, None) is None
    assert board.hub._places == {}


async def test_two_readers_of_one_iterator_share_its_changes(board: Board) -> None:
    changes = board.hub.changes("a")
    both = [asyncio.ensure_future(anext(changes)) for _ in range(2)]
    await asyncio.sleep(0)
    board.set("a", 1)
    await asyncio.sleep(0)
    board.set("a", 2)
    assert sorted([(await one).version for one in both]) == [1, 2]


async def test_an_iterator_that_nobody_holds_is_let_go(board: Board) -> None:
    changes = board.hub.changes("a")
    board.set("a", 1)
    async for change in changes:
        assert change.version == 1
        break
    assert len(board.hub._places) == 1
    del changes
    gc.collect()
    board.set("a", 2)
    assert board.hub._places == {}


async def test_a_full_buffer_coalesces_by_path_and_replays_to_the_same_values(
    board: Board,
) -> None:
    changes = board.hub.changes("**", buffer=4)
    for number in range(50):
        board.type("body", number, "x")
        board.put("prefs", str(number % 3), number)
    board.drop("prefs", "1")
    board.hub.close()
    told = [change async for change in changes]
    assert paths(told) == ["body", "prefs/0", "prefs/1", "prefs/2"]
    assert isinstance(told[0].delta, Splices)
    assert len(told[0].delta.splices) == 1
    assert apply_delta(ABSENT, told[0].delta) == "x" * 50
    assert [change.delta for change in told[1:]] == [Assigned(48), Deleted(), Assigned(47)]


async def test_after_a_slow_reader_has_caught_up_changes_come_one_by_one_again(
    board: Board,
) -> None:
    changes = board.hub.changes("a", buffer=2)
    for number in range(5):
        board.set("a", number)
    assert (await anext(changes)).delta == Assigned(4)
    board.set("a", 5)
    board.set("a", 6)
    assert (await anext(changes)).delta == Assigned(5)
    assert (await anext(changes)).delta == Assigned(6)


async def test_a_full_buffer_that_must_not_coalesce_ends_with_an_error(board: Board) -> None:
    changes = board.hub.changes("a", buffer=2, overflow="error")
    for number in range(3):
        board.set("a", number)
    with pytest.raises(SlowConsumerError) as caught:
        await anext(changes)
    assert caught.value.waiting == 2
    assert await anext(changes, None) is None
    assert board.hub._places == {}


async def test_keys_that_come_and_go_without_end_do_not_fill_memory(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("walstore.store.waiting.PATHS_MAX", 8)
    changes = board.hub.changes("prefs/*", buffer=4)
    for number in range(20):
        board.put("prefs", str(number), 1)
        board.drop("prefs", str(number))
    with pytest.raises(SlowConsumerError):
        await anext(changes)


async def test_a_name_that_hides_its_map_leaves_no_key_to_a_slow_reader(board: Board) -> None:
    changes = board.hub.changes("**", buffer=1)
    board.put("prefs", "a", 1)
    board.put("prefs", "b/c", 1)
    board.set("prefs/b", "a name that looks like a key")
    board.set("prefs", "plain")
    board.hub.close()
    told = [(change.name, change.key, change.path) async for change in changes]
    assert told == [("prefs/b", None, "prefs/b"), ("prefs", None, "prefs")]


def names_of(board: Board, count: int) -> None:
    """Edits whose every path is another one."""
    for number in range(count):
        board.put("m", str(number), number)
        # Each looks like a key of the map.
        board.set(f"m/{number}", number)
        board.set(f"k{number}", number)


def slow_reader(board: Board, count: int) -> None:
    changes = board.hub.changes("**", buffer=1)
    names_of(board, count)
    assert changes is not None


def one_batch(board: Board, count: int) -> None:
    board.hub.subscribe("**", lambda change: None)
    with board.hub.hold():
        names_of(board, count)


@pytest.mark.parametrize("work", [slow_reader, one_batch])
async def test_a_change_costs_the_same_however_many_paths_wait(
    work: Callable[[Board, int], None],
) -> None:
    few, many = (calls_of(partial(work, Board(), count)) for count in (100, 400))
    assert many < 5 * few


def test_a_buffer_without_room_or_an_unknown_overflow_is_refused(board: Board) -> None:
    with pytest.raises(UsageError, match="no room"):
        board.hub.changes("a", buffer=0)
    with pytest.raises(UsageError, match="overflow"):
        board.hub.changes("a", overflow="drop")  # type: ignore[arg-type]

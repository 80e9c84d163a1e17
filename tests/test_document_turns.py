"""Turns: one at a time, in order, whoever gives up."""

from __future__ import annotations

import anyio
import pytest
from anyio.abc import TaskStatus
from hypothesis import given
from hypothesis import strategies as st

from walstore.document.turns import Turns


async def test_a_free_turn_is_taken_without_giving_way() -> None:
    turns = Turns()
    steps = turns.__aenter__().__await__()
    with pytest.raises(StopIteration):
        next(steps)


async def test_who_is_inside_keeps_others_out_and_they_follow_in_order() -> None:
    turns, order = Turns(), list[int]()

    async def take(number: int) -> None:
        async with turns:
            order.append(number)
            await anyio.lowlevel.checkpoint()
            assert order[-1] == number

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(take, number)
    assert order == list(range(5))


async def test_a_turn_is_passed_on_when_its_holder_fails() -> None:
    turns = Turns()
    with pytest.raises(ValueError, match="failed"):
        async with turns:
            raise ValueError("failed")
    async with turns:
        pass


@given(st.lists(st.sampled_from(["waits", "gives up", "gives up when it is their turn"])))
def test_whoever_gives_up_stands_in_nobodys_way(waiters: list[str]) -> None:
    anyio.run(_give_up, waiters)


async def _give_up(waiters: list[str]) -> None:
    turns, inside = Turns(), list[int]()
    scopes: list[anyio.CancelScope] = []

    async def take(number: int, *, task_status: TaskStatus[None]) -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            task_status.started()
            async with turns:
                inside.append(number)

    async with anyio.create_task_group() as group:
        async with turns:
            for number in range(len(waiters)):
                await group.start(take, number)
            await anyio.lowlevel.checkpoint()
            for scope, waiter in zip(scopes, waiters, strict=True):
                if waiter == "gives up":
                    scope.cancel()
            await anyio.lowlevel.checkpoint()
        # The first of those who wait has it now, and does not know it yet.
        for scope, waiter in zip(scopes, waiters, strict=True):
            if waiter == "gives up when it is their turn":
                scope.cancel()
    assert [number for number in inside if waiters[number] == "waits"] == [
        number for number, waiter in enumerate(waiters) if waiter == "waits"
    ]
    assert inside == sorted(inside)
    async with turns:
        pass

"""How far long work has come: shown to whoever watches, and to nobody else."""

from __future__ import annotations

import asyncio
import io
import sys

import pytest

from walstore import Identity, MemoryTransport, WalStore
from walstore.cli import progress, waiting
from walstore.cli.progress import Progress, watched
from walstore.cli.waiting import told_if_slow


class Terminal(io.StringIO):
    """Standard error of somebody who watches."""

    def isatty(self) -> bool:
        return True


def watching(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Let somebody watch; called by the test itself, which has its own standard error."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setattr(progress, "_LOOK_S", 0.001)
    monkeypatch.setattr(progress, "_INTERVAL_S", 0.0)
    return made


async def test_work_that_says_nothing_is_looked_at_until_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = watching(monkeypatch)
    counted, is_enough = 0, asyncio.Event()

    def count() -> int:
        nonlocal counted
        counted += 1_000
        if counted == 3_000:
            is_enough.set()
        return counted

    async with watched("received", count):
        await asyncio.wait_for(is_enough.wait(), 20)
    shown = terminal.getvalue()
    assert "1,000 received" in shown
    assert "2,000 received" in shown
    # The line is gone when the work is done, and nobody looks any more.
    assert shown.endswith("\r\x1b[K")
    await asyncio.sleep(0)
    assert terminal.getvalue() == shown


async def test_what_goes_wrong_meanwhile_is_told_and_ends_the_looking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = watching(monkeypatch)
    with pytest.raises(ZeroDivisionError):
        async with watched("received", lambda: 1):
            raise ZeroDivisionError
    assert len(asyncio.all_tasks()) == 1
    assert terminal.getvalue() == ""


async def test_nothing_is_shown_or_counted_where_nobody_watches(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def count() -> int:
        raise AssertionError

    async with watched("received", count):
        await asyncio.sleep(0)
    with Progress("sent") as shown:
        shown.show(1, 2)
    assert capsys.readouterr().err == ""


def test_a_bar_shows_how_much_of_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watching(monkeypatch)
    with Progress("sent") as shown:
        shown.show(50, 100)
    assert f"{'█' * 12}{'░' * 12} 50 of 100 sent" in terminal.getvalue()


async def test_who_waits_for_long_is_told_for_what(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with told_if_slow("ws://127.0.0.1:9"):
        await asyncio.sleep(0)
    assert capsys.readouterr().err == ""
    is_said = asyncio.Event()
    monkeypatch.setattr(waiting, "_SAY_AFTER_S", 0.001)

    def note(text: str) -> None:
        print(text)
        is_said.set()

    monkeypatch.setattr(waiting, "note", note)
    async with told_if_slow("ws://127.0.0.1:9"):
        await asyncio.wait_for(is_said.wait(), 20)
    assert capsys.readouterr().out == "waiting for ws://127.0.0.1:9 …\n"


async def test_what_a_store_has_read_can_be_asked_before_it_is_open() -> None:
    ada, log = Identity.generate(), MemoryTransport()
    async with WalStore.open("notes", identity=ada, relay=log, autocommit_ms=None) as first:
        for number in range(3):
            first["count"] = number
            await first.flush()
    second = WalStore.open("notes", identity=ada, relay=log)
    assert second.elements_read == 0
    async with second:
        assert second.elements_read == 3

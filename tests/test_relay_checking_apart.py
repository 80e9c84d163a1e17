"""Snapshots of very many values: checked as any other, by a process of their own."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.relay_clients import snapshot_text, speaking
from walstore.errors import MalformedError
from walstore.relay import MemoryLog, Relay, checking_apart
from walstore.relay.checking import check_snapshot
from walstore.relay.checking_apart import SnapshotChecks, UncheckedError
from walstore.relay.session import PutWhole
from walstore.signed import Identity
from walstore.wire.element import has_too_many_values
from walstore.wire.frames import Code, Ok, Refusal
from walstore.wire.limits import ELEMENT_VALUES_MAX

ANNA = Identity.generate()
DOCUMENT = "notes/a"
MANY: list[object] = [[]] * ELEMENT_VALUES_MAX


def large(**fields: object) -> bytes:
    text = snapshot_text(ANNA, DOCUMENT, **{"upto_ts": 5, "state": MANY, **fields})  # type: ignore[arg-type]
    assert has_too_many_values(text)
    return text


def order(text: bytes) -> PutWhole:
    return PutWhole("put", DOCUMENT, "before", text)


@pytest.mark.parametrize("writers", [{}, {"a": 3, "a:s": 2}])
async def test_many_values_are_checked_as_few_are(writers: dict[str, int]) -> None:
    put = order(large(writer_seq=writers))
    assert await SnapshotChecks().check(put) == check_snapshot(put)


@pytest.mark.parametrize(
    "make",
    [
        lambda: large(upto_ts=-1),
        lambda: large(writer_seq={"a": 0}),
        lambda: large().replace(b"[],[]", b"[], []", 1),
        lambda: large().replace(b"[],[]", b"[],{}", 1),
        lambda: large()[:-1],
        lambda: large().replace(b'"state"', b'"stale"'),
    ],
    ids=["uptoTs", "counts", "spaces", "signature", "cut", "stateless"],
)
async def test_what_is_wrong_with_many_values_is_told_as_with_few(
    make: Callable[[], bytes],
) -> None:
    put = order(make())
    with pytest.raises(MalformedError) as wanted:
        check_snapshot(put)
    with pytest.raises(MalformedError) as caught:
        await SnapshotChecks().check(put)
    assert caught.value.reason == wanted.value.reason


async def test_a_relay_spends_little_of_its_own_time_on_them() -> None:
    put = order(large(state=MANY * 4))
    began = time.process_time()
    check_snapshot(put)
    within = time.process_time()
    await SnapshotChecks().check(put)
    assert time.process_time() - within < (within - began) / 3


async def test_a_snapshot_of_very_many_values_is_stored_and_comes_back() -> None:
    log, text = MemoryLog(), large(upto_ts=0)
    async with Relay.serve(log) as relay, speaking(relay.url, ANNA) as anna:
        assert isinstance(await anna.put(DOCUMENT, text, replaces=None), Ok)
        stored = await log.snapshot(DOCUMENT)
    assert stored is not None
    assert stored.text == text


@pytest.mark.parametrize("fails", ["raise SystemExit(3)", "import os; os.kill(os.getpid(), 9)"])
async def test_a_check_that_breaks_off_says_so_and_the_next_one_is_made(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = large(upto_ts=0)
    async with Relay.serve(MemoryLog()) as relay, speaking(relay.url, ANNA) as anna:
        with monkeypatch.context() as broken:
            broken.setattr(checking_apart, "_MAIN", fails)
            refused = await anna.put(DOCUMENT, text, replaces=None)
        assert isinstance(refused, Refusal)
        assert refused.code is Code.UNAVAILABLE
        assert refused.code.retryable
        assert isinstance(await anna.put(DOCUMENT, text, replaces=None), Ok)


async def test_no_file_that_lies_about_is_taken_for_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orjson.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    assert (await SnapshotChecks().check(order(large()))).author == ANNA.public_key


async def test_why_no_process_can_be_started_is_said_to_the_operator_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    async with Relay.serve(MemoryLog()) as relay, speaking(relay.url, ANNA) as anna:
        refused = await anna.put(DOCUMENT, large(upto_ts=0), replaces=None)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.UNAVAILABLE
    assert "nowhere" not in refused.message
    assert "/nowhere/python" in caplog.text


async def test_a_program_that_is_one_file_checks_them_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.frozen", True, raising=False)
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert (await SnapshotChecks().check(order(large()))).author == ANNA.public_key


async def test_there_is_one_process_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = f"""
import fcntl
held = open({str(tmp_path / "held")!r}, "w")
fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""
    monkeypatch.setattr(checking_apart, "_MAIN", alone + checking_apart._MAIN)
    checks = SnapshotChecks()
    async with asyncio.TaskGroup() as together:
        for _ in range(3):
            together.create_task(checks.check(order(large())))


async def test_a_check_that_nobody_waits_for_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with named_process(tmp_path, monkeypatch) as number:
        checks = SnapshotChecks()
        checking = asyncio.create_task(checks.check(order(large())))
        process = await number
        checking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await checking
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


async def test_a_check_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking_apart, "_CHECK_S_MAX", 0.2)
    async with named_process(tmp_path, monkeypatch) as number:
        with pytest.raises(UncheckedError):
            await SnapshotChecks().check(order(large()))
        if number.done():
            with pytest.raises(ProcessLookupError):
                os.kill(number.result(), 0)


@asynccontextmanager
async def named_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[asyncio.Future[int]]:
    """A process that says its number, and hangs."""
    told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def heard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.set_result(int(await reader.readline()))
        writer.close()

    place = tmp_path / "told"
    says = f"""
import os, signal, socket
with socket.socket(socket.AF_UNIX) as there:
    there.connect({str(place)!r})
    there.sendall(b"%d\\n" % os.getpid())
signal.pause()
"""
    monkeypatch.setattr(checking_apart, "_MAIN", says)
    server = await asyncio.start_unix_server(heard, place)
    async with server:
        yield told

"""Stores whose relay is away, comes back, refuses or is another one, and files that are damaged."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, nullcontext
from pathlib import Path
from secrets import token_bytes
from typing import Any

import pytest

from tests.rigged import RiggedLog, keyed
from tests.stores import ADA, BEN, KEY, free_port, store_of, until, until_sent
from walstore.canon import canonical_bytes, parse
from walstore.document import PrunedLogError
from walstore.document.faults import SnapshotRefusedError
from walstore.document.ports import Body, CheckpointTooOldError, RawElement
from walstore.errors import StorageError, TransportError
from walstore.local import LocalFile, LocalFileDamagedError, LocalFileInUseError, read_unsent
from walstore.net import MemoryTransport, WebSocketTransport
from walstore.net.memory import MemoryFollow, MemorySnapshots
from walstore.relay import MemoryLog, Relay, SqliteLog
from walstore.relay.roles import Roles
from walstore.sealed import ContentKeys, NativeEncryptor
from walstore.signed import Identity, sign_append
from walstore.store.change import Change
from walstore.store.status import StoreStatus
from walstore.store.store import WalStore
from walstore.wire.envelope import read_header

ROOT = Path(__file__).parent.parent
SECRET = "the quick brown fox"


@asynccontextmanager
async def serving(directory: Path, port: int, roles: Roles | None = None) -> AsyncIterator[Relay]:
    """A relay on a port, with a log that outlives it."""
    async with (
        SqliteLog.open(directory / "relay.db") as log,
        Relay.serve(log, port=port, roles=roles) as relay,
    ):
        yield relay


async def sessions_in(url: str) -> list[tuple[str, str, int]]:
    """Author, session and seq of every element that a relay holds."""
    async with WebSocketTransport(url, identity=Identity.from_seed(bytes(32))) as transport:
        found = []
        for element in await transport.pull(KEY, 0):
            data = parse(element.data)
            assert isinstance(data, dict)
            header = read_header(data)
            assert header is not None
            found.append((element.author, header.session, header.seq))
        return found


# ── no network ─────────────────────────────────────────────────────────────────────────


async def test_edits_of_a_store_without_a_relay_are_there_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "ada.wal"
    for count in range(4):
        async with store_of(ADA, path=path) as store:
            assert store.text("body") == "x" * count
            assert len(store.list("todo")) == count
            store.edit_text("body", 0, 0, "x")
            store.list("todo").append(count)
            assert store.status.state == "local"


async def test_a_file_that_was_used_alone_is_sent_once_there_is_a_relay(tmp_path: Path) -> None:
    path = tmp_path / "ada.wal"
    for number in range(3):
        async with store_of(ADA, path=path) as store:
            store.list("todo").append(number)
    transport = MemoryTransport()
    async with store_of(ADA, transport, path, autocommit_ms=0) as store:
        await until_sent(store)
    async with store_of(BEN, transport) as ben:
        assert ben["todo"] == [0, 1, 2]
    assert len(await transport.pull(KEY, 0)) == 3


async def test_a_relay_that_cannot_be_reached_keeps_nobody_from_opening(tmp_path: Path) -> None:
    port = free_port()
    async with asyncio.timeout(4):
        for path in (None, tmp_path / "ada.wal"):
            async with store_of(ADA, f"ws://127.0.0.1:{port}", path) as store:
                assert store.materialize() == {}
                store["title"] = "Plans"
                await until([store], lambda: store.status.state == "offline")
                assert store.status.unsent == 1
                with pytest.raises(TransportError):
                    await store.commit()
                assert store["title"] == "Plans"


async def test_a_file_with_unsent_edits_alone_opens_without_waiting_for_the_relay(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ada.wal"
    async with store_of(ADA, path=path) as store:
        store["title"] = "Plans"

    class Silent(MemoryTransport):
        async def pull(self, *_: Any) -> Any:
            await asyncio.Event().wait()

    async with asyncio.timeout(2), store_of(ADA, Silent(), path) as store:
        assert store["title"] == "Plans"


async def test_a_relay_that_appears_later_gets_everything(tmp_path: Path) -> None:
    port = free_port()
    url = f"ws://127.0.0.1:{port}"
    async with store_of(ADA, url, tmp_path / "ada.wal", autocommit_ms=0) as ada:
        ada.set_text("body", "written early")
        await until([ada], lambda: ada.status.state == "offline")
        async with serving(tmp_path, port), store_of(BEN, url) as ben:
            await until([ben], lambda: ben.text("body") == "written early")
            await until_sent(ada)
            assert ada.status.state == "live"
            assert ada.status.reason == ""


async def test_a_relay_that_goes_and_comes_back_misses_nothing(tmp_path: Path) -> None:
    port = free_port()
    url = f"ws://127.0.0.1:{port}"
    states: list[str] = []
    async with AsyncExitStack() as stack:
        async with serving(tmp_path, port):
            ada = await stack.enter_async_context(
                store_of(ADA, url, tmp_path / "ada.wal", autocommit_ms=0)
            )
            ben = await stack.enter_async_context(store_of(BEN, url, autocommit_ms=0))
            ada.on_status(lambda status: states.append(status.state))
            ada.list("todo").append("before")
            await until([ben], lambda: ben.get("todo") == ["before"])
            await until_sent(ada)
        ada.list("todo").append("while away, here")
        ben.list("todo").append("while away, there")
        await until([ada, ben], lambda: ada.status.state == ben.status.state == "offline")
        async with serving(tmp_path, port):
            await until([ada, ben], lambda: len(ada["todo"]) == len(ben["todo"]) == 3)
            await until_sent(ada, ben)
            assert ada["todo"] == ben["todo"]
            elements = await sessions_in(url)
            assert len(elements) == len(set(elements)) == 3
    assert {"offline", "live"} <= set(states)


async def test_what_is_unsent_when_a_store_closes_is_sent_once_the_next_time(
    tmp_path: Path,
) -> None:
    port = free_port()
    url, path = f"ws://127.0.0.1:{port}", tmp_path / "ada.wal"
    for number in range(3):
        async with store_of(ADA, url, path) as store:
            store.list("todo").append(number)
    async with serving(tmp_path, port):
        for _ in range(2):
            async with store_of(ADA, url, path, autocommit_ms=0) as store:
                await until_sent(store)
                await store.pull()
        elements = await sessions_in(url)
        assert len(elements) == len(set(elements)) == 3
        async with store_of(BEN, url) as ben:
            assert ben["todo"] == [0, 1, 2]


@pytest.mark.parametrize("what", ["commit", "flush", "pull"])
async def test_what_is_under_way_when_a_store_is_closed_says_what_became_of_it(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    class Slow(MemoryTransport):
        def log_of(self, document_key: str) -> str:
            return "0" * 32

        async def _fail(self) -> Any:
            asked.set()
            await answer.wait()
            raise TransportError("away", retryable=True)

        async def append(self, document_key: str, body: Any) -> int:
            return int(await self._fail())

        async def pull(self, document_key: str, checkpoint: int) -> list[Any]:
            return list(await self._fail() if store.status.state == "live" else [])

    monkeypatch.setattr("walstore.store.store._CLOSE_S", 0)
    store = store_of(ADA, Slow(), tmp_path / "ada.wal", autocommit_ms=None)
    async with store:
        store["a"] = 1
        work = asyncio.ensure_future(getattr(store, what)())
        await asked.wait()
    answer.set()
    with pytest.raises(TransportError, match="away"):
        await work


async def test_who_is_told_to_end_while_they_wait_for_callbacks_lets_go_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending, path, end_tasks = asyncio.Event(), tmp_path / "ada.wal", WalStore._end_tasks

    async def endless(_: Change) -> None:
        await asyncio.Event().wait()

    async def told(store: WalStore) -> None:
        ending.set()
        await end_tasks(store)

    async def used() -> None:
        async with store_of(ADA, None, path) as store:
            store.subscribe("a", endless)
            store["a"] = 1

    monkeypatch.setattr(WalStore, "_end_tasks", told)
    work = asyncio.ensure_future(used())
    await ending.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    async with store_of(ADA, None, path) as store:
        assert store["a"] == 1


async def test_a_lost_answer_puts_nothing_into_the_log_twice(tmp_path: Path) -> None:
    class Deaf(MemoryTransport):
        async def append(self, document_key: str, body: Any) -> int:
            await super().append(document_key, body)
            raise TransportError("no answer", retryable=True)

    deaf, path = Deaf(), tmp_path / "ada.wal"
    for number in range(3):
        async with store_of(ADA, deaf, path, autocommit_ms=None) as store:
            store.list("todo").append(number)
    async with store_of(ADA, deaf, path, autocommit_ms=None) as store:
        await store.pull()
        assert store["todo"] == [0, 1, 2]
        # What is read in the log needs no answer.
        assert store.status.unsent < 3
    sound = MemoryTransport()
    sound._logs, sound._known = deaf._logs, deaf._known
    async with store_of(ADA, sound, path, autocommit_ms=0) as store:
        await until_sent(store)
    assert len(await sound.pull(KEY, 0)) == 3


class Unread:
    """A log that is written and never read."""

    def __init__(self, transport: MemoryTransport) -> None:
        self.append = transport.append

    async def pull(self, document_key: str, checkpoint: int) -> list[Any]:
        raise TransportError("away", retryable=True)


class Unanswered(Unread):
    """One that does not even answer."""

    def __init__(self, transport: MemoryTransport) -> None:
        self._transport = transport

    async def append(self, document_key: str, body: Any) -> int:
        await self._transport.append(document_key, body)
        raise TransportError("no answer", retryable=True)


async def test_what_a_relay_acknowledged_and_lost_is_sent_again(tmp_path: Path) -> None:
    transport = MemoryTransport()
    unread = Unread(transport)
    async with store_of(ADA, unread, tmp_path / "ada.wal", autocommit_ms=None) as store:
        store["title"] = "Plans"
        await store.commit()
        assert (store.status.unsent, store.document.unconfirmed) == (0, 1)
    async with store_of(ADA, None, tmp_path / "ada.wal") as store:
        assert (store.status.unsent, store.document.unconfirmed) == (0, 1), "its file knows, too"
    transport._logs.clear()
    transport._known.clear()
    async with store_of(ADA, transport, tmp_path / "ada.wal", autocommit_ms=0) as store:
        await until_sent(store)
        assert len(await transport.pull(KEY, 0)) == 1


# ── refusals ───────────────────────────────────────────────────────────────────────────


async def test_an_edit_that_the_relay_refuses_is_shown_and_kept(tmp_path: Path) -> None:
    port, path = free_port(), tmp_path / "ada.wal"
    url = f"ws://127.0.0.1:{port}"
    text = f'[[grant]]\nprefix = ""\nread = ["{ADA.public_key}"]\n'
    readers = Roles.from_table(tomllib.loads(text), source="roles.toml")
    async with serving(tmp_path, port, readers), store_of(ADA, url, path, autocommit_ms=0) as store:
        told: list[StoreStatus] = []
        store.on_status(told.append)
        store["title"] = "Plans"
        await until([store], lambda: "refused" in store.status.reason)
        await store.pull()
        assert "refused" in store.status.reason
        assert store.status.unsent == 1
        assert store["title"] == "Plans"
        assert any("refused" in status.reason for status in told)
    async with serving(tmp_path, port):
        async with store_of(ADA, url, path, autocommit_ms=0) as store:
            assert store["title"] == "Plans"
            await until_sent(store)
            assert store.status.reason == ""
        assert len(await sessions_in(url)) == 1


async def test_another_log_under_the_same_key_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    port, path = free_port(), tmp_path / "ada.wal"
    url = f"ws://127.0.0.1:{port}"
    async with serving(tmp_path, port), store_of(ADA, url, path, autocommit_ms=0) as store:
        store["title"] = "Plans"
        await until_sent(store)
    (tmp_path / "other").mkdir()
    async with serving(tmp_path / "other", port):
        async with store_of(ADA, url, path, autocommit_ms=0) as store:
            assert store["title"] == "Plans"
            store["title"] = "Other plans"
            await until([store], lambda: "another log" in store.status.reason)
            with pytest.raises(TransportError):
                await store.commit()
            assert store.status.unsent == 1
        assert await sessions_in(url) == []
    async with serving(tmp_path, port), store_of(ADA, url, path, autocommit_ms=0) as store:
        assert store["title"] == "Other plans"
        await until_sent(store)
        assert len(await sessions_in(url)) == 2


# ── files ──────────────────────────────────────────────────────────────────────────────


async def test_two_processes_never_have_one_file(tmp_path: Path) -> None:
    path = tmp_path / "ada.wal"
    program = (
        "import asyncio, sys\n"
        "from tests.stores import ADA, store_of\n"
        "async def main():\n"
        "    async with store_of(ADA, path=sys.argv[1]) as store:\n"
        "        print(store['title'])\n"
        "asyncio.run(main())\n"
    )

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, str(path)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    async with store_of(ADA, path=path) as store:
        store["title"] = "Plans"
        refused = await asyncio.to_thread(run)
        assert "LocalFileInUseError" in refused.stderr
        with pytest.raises(LocalFileInUseError):
            async with store_of(ADA, path=path):
                pass
        store["title"] = "Other plans"
    assert (await asyncio.to_thread(run)).stdout.strip() == "Other plans"


async def test_a_damaged_file_is_set_aside_with_its_unsent_edits(tmp_path: Path) -> None:
    path, transport = tmp_path / "ada.wal", MemoryTransport()
    async with store_of(ADA, transport, path, autocommit_ms=None) as store:
        store.set_text("body", "sent " * 2000)
        await store.commit()
        await store.pull()
    async with store_of(ADA, path=path) as store:
        store.set_text("note", "unsent")
    text = bytearray(path.read_bytes())
    middle = text.index(b"sent sent")
    text[middle : middle + 8] = b"\x00" * 8
    path.write_bytes(text)

    async def read_all() -> None:
        # The elements are looked at when they are read.
        async with store_of(ADA, transport, path, posture="re-derive") as store:
            await store.document.reread()

    with pytest.raises(LocalFileDamagedError) as damage:
        await read_all()
    assert damage.value.unsent is not None
    assert damage.value.saved > 0
    assert read_unsent(damage.value.unsent)
    async with store_of(ADA, transport, path) as store:
        assert store.text("body") == "sent " * 2000


async def test_nothing_of_a_sealed_document_is_written_plain(tmp_path: Path) -> None:
    path, transport = tmp_path / "ada.wal", MemoryTransport()
    keys = ContentKeys(1, {1: bytes(range(32))})
    encryptor = NativeEncryptor(keys, randomness=token_bytes)

    def is_plain() -> bool:
        # One letter at a time, or all at once: both must not be there.
        traces = (SECRET.encode(), b'"quick"', b"quick brown")
        files = [each for each in tmp_path.iterdir() if each.is_file()]
        assert any(each.name.endswith("-wal") for each in files) or path in files
        return any(trace in each.read_bytes() for each in files for trace in traces)

    async with store_of(ADA, transport, path, encryptor=encryptor, autocommit_ms=None) as store:
        store.set_text("body", SECRET)
        store.list("words").extend(SECRET.split())
        store["title"] = SECRET
        store.put("prefs", "k", SECRET)
        assert not is_plain()
        await store.commit()
        assert not is_plain()
        await store.pull()
        store._keep_state(is_due=True)
        store.edit_text("body", 0, 0, SECRET)
        assert not is_plain()
    assert not is_plain()
    async with store_of(ADA, None, path, encryptor=encryptor) as store:
        assert store.text("body") == SECRET * 2
        assert store["prefs"] == {"k": SECRET}


async def test_edits_whose_key_is_not_at_hand_wait_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ada.wal"
    both = {1: bytes(range(32)), 2: bytes(range(1, 33))}

    def encryptor(epoch: int, *epochs: int) -> NativeEncryptor:
        keys = ContentKeys(epoch, {each: both[each] for each in epochs})
        return NativeEncryptor(keys, randomness=token_bytes)

    store = store_of(ADA, None, path, encryptor=(sealing := encryptor(1, 1)))
    await store.__aenter__()
    store["first"] = 1
    sealing.adopt(ContentKeys(2, both))
    store["second"] = 2
    # The process ends here: what it has recorded is not sealed.
    assert store._file is not None
    store._file.close()
    async with store_of(ADA, None, path, encryptor=encryptor(2, 2)) as other:
        assert other.materialize() == {}
    async with store_of(ADA, None, path, encryptor=encryptor(2, 1, 2)) as other:
        assert other.materialize() == {"first": 1, "second": 2}


async def test_an_unsent_edit_whose_key_is_not_at_hand_is_sent_as_it_was_sealed(
    tmp_path: Path,
) -> None:
    path, transport = tmp_path / "ada.wal", MemoryTransport()
    async with store_of(ADA, None, path, encryptor=keyed(1)) as store:
        store.set_text("body", "precious")
        await store.commit()
    opening = keyed(2)
    async with store_of(ADA, transport, path, encryptor=opening, autocommit_ms=None) as store:
        store["later"] = 1
        await store.flush()
        await store.pull()
        assert (store.status.unsent, store.status.unreadable) == (0, 1)
        assert store.materialize() == {"later": 1}
        opening.adopt(ContentKeys(2, {epoch: bytes([epoch]) * 32 for epoch in (1, 2)}))
        await store.document.retry_unreadable()
        assert (store.text("body"), store["later"]) == ("precious", 1)
    for who, file in ((ADA, path), (BEN, None)):
        async with store_of(who, transport, file, encryptor=keyed(1, 2)) as store:
            await store.pull()
            assert (store.text("body"), store["later"]) == ("precious", 1)
            assert store.status.unsent == 0


async def test_an_edit_that_was_acknowledged_waits_in_the_log_for_its_key(tmp_path: Path) -> None:
    path, transport = tmp_path / "ada.wal", NotReading()
    async with store_of(ADA, None, path, encryptor=keyed(1)) as store:
        store.set_text("body", "precious")
        await store.commit()
    transport.is_down = True
    async with store_of(ADA, transport, path, encryptor=keyed(1), autocommit_ms=None) as store:
        await store.commit()
    transport.is_down = False
    opening = keyed(2)
    async with store_of(ADA, transport, path, encryptor=opening, autocommit_ms=None) as store:
        await store.pull()
        assert (store.document.unconfirmed, store.status.unreadable) == (0, 1)
        assert store.document.own_snapshot() is None
        opening.adopt(ContentKeys(2, {epoch: bytes([epoch]) * 32 for epoch in (1, 2)}))
        await store.document.retry_unreadable()
        assert store.text("body") == "precious"
    assert len(await transport.pull(KEY, 0)) == 1
    async with store_of(ADA, None, path, encryptor=keyed(1, 2)) as store:
        assert store.text("body") == "precious"


async def test_what_was_sealed_with_another_key_of_its_epoch_is_not_sent_for_ever(
    tmp_path: Path,
) -> None:
    path, transport = tmp_path / "ada.wal", MemoryTransport()
    async with store_of(ADA, None, path, encryptor=keyed(1)) as store:
        store.set_text("body", "sealed with another key")
        await store.commit()
    other = NativeEncryptor(ContentKeys(1, {1: bytes(range(32))}), randomness=token_bytes)
    async with store_of(ADA, transport, path, encryptor=other, autocommit_ms=None) as store:
        await store.flush()
        await store.pull()
        assert (store.document.unconfirmed, len(store.status.rejected)) == (0, 1)


class NotReading(MemoryTransport):
    """A relay that takes what it is given, and cannot be read for a while."""

    is_down = False

    async def pull(self, document_key: str, checkpoint: int) -> list[RawElement]:
        if self.is_down:
            raise TransportError("down", retryable=True)
        return await super().pull(document_key, checkpoint)


async def test_an_edit_that_cannot_be_kept_says_so_and_is_kept_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ada.wal"
    async with store_of(ADA, None, path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(LocalFile, "record", _full)
            with pytest.raises(StorageError):
                store.list("todo").append(1)
        assert store["todo"] == [1]
        store.list("todo").append(2)
    async with store_of(ADA, None, path) as store:
        assert store["todo"] == [1, 2]


async def test_an_edit_that_was_never_kept_is_not_lost_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await store_of(ADA, None, tmp_path / "ada.wal").__aenter__()
    monkeypatch.setattr(LocalFile, "record", _full)
    with pytest.raises(StorageError):
        store["title"] = "Plans"
    with pytest.raises(StorageError):
        await store.__aexit__()
    assert store.status.state == "closed"


@pytest.mark.parametrize("text", ["caf\udce9", "\ud83d", "a\udc00\ud800b"])
async def test_half_a_character_is_kept_as_everything_else_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ada.wal"
    store = await store_of(ADA, None, path).__aenter__()
    store["name"] = text
    store.list("body").extend(text)
    store["later"] = 1.5
    # The process ends here: what it has recorded is not sealed.
    assert store._file is not None
    store._file.close()
    async with store_of(ADA, None, path) as store:
        assert store.materialize() == {"name": text, "body": list(text), "later": 1.5}


async def test_an_edit_too_large_to_be_recorded_is_sealed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ada.wal"
    monkeypatch.setattr("walstore.local.queue.RECORDED_BYTES_MAX", 2**16)
    store = await store_of(ADA, None, path).__aenter__()
    store["before"] = 1
    store.set_text("body", "x" * 2**17)
    store["after"] = 2
    # The process ends here.
    assert store._file is not None
    store._file.close()
    async with store_of(ADA, None, path) as store:
        assert store.text("body") == "x" * 2**17
        assert (store["before"], store["after"]) == (1, 2)
        assert store.status.unsent == 2


async def test_a_defect_that_ends_syncing_is_shown_told_and_raised(tmp_path: Path) -> None:
    class Defective(MemoryTransport):
        async def append(self, *_: Any) -> Any:
            raise ZeroDivisionError("a defect")

    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    store = store_of(ADA, Defective(), tmp_path / "ada.wal", autocommit_ms=0)
    await store.__aenter__()
    assert store.status.state == "live"
    store["title"] = "Plans"
    await until([store], lambda: store.status.state == "offline")
    assert "a defect" in store.status.reason
    assert [type(context["exception"]) for context in told] == [ExceptionGroup]
    with pytest.raises((ExceptionGroup, ZeroDivisionError)):
        await store.__aexit__()


async def test_a_defect_of_one_listener_leaves_no_other_behind_when_the_store_is_closed() -> None:
    class Defective(MemoryFollow):
        is_listening = False

        async def wait_peers(self) -> None:
            raise ZeroDivisionError("a defect")

        async def wait_records(self) -> None:
            self.is_listening = True
            try:
                await asyncio.Event().wait()
            finally:
                self.is_listening = False

    followed = Defective()

    class Place(MemoryTransport):
        @asynccontextmanager
        async def follow(self, *_: Any) -> AsyncIterator[MemoryFollow]:
            yield followed

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    store = WalStore.open(KEY, identity=ADA, relay=Place(), owner=ADA.public_key)
    await store.__aenter__()
    await until([store], lambda: store.status.state == "offline")
    assert followed.is_listening
    with pytest.raises(ZeroDivisionError):
        await store.__aexit__()
    assert not followed.is_listening


async def test_a_seal_that_cannot_be_kept_is_made_again_and_leaves_no_edit_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, transport = tmp_path / "ada.wal", MemoryTransport()
    async with store_of(ADA, transport, path, autocommit_ms=None) as store:
        store.list("todo").append(1)
        with monkeypatch.context() as patch:
            patch.setattr(LocalFile, "seal", _full)
            with pytest.raises(StorageError):
                await store.commit()
        await store.commit()
        assert store._file is not None
        assert store._file.pending().recorded == []
    async with store_of(ADA, transport, path, autocommit_ms=None) as store:
        await store.commit()
        await store.pull()
        assert store["todo"] == [1]
    assert len(await transport.pull(KEY, 0)) == 1


def _full(*_: object) -> Any:
    raise StorageError("the disk is full")


# ── snapshots and states ───────────────────────────────────────────────────────────────


class PrunedTransport(MemoryTransport):
    """A log that lets go of what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.floor = 0

    async def pull(self, document_key: str, checkpoint: int) -> Any:
        if checkpoint < self.floor:
            raise CheckpointTooOldError(self.floor)
        return await super().pull(document_key, checkpoint)


async def killed(store: Any, use: Callable[[Any], Any]) -> None:
    """Open a store, use it, and end it without a word."""
    await store.__aenter__()
    await use(store)
    store._syncer = None
    await store._stack.aclose()


@pytest.mark.parametrize("is_killed", [False, True])
async def test_what_was_opened_from_a_snapshot_opens_offline_as_a_whole(
    tmp_path: Path, is_killed: bool
) -> None:
    transport, snapshots, path = PrunedTransport(), MemorySnapshots(), tmp_path / "ben.wal"
    async with store_of(ADA, transport, snapshots=snapshots, autocommit_ms=None) as ada:
        ada.set_text("body", "covered")
        await ada.commit()
        await ada.snapshot()
        transport.floor = 1
        ada["title"] = "after it"
        await ada.commit()
    whole = {"body": list("covered"), "title": "after it"}

    async def look(ben: Any) -> None:
        assert ben.materialize() == whole

    ben = store_of(BEN, transport, path, snapshots=snapshots)
    if is_killed:
        await killed(ben, look)
    else:
        async with ben:
            await look(ben)
    for posture in ("trust", "trust-retain-tail", "re-derive"):
        async with store_of(BEN, None, path, posture=posture) as ben:
            await look(ben)
            assert ben.status.gaps == ()
    async with store_of(BEN, transport, path, snapshots=snapshots) as ben:
        assert await ben.document.reread() >= 0
        await look(ben)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_what_was_pruned_while_a_store_was_away_is_no_hole_in_its_file(
    tmp_path: Path, is_killed: bool
) -> None:
    transport, snapshots, path = PrunedTransport(), MemorySnapshots(), tmp_path / "ben.wal"
    async with (
        store_of(ADA, transport, snapshots=snapshots, autocommit_ms=None) as ada,
        store_of(BEN, transport, path, snapshots=snapshots) as ben,
    ):
        ada["one"] = 1
        await ada.commit()
        await ben.pull()
    async with store_of(ADA, transport, snapshots=snapshots, autocommit_ms=None) as ada:
        ada["two"] = 2
        await ada.commit()
        await ada.snapshot()
        transport.floor = 2
        ada["three"] = 3
        await ada.commit()

    async def pull(ben: Any) -> None:
        await ben.pull()
        assert ben.materialize() == {"one": 1, "two": 2, "three": 3}

    ben = store_of(BEN, transport, path, snapshots=snapshots)
    if is_killed:
        await killed(ben, pull)
    else:
        async with ben:
            await pull(ben)
    async with store_of(BEN, None, path) as ben:
        assert ben.materialize() == {"one": 1, "two": 2, "three": 3}


@pytest.mark.parametrize("is_answered", [True, False])
async def test_what_a_snapshot_covers_is_waited_for_no_longer(
    tmp_path: Path, is_answered: bool
) -> None:
    transport, snapshots, path = PrunedTransport(), MemorySnapshots(), tmp_path / "ben.wal"
    unread = Unread(transport) if is_answered else Unanswered(transport)
    async with store_of(BEN, unread, path, autocommit_ms=None) as ben:
        ben["one"] = 1
        with nullcontext() if is_answered else pytest.raises(TransportError):
            await ben.commit()
        assert (ben.status.unsent, ben.document.unconfirmed) == (not is_answered, 1)
    async with store_of(ADA, transport, snapshots=snapshots, autocommit_ms=None) as ada:
        await ada.snapshot()
        ada["two"] = 2
        await ada.commit()
        transport.floor = 1
    async with store_of(BEN, transport, path, snapshots=snapshots, autocommit_ms=None) as ben:
        await ben.pull()
        assert ben.materialize() == {"one": 1, "two": 2}
        assert (ben.status.unsent, ben.document.unconfirmed) == (0, 0)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*) FROM bodies").fetchone() == (0,)


async def test_what_a_snapshot_covers_is_on_file_until_a_state_is(tmp_path: Path) -> None:
    transport, snapshots, path = PrunedTransport(), MemorySnapshots(), tmp_path / "ben.wal"
    async with store_of(BEN, Unread(transport), path, autocommit_ms=None) as ben:
        ben["one"] = 1
        await ben.commit()
    async with store_of(ADA, transport, snapshots=snapshots, autocommit_ms=None) as ada:
        await ada.snapshot()
        for name in ("missing", "three"):
            ada[name] = name
            await ada.commit()
    one, missing, three = transport._logs[KEY]
    transport._logs[KEY], transport.floor = [one, three], one.ts
    async with store_of(BEN, transport, path, snapshots=snapshots, autocommit_ms=None) as ben:
        await ben.pull()
        assert ben.materialize() == {"one": 1, "three": "three"}
        assert (ben.status.unsent, ben.document.unconfirmed) == (0, 0)
        assert ben.document.own_snapshot() is None
    async with store_of(BEN, None, path) as ben:
        assert ben.materialize() == {"one": 1}
    # The element is back, at another place.
    transport._logs[KEY].append(missing._replace(ts=three.ts + 1))
    async with store_of(BEN, transport, path, snapshots=snapshots, autocommit_ms=None) as ben:
        await ben.pull()
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*) FROM bodies").fetchone() == (0,)
    async with store_of(BEN, None, path) as ben:
        assert ben.materialize() == {"one": 1, "missing": "missing", "three": "three"}


async def test_a_file_whose_state_is_gone_and_cannot_be_made_again_is_read_anew(
    tmp_path: Path,
) -> None:
    transport, snapshots, path = PrunedTransport(), MemorySnapshots(), tmp_path / "ben.wal"
    async with store_of(ADA, transport, snapshots=snapshots, autocommit_ms=None) as ada:
        ada["one"] = 1
        await ada.commit()
        await ada.snapshot()
        ada["two"] = 2
        await ada.commit()
    async with store_of(BEN, transport, path, snapshots=snapshots) as ben:
        assert ben.materialize() == {"one": 1, "two": 2}
    with LocalFile.open(path, document_key=KEY, author=BEN.public_key) as file:
        file._database.execute("DELETE FROM state")
    with pytest.raises(PrunedLogError):
        async with store_of(BEN, None, path):
            pass
    async with store_of(BEN, transport, path, snapshots=snapshots) as ben:
        assert ben.materialize() == {"one": 1, "two": 2}
    async with store_of(BEN, None, path) as ben:
        assert ben.materialize() == {"one": 1, "two": 2}


async def test_what_is_in_the_way_of_a_snapshot_still_is_when_a_file_is_opened_again(
    tmp_path: Path,
) -> None:
    transport, snapshots, path = MemoryTransport(), MemorySnapshots(), tmp_path / "ben.wal"
    data = {"v": 2, "author": ADA.public_key, "session": "s", "seq": 1, "body": {"ops": "x"}}
    proof = sign_append(KEY, data, ADA)
    await transport.append(KEY, Body(canonical_bytes(data), *proof))
    for _ in range(3):
        async with store_of(BEN, transport, path, snapshots=snapshots, autocommit_ms=None) as ben:
            await ben.pull()
            (rejection,) = ben.document.rejected()
            assert (rejection.ts, rejection.author) == (1, ADA.public_key)
            with pytest.raises(SnapshotRefusedError, match="a rejected element at ts 1"):
                await ben.snapshot()
            ben["count"] = 1
    # It was opened from its state, and had not read the element again.
    assert rejection.evidence is None


async def test_a_long_log_is_opened_from_its_state_even_if_nobody_ever_closed(
    tmp_path: Path,
) -> None:
    transport, path = MemoryTransport(), tmp_path / "ben.wal"
    async with store_of(ADA, transport, autocommit_ms=None) as ada:
        for number in range(600):
            ada["count"] = number
            await ada.commit()

    async def nothing(_: Any) -> None:
        return None

    await killed(store_of(BEN, transport, path), nothing)
    async with store_of(BEN, None, path) as ben:
        assert ben["count"] == 599
        assert ben._replica is not None
        assert ben._replica.count < 256


async def test_a_store_that_stays_open_knows_its_newest_versions_and_its_file_all_of_them(
    tmp_path: Path,
) -> None:
    transport, path = MemoryTransport(), tmp_path / "ben.wal"
    async with (
        store_of(ADA, transport, autocommit_ms=None) as ada,
        store_of(BEN, transport, path, autocommit_ms=None, history_max=20) as ben,
    ):
        for number in range(700):
            ada["count"] = number
            await ada.commit()
            if number % 7 == 0:
                await ben.pull()
        await ben.pull()
        assert 20 <= len(ben.history()) <= 40
        assert ben.at(ben.history()[0].ts) == {"count": 700 - len(ben.history())}
        past = await ben.load_history()
        assert [past.at(version.ts)["count"] for version in past.versions()] == list(range(700))
        await ada.pull()
        assert len(ada.history()) == 700
    async with store_of(BEN, None, path) as ben:
        assert ben["count"] == 699
        assert not ben.history()


async def test_elements_without_sense_are_not_kept_and_stop_nothing(tmp_path: Path) -> None:
    log = RiggedLog()
    async with store_of(ADA, log, autocommit_ms=None) as ada:
        ada["title"] = "Plans"
        await ada.commit()
    log.add({"huge": float("nan")}, "x", "y")
    log.add("no object", "x", "y", ts=2**70)
    async with store_of(BEN, log, tmp_path / "ben.wal") as ben:
        await ben.pull()
        assert ben["title"] == "Plans"
        assert ben.status.state == "live"
    async with store_of(BEN, None, tmp_path / "ben.wal") as ben:
        assert ben["title"] == "Plans"


async def test_what_a_relay_repeats_for_ever_does_not_fill_the_file(tmp_path: Path) -> None:
    log, path = RiggedLog(), tmp_path / "ben.wal"
    async with store_of(ADA, log, autocommit_ms=None) as ada:
        for number in range(20):
            ada["count"] = number
            await ada.commit()
    sizes = []
    async with store_of(BEN, log, path, autocommit_ms=None) as ben:
        for _ in range(20):
            for place in range(250):
                log.replay(place % 20)
            await ben.pull()
            assert ben._replica is not None
            sizes.append(sum(1 for _ in ben._replica.elements()))
        ben["seen"] = True
        await ben.commit()
    assert max(sizes) < 20 + 1024 + 2 * 250
    assert len(log.elements) > 5000
    async with store_of(BEN, log, path, autocommit_ms=None) as ben:
        # All of it is still here, and in its place.
        assert ben.view() == {"count": 19, "seen": True}
        past = await ben.load_history()
        assert [past.at(version.ts)["count"] for version in past.versions()][:20] == [*range(20)]
        await ben.pull()
        assert ben.status.rollback is None
        assert not ben._replica.has_hole if ben._replica is not None else False


async def test_a_store_that_is_read_only_can_be_closed(tmp_path: Path) -> None:
    transport = MemoryTransport()
    async with store_of(ADA, transport, tmp_path / "ada.wal", autocommit_ms=None) as store:
        store["title"] = "Plans"
        store.document._read_only = "something was lost"
        assert store.status.is_read_only
    async with store_of(ADA, transport, tmp_path / "ada.wal") as store:
        assert store["title"] == "Plans"


async def test_changes_that_come_after_opening_offline_are_told(tmp_path: Path) -> None:
    transport, path = MemoryTransport(), tmp_path / "ben.wal"
    async with store_of(ADA, transport) as ada, store_of(BEN, transport, path) as ben:
        ada["title"] = "Plans"
        await ada.commit()
        await ben.pull()
    async with store_of(ADA, transport) as ada:
        ada["title"] = "Other plans"
    async with store_of(BEN, transport, path) as ben:
        told: list[Change] = []
        assert ben["title"] == "Plans"
        ben.subscribe("title", told.append)
        await until([ben], lambda: ben["title"] == "Other plans")
        assert len(told) == 1


async def test_a_copy_of_a_file_from_before_sends_nothing_twice(tmp_path: Path) -> None:
    transport, path = MemoryTransport(), tmp_path / "ada.wal"
    async with store_of(ADA, None, path) as store:
        store.list("todo").append(1)
    shutil.copy(path, tmp_path / "copy.wal")
    for each in (path, tmp_path / "copy.wal"):
        async with store_of(ADA, transport, each, autocommit_ms=0) as store:
            await until_sent(store)
            assert store["todo"] == [1]
            assert store._file is not None
            assert store._file.pending().bodies == []
    assert len(await transport.pull(KEY, 0)) == 1


async def test_a_memory_relay_that_starts_anew_is_another_log(tmp_path: Path) -> None:
    port = free_port()
    url = f"ws://127.0.0.1:{port}"
    async with AsyncExitStack() as stack:
        async with Relay.serve(MemoryLog(), port=port):
            ada = await stack.enter_async_context(
                store_of(ADA, url, tmp_path / "ada.wal", autocommit_ms=0)
            )
            ada["title"] = "Plans"
            await until_sent(ada)
        async with Relay.serve(MemoryLog(), port=port):
            await until([ada], lambda: "another log" in ada.status.reason)
            assert ada["title"] == "Plans"

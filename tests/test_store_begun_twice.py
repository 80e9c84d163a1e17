"""A document that its owner has begun twice, or opened as what it is not, and a relay put back.

- Several devices of an owner may begin one document, each without the others: all that they have
  written is in it in the end.
- A relay that was put back, or that a document moved to, is told again what it has to know.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.stores import ADA, BEN, KEY, free_port, has_looked, until
from walstore.errors import TransportError, UsageError
from walstore.net import WebSocketTransport
from walstore.relay import MemoryLog, Relay, SqliteLog
from walstore.relay.roles import Roles
from walstore.signed.card import Card
from walstore.store.shared import OtherSealError
from walstore.store.store import WalStore

OWNER = ADA.public_key
EVERYTHING = ("read", "write", "snapshot", "grant")


def roles_of(*roles: str) -> Roles:
    """What an operator gives to the owner; whatever else there is, the owner gives."""
    return Roles.from_table(
        {"grant": [{"key": KEY, **{role: [OWNER] for role in roles}}]}, source="test"
    )


def begun(
    relay: str | WebSocketTransport | None = None, path: Path | None = None, **options: Any
) -> WalStore:
    """A store of Ada's, of a document that she owns; sealed unless something else is said."""
    options = {"is_sealed": True, "owner": OWNER, **options}
    return WalStore.open(KEY, identity=ADA, relay=relay, path=path, **options)


@asynccontextmanager
async def restricted(path: Path) -> AsyncIterator[str]:
    """The address of a relay that keeps its log in a file, and gives everything to the owner."""
    async with (
        SqliteLog.open(path) as log,
        Relay.serve(log, roles=roles_of(*EVERYTHING)) as relay,
    ):
        yield relay.url


async def live_again(transport: WebSocketTransport) -> None:
    """Return when a connection was made anew."""
    news = asyncio.Event()
    subscription = transport.on_status(lambda _: news.set())
    while transport.status.state != "live":
        news.clear()
        await news.wait()
    subscription.close()


@pytest.fixture
def paths(tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: tmp_path / f"{name}.db"


# ── begun twice ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_sealed", [True, False])
async def test_what_two_devices_have_begun_offline_is_one_document(
    paths: Callable[[str], Path], is_sealed: bool
) -> None:
    for name in ("laptop", "phone"):
        async with begun(path=paths(name), is_sealed=is_sealed) as store:
            store[name] = "offline"
            store.list("words").append(name)
    async with Relay.serve(MemoryLog()) as relay, AsyncExitStack() as stack:
        devices = [
            await stack.enter_async_context(begun(relay.url, paths(name), is_sealed=is_sealed))
            for name in ("laptop", "phone")
        ]
        for device in devices:
            await device.flush()
        await until(devices, lambda: all(len(each.get("words", ())) == 2 for each in devices))
        line = str(await devices[0].sharing.invite(Card.of(BEN)))
        async with WalStore.join(line, identity=BEN) as ben:
            await until([ben], lambda: len(ben.get("words", ())) == 2)
            assert ben["laptop"] == ben["phone"] == "offline"
        for device in devices:
            await device.sharing.settle()
            assert (device.status.rejected, device.status.unreadable) == ((), 0)
    # What was kept before one of them gave its keys up is still read; so is the last step to undo.
    for name in ("laptop", "phone"):
        async with begun(path=paths(name), is_sealed=is_sealed) as store:
            assert store["laptop"] == store["phone"] == "offline"
            assert sorted(store["words"]) == ["laptop", "phone"]


@pytest.mark.parametrize("has_file", [True, False])
async def test_who_opens_while_the_relay_is_down_reads_and_writes_once_it_is_there(
    paths: Callable[[str], Path], has_file: bool
) -> None:
    port = free_port()
    async with SqliteLog.open(paths("relay")) as log:
        async with Relay.serve(log, port=port) as relay, begun(relay.url) as store:
            store["title"] = "Picnic"
            await store.flush()
        path = paths("new") if has_file else None
        async with begun(f"ws://127.0.0.1:{port}", path) as store:
            store["more"] = "bread"
            with pytest.raises(TransportError):
                await store.flush()
            async with Relay.serve(log, port=port):
                await until([store], lambda: store.get("title") == "Picnic")
                await store.flush()
                assert store.status.rejected == ()
        async with Relay.serve(log, port=port) as relay, begun(relay.url) as store:
            await store.pull()
            assert store.view() == {"title": "Picnic", "more": "bread"}


async def test_two_rosters_of_one_version_end_in_one(
    paths: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    write = WebSocketTransport.write_record

    async def counting(transport: WebSocketTransport, key: str, name: str, *rest: Any) -> str:
        written.append(name)
        return await write(transport, key, name, *rest)

    monkeypatch.setattr(WebSocketTransport, "write_record", counting)
    for name in ("laptop", "phone"):
        async with begun(path=paths(name), is_sealed=False) as store:
            store[name] = 1
    async with Relay.serve(MemoryLog()) as relay, AsyncExitStack() as stack:
        devices = [
            await stack.enter_async_context(begun(relay.url, paths(name), is_sealed=False))
            for name in ("laptop", "phone")
        ]
        for _ in range(3):
            for device in devices:
                await device.sharing.settle()
        assert len({device.sharing.version.roster for device in devices}) == 1
        assert 2 <= len(written) <= 4


# ── opened as what it is not ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("has_file", [True, False])
@pytest.mark.parametrize("was_sealed", [True, False])
async def test_what_was_sealed_is_opened_as_such_and_nothing_else_is(
    paths: Callable[[str], Path], was_sealed: bool, has_file: bool
) -> None:
    path = paths("ada") if has_file else None
    async with SqliteLog.open(paths("relay")) as log, Relay.serve(log) as relay:
        async with begun(relay.url, path, is_sealed=was_sealed) as store:
            store["title"] = "Picnic"
            await store.flush()
        with pytest.raises(OtherSealError, match="is sealed" if was_sealed else "without a seal"):
            await begun(relay.url, path, is_sealed=not was_sealed).__aenter__()
        async with begun(relay.url, path, is_sealed=was_sealed) as store:
            await store.pull()
            assert store["title"] == "Picnic"


async def test_the_file_of_a_sealed_document_is_not_written_as_if_it_were_plain(
    paths: Callable[[str], Path],
) -> None:
    async with begun(path=paths("ada")) as store:
        store["title"] = "Picnic"
    plain = WalStore.open(KEY, identity=ADA, path=paths("ada"), writers=[OWNER])
    with pytest.raises(OtherSealError):
        await plain.__aenter__()


# ── a relay that was put back ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_sealed", [True, False])
async def test_a_relay_that_was_put_back_lets_in_who_was_invited_since(
    paths: Callable[[str], Path], is_sealed: bool
) -> None:
    kind: dict[str, Any] = {"is_sealed": is_sealed}
    async with restricted(paths("relay")) as url, begun(url, paths("ada"), **kind) as ada:
        ada["title"] = "Picnic"
        await ada.flush()
        await ada.pull()
    shutil.copy(paths("relay"), paths("backup"))
    async with restricted(paths("relay")) as url, begun(url, paths("ada"), **kind) as ada:
        line = str(await ada.sharing.invite(Card.of(BEN)))
    async with restricted(paths("backup")) as url, begun(url, paths("ada"), **kind) as ada:
        await ada.sharing.settle()
        async with WalStore.join(line, identity=BEN, relay=url) as ben:
            await until([ben], lambda: ben.get("title") == "Picnic")
            ben["more"] = "bread"
            await ben.flush()


async def test_a_relay_that_was_put_back_hears_of_a_revocation_again(
    paths: Callable[[str], Path],
) -> None:
    plain: dict[str, Any] = {"is_sealed": False}
    async with restricted(paths("relay")) as url, begun(url, paths("ada"), **plain) as ada:
        ada["title"] = "Picnic"
        line = str(await ada.sharing.invite(Card.of(BEN)))
        await ada.flush()
    shutil.copy(paths("relay"), paths("backup"))
    async with restricted(paths("relay")) as url, begun(url, paths("ada"), **plain) as ada:
        await ada.sharing.revoke(BEN.public_key)
    async with restricted(paths("backup")) as url:
        async with begun(url, paths("ada"), **plain) as ada:
            await ada.sharing.settle()
            ada["title"] = "after the revocation"
            await ada.flush()
        async with WalStore.join(line, identity=BEN, relay=url) as ben:
            await until([ben], lambda: "may read" in ben.status.reason)
            assert ben.view() == {}


async def test_what_was_told_between_the_roster_and_a_backup_is_told_again_when_asked_for(
    paths: Callable[[str], Path],
) -> None:
    roles = roles_of(*EVERYTHING)
    async with (
        Relay.serve(MemoryLog(), roles=roles) as relay,
        begun(relay.url, paths("ada")) as ada,
    ):
        ada["title"] = "Picnic"
        await ada.flush()
        line = str(await ada.sharing.invite(Card.of(BEN)))
        # The roster is there, and the grant is not: only that was lost.
        roles._granted.clear()
        await ada.sharing.invite(Card.of(BEN))
        async with WalStore.join(line, identity=BEN) as ben:
            await until([ben], lambda: ben.get("title") == "Picnic")


async def test_after_a_roll_back_is_accepted_the_next_edit_is_sent(
    paths: Callable[[str], Path],
) -> None:
    port = free_port()
    url = f"ws://127.0.0.1:{port}"
    async with Relay.serve(MemoryLog(), port=port), begun(url, paths("ada")) as ada:
        ada["title"] = "Picnic"
        await ada.flush()
        await ada.pull()
    async with Relay.serve(MemoryLog(), port=port), begun(url, paths("ada")) as ada:
        await until([ada], lambda: ada.status.rollback is not None)
        await ada.accept_rollback()
        ada["more"] = "bread"
        await ada.flush()
        assert ada.status.rollback is None
        async with begun(url) as other:
            await other.pull()
            assert other.view() == {"title": "Picnic", "more": "bread"}


# ── relays and transports of all kinds ─────────────────────────────────────────────────


async def test_a_transport_that_is_handed_over_tells_of_its_connections_too(
    paths: Callable[[str], Path],
) -> None:
    port = free_port()
    url = f"ws://127.0.0.1:{port}"
    async with AsyncExitStack() as stack:
        async with SqliteLog.open(paths("relay")) as log, Relay.serve(log, port=port):
            async with begun(url, paths("ada")) as ada:
                ada["title"] = "Picnic"
                line = str(await ada.sharing.invite(Card.of(BEN)))
                await ada.flush()
            transport = WebSocketTransport(url, identity=BEN)
            await stack.enter_async_context(transport)
            store = WalStore.join(line, identity=BEN, relay=transport)
            ben = await stack.enter_async_context(store)
            await until([ben], lambda: ben.get("title") == "Picnic")
            await has_looked(ben)
        async with SqliteLog.open(paths("relay")) as log:
            async with Relay.serve(log) as elsewhere, begun(elsewhere.url, paths("ada")) as ada:
                await ada.sharing.rotate()
            async with Relay.serve(log, port=port):
                await live_again(transport)
                ben["more"] = "bread"
                await ben.flush()
                assert ben.sharing.keys is not None
                assert ben.sharing.keys.current_epoch == 2
                async with begun(url) as ada:
                    await ada.pull()
                    assert ada["more"] == "bread"


async def test_what_was_read_with_keys_that_were_given_up_is_read_again(
    paths: Callable[[str], Path],
) -> None:
    port = free_port()
    async with begun(path=paths("laptop")) as laptop:
        laptop["more"] = "bread"
    async with SqliteLog.open(paths("relay")) as log, AsyncExitStack() as stack:
        async with Relay.serve(log, port=port) as relay, begun(relay.url) as phone:
            phone["title"] = "Picnic"
            await phone.flush()
        async with Relay.serve(log, port=port, roles=roles_of(*EVERYTHING[:3])) as relay:
            laptop = await stack.enter_async_context(begun(relay.url, paths("laptop")))
            # It has the keys of the phone, and takes no others.
            with pytest.raises(TransportError, match="restricted"):
                await laptop.flush()
            await laptop.pull()
            assert laptop.view() == {"more": "bread"}
        async with Relay.serve(log, port=port, roles=roles_of(*EVERYTHING)):
            await until([laptop], lambda: laptop.get("title") == "Picnic")
            await laptop.flush()
            assert laptop.status.rejected == ()


async def test_an_owner_whom_a_relay_lets_keep_no_keys_writes_with_a_file(
    paths: Callable[[str], Path],
) -> None:
    async with Relay.serve(MemoryLog(), roles=roles_of(*EVERYTHING[:3])) as relay:
        async with begun(relay.url, paths("ada")) as ada:
            ada["title"] = "Picnic"
            await ada.flush()
        async with begun(relay.url) as ada:
            ada["title"] = "nobody could open this"
            with pytest.raises((TransportError, UsageError), match="restricted"):
                await ada.flush()

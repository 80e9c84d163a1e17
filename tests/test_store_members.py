"""Changes of who has part in a document reach everybody who has it open, while it is open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.relay_clients import eventually
from tests.stores import ADA, BEN, CAM, KEY, PATIENCE_S, free_port, has_looked, until
from walstore.canon import parse
from walstore.document.document import ALLOW_ANY, WalDocument
from walstore.document.events import NOT_A_WRITER, Event, Rejection, Rollback
from walstore.document.snapshot import SNAPSHOT_SUFFIX
from walstore.errors import TransportError
from walstore.local import LocalFile
from walstore.local.faults import LocalFileFullError
from walstore.net import MemoryTransport, WebSocketTransport
from walstore.relay import MemoryLog, Relay, SqliteLog
from walstore.relay.log import Removal
from walstore.relay.session import Session
from walstore.sealed.outcomes import KeyringRefusedError
from walstore.signed import Identity
from walstore.signed.card import Card
from walstore.store.lookout import _LOOK_S_MAX, _LOOK_S_MIN, Lookout
from walstore.store.shared import KeysNotKeptError, NotSharedError
from walstore.store.sharing import CannotReturnError
from walstore.store.sharing_state import load_state
from walstore.store.store import WalStore
from walstore.store.strangers import _HELD_MAX, Strangers
from walstore.wire.frames import Hello


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
def is_sealed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
async def relay() -> AsyncIterator[Relay]:
    async with Relay.serve(MemoryLog()) as relay:
        yield relay


@contextmanager
def silent() -> Iterator[None]:
    """Relays that do not tell of records."""
    with pytest.MonkeyPatch.context() as patched:
        hello = Session.hello

        def without(session: Session, software: str) -> Hello:
            return hello(session, software)._replace(features=())

        patched.setattr(Session, "hello", without)
        yield


def owned(relay: Relay, is_sealed: bool) -> WalStore:
    return WalStore.open(
        KEY, identity=ADA, relay=relay.url, owner=ADA.public_key, is_sealed=is_sealed
    )


async def three(stack: AsyncExitStack, relay: Relay, is_sealed: bool) -> list[WalStore]:
    """Ada, and Ben and Cam whom she has invited, all live with one text."""
    ada, ben = await two(stack, relay, is_sealed)
    line = str(await ada.sharing.invite(Card.of(CAM)))
    cam = await stack.enter_async_context(WalStore.join(line, identity=CAM))
    await until([cam], lambda: cam.text("note") == "A")
    return [ada, ben, cam]


async def two(
    stack: AsyncExitStack,
    relay: Relay,
    is_sealed: bool,
    roles: tuple[str, ...] = ("write",),
    **of_ben: Any,
) -> tuple[WalStore, WalStore]:
    """Ada, and Ben whom she has invited, both live with one text."""
    ada = await stack.enter_async_context(owned(relay, is_sealed))
    ada.set_text("note", "A")
    await ada.flush()
    line = str(await ada.sharing.invite(Card.of(BEN), roles))
    ben = await stack.enter_async_context(WalStore.join(line, identity=BEN, **of_ben))
    await until([ben], lambda: ben.text("note") == "A")
    return ada, ben


def may_write(store: WalStore, who: Identity) -> bool:
    return store.sharing.membership.may_write(who.public_key)


async def test_the_first_edit_of_somebody_new_is_seen_by_all(relay: Relay, is_sealed: bool) -> None:
    async with AsyncExitStack() as stack:
        ada, ben = await two(stack, relay, is_sealed)
        # Ben has been there since before Cam was invited.
        second = str(await ada.sharing.invite(Card.of(CAM)))
        cam = await stack.enter_async_context(WalStore.join(second, identity=CAM))
        cam.set_text("note", "AC")
        await cam.flush()
        await until([ben], lambda: ben.text("note") == "AC")
        await until([ada], lambda: ada.text("note") == "AC")
        assert ben.status.rejected == ()


async def test_members_see_readers_and_no_longer_those_who_were_revoked(
    relay: Relay, is_sealed: bool
) -> None:
    async with AsyncExitStack() as stack:
        ada, ben = await two(stack, relay, is_sealed)
        line = str(await ada.sharing.invite(Card.of(CAM), ["read"]))
        cam = await stack.enter_async_context(WalStore.join(line, identity=CAM))

        def shown() -> set[str | None]:
            return {person.name for person in ada.presence.others()}

        ben.presence.set(name="Ben")
        cam.presence.set(name="Cam")
        await eventually(lambda: shown() == {"Ben", "Cam"})
        await ada.sharing.revoke(BEN.public_key)
        await eventually(lambda: shown() == {"Cam"})
        # Whatever he goes on saying.
        ben.presence.set(name="Ben again")
        cam.presence.set(name="Cam again")
        await eventually(lambda: "Cam again" in shown())
        assert shown() == {"Cam again"}
        await ada.sharing.invite(Card.of(BEN))
        await eventually(lambda: shown() == {"Ben again", "Cam again"})


async def test_a_store_closes_after_its_transport_was_closed(relay: Relay) -> None:
    transport = await WebSocketTransport(relay.url, identity=ADA).__aenter__()
    async with WalStore.open(KEY, identity=ADA, relay=transport) as store:
        store["x"] = 1
        await store.flush()
        await transport.__aexit__(None, None, None)
    assert store.status.state == "closed"


async def test_the_first_edit_of_somebody_new_is_seen_where_the_relay_tells_nothing(
    is_sealed: bool,
) -> None:
    with silent():
        async with Relay.serve(MemoryLog()) as relay, AsyncExitStack() as stack:
            noticed: list[Event] = []
            ada, ben = await two(stack, relay, is_sealed, on_event=noticed.append)
            await has_looked(ben)
            second = str(await ada.sharing.invite(Card.of(CAM)))
            assert not may_write(ben, CAM)
            cam = await stack.enter_async_context(WalStore.join(second, identity=CAM))
            cam.set_text("note", "AC")
            await cam.flush()
            await until([ben], lambda: ben.text("note") == "AC")
            # Ben has met a stranger, who turned out to be none.
            assert noticed == []


async def test_a_new_key_is_fetched_when_something_cannot_be_opened() -> None:
    with silent():
        async with Relay.serve(MemoryLog()) as relay, AsyncExitStack() as stack:
            ada, ben, _ = await three(stack, relay, True)
            await has_looked(ben)
            keys = ben.sharing.keys
            await ada.sharing.rotate()
            assert ben.sharing.keys is keys
            ada.set_text("note", "sealed anew")
            await ada.flush()
            await until([ben], lambda: ben.text("note") == "sealed anew")
            assert ben.status.unreadable == 0


async def test_what_is_sealed_with_a_former_key_is_seen_by_whoever_came_later() -> None:
    async with Relay.serve(MemoryLog()) as relay, AsyncExitStack() as stack:
        ada, ben = await two(stack, relay, True)
        await has_looked(ben)
        with pytest.MonkeyPatch.context() as patched:
            # Ben hears of nothing.
            patched.setattr(ben._lookout, "told", lambda: None)
            await ada.sharing.rotate()
            second = str(await ada.sharing.invite(Card.of(CAM)))
            cam = await stack.enter_async_context(WalStore.join(second, identity=CAM))
            await until([cam], lambda: cam.text("note") == "A")
            ben["title"] = "sealed as before"
            await ben.flush()
            assert epochs(await elements_of(relay)) == [1, 1]
        await until([cam], lambda: cam.get("title") == "sealed as before")
        assert cam.status.unreadable == 0
        assert not cam.status.gaps


async def test_who_comes_back_after_a_rotation_seals_nothing_with_the_former_key(
    tmp_path: Path,
) -> None:
    port = free_port()
    async with SqliteLog.open(tmp_path / "relay.db") as log, AsyncExitStack() as stack:
        async with Relay.serve(log, port=port) as relay:
            _, ben, _ = await three(stack, relay, True)
        await until([ben], lambda: ben.status.state != "live")
        for number in range(5):
            ben[f"away-{number}"] = number
            with pytest.raises(TransportError):
                await ben.commit()
        assert ben.status.unsent == 5
        async with Relay.serve(log) as elsewhere, owned(elsewhere, True) as other:
            await other.sharing.rotate()
        async with Relay.serve(log, port=port) as relay:
            await until([ben], lambda: not ben.status.unsent)
            assert epochs(await elements_of(relay)) == [1, 2, 2, 2, 2, 2]


async def test_a_commit_under_way_goes_on_with_the_new_key_over_a_new_connection(
    relay: Relay,
) -> None:
    async with AsyncExitStack() as stack:
        ada, ben, _ = await three(stack, relay, True)
        await has_looked(ben)
        append = WebSocketTransport.append

        async def rotating(transport: WebSocketTransport, *args: Any) -> int:
            patched.setattr(WebSocketTransport, "append", append)
            ts = await append(transport, *args)
            await ada.sharing.rotate()
            # As if the connection were another one.
            ben._lookout.doubt()
            return ts

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ben._lookout, "told", lambda: None)
            for number in range(3):
                ben[f"away-{number}"] = number
                ben.document.seal()
            patched.setattr(WebSocketTransport, "append", rotating)
            await ben.commit()
        assert epochs(await elements_of(relay)) == [1, 1, 2, 2]


async def test_a_key_that_comes_while_the_relay_is_made_sure_of_seals_what_is_sent_then(
    relay: Relay,
) -> None:
    async with AsyncExitStack() as stack:
        ada, ben, _ = await three(stack, relay, True)
        await has_looked(ben)
        tail = WebSocketTransport.tail

        async def rotating(transport: WebSocketTransport, *args: Any) -> Any:
            patched.setattr(WebSocketTransport, "tail", tail)
            found = await tail(transport, *args)
            await ada.sharing.rotate()
            await until_keyed(ben, 2)
            return found

        with pytest.MonkeyPatch.context() as patched:
            ben["title"] = "sealed before"
            ben.document.seal()
            patched.setattr(WebSocketTransport, "tail", rotating)
            # As after an answer that was lost.
            assert ben._replica is not None
            ben._replica.doubt()
            await ben.commit()
        assert epochs(await elements_of(relay)) == [1, 2]
        await until([ada], lambda: ada.get("title") == "sealed before")


@pytest.mark.parametrize("has_file", [False, True])
async def test_what_an_owner_has_flushed_is_never_sealed_with_a_key_that_nobody_has(
    relay: Relay, has_file: bool, tmp_path: Path
) -> None:
    def begun(number: int, path: Path | None = None) -> WalStore:
        owner = ADA.public_key
        return WalStore.open(
            f"notes/{number}", identity=ADA, relay=relay.url, owner=owner, path=path, is_sealed=True
        )

    for number in range(10):
        # Nothing waits for the members to be looked up: it is sent at once, and closed.
        async with begun(number, tmp_path / f"{number}.db" if has_file else None) as store:
            store.set_text("note", "A")
            await store.flush()
        async with begun(number) as again:
            await again.pull()
            assert again.text("note") == "A"


async def test_nothing_is_sent_that_is_sealed_with_keys_which_the_relay_does_not_take(
    relay: Relay, tmp_path: Path
) -> None:
    path, owner = tmp_path / "elsewhere.db", ADA.public_key
    async with (
        Relay.serve(MemoryLog()) as elsewhere,
        WalStore.open(
            KEY, identity=ADA, relay=elsewhere.url, owner=owner, path=path, is_sealed=True
        ) as store,
    ):
        store["title"] = "sent with other keys"
        await store.flush()
        store["title"] = "not sent"
        store.document.seal()
    async with owned(relay, True) as first:
        first.set_text("note", "A")
        await first.flush()
    begun = len(await elements_of(relay))
    with LocalFile.open(path, document_key=KEY, author=owner) as file:
        # As if it were one log: what is looked at here are the keys.
        file.log_id = None
        file.marks = None
    async with WalStore.open(
        KEY, identity=ADA, relay=relay.url, owner=owner, path=path, is_sealed=True
    ) as again:
        # The pull goes on all the same.
        await again.pull()
        with pytest.raises(KeyringRefusedError, match="begun earlier"):
            await again.flush()
        assert again.status.unsent
        await until([again], lambda: "begun earlier" in again.status.reason)
    assert len(await elements_of(relay)) == begun


async def test_keys_that_would_be_kept_nowhere_are_refused_before_anything_is_sealed(
    tmp_path: Path,
) -> None:
    def begun(path: Path | None) -> WalStore:
        transport, owner = MemoryTransport(), ADA.public_key
        return WalStore.open(
            KEY, identity=ADA, relay=transport, owner=owner, path=path, is_sealed=True
        )

    with pytest.raises(KeysNotKeptError, match="kept nowhere"):
        await begun(None).__aenter__()
    async with begun(tmp_path / "ada.db") as store:
        store.set_text("note", "A")
        await store.flush()


async def test_who_has_nothing_to_send_needs_nobody(tmp_path: Path) -> None:
    port = free_port()
    async with SqliteLog.open(tmp_path / "relay.db") as log, AsyncExitStack() as stack:
        async with Relay.serve(log, port=port) as relay:
            _, ben, _ = await three(stack, relay, True)
        await until([ben], lambda: ben.status.state != "live")
        await ben.flush()


async def test_what_nobody_can_open_costs_little_and_stops_nobody(relay: Relay) -> None:
    async with AsyncExitStack() as stack:
        ada, ben, cam = await three(stack, relay, True)
        await ada.snapshot()
        seal = ben._encryptor.seal
        with pytest.MonkeyPatch.context() as patched:

            def mislabelled(_: object, *args: Any) -> dict[str, Any]:
                return {**seal(*args), "_epoch": 999}

            patched.setattr(type(ben._encryptor), "seal", mislabelled)
            ben["x"] = 1
            await ben.flush()
        for store in (ada, cam):
            await until([store], lambda store=store: store.status.unreadable == 1)  # type: ignore[misc]
            await has_looked(store)
        reads = 0
        with pytest.MonkeyPatch.context() as patched:

            async def failing(*_: object) -> Any:
                nonlocal reads
                reads += 1
                raise TransportError("away", retryable=True)

            patched.setattr(WebSocketTransport, "read", failing)
            for _ in range(10):
                await cam._look()
            assert reads == 0
            # There is a new one, which cannot be read: the rest goes on.
            cam.sharing.snapshot_told()
            cam._lookout.doubt()
            cam["y"] = 2
            await cam.flush()
            await cam.pull()
            assert reads > 0
        await until([ada], lambda: ada.get("y") == 2)


async def test_a_snapshot_holds_what_somebody_new_has_written(tmp_path: Path) -> None:
    with silent():
        async with Relay.serve(MemoryLog()) as relay, AsyncExitStack() as stack:
            ada = await stack.enter_async_context(owned(relay, False))
            ada.set_text("note", "A")
            await ada.flush()
            roles = ("write", "snapshot")
            first = str(await ada.sharing.invite(Card.of(BEN), roles))
            path = tmp_path / "ben.wal"
            ben = await stack.enter_async_context(WalStore.join(first, identity=BEN, path=path))
            await until([ben], lambda: ben.text("note") == "A")
            await has_looked(ben)
            second = str(await ada.sharing.invite(Card.of(CAM)))
            async with WalStore.join(second, identity=CAM) as cam:
                cam["title"] = "of somebody new"
                await cam.flush()
            await ben.snapshot()
            async with WebSocketTransport(relay.url, identity=CAM) as transport:
                stored = await transport.read(KEY + SNAPSHOT_SUFFIX)
            assert stored is not None
            assert isinstance(stored.document, dict)
            assert stored.document["producedBy"] == BEN.public_key
            assert "of somebody new" in str(stored.document["state"])
        async with WalStore.join(first, identity=BEN, path=path) as ben:
            assert ben.get("title") == "of somebody new"


async def elements_of(relay: Relay) -> list[Any]:
    """What is in the log, as it was signed."""
    page = await relay.log.page(KEY, 0, count_max=1000, bytes_max=2**20)
    return [parse(row.data) for row in page.rows]


def epochs(elements: list[Any]) -> list[int]:
    """The key epochs that elements are sealed in."""
    return [element["body"]["_epoch"] for element in elements]


async def test_whoever_is_revoked_is_told_at_once_and_so_are_the_others(
    relay: Relay, is_sealed: bool
) -> None:
    async with AsyncExitStack() as stack:
        ada, ben, cam = await three(stack, relay, is_sealed)
        assert ben.status.may_write
        await ada.sharing.revoke(BEN.public_key)
        await until([ben], lambda: not ben.status.may_write)
        ben["title"] = "unheard"
        await until([ben], lambda: ben.status.refused is not None)
        refused = ben.refused
        assert refused is not None
        assert refused.is_of_author
        await until_known(cam, BEN, writes=False)
        await until_keyed(cam, 2 if is_sealed else None)
        # What is sealed from now on, Ben cannot open: Cam seals with the new key.
        cam.set_text("note", "without Ben")
        await cam.flush()
        await until([ada], lambda: ada.text("note") == "without Ben")
        assert "title" not in ada.view()
        if is_sealed:
            assert ben.text("note") == "A"
        # Invited again, Ben goes on, and what waited is sent.
        await ada.sharing.invite(Card.of(BEN))
        await until([ben], lambda: ben.status.may_write)
        await until([ada], lambda: ada.get("title") == "unheard")
        await until([cam], lambda: cam.get("title") == "unheard")
        assert ben.refused is None


async def until_known(store: WalStore, who: Identity, *, writes: bool) -> None:
    """Return once a store knows whether somebody may write."""
    news = asyncio.Event()
    end = store.on_members(lambda _: news.set())
    async with asyncio.timeout(PATIENCE_S):
        while may_write(store, who) is not writes:
            await news.wait()
            news.clear()
    end()


async def until_keyed(store: WalStore, epoch: int | None) -> None:
    """Return once a store seals with the key of an epoch."""
    async with asyncio.timeout(PATIENCE_S):
        while epoch is not None:
            keys = store.sharing.keys
            if keys is not None and keys.current_epoch >= epoch:
                return
            await asyncio.sleep(0)


async def test_what_changed_while_somebody_was_away_is_known_when_they_are_back(
    tmp_path: Path,
) -> None:
    port = free_port()
    with silent():
        async with SqliteLog.open(tmp_path / "relay.db") as log, AsyncExitStack() as stack:
            async with Relay.serve(log, port=port) as relay:
                ada, ben, _ = await three(stack, relay, False)
            await until([ben], lambda: ben.status.state != "live")
            # Elsewhere, where Ben is not, another device of Ada's changes the roster.
            async with Relay.serve(log) as elsewhere, owned(elsewhere, False) as other:
                await other.sharing.revoke(BEN.public_key)
            async with Relay.serve(log, port=port):
                await until([ben], lambda: not ben.status.may_write)
                assert ada.status.may_write


async def test_an_app_is_told_who_has_part(relay: Relay) -> None:
    async with AsyncExitStack() as stack:
        ada, ben, cam = await three(stack, relay, False)
        told: list[set[str]] = []
        end = cam.on_members(
            lambda people: told.append(
                {each.public_key for each in people if "write" in each.roles}
            )
        )
        cam.on_members(lambda _: 1 / 0)  # type: ignore[arg-type]
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        await ada.sharing.revoke(BEN.public_key)
        await until_known(cam, BEN, writes=False)
        assert told == [{ADA.public_key, CAM.public_key}]
        assert len(faults) == 1
        end()
        await ada.sharing.invite(Card.of(BEN))
        await until_known(cam, BEN, writes=True)
        await until_known(ben, BEN, writes=True)
        assert len(told) == 1
    with pytest.raises(NotSharedError):
        WalStore.open(KEY, identity=ADA).on_members(lambda _: None)


@pytest.mark.parametrize("is_roster_known", [False, True])
async def test_what_was_passed_over_before_its_author_was_known_counts_after_a_restart(
    relay: Relay, tmp_path: Path, is_roster_known: bool
) -> None:
    async def away(*_: object) -> Any:
        raise TransportError("away", retryable=True)

    async with owned(relay, False) as ada:
        ada.set_text("note", "A")
        await ada.flush()
        first = str(await ada.sharing.invite(Card.of(BEN)))
        path = tmp_path / "ben.wal"
        async with WalStore.join(first, identity=BEN, path=path) as ben:
            await until([ben], lambda: ben.text("note") == "A")
            await has_looked(ben)
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(ben.sharing._records, "read_record", away)
                second = str(await ada.sharing.invite(Card.of(CAM)))
                async with WalStore.join(second, identity=CAM) as cam:
                    cam["title"] = "of somebody new"
                    await cam.flush()
                await until([ben], lambda: bool(ben.status.rejected))
            if is_roster_known:
                # Ben learns who it was, but cannot read the log anew any more.
                with pytest.MonkeyPatch.context() as patched:
                    patched.setattr(ben.document, "reread", away)
                    with pytest.raises(TransportError):
                        await ben.sharing.refresh()
                    assert may_write(ben, CAM)
                    await has_looked(ben)
                    ben._keep_state(is_due=True)
                    await stopped(ben)
        with LocalFile.open(path, document_key=KEY, author=BEN.public_key) as file:
            assert file.state() is not None
        for _ in range(2):
            async with WalStore.join(first, identity=BEN, path=path) as ben:
                await ben.pull()
                assert ben.get("title") == "of somebody new"
                assert ben.status.rejected == ()
        with LocalFile.open(path, document_key=KEY, author=BEN.public_key) as file:
            state = load_state(file)
        assert state is not None
        assert state.strangers == ()


async def stopped(store: WalStore) -> None:
    """Let a store look no more."""
    for task in asyncio.all_tasks():
        if "Lookout.run" in repr(task.get_coro()):
            task.cancel()


@pytest.mark.parametrize("step", ["_keep_state", "_note_outdated"])
async def test_who_looks_goes_on_after_a_full_disk(relay: Relay, tmp_path: Path, step: str) -> None:
    async with owned(relay, False) as ada:
        ada.set_text("note", "A")
        await ada.flush()
        first = str(await ada.sharing.invite(Card.of(BEN)))
        async with WalStore.join(first, identity=BEN, path=tmp_path / "ben.wal") as ben:
            await has_looked(ben)
            failed = asyncio.Event()

            def full(**_: object) -> None:
                failed.set()
                raise LocalFileFullError(tmp_path / "ben.wal")

            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(ben, step, full)
                await ada.sharing.invite(Card.of(CAM))
                await failed.wait()
                assert may_write(ben, CAM)
            await ada.sharing.revoke(CAM.public_key)
            await until_known(ben, CAM, writes=False)


async def test_elements_of_strangers_are_told_once_it_is_known_that_they_are(relay: Relay) -> None:
    noticed: asyncio.Queue[Event] = asyncio.Queue()
    async with owned(relay, False) as ada:
        first = str(await ada.sharing.invite(Card.of(BEN)))
        async with WalStore.join(first, identity=BEN, on_event=noticed.put_nowait) as ben:
            await has_looked(ben)
            stranger = Identity.from_seed(bytes([99]) * 32)
            async with WalStore.open(
                KEY, identity=stranger, relay=relay.url, writers=ALLOW_ANY
            ) as noise:
                noise["noise"] = 1
                await noise.flush()
            async with asyncio.timeout(PATIENCE_S):
                event = await noticed.get()
            assert isinstance(event, Rejection)
            assert event.author == stranger.public_key
            assert ben.status.rejected == (event,)
    assert noticed.empty()


async def test_an_invitation_that_is_under_way_when_the_store_is_closed_says_so_and_is_made_good(
    relay: Relay, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"owner": ADA.public_key, "path": tmp_path / "ada.wal"}
    written, answer = asyncio.Event(), asyncio.Event()
    async with WalStore.open(KEY, identity=ADA, relay=relay.url, **options) as ada:
        records = ada.sharing._steps._records
        write_record = records.write_record

        async def slow(*args: Any) -> str:
            revision = await write_record(*args)
            written.set()
            await answer.wait()
            return revision

        await has_looked(ada)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(records, "write_record", slow)
            work = asyncio.ensure_future(ada.sharing.invite(Card.of(BEN)))
            await written.wait()
    answer.set()
    with pytest.raises(TransportError, match="the store was closed meanwhile"):
        await work
    async with WalStore.open(KEY, identity=ADA, relay=relay.url, **options) as ada:
        await ada.sharing.settle()
        assert BEN.public_key in {each.public_key for each in ada.sharing.members()}


async def test_what_could_not_be_looked_up_is_told_when_the_store_is_closed(relay: Relay) -> None:
    noticed: list[Event] = []
    async with owned(relay, False) as ada:
        first = str(await ada.sharing.invite(Card.of(BEN)))
        async with WalStore.join(first, identity=BEN, on_event=noticed.append) as ben:
            await has_looked(ben)

            async def away(*_: object) -> None:
                raise TransportError("away", retryable=True)

            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(ben.sharing._records, "read_record", away)
                stranger = Identity.from_seed(bytes([99]) * 32)
                async with WalStore.open(
                    KEY, identity=stranger, relay=relay.url, writers=ALLOW_ANY
                ) as noise:
                    noise["noise"] = 1
                    await noise.flush()
                await until([ben], lambda: bool(ben.status.rejected))
                await has_looked(ben)
                assert noticed == []
        assert [type(event) for event in noticed] == [Rejection]


def test_of_many_strangers_those_who_find_no_room_are_told_at_once() -> None:
    told: list[Event] = []
    known: set[str] = set()
    strangers = Strangers(known.__contains__, told.append)

    def rejection(author: str) -> Rejection:
        return Rejection(1, author, NOT_A_WRITER, {}, proven=True)

    # Whoever forges something in the name of a stranger is told at once.
    assert not strangers.hold(rejection("1")._replace(proven=False))
    assert not strangers.hold(rejection("1")._replace(reason="it is malformed"))
    assert not strangers.hold(Rollback("gone"))
    held = [rejection(str(number)) for number in range(_HELD_MAX)]
    assert all(strangers.hold(each) for each in held)
    assert not strangers.hold(rejection("one more"))
    # Both are known by now, but of one not all was read anew.
    known.update(("7", "8"))
    assert told == []
    strangers.tell_all([rejection("8")])
    assert told == [each for each in held if each.author != "7"]
    strangers.tell_all([])
    assert len(told) == _HELD_MAX - 1
    assert strangers.hold(rejection("one more"))


async def test_elements_of_strangers_do_not_keep_a_reader_looking(relay: Relay) -> None:
    async with AsyncExitStack() as stack:
        ada, ben, _ = await three(stack, relay, False)
        looks = 0
        read = WebSocketTransport.read_record

        async def counting(transport: WebSocketTransport, document_key: str, name: str) -> object:
            nonlocal looks
            looks += 1
            return await read(transport, document_key, name)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(WebSocketTransport, "read_record", counting)
            stranger = Identity.from_seed(bytes([99]) * 32)
            async with WalStore.open(
                KEY, identity=stranger, relay=relay.url, writers=ALLOW_ANY
            ) as noise:
                for number in range(30):
                    noise["noise"] = number
                    await noise.flush()
            await until([ben], lambda: len(ben.status.rejected) == 30)
            await until([ada], lambda: len(ada.status.rejected) == 30)
            # Two of them read two records each, a few times.
            assert looks <= 24


# ── when it is looked ──────────────────────────────────────────────────────────────────


class Clock:
    """A time that passes when somebody waits for it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.looks: list[float] = []
        self.news: list[bool] = []
        self.asleep: asyncio.Event = asyncio.Event()
        self._wake: asyncio.Event = asyncio.Event()

    async def look(self) -> bool:
        self.looks.append(self.now_s)
        return self.news.pop(0) if self.news else False

    async def sleep(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.asleep.set()
            self._wake.clear()
            await self._wake.wait()

    async def pass_by(self, seconds: float) -> None:
        self.now_s += seconds
        self._wake.set()
        await settled()


async def settled() -> None:
    """Let everything that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def clock() -> AsyncIterator[tuple[Clock, Lookout]]:
    clock = Clock()
    lookout = Lookout(clock.look, now=lambda: clock.now_s, sleep=clock.sleep)
    task = asyncio.create_task(lookout.run())
    yield clock, lookout
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_the_first_reason_is_followed_at_once(clock: tuple[Clock, Lookout]) -> None:
    time, lookout = clock
    await settled()
    assert time.looks == []
    lookout.suspect()
    await settled()
    assert time.looks == [0]


async def test_reasons_that_come_to_nothing_are_followed_less_and_less(
    clock: tuple[Clock, Lookout],
) -> None:
    time, lookout = clock
    for _ in range(2_000):
        lookout.suspect()
        await settled()
        await time.pass_by(0.5)
    gaps = [later - earlier for earlier, later in zip(time.looks, time.looks[1:], strict=False)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == _LOOK_S_MAX
    assert len(time.looks) < 30
    # Whoever is told does not wait so long.
    lookout.suspect()
    await settled()
    count = len(time.looks)
    lookout.told()
    await settled()
    await time.pass_by(_LOOK_S_MIN)
    assert len(time.looks) == count + 1


async def test_many_reasons_at_once_are_one(clock: tuple[Clock, Lookout]) -> None:
    time, lookout = clock
    for _ in range(10):
        lookout.told()
    await settled()
    assert len(time.looks) == 1
    for _ in range(10):
        lookout.told()
    await time.pass_by(_LOOK_S_MIN)
    assert len(time.looks) == 2


async def test_after_news_the_next_reason_is_followed_soon(clock: tuple[Clock, Lookout]) -> None:
    time, lookout = clock
    for _ in range(8):
        lookout.suspect()
        await settled()
        await time.pass_by(_LOOK_S_MAX)
    time.news = [True]
    lookout.suspect()
    await settled()
    count = len(time.looks)
    lookout.suspect()
    await settled()
    await time.pass_by(_LOOK_S_MIN)
    assert len(time.looks) == count + 1


@pytest.mark.parametrize("how", ["pruned", "deleted"])
async def test_an_owner_who_has_everything_lets_nobody_back_whom_others_cannot_read(
    tmp_path: Path, how: str
) -> None:
    log, path = MemoryLog(), tmp_path / "ada.wal"
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(Relay.serve(log))

        def adas() -> WalStore:
            return WalStore.open(
                KEY, identity=ADA, relay=relay.url, owner=ADA.public_key, path=path
            )

        socket = await stack.enter_async_context(WebSocketTransport(relay.url, identity=BEN))
        async with adas() as ada:
            await ada.sharing.invite(Card.of(BEN))
            ben = WalDocument(
                KEY, transport=socket, identity=BEN, writers=ALLOW_ANY, snapshot_role=()
            )
            await ben.open()
            ben.set_field("before", 1)
            await ben.commit()
            await ada.sharing.revoke(BEN.public_key)
            ben.set_field("late", 1)
            await ben.commit()
            await ada.pull()
            if how == "pruned":
                await ada.snapshot()
            else:
                await ada.document.delete_document()
            await log.compact([Removal(KEY, (), ada.checkpoint)])
            with pytest.raises(CannotReturnError):
                await ada.sharing.invite(Card.of(BEN))
        for _ in range(2):
            async with adas() as ada:
                with pytest.raises(CannotReturnError):
                    await ada.sharing.invite(Card.of(BEN))
                assert not may_write(ada, BEN)
                await ada.sharing.invite(Card.of(CAM))

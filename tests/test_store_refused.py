"""What a relay refuses for good: it is shown, set aside and kept, and the rest goes on."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.stores import ADA, BEN, CAM, KEY, check_log, store_of, until
from walstore.document.ports import ElementRefusedError, RawElement
from walstore.local import LocalFile, LocalFileError, read_unsent
from walstore.local.faults import NotStorableError
from walstore.net import WebSocketTransport
from walstore.net.faults import AppendRefusedError, ElementTooLargeError
from walstore.relay import MemoryLog, Relay, SqliteLog
from walstore.relay.limits import Limits
from walstore.relay.roles import Roles
from walstore.signed import Identity
from walstore.signed.card import Card
from walstore.signed.grant import sign_grant
from walstore.store.refused import Edit, NotWriterError
from walstore.store.shelf import Shelf
from walstore.store.store import WalStore

# A relay that takes little, and a value that it does not take.
SMALL = Limits(frame_bytes_max=8_192)
LARGE = "x" * 20_000


@asynccontextmanager
async def small_relay() -> AsyncIterator[Relay]:
    async with Relay.serve(MemoryLog(), limits=SMALL) as relay:
        yield relay


async def elements_of(url: str) -> list[RawElement]:
    """Everything that a relay holds."""
    async with WebSocketTransport(url, identity=Identity.from_seed(bytes(32))) as transport:
        return [*await transport.pull(KEY, 0)]


async def all_sent(store: WalStore) -> None:
    """Send everything, and read it in the log."""
    await store.flush()
    await store.pull()
    assert store.status.unsent + store.document.unconfirmed == 0


async def until_refused(store: WalStore) -> None:
    await until([store], lambda: store.status.refused is not None)


# ── one element ────────────────────────────────────────────────────────────────────────


async def test_an_element_that_is_too_large_is_shown_with_what_is_in_it() -> None:
    async with small_relay() as relay, store_of(ADA, relay.url) as store:
        with store.batch(message="the large one"):
            store["large"] = LARGE
        await until_refused(store)
        refused = store.status.refused
        assert refused is not None
        assert refused == store.refused
        assert refused.size > len(LARGE)
        assert (refused.message, refused.is_of_author) == ("the large one", False)
        assert refused.edits == (Edit("set", "large", None, LARGE),)
        assert "bytes exceed" in refused.reason
        assert refused.reason in store.status.reason
        with pytest.raises(ElementRefusedError):
            await store.commit()
        # What waits behind it is still here, and is told to be unsent.
        store["title"] = "later"
        assert store.status.unsent == 2
        assert await elements_of(relay.url) == []


async def test_what_is_set_aside_is_as_if_it_had_not_been_edited_and_the_rest_is_sent() -> None:
    async with (
        small_relay() as relay,
        store_of(ADA, relay.url) as ada,
        store_of(BEN, relay.url) as ben,
    ):
        ben.set_text("note", "Ben wrote this.")
        ben["title"] = "Ben's"
        await ben.flush()
        await until([ada], lambda: ada.text("note") == "Ben wrote this.")
        with ada.batch(message="too much"):
            ada.edit_text("note", 0, 4, "")  # takes away what Ben wrote
            ada["title"] = LARGE
            ada.edit_text("note", 0, 0, "I ")
        await until([ada], lambda: ada.refused is not None)
        ada.edit_text("note", 2, 0, "and you ")  # anchored on what is refused, or cut before it
        ada["other"] = 1
        (aside,) = await ada.set_aside()
        assert Edit("set", "title", None, LARGE) in aside.edits
        assert ada["title"] == "Ben's"
        assert ada.refused is None
        await all_sent(ada)
        await until([ben], lambda: ben.get("other") == 1)
        assert ben.view() == ada.view()
        assert "and you " in ben.text("note")
        assert "wrote this." in ben.text("note")
        for store in (ada, ben):
            status = store.status
            assert (status.gaps, status.forks, status.rejected, status.reason) == ((), (), (), "")
        check_log(await elements_of(relay.url))


async def test_what_the_refused_edit_removed_is_there_again_and_still_its_authors() -> None:
    async with (
        small_relay() as relay,
        store_of(ADA, relay.url, autocommit_ms=None) as ada,
        store_of(BEN, relay.url) as ben,
    ):
        ben.list("things").extend(["a", "b", "c"])
        await until([ada], lambda: list(ada.list("things")) == ["a", "b", "c"])
        with ada.batch():
            ada.set_list("things", ["a", LARGE])
        with pytest.raises(ElementTooLargeError):
            await ada.commit()
        assert ada["things"] == ["a", LARGE]
        await ada.set_aside()
        kept = [part.author for part in ada.document.blame("things")]
        assert set(kept) == {BEN.public_key}


async def test_a_message_stays_with_what_it_was_said_of() -> None:
    async with (
        small_relay() as relay,
        store_of(ADA, relay.url, autocommit_ms=None) as ada,
        store_of(BEN, relay.url) as ben,
    ):
        ada["large"] = LARGE
        with pytest.raises(ElementTooLargeError):
            await ada.commit()
        with ada.batch(message="first"):
            ada["a"] = 1
        ada["b"] = 2
        with ada.batch(message="second"):
            ada["c"] = 3
        await ada.set_aside()
        await ada.flush()
        await ben.pull()
        versions = {version.message: version.ts for version in ben.history() if version.message}
        assert list(versions) == ["first", "second"]
        assert ben.at(versions["first"]) == {"a": 1}
        assert ben.at(versions["second"]) == {"a": 1, "b": 2, "c": 3}


async def test_what_was_edited_after_it_can_still_be_undone() -> None:
    async with small_relay() as relay, store_of(ADA, relay.url, autocommit_ms=None) as store:
        store.set_text("note", "one")
        await store.commit()
        store["large"] = LARGE
        store.undo_boundary()
        store.edit_text("note", 3, 0, " two")
        with pytest.raises(ElementTooLargeError):
            await store.commit()
        await store.set_aside()
        assert store.text("note") == "one two"
        store.undo()
        assert store.text("note") == "one"
        store.redo()
        assert store.text("note") == "one two"
        store.undo()
        store.undo()
        assert store.view() == {"note": ""}
        await store.commit()
        assert store.status.refused is None


async def test_a_text_that_is_too_large_is_sent_in_parts() -> None:
    text = "".join(chr(97 + number % 26) for number in range(50_000))
    async with (
        small_relay() as relay,
        store_of(ADA, relay.url) as ada,
        store_of(BEN, relay.url) as ben,
    ):
        ada.set_text("note", text)
        await ada.flush()
        ada.edit_text("note", 0, 0, "! ")
        await ada.flush()
        await ben.pull()
        assert ben.text("note") == "! " + text
        assert (ada.status.refused, ben.status.gaps, ben.status.forks) == (None, (), ())
        elements = await elements_of(relay.url)
        assert len(elements) > 50_000 // SMALL.frame_bytes_max
        check_log(elements)


async def test_a_text_of_an_earlier_process_is_sent_in_parts(tmp_path: Path) -> None:
    async with store_of(ADA, path=tmp_path / "ada.db") as store:
        store.set_text("note", "y" * 30_000)
        await store.commit()
        store["title"] = "then"
    async with (
        small_relay() as relay,
        store_of(ADA, relay.url, tmp_path / "ada.db") as ada,
        store_of(BEN, relay.url) as ben,
    ):
        ada.edit_text("note", 0, 0, "now ")
        await all_sent(ada)
        await ben.pull()
        assert ben.view() == ada.view()
        check_log(await elements_of(relay.url))


async def test_an_element_that_the_relay_finds_malformed_is_refused_for_good() -> None:
    async with store_of(ADA, autocommit_ms=None) as store:
        store["title"] = "mine"
        store.document.seal()
        (sealed,) = store.document._outbox.waiting()
    async with (
        Relay.serve(MemoryLog()) as relay,
        WebSocketTransport(relay.url, identity=ADA) as transport,
    ):
        body = sealed.body._replace(signature="A" * 86 + "==")
        with pytest.raises(AppendRefusedError) as caught:
            await transport.append(KEY, body)
        assert (caught.value.is_of_author, caught.value.retryable) == (False, False)


# ── a restart ──────────────────────────────────────────────────────────────────────────


async def test_what_is_refused_is_shown_after_a_restart_before_a_relay_is_reached(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ada.db"
    async with small_relay() as relay:
        url = relay.url
        async with store_of(ADA, url, path) as store:
            store["large"] = LARGE
            await until_refused(store)
            before = store.refused
    async with store_of(ADA, url, path) as store:
        assert store.refused == before
        assert store["large"] == LARGE


async def test_what_was_set_aside_is_kept_across_a_restart_until_it_is_discarded(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ada.db"
    async with small_relay() as relay:
        async with store_of(ADA, relay.url, path) as store:
            store["large"] = LARGE
            await until_refused(store)
            store["title"] = "mine"
            (aside,) = await store.set_aside()
        async with store_of(ADA, relay.url, path) as store:
            assert store.refused is None
            assert store.view() == {"title": "mine"}
            (kept,) = store.shelf
            assert kept.refused == aside
            assert store.shelf.export(tmp_path / "aside.jsonl") == 1
            with pytest.raises(LocalFileError):
                store.shelf.export(tmp_path / "aside.jsonl")
            store.shelf.discard(kept.number)
            assert len(store.shelf) == 0
        async with store_of(ADA, relay.url, path) as store:
            assert list(store.shelf) == []
            store["large"] = LARGE
            await until_refused(store)
            await store.set_aside()
            assert len(store.shelf) == 1
    unsent = read_unsent(tmp_path / "aside.jsonl")
    (body,) = unsent.pending.bodies
    assert (unsent.document_key, unsent.author) == (KEY, ADA.public_key)
    assert LARGE.encode() in body.canonical


async def test_setting_aside_is_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ada.db"
    async with small_relay() as relay:
        async with store_of(ADA, relay.url, path, autocommit_ms=None) as store:
            store["large"] = LARGE
            with pytest.raises(ElementTooLargeError):
                await store.commit()
            store["title"] = "mine"

            def fail(*_: object) -> None:
                raise NotStorableError("a body", "the disk is full")

            with monkeypatch.context() as patched:
                patched.setattr(LocalFile, "replace", fail)
                with pytest.raises(NotStorableError):
                    await store.set_aside()
            assert (store["large"], store["title"]) == (LARGE, "mine")
            assert store.refused is not None
            assert len(store.shelf) == 0
        async with store_of(ADA, relay.url, path) as store:
            assert (store["large"], store["title"]) == (LARGE, "mine")
            await until_refused(store)
            await store.set_aside()
            await all_sent(store)
            assert store.view() == {"title": "mine"}
        check_log(await elements_of(relay.url))


async def test_a_relay_that_takes_more_by_now_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "ada.db"
    async with SqliteLog.open(tmp_path / "relay.db") as log:
        async with Relay.serve(log, limits=SMALL) as relay:
            port = relay.port
            async with store_of(ADA, relay.url, path) as store:
                store["large"] = LARGE
                await until_refused(store)
        async with (
            Relay.serve(log, port=port) as relay,
            store_of(ADA, relay.url, path) as store,
            store_of(BEN, relay.url) as ben,
        ):
            await all_sent(store)
            assert store.refused is None
            await ben.pull()
            assert ben["large"] == LARGE


async def test_without_a_file_what_was_set_aside_is_kept_while_the_store_is_open() -> None:
    async with small_relay() as relay, store_of(ADA, relay.url) as store:
        for number in range(3):
            store["large"] = f"{number}{LARGE}"
            await until_refused(store)
            await store.set_aside()
        assert [kept.number for kept in store.shelf] == [1, 2, 3]
        store.shelf.discard(2)
        assert [kept.number for kept in store.shelf] == [1, 3]


async def test_a_full_shelf_takes_no_more_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from walstore.store import shelf

    monkeypatch.setattr(shelf, "SHELF_MAX", 0)
    async with small_relay() as relay, store_of(ADA, relay.url, tmp_path / "ada.db") as store:
        store["large"] = LARGE
        await until_refused(store)
        with pytest.raises(shelf.ShelfFullError):
            await store.set_aside()
        assert store["large"] == LARGE
        assert isinstance(store.shelf, Shelf)


async def test_with_nothing_refused_there_is_nothing_to_set_aside() -> None:
    async with small_relay() as relay, store_of(ADA, relay.url) as store:
        store["title"] = "mine"
        assert await store.set_aside() == []
        await all_sent(store)
        assert store["title"] == "mine"


async def test_what_the_log_holds_after_all_is_not_set_aside(tmp_path: Path) -> None:
    """Its acknowledgement was lost, and by the time that it was sent again it was too large."""
    path = tmp_path / "ada.db"
    async with SqliteLog.open(tmp_path / "relay.db") as log:
        async with store_of(ADA, path=path) as store:
            store["large"] = LARGE
            await store.commit()
            (waiting,) = store.document._outbox.waiting()
        async with (
            Relay.serve(log) as relay,
            WebSocketTransport(relay.url, identity=ADA) as transport,
        ):
            await transport.append(KEY, waiting.body)
        async with Relay.serve(log, limits=SMALL) as relay:
            async with store_of(ADA, relay.url, path) as store:
                await until([store], lambda: not store.status.unsent or bool(store.refused))
                assert await store.set_aside() == []
                await all_sent(store)
                assert store["large"] == LARGE
            assert len(await elements_of(relay.url)) == 1


# ── an author ──────────────────────────────────────────────────────────────────────────

ROLES = """
[[grant]]
prefix = "stores/"
read = "any"
write = [ADA]
grant = [ADA]
"""


@asynccontextmanager
async def guarded() -> AsyncIterator[Relay]:
    """A relay where Ada lets others write."""
    table = tomllib.loads(ROLES.replace("ADA", f'"{ADA.public_key}"'))
    roles = Roles.from_table(table, source="roles.toml")
    async with Relay.serve(MemoryLog(), roles=roles) as relay:
        yield relay


async def grant(relay: Relay, who: Identity, *roles: str, at_ms: int) -> None:
    async with WebSocketTransport(relay.url, identity=ADA) as transport:
        await transport.publish_grant(
            sign_grant(ADA, prefix=KEY, to=who.public_key, roles=roles, at_ms=at_ms, is_exact=True)
        )


async def test_who_may_no_longer_write_is_told_and_the_queue_rests() -> None:
    async with guarded() as relay:
        await grant(relay, BEN, "write", at_ms=1)
        async with store_of(BEN, relay.url) as ben, store_of(CAM, relay.url) as cam:
            ben.set_text("note", "while I may")
            await all_sent(ben)
            await grant(relay, BEN, at_ms=2)
            ben.set_text("note", "no more")
            await until_refused(ben)
            refused = ben.refused
            assert refused is not None
            assert refused.is_of_author
            assert "write" in refused.reason
            ben["title"] = "nor this"
            with pytest.raises(ElementRefusedError):
                await ben.flush()
            assert ben.status.unsent == 2
            # All of it is taken out, and what is shown is what everybody sees.
            aside = await ben.set_aside()
            assert len(aside) == 2
            assert ben.view() == {"note": "while I may"}
            assert (ben.status.unsent, ben.status.refused) == (0, None)
            await until([cam], lambda: cam.text("note") == "while I may")
            # Whoever may write again goes on at once, without a gap.
            await grant(relay, BEN, "write", at_ms=3)
            ben.edit_text("note", 0, 0, "again: ")
            await all_sent(ben)
            await until([cam], lambda: cam.text("note") == "again: while I may")
            assert (cam.status.gaps, cam.status.rejected) == ((), ())
        check_log(await elements_of(relay.url))


async def test_what_is_refused_is_not_sent_again_and_again() -> None:
    async with guarded() as relay, store_of(BEN, relay.url) as ben:
        asked = 0
        take = relay._take

        async def counting(peer: object, text: bytes) -> None:
            nonlocal asked
            asked += text.startswith(b'["APPEND"')
            await take(peer, text)  # type: ignore[arg-type]

        relay._take = counting  # type: ignore[method-assign]
        ben["title"] = "mine"
        await until_refused(ben)
        for number in range(20):
            ben["title"] = number
            with pytest.raises(ElementRefusedError):
                await ben.commit()
        assert asked == 1


async def test_who_cannot_even_read_any_more_can_set_aside() -> None:
    table = tomllib.loads(ROLES.replace('"any"', "[ADA]").replace("ADA", f'"{ADA.public_key}"'))
    roles = Roles.from_table(table, source="roles.toml")
    async with Relay.serve(MemoryLog(), roles=roles) as relay:
        await grant(relay, BEN, "read", "write", at_ms=1)
        async with store_of(BEN, relay.url) as ben:
            ben["title"] = "mine"
            await all_sent(ben)
            await grant(relay, BEN, at_ms=2)
            ben["title"] = "still mine"
            await until_refused(ben)
            (aside,) = await ben.set_aside()
            assert aside.edits == (Edit("set", "title", None, "still mine"),)
            assert ben["title"] == "mine"


async def test_on_an_open_relay_the_roster_refuses_what_no_reader_would_take() -> None:
    async with (
        Relay.serve(MemoryLog()) as relay,
        WalStore.open(KEY, identity=ADA, relay=relay.url, owner=ADA.public_key) as ada,
    ):
        ada.set_text("note", "shared")
        await ada.flush()
        line = str(await ada.sharing.invite(Card.of(BEN)))
        async with WalStore.join(line, identity=BEN) as ben:
            ben.edit_text("note", 0, 0, "we ")
            await all_sent(ben)
            await ada.pull()
            await ada.sharing.revoke(BEN.public_key)
            await ben.sharing.refresh()
            ben.edit_text("note", 0, 0, "I and ")
            await until_refused(ben)
            assert ben.refused is not None
            assert ben.refused.reason == str(NotWriterError())
            before = len(await elements_of(relay.url))
            ben.document.retry_refused()
            with pytest.raises(NotWriterError):
                await ben.commit()
            await ben.set_aside()
            assert ben.text("note") == "we shared"
            assert len(await elements_of(relay.url)) == before
            await ada.sharing.invite(Card.of(BEN))
            await ben.sharing.refresh()
            ben.edit_text("note", 0, 0, "again, ")
            await all_sent(ben)
            await until([ada], lambda: ada.text("note") == "again, we shared")


async def test_a_closed_store_has_no_shelf() -> None:
    store = store_of(ADA)
    with pytest.raises(Exception, match="not open"):
        _ = store.shelf
    assert store.refused is None

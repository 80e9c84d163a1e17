"""`walstore keygen`, `sync`, `share`, `join`, `revoke` and `compact`: two people and a relay."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.cli_process import WAIT_S, Forker, Home, forking, relay_of
from walstore import ALLOW_ANY, Identity, WalDocument
from walstore.local.guard import Guard
from walstore.net import WebSocketTransport
from walstore.signed.card import Card
from walstore.signed.invitation import Invitation

NOBODY = "ws://127.0.0.1:1"


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    with forking() as started:
        yield started


@pytest.fixture(scope="module")
def relay(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with relay_of(Home(forker, tmp_path_factory.mktemp("relay"))) as url:
        yield url


@pytest.fixture
def ada(forker: Forker, tmp_path: Path) -> Home:
    return Home(forker, tmp_path / "ada")


@pytest.fixture
def bo(forker: Forker, tmp_path: Path) -> Home:
    return Home(forker, tmp_path / "bo")


def card_of(home: Home) -> str:
    return home.ok("keygen").out.strip()


def let_in(owner: Home, document: str, guest: Home, *options: str) -> None:
    """Let somebody have part in a document."""
    line = owner.ok("share", document, card_of(guest), *options).out.strip()
    guest.ok("join", line)


@pytest.mark.parametrize("kind", [(), ("--sealed",)])
def test_a_document_moves_to_another_relay_with_all_who_share_it(
    ada: Home, bo: Home, relay: str, tmp_path: Path, forker: Forker, kind: tuple[str, ...]
) -> None:
    ada.ok("init", "notes", "--relay", relay, *kind)
    ada.ok("set", "notes", "title", "Picnic", "--sync")
    let_in(ada, "notes", bo)
    bo.ok("set", "notes", "more", "bread", "--sync")
    with relay_of(Home(forker, tmp_path / "elsewhere")) as elsewhere:
        for who in (ada, bo):
            moved = who("sync", "notes", "--relay", elsewhere)
            assert moved.code == 3
            assert "walstore sync notes --accept-rollback" in moved.err
            who.ok("sync", "notes", "--accept-rollback")
        ada.ok("sync", "notes")
        for who in (ada, bo):
            assert who.ok("show", "notes", "--json").json == {"title": "Picnic", "more": "bread"}


def test_who_joins_behind_a_snapshot_is_told_where_the_past_is(
    ada: Home, bo: Home, relay: str, tmp_path: Path, forker: Forker
) -> None:
    ada.ok("init", "notes", "--relay", relay, "--sealed")
    ada.ok("set", "notes", "title", "Picnic", "--sync")
    cy = Home(forker, tmp_path / "cy")
    let_in(ada, "notes", cy)
    ada.ok("revoke", "notes", card_of(cy))
    let_in(ada, "notes", bo)
    assert "walstore show notes" in bo.ok("log", "notes").err


def test_two_commands_at_once_make_one_identity(ada: Home) -> None:
    running = [ada.start("init", name, "--sealed") for name in ("one", "two")]
    assert [each.wait() for each in running] == [0, 0]
    for name in ("one", "two"):
        ada.ok("set", name, "title", "Picnic")


def test_two_people_share_a_document_until_one_is_revoked(ada: Home, bo: Home, relay: str) -> None:
    ada.ok("init", "notes", "--relay", relay)
    done = ada.ok("set", "notes", "body", "Meet at the lake.\n", "--type", "text")
    assert done.err.endswith("1 unsent; walstore sync notes\n")
    card = card_of(bo)
    assert card == card_of(bo)
    assert card.startswith("walstore-card.")
    shared = ada.ok("share", "notes", "-", "--as", "bo", stdin=card + "\n")
    assert "bo is a writer now" in shared.err
    joined = bo.ok("join", "-", stdin=shared.out)
    assert joined.out == "notes\n"
    assert bo.ok("get", "notes", "body").out == "Meet at the lake.\n"

    # Offline both go on; then both are there.
    ada.ok("set", "notes", "title", "Picnic")
    bo.ok("set", "notes", "body", "Bring wine.\n", "--append", "-m", "wine")
    assert bo.ok("sync", "notes", "--json").json["sent"] == 1
    exchanged = ada.ok("sync", "notes", "--json").json
    assert exchanged == {"name": "notes", "sent": 1, "received": 1, "unsent": 0}
    assert bo.ok("get", "notes", "title", "--sync").out == "Picnic\n"
    blamed = ada.ok("blame", "notes", "body").out.splitlines()
    assert [line.split()[3] for line in blamed] == ["you", "bo"]
    versions = [json.loads(line) for line in ada.ok("log", "notes", "--json").out.splitlines()]
    at = {each["message"] or each["names"][0]: each["version"] for each in versions}
    assert ada.ok("show", "notes", "--at", at["body"], "--json").json["body"] == (
        "Meet at the lake.\n"
    )
    assert "+Bring wine." in ada.ok("diff", "notes", at["body"], at["wine"]).out
    then = ada.ok("blame", "notes", "body", "--at", at["body"], "--json").json
    assert [each["ts"] for each in then] == [int(at["body"])]
    assert ada.ok("verify", "notes", "--json").json["elements"] == 3

    # Bo is a member until he is not.
    members = ada.ok("share", "notes").out
    assert [line.split()[:2] for line in members.splitlines()] == [
        ["you", "owner"],
        ["bo", "writer"],
    ]
    would = ada.ok("revoke", "notes", "bo", "--dry-run", "--json")
    assert would.json["dry_run"]
    assert "1 version of theirs would stay" in would.err
    ada.ok("revoke", "notes", "bo")
    bo.ok("set", "notes", "body", "All mine.\n", "--type", "text")
    refused = bo("sync", "notes")
    assert (refused.code, refused.out) == (1, "")
    assert "walstore sync notes --set-aside" in refused.err
    aside = bo.ok("sync", "notes", "--set-aside", "--json")
    assert "put 1 on the shelf" in aside.err
    assert aside.json["unsent"] == 0
    told = bo("set", "notes", "title", "Mine")
    assert told.code == 2
    assert "you may read notes, not write it" in told.err
    assert ada.ok("get", "notes", "body", "--sync").out == "Meet at the lake.\nBring wine.\n"


def test_a_sealed_document_is_read_by_its_members_alone(
    ada: Home, bo: Home, forker: Forker, relay: str, tmp_path: Path
) -> None:
    ada.ok("init", "vault", "--sealed", "--relay", relay)
    ada.ok("set", "vault", "code", "the-first-code", "--sync")
    assert b"the-first-code" not in ada.file("vault").read_bytes()
    let_in(ada, "vault", bo, "--role", "reader", "--as", "bo")
    assert bo.ok("get", "vault", "code").out == "the-first-code\n"
    told = bo("set", "vault", "code", "another")
    assert (told.code, told.out) == (2, "")
    ada.ok("revoke", "vault", "bo")
    ada.ok("set", "vault", "code", "the-second-code", "--sync")
    bo("sync", "vault")
    assert bo.ok("get", "vault", "code").out == "the-first-code\n"
    # Who was let in later reads what there is now.
    cleo = Home(forker, tmp_path / "cleo")
    let_in(ada, "vault", cleo)
    assert cleo.ok("show", "vault", "--json").json == {"code": "the-second-code"}
    assert cleo.ok("verify", "vault", "--json").json["sound"]


def test_who_was_left_out_is_told_so(ada: Home, bo: Home, relay: str) -> None:
    ada.ok("init", "diary", "--sealed", "--relay", relay)
    ada.ok("set", "diary", "today", "sun", "--sync")
    let_in(ada, "diary", bo, "--as", "bo")
    assert "no member" not in bo.ok("sync", "diary").err
    ada.ok("revoke", "diary", "bo")
    ada.ok("set", "diary", "today", "rain", "--sync")
    seen = bo.ok("get", "diary", "today", "--sync")
    # What is here is shown; without a word it would be taken for what there is.
    assert seen.out == "sun\n"
    assert "you are no member of diary any more" in seen.err
    assert "1 element cannot be opened" in seen.err
    assert "no member" in bo.ok("sync", "diary").err
    assert "no member" not in ada.ok("sync", "diary").err


def test_the_key_of_a_sealed_document_survives_its_file(ada: Home, bo: Home, relay: str) -> None:
    ada.ok("init", "vault", "--sealed", "--relay", relay)
    ada.ok("set", "vault", "code", "the-first-code", "--sync")
    let_in(ada, "vault", bo)
    for each in ada.file("vault").parent.glob("log.db*"):
        each.unlink()
    for command in (["get", "vault", "code"], ["log", "vault"], ["set", "vault", "code", "x"]):
        done = ada(*command)
        assert (done.code, done.out) == (1, "")
        assert "fetch it from the relay: walstore sync vault" in done.err
    assert "fetched the key" in ada.ok("sync", "vault").err
    assert ada.ok("get", "vault", "code").out == "the-first-code\n"
    ada.ok("set", "vault", "code", "the-second-code", "--sync")
    assert bo.ok("get", "vault", "code", "--sync").out == "the-second-code\n"
    assert sorted(each.name for each in ada.file("vault").parent.iterdir()) == [
        "document.json",
        "log.db",
        "log.db.lock",
    ]
    ada.ok("init", "alone", "--sealed")
    ada.file("alone").unlink()
    lost = ada("show", "alone")
    assert (lost.code, lost.out) == (1, "")
    assert "put back a copy" in lost.err


def test_without_its_relay_a_document_goes_on(ada: Home, bo: Home, relay: str) -> None:
    ada.ok("init", "notes", "--relay", NOBODY)
    ada.ok("set", "notes", "title", "Picnic")
    for command in (["sync", "notes"], ["share", "notes", card_of(bo)], ["sync"]):
        done = ada(*command)
        assert (done.code, done.out) == (4, "")
        assert f"no connection to {NOBODY}" in done.err
        assert "walstore sync notes" in done.err
    shown = ada("get", "notes", "title", "--sync")
    assert (shown.code, shown.out) == (4, "Picnic\n")
    written = ada("set", "notes", "title", "Picnic!", "--sync")
    assert written.code == 4
    assert written.err.startswith("wrote title in notes\n")
    assert "2 unsent, kept here" in written.err
    assert "is the relay running" in written.err
    # Another relay is as good.
    moved = ada.ok("sync", "notes", "--relay", relay, "--json")
    assert moved.json["sent"] == 2
    assert f"it was {NOBODY}" in moved.err
    let_in(ada, "notes", bo)
    assert bo.ok("get", "notes", "title").out == "Picnic!\n"


def test_who_joins_without_a_network_is_told_to_join_again(ada: Home, bo: Home, relay: str) -> None:
    ada.ok("init", "notes", "--relay", relay)
    line = ada.ok("share", "notes", card_of(bo)).out.strip()
    done = bo("join", line, "--relay", NOBODY)
    assert (done.code, done.out) == (4, "")
    # There is no such document yet, so there is nothing to sync.
    assert "walstore join, with the same invitation" in done.err
    assert "walstore sync" not in done.err
    assert bo.ok("join", line).out == "notes\n"


def test_what_comes_into_an_empty_document_is_counted(ada: Home, bo: Home, relay: str) -> None:
    ada.ok("init", "notes", "--relay", relay)
    let_in(ada, "notes", bo)
    bo.ok("set", "notes", "title", "Picnic", "--sync")
    assert ada.ok("sync", "notes", "--json").json["received"] == 1
    assert ada.ok("sync", "notes", "--json").json["received"] == 0


def test_following_keeps_a_document_in_step_and_leaves_it_to_others(
    ada: Home, bo: Home, relay: str
) -> None:
    ada.ok("init", "notes", "--relay", relay)
    let_in(ada, "notes", bo)
    following = ada.start("sync", "notes", "--follow", "--json")
    assert "live with" in (following.err.line() or "")
    bo.ok("set", "notes", "title", "Picnic", "--sync")
    assert json.loads(following.out.line() or "null")["received"] == 1
    # It is open to other commands, and what they write is sent.
    assert ada.ok("get", "notes", "title").out == "Picnic\n"
    ada.ok("set", "notes", "body", "lake")
    assert json.loads(following.out.line() or "null")["sent"] == 1
    assert bo.ok("get", "notes", "body", "--sync").out == "lake\n"
    assert following.end(signal.SIGINT) == 0


def test_a_file_is_put_back_in_its_turn_and_over_nobody_elses(ada: Home, relay: str) -> None:
    ada.ok("init", "vault", "--sealed", "--relay", relay)
    ada.ok("set", "vault", "title", "Secret", "--sync")
    for file in ada.file("vault").parent.glob("log.db*"):
        file.unlink()
    guard = Guard.acquire(ada.file("vault"))
    syncing = ada.start("sync", "vault")
    try:
        assert "waiting for another program" in (syncing.err.line() or "")
        assert not ada.file("vault").exists()
    finally:
        guard.close()
    assert syncing.wait() == 0
    assert ada.ok("get", "vault", "title").out == "Secret\n"
    assert {file.name for file in ada.file("vault").parent.iterdir()} == {
        "document.json",
        "log.db",
        "log.db.lock",
    }


@asynccontextmanager
async def dripping() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A relay that hands a log out bit by bit, without end; and whether it was asked to."""
    asked, log = asyncio.Event(), {"log": "ab" * 16}
    row = json.dumps([[1, 1, "aa" * 32, "A" * 86 + "==", 2]])

    async def serve_one(socket: ServerConnection) -> None:
        greeting = {"protocol": [1], "relay": "cd" * 16, "challenge": "ef" * 32, "limits": {}}
        await socket.send(json.dumps(["HELLO", {**greeting, "software": "x", "features": []}]))
        async with asyncio.TaskGroup() as tasks:
            async for message in socket:
                verb, ref, *rest = json.loads(message)
                if verb in ("AUTH", "GRANT"):
                    await socket.send(json.dumps(["OK", ref, {}]))
                elif verb == "RECORD":
                    await socket.send(json.dumps(["RECORD", ref, None, None, log]))
                elif verb == "SNAPSHOT":
                    await socket.send(json.dumps(["SNAPSHOT", ref, None, None, True, log]))
                elif verb == "KEEP":
                    revision = sha256(rest[4].encode()).hexdigest()
                    await socket.send(json.dumps(["OK", ref, {"revision": revision}]))
                elif verb == "PULL" and rest[1].get("live"):
                    await socket.send(json.dumps(["ERR", ref, "too-many", "no", {}]))
                elif verb == "PULL":
                    tasks.create_task(drip(socket, ref))

    async def drip(socket: ServerConnection, ref: str) -> None:
        asked.set()
        with suppress(ConnectionClosed):
            while True:
                await socket.send(f'["ELEMENTS",{json.dumps(ref)},{row},{{}}]')
                await asyncio.sleep(1)

    async with serve(serve_one, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
async def test_following_ends_when_it_is_told_to_whatever_the_relay_does(
    ada: Home, signals: list[signal.Signals]
) -> None:
    async with dripping() as (url, asked), asyncio.timeout(WAIT_S):
        await asyncio.to_thread(ada.ok, "init", "notes", "--relay", url)
        following = ada.start("sync", "notes", "--follow")
        try:
            await asked.wait()
            for each in signals:
                os.kill(following.number, each)
            ended = asyncio.create_task(asyncio.to_thread(following.wait))
            done, _ = await asyncio.wait([ended], timeout=WAIT_S / 2)
            assert done, "it goes on"
        finally:
            with suppress(ProcessLookupError):
                os.kill(following.number, signal.SIGKILL)
        assert await ended == 0


def test_a_snapshot_is_signed_and_what_was_removed_goes(ada: Home, bo: Home, relay: str) -> None:
    ada.ok("init", "notes", "--relay", relay)
    ada.ok("set", "notes", "body", "a long text that is removed " * 20, "--type", "text")
    ada.ok("set", "notes", "body", "short")
    would = ada.ok("compact", "notes", "--collect", "--dry-run", "--json").json
    assert would["dry_run"]
    assert would["collected_bytes"] > 0
    done = ada.ok("compact", "notes", "--collect", "--json").json
    assert done["collected_bytes"] == would["collected_bytes"]
    assert ada.ok("compact", "notes", "--collect", "--json").json["collected_bytes"] == 0
    let_in(ada, "notes", bo)
    assert bo.ok("get", "notes", "body").out == "short"
    # His past begins with the snapshot, and what it stands for is told apart.
    assert bo.ok("log", "notes").out == ""
    assert "before a snapshot" in bo.ok("blame", "notes", "body").out
    checked = bo.ok("verify", "notes", "--json").json
    assert "on its producer's word" in checked["notes"][0]
    bo.ok("set", "notes", "body", "shorter", "--sync")
    bo.ok("set", "notes", "body", "shortest", "--sync")
    newest, former = map(json.loads, bo.ok("log", "notes", "--json").out.splitlines())
    assert (newest["names"], former["names"]) == (["body"], ["body"])
    assert bo.ok("show", "notes", "--at", newest["version"], "--json").json == {"body": "shortest"}
    before = bo("show", "notes", "--at", former["version"])
    assert (before.code, before.out) == (2, "")
    assert "began with a snapshot" in before.err
    refused = bo("compact", "notes")
    assert (refused.code, refused.out) == (2, "")
    assert "--role producer" in refused.err


async def test_who_was_revoked_and_cannot_come_back_is_let_in_with_another_card(
    ada: Home, relay: str
) -> None:
    bo, other = Identity.generate(), Identity.generate()
    card = Card.of(bo).line
    ada.ok("init", "notes", "--relay", relay)
    invitation = Invitation.read(ada.ok("share", "notes", card).out.strip())
    anybody: dict[str, Any] = {"writers": ALLOW_ANY, "snapshot_role": ALLOW_ANY}
    async with WebSocketTransport(relay, identity=bo) as transport:
        theirs = WalDocument(invitation.document, transport=transport, identity=bo, **anybody)
        await theirs.open()
        theirs.set_field("one", 1)
        await theirs.commit()
        ada.ok("sync", "notes")
        ada.ok("revoke", "notes", bo.public_key)
        # He has not heard of it.
        theirs.set_field("two", 2)
        await theirs.commit()
    ada.ok("sync", "notes")
    owner = Identity.load(next(ada.root.rglob("identities/*.json")))
    async with WebSocketTransport(relay, identity=owner) as transport:
        hers = WalDocument(
            invitation.document,
            transport=transport,
            snapshot_store=transport,
            identity=owner,
            **anybody,
        )
        await hers.open()
        await hers.delete_document()
    refused = ada("share", "notes", card)
    assert (refused.code, refused.out) == (2, "")
    assert "which nobody can read any more" in refused.err
    assert "`walstore keygen NAME` makes one at theirs" in refused.err
    assert "revoked" in ada.ok("share", "notes").out
    line = ada.ok("share", "notes", Card.of(other).line).out.strip()
    assert Invitation.read(line).to == other.public_key


def test_a_relay_that_lost_something_is_told_of_and_then_accepted(
    ada: Home, forker: Forker, tmp_path: Path
) -> None:
    place = Home(forker, tmp_path / "relay")
    database, copy = place.root / "relay.db", place.root / "copy.db"
    with relay_of(place) as url:
        ada.ok("init", "notes", "--relay", url)
        ada.ok("set", "notes", "words", "one", "--append", "--sync")
    shutil.copy(database, copy)
    with relay_of(place) as url:
        ada.ok("sync", "notes", "--relay", url)
        ada.ok("set", "notes", "words", "two", "--append", "--sync")
    for each in place.root.glob("relay.db*"):
        each.unlink()
    shutil.copy(copy, database)
    with relay_of(place) as url:
        done = ada("sync", "notes", "--relay", url)
        assert (done.code, done.out) == (3, "")
        assert "--accept-rollback" in done.err
        assert ada.ok("get", "notes", "words", "--json").json == ["one", "two"]
        accepted = ada.ok("sync", "notes", "--accept-rollback", "--json")
        assert accepted.json["unsent"] == 0
        bo = Home(forker, tmp_path / "bo")
        let_in(ada, "notes", bo)
        assert bo.ok("get", "notes", "words", "--json").json == ["one", "two"]


def test_mistakes_about_others_are_told_with_what_to_do(ada: Home, bo: Home, relay: str) -> None:
    ada.ok("init", "notes", "--relay", relay)
    let_in(ada, "notes", bo, "--as", "bo")
    key = bo.ok("keygen", "--json").json["public_key"]
    line = ada.ok("share", "notes", card_of(bo)).out.strip()
    for home, arguments, message in (
        (ada, ["share", "notes", key], "this is a public key; ask for the line"),
        (ada, ["share", "notes", card_of(ada)], "this is your own card"),
        (ada, ["share", "notes", ada.ok("keygen", "c").out.strip(), "--as", "bo"], "another --as"),
        (ada, ["revoke", "notes", "cleo"], "the members are: bo"),
        (ada, ["join", line], "give the owner your card"),
        (bo, ["join", line], "there is a document called notes already"),
        (bo, ["share", "notes", card_of(ada)], "only its owner"),
        (bo, ["revoke", "notes", key], "only its owner"),
        (ada, ["compact", "notes"], "there is nothing to sign"),
    ):
        done = home(*arguments)
        assert (done.code, done.out) == (2, ""), done
        assert message in done.err
    assert bo.ok("join", line, "again").out == "again\n"

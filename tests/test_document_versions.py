"""Versions: what they are called, how they differ, and the way back to one."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rigged import ALICE, BOB, CAROL, RiggedLog, opened, put_in, write_packed
from tests.undoing import Author, sync
from walstore.canon import canonical_text
from walstore.crdt import Change, ListChanged, MapChanged, RegisterChanged
from walstore.crdt.runs import Set
from walstore.document import Blame, KindError, ValueTooLargeError, WalDocument
from walstore.errors import NotJsonError, TransportError
from walstore.net import MemoryTransport
from walstore.sealed import ContentKeys, NativeEncryptor, StarfishEncryptor
from walstore.wire.envelope import Header, inner_packed, outer_starfish
from walstore.wire.limits import MESSAGE_SIZE_MAX

WIRES = ["packed", "starfish"]


# ── messages ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("chained", [True, False])
async def test_a_commit_says_what_it_is(wire: str, chained: bool) -> None:
    log = RiggedLog()
    alice = await opened(log, ALICE, wire=wire, chained=chained)
    alice.set_field("title", 1)
    await alice.commit(message="the first draft")
    alice.set_field("title", 2)
    await alice.commit()
    await alice.pull()
    reader = await opened(log, BOB)
    for doc in (alice, reader):
        assert [version.message for version in doc.history()] == ["the first draft", None]
    assert reader.field("title") == 2


@pytest.mark.parametrize("wire", WIRES)
async def test_a_message_alone_names_a_version(wire: str) -> None:
    log = RiggedLog()
    alice = await opened(log, ALICE, wire=wire)
    alice.insert_text("body", 0, "x")
    await alice.commit()
    ts = await alice.commit(message="1.0")
    assert ts is not None
    alice.insert_text("body", 1, "y")
    await alice.commit()
    reader = await opened(log, BOB)
    (named,) = [version for version in reader.history() if version.message == "1.0"]
    assert (named.ts, named.runs) == (ts, 0)
    assert reader.at(named.ts) == {"body": ["x"]}
    assert not reader.detected_gaps()
    assert not reader.rejected()


@pytest.mark.parametrize("wire", WIRES)
async def test_a_message_is_sealed_with_what_it_is_about(wire: str) -> None:
    def encryptor() -> Any:
        keys = ContentKeys(1, {1: bytes(32)})
        kind = NativeEncryptor if wire == "packed" else StarfishEncryptor
        return kind(keys, randomness=os.urandom)

    log = RiggedLog()
    alice = await opened(log, ALICE, wire=wire, encryptor=encryptor())
    alice.set_field("title", 1)
    await alice.commit(message="nobody's business")
    assert "nobody" not in canonical_text(log.elements)
    reader = await opened(log, BOB, encryptor=encryptor())
    assert [version.message for version in reader.history()] == ["nobody's business"]


async def test_a_commit_of_many_elements_has_its_message_on_the_last() -> None:
    log = RiggedLog()
    alice = await opened(log, ALICE, wire="starfish")
    alice.insert_text("body", 0, "x" * 9000)
    await alice.commit(message="long")
    messages = [version.message for version in (await opened(log, BOB)).history()]
    assert len(messages) > 2
    assert messages == [None] * (len(messages) - 1) + ["long"]


async def test_a_message_is_kept_by_what_is_sent_again() -> None:
    class Broken(RiggedLog):
        is_broken = True

        async def append(self, document_key: str, body: Any) -> int:
            if self.is_broken:
                raise TransportError("gone", retryable=True)
            return await super().append(document_key, body)

    log = Broken()
    alice = await opened(log, ALICE)
    alice.set_field("title", 1)
    with pytest.raises(TransportError):
        await alice.commit(message="kept")
    log.is_broken = False
    await alice.commit(message="next")
    reader = await opened(log, BOB)
    assert [version.message for version in reader.history()] == ["kept", "next"]


@pytest.mark.parametrize(
    ("message", "error"), [(1, NotJsonError), ("x" * (MESSAGE_SIZE_MAX + 1), ValueTooLargeError)]
)
async def test_what_is_no_message_is_refused_and_nothing_sealed(message: Any, error: Any) -> None:
    log = MemoryTransport()
    alice = await opened(log, ALICE)
    alice.set_field("title", 1)
    with pytest.raises(error):
        await alice.commit(message=message)
    with pytest.raises(error):
        alice.seal(message=message)
    assert not alice.unsent
    longest = "x" * MESSAGE_SIZE_MAX
    assert await alice.commit(message=longest) is not None
    reader = await opened(log, BOB)
    assert [version.message for version in reader.history()] == [longest]
    assert await alice.commit(message="") is None


@pytest.mark.parametrize(
    "x", [None, 1, [], {"message": 1}, {"message": ""}, {"message": "x" * 2001}]
)
async def test_a_malformed_message_is_none_and_the_element_counts(x: Any) -> None:
    log = RiggedLog()
    replica = f"{CAROL.public_key}:s"
    body = inner_packed(replica, [Set("title", replica, 1, "x")])
    put_in(log, write_packed(CAROL, [], body={**body, "x": x}))
    reader = await opened(log, BOB)
    assert reader.field("title") == "x"
    assert [version.message for version in reader.history()] == [None]


def test_a_message_outside_the_seal_does_not_replace_the_header() -> None:
    header = Header("s", 1, None, {})
    data = outer_starfish({"v": 1, "x": {"message": "m", "session": "forged"}}, header)
    assert data["x"] == {"message": "m", "session": "s", "seq": 1}


# ── differences ────────────────────────────────────────────────────────────────────────


def changed(before: Any, changes: list[Change], after: WalDocument, version: int) -> Any:
    """What changes make of a document."""
    document, then = dict(before), after.at(version)
    for change in changes:
        match change:
            case RegisterChanged():
                document.pop(change.register, None)
                if change.register in then:
                    document[change.register] = then[change.register]
            case MapChanged():
                entries = dict(document.get(change.map, {}))
                entries.pop(change.key, None)
                if change.key in then.get(change.map, {}):
                    entries[change.key] = then[change.map][change.key]
                document[change.map] = entries
            case ListChanged():
                values = list(document.get(change.list, []))
                end = change.position + change.removed
                values[change.position : end] = change.inserted
                document[change.list] = values
    return document


EDITS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9), st.integers(0, 9)), max_size=6)


def edit(doc: WalDocument, kind: int, at: int, number: int) -> None:
    length = doc.crdt.list_length("body")
    match kind:
        case 0:
            doc.set_field("rs"[at % 2], number)
        case 1:
            doc.delete_field("r")
        case 2:
            doc.put("map", "kl"[at % 2], number)
        case 3:
            doc.drop("map", "k")
        case 4:
            doc.set_list("items", [number, at])
        case 5:
            doc.remove_text("body", at % (length + 1), number % 3)
        case _:
            doc.insert_text("body", at % (length + 1), "abcdefghij"[: number + 1])


@settings(deadline=None, max_examples=60)
@given(st.lists(EDITS, min_size=1, max_size=5), st.data())
async def test_a_difference_leads_from_one_version_to_the_other(
    commits: list[list[tuple[int, int, int]]], data: st.DataObject
) -> None:
    alice = await opened(MemoryTransport(), ALICE)
    versions = [0]
    for edits in commits:
        for each in edits:
            edit(alice, *each)
        versions.append(await alice.commit() or versions[-1])
    await alice.pull()
    before, after = data.draw(st.sampled_from(versions)), data.draw(st.sampled_from(versions))
    changes = alice.diff(before, after)
    made = changed(alice.at(before), changes, alice, after)
    empty: tuple[Any, ...] = ([], {})
    wanted = alice.at(after)
    assert {k: v for k, v in made.items() if v not in empty} == {
        k: v for k, v in wanted.items() if v not in empty
    }
    assert alice.diff(before, before) == []


# ── reverting ──────────────────────────────────────────────────────────────────────────


@settings(deadline=None, max_examples=60)
@given(st.lists(EDITS, min_size=1, max_size=5), st.data())
async def test_a_document_can_be_made_what_it_was_and_that_undone(
    commits: list[list[tuple[int, int, int]]], data: st.DataObject
) -> None:
    alice = await Author(MemoryTransport()).open()
    versions = [0]
    for edits in commits:
        for each in edits:
            edit(alice.doc, *each)
        versions.append(await alice.doc.commit() or versions[-1])
    await alice.doc.pull()
    now = alice.doc.materialize()
    version = data.draw(st.sampled_from(versions))
    steps = len(alice.steps)
    alice.stack.boundary()
    alice.doc.revert_to(version)
    assert shown(alice.doc.materialize()) == shown(alice.doc.at(version))
    if len(alice.steps) > steps:
        alice.undo()
    assert shown(alice.doc.materialize()) == shown(now)


def shown(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value not in ([], {})}


async def test_what_others_write_while_a_document_is_reverted_is_kept() -> None:
    transport = MemoryTransport()
    alice, bob = await opened(transport, ALICE), await opened(transport, BOB)
    alice.set_text("body", "one")
    version = await alice.commit()
    assert version is not None
    alice.set_text("body", "one two")
    await sync(alice, bob)
    bob.insert_text("body", 0, "zero ")
    alice.revert_to(version)
    await sync(bob, alice, bob)
    assert alice.text("body") == bob.text("body") == "zero one"


async def test_a_name_that_changed_its_kind_cannot_be_reverted_and_nothing_is() -> None:
    alice = await opened(MemoryTransport(), ALICE)
    alice.insert_text("x", 0, "text")
    alice.set_field("title", 1)
    version = await alice.commit()
    assert version is not None
    alice.migrate("x")
    alice.set_field("x", 1)
    alice.set_field("title", 2)
    await sync(alice)
    with pytest.raises(KindError):
        alice.revert_to(version)
    assert alice.materialize() == {"title": 2, "x": 1}


async def test_a_version_before_the_history_is_refused() -> None:
    alice = await opened(MemoryTransport(), ALICE)
    for call in (lambda: alice.diff(-1, 0), lambda: alice.revert_to(-1)):
        with pytest.raises(ValueError, match="starts at"):
            call()


async def test_a_version_that_was_not_read_yet_is_refused() -> None:
    alice = await opened(MemoryTransport(), ALICE)
    alice.set_field("title", 1)
    version = await alice.commit()
    assert version is not None
    with pytest.raises(ValueError, match="pull first"):
        alice.revert_to(version)
    assert alice.field("title") == 1
    await alice.pull()
    alice.revert_to(version)
    assert alice.at(version) == {"title": 1}


# ── blame ──────────────────────────────────────────────────────────────────────────────


async def test_a_register_and_the_keys_of_a_map_have_somebody_to_blame() -> None:
    transport = MemoryTransport()
    alice, bob = await opened(transport, ALICE), await opened(transport, BOB)
    alice.set_field("title", 1)
    alice.put("ages", "ann", 1)
    first = await alice.commit()
    await bob.pull()
    bob.put("ages", "ann", 2)
    bob.put("ages", "bo", 3)
    second = await bob.commit()
    await alice.pull()
    alice.put("ages", "cy", 4)
    assert alice.blame("title") == [Blame(0, 1, ALICE.public_key, first)]
    assert alice.blame("ages") == [
        Blame(0, 1, BOB.public_key, second),
        Blame(1, 1, BOB.public_key, second),
        Blame(2, 1, ALICE.public_key, None),
    ]
    alice.delete_field("title")
    alice.drop("ages", "ann")
    assert alice.blame("title") == []
    assert [each.start for each in alice.blame("ages")] == [0, 1]

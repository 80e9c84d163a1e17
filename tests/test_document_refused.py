"""An element that a log refuses, whenever it comes and whatever was edited around it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rigged import ALICE, BOB, opened
from walstore.canon import parse
from walstore.crdt import WalCrdt, Writer
from walstore.crdt.runs import Insert
from walstore.document import WalDocument
from walstore.document.faults import StillRefusedError
from walstore.document.outbox import Refusal
from walstore.document.ports import Body, ElementRefusedError, RawElement
from walstore.document.remaking import Commit, remake
from walstore.errors import TransportError
from walstore.net import MemoryTransport
from walstore.sealed import ContentKeys, NativeEncryptor
from walstore.wire.envelope import read_header

CHARACTERS = [chr(code) for code in range(0x4E00, 0x4E00 + 2000)]


class PickyLog(MemoryTransport):
    """A log that takes no element of which a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[bytes] = set()
        self.asked = 0
        self.bytes_max: int | None = None
        self.shut_out: str | None = None
        self.is_lost = False

    async def append(self, document_key: str, body: Body) -> int:
        self.asked += 1
        if body.canonical in self.refused or body.author == self.shut_out:
            error = ElementRefusedError("not this one", retryable=False)
            error.is_of_author = body.author == self.shut_out
            raise error
        if self.bytes_max is not None and len(body.canonical) > self.bytes_max:
            error = ElementRefusedError("too large", retryable=False)
            error.bytes_max = self.bytes_max
            raise error
        return await super().append(document_key, body)

    async def pull(self, document_key: str, checkpoint: int) -> list[RawElement]:
        if self.is_lost:
            raise TransportError("lost", retryable=True)
        return await super().pull(document_key, checkpoint)


async def refuse_next(log: PickyLog, document: WalDocument) -> None:
    """Seal what was edited, and have the log refuse the first of what waits."""
    document.seal()
    log.refused.add(document._outbox.waiting()[0].body.canonical)
    with pytest.raises(ElementRefusedError):
        await document.commit()


class Model:
    """Who typed which characters, and what should be left of them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.unused = iter(CHARACTERS)
        self.expected: set[str] = set()

    def edit(self, document: WalDocument, *, counts: bool) -> None:
        """Type, delete or write something; `counts` says whether it stays."""
        text = document.text("body")
        at = self.random.randint(0, len(text))
        match self.random.randrange(4):
            case 0 if text:
                gone = text[at : at + 3]
                document.remove_text("body", at, len(gone))
                if counts:
                    self.expected -= set(gone)
            case 1:
                document.set_field(self.random.choice("xy"), self.random.random())
            case 2:
                document.put("map", self.random.choice("kl"), self.random.randrange(9))
            case _:
                new = "".join(itertools.islice(self.unused, self.random.randint(1, 4)))
                document.insert_text("body", at, new)
                if counts:
                    self.expected |= set(new)


def steps(model: Model, count: int) -> Iterator[int]:
    return iter(range(model.random.randint(0, count)))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), is_sealed=st.booleans())
async def test_everything_but_the_refused_edit_reaches_everybody(
    seed: int, is_sealed: bool
) -> None:
    log, model = PickyLog(), Model(seed)
    options: dict[str, Any] = {}
    if is_sealed:
        options["encryptor"] = NativeEncryptor(
            ContentKeys(1, {1: b"k" * 32}), randomness=lambda size: bytes(size)
        )
    alice = await opened(log, ALICE, **options)
    bob = await opened(log, BOB, **options)
    for _ in range(3):
        for document in (alice, bob):
            for _ in steps(model, 4):
                model.edit(document, counts=True)
            await document.commit()
            await alice.pull()
            await bob.pull()
        for _ in range(model.random.randint(1, 4)):
            model.edit(alice, counts=False)
        if not alice.has_unsent:
            continue
        await refuse_next(log, alice)
        for _ in steps(model, 3):
            model.edit(bob, counts=True)
        await bob.commit()
        for _ in range(2):
            for _ in steps(model, 3):
                model.edit(alice, counts=True)
            with suppress(StillRefusedError):
                await alice.commit(message="later" if model.random.random() < 0.5 else None)
        session = alice.session
        shown = alice.text("body")
        aside = await alice.set_aside()
        assert aside is not None
        assert (alice.refused, alice.session != session) == (None, True)
        # What is shown and counts is shown as before, in the same order.
        kept = [each for each in alice.text("body") if each in shown]
        assert kept == [each for each in shown if each in set(kept)]
        await alice.commit()
    for document in (alice, bob, alice, bob):
        await document.pull()
    late = await opened(log, BOB, **options)
    assert alice.materialize() == bob.materialize() == late.materialize()
    for document in (alice, bob, late):
        assert document.detected_gaps() == []
        assert document.rejected() == []
        document.crdt.check()
    assert sorted(alice.text("body")) == sorted(model.expected)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_is_made_anew_needs_nothing_of_what_was_refused(seed: int) -> None:
    model, fold = Model(seed), WalCrdt()
    other, own = Writer(fold, "bob:1"), Writer(fold, "alice:1")
    other.insert_text("body", 0, "".join(itertools.islice(model.unused, 12)))
    other.set("x", "before")
    other.put("map", "k", "before")
    before = fold.clone()
    written = [scribbled(model, fold, own) for _ in range(model.random.randint(1, 5))]
    refused, waiting = written[0], [Commit(runs) for runs in written[1:]]
    first, second = before.clone(), before.clone()
    remade = remake(first, refused=refused, waiting=waiting, replica="alice:2")
    for commit in remade.commits:
        second.fold_runs(commit.runs)
    # A reader who has never seen the refused edit gets the same, in the shape of honest edits.
    assert first.materialize() == second.materialize()
    first.check()
    second.check()
    gone = {each for run in refused if isinstance(run, Insert) for each in run.values}
    assert set(fold.text("body")) - gone <= set(first.text("body"))
    # Others' elements are touched by those edits alone that touched them before.
    kept = {id for id in before.list_ids("body") if id in first.list_ids("body")}
    removed = {id for id in before.list_ids("body") if id not in kept}
    again = before.clone()
    for commit in waiting:
        again.fold_runs(commit.runs)
    assert removed == {id for id in removed if id not in again.list_ids("body")}


def scribbled(model: Model, crdt: WalCrdt, writer: Writer) -> list[Any]:
    for _ in range(model.random.randint(1, 4)):
        size = crdt.list_length("body")
        at = model.random.randint(0, size)
        match model.random.randrange(6):
            case 0 | 1:
                writer.insert_text("body", at, "".join(itertools.islice(model.unused, 3)))
            case 2:
                writer.remove("body", at, 2)
            case 3:
                writer.set("x", model.random.random())
            case 4:
                writer.delete("x")
            case _:
                if model.random.random() < 0.5:
                    writer.put("map", "k", model.random.random())
                else:
                    writer.drop("map", "k")
    return writer.take()


async def test_a_message_without_edits_behind_it_is_kept() -> None:
    log = PickyLog()
    alice = await opened(log)
    alice.set_field("x", 1)
    await refuse_next(log, alice)
    alice.seal(message="a name")
    await alice.set_aside()
    await alice.commit()
    await alice.pull()
    assert [version.message for version in alice.history()] == ["a name"]


async def test_setting_aside_waits_until_the_log_can_be_read() -> None:
    log = PickyLog()
    alice = await opened(log)
    alice.set_field("x", 1)
    await refuse_next(log, alice)
    log.is_lost = True
    with pytest.raises(TransportError, match="lost"):
        await alice.set_aside()
    assert alice.field("x") == 1
    assert alice.refused is not None
    log.is_lost = False
    await alice.set_aside()
    assert alice.materialize() == {}


async def test_who_is_shut_out_need_not_read_the_log_to_set_all_aside() -> None:
    log = PickyLog()
    alice = await opened(log)
    alice.set_field("x", 1)
    await alice.commit()
    log.shut_out, log.is_lost = ALICE.public_key, True
    alice.set_field("x", 2)
    with pytest.raises(ElementRefusedError):
        await alice.commit()
    alice.set_field("y", 3)
    aside = await alice.set_aside()
    assert aside is not None
    assert aside.refused.is_of_author
    assert len(aside.refused.bodies) == 2
    # What was acknowledged is still shown, although nobody has read it yet.
    assert alice.materialize() == {"x": 1}


class Interrupted(PickyLog):
    """A log whose answers get lost, and whose connection ends after some pages."""

    def __init__(self) -> None:
        super().__init__()
        self.is_answer_lost = False
        self.pages_left = 99

    async def append(self, document_key: str, body: Body) -> int:
        ts = await super().append(document_key, body)
        if self.is_answer_lost:
            raise TransportError("the answer was lost", retryable=True)
        return ts

    async def pull(self, document_key: str, checkpoint: int) -> list[RawElement]:
        self.pages_left -= 1
        if self.pages_left < 0:
            raise TransportError("lost", retryable=True)
        return await super().pull(document_key, checkpoint)


async def test_what_was_read_before_the_connection_was_lost_is_not_set_aside() -> None:
    log = Interrupted()
    alice = await opened(log)
    alice.set_field("a", 1)
    log.is_answer_lost = True
    with pytest.raises(TransportError):
        await alice.commit()
    log.is_answer_lost, log.shut_out = False, ALICE.public_key
    alice.set_field("b", 2)
    with pytest.raises(ElementRefusedError):
        await alice.commit()
    log.pages_left = 1
    assert await alice.set_aside() is None
    assert alice.materialize() == {"a": 1, "b": 2}
    assert alice.unsent == 1
    log.shut_out, log.pages_left = None, 99
    alice.set_field("c", 3)
    await alice.commit()
    reader = await opened(log, BOB)
    assert reader.materialize() == {"a": 1, "b": 2, "c": 3}
    assert await alice.pull() == 2
    assert alice.unconfirmed == 0


async def test_an_edit_while_the_log_is_read_is_not_lost() -> None:
    log = PickyLog()
    alice = await opened(log)
    alice.set_field("x", 1)
    await refuse_next(log, alice)
    pull = log.pull

    async def editing(document_key: str, checkpoint: int) -> list[RawElement]:
        alice.set_field("y", 2)
        log.pull = pull  # type: ignore[method-assign]
        return await pull(document_key, checkpoint)

    log.pull = editing  # type: ignore[method-assign]
    await alice.set_aside()
    assert alice.materialize() == {"y": 2}
    await alice.commit()
    assert (await opened(log, BOB)).materialize() == {"y": 2}


async def test_the_log_is_not_asked_again_before_something_has_changed() -> None:
    log = PickyLog()
    alice = await opened(log)
    alice.set_field("x", 1)
    await refuse_next(log, alice)
    asked = log.asked
    for _ in range(3):
        with pytest.raises(StillRefusedError):
            await alice.commit()
    assert log.asked == asked
    alice.retry_refused()
    with pytest.raises(ElementRefusedError):
        await alice.commit()
    assert log.asked == asked + 1
    alice.retry_refused()
    log.refused.clear()
    await alice.commit()
    assert alice.refused is None


async def test_a_refusal_of_something_else_than_what_is_next_is_no_refusal() -> None:
    log = PickyLog()
    alice = await opened(log)
    alice.note_refused(Refusal("0" * 64, "long ago", False))
    alice.set_field("x", 1)
    assert alice.refused is None
    assert await alice.set_aside() is None
    await alice.commit()
    assert (await opened(log, BOB)).materialize() == {"x": 1}


@pytest.mark.parametrize("wire", ["packed", "starfish"])
async def test_what_is_too_large_is_cut_and_counted_on(wire: str) -> None:
    log = PickyLog()
    log.bytes_max = 4_000
    alice = await opened(log, wire=wire)
    alice.insert_text("body", 0, "a" * 3_000)
    alice.seal()
    alice.insert_text("body", 3_000, "b" * 3_000)
    await alice.commit(message="large")
    alice.set_field("x", 1)
    await alice.commit()
    bob = await opened(log, BOB, strict_sequence=True)
    assert bob.materialize() == alice.materialize()
    assert bob.history()[-2].message == "large"
    seqs = []
    for raw in await log.pull(alice.document_key, 0):
        data = parse(raw.data)
        assert isinstance(data, dict)
        header = read_header(data)
        assert header is not None
        seqs.append(header.seq)
    assert seqs == list(range(1, len(seqs) + 1))


async def test_a_part_that_is_too_large_by_itself_is_refused_alone() -> None:
    log = PickyLog()
    log.bytes_max = 4_000
    alice = await opened(log)
    alice.set_field("first", 1)
    alice.set_field("large", "x" * 9_000)
    alice.set_field("last", 2)
    with pytest.raises(ElementRefusedError, match="too large"):
        await alice.commit()
    assert (await opened(log, BOB)).materialize() == {"first": 1}
    await alice.set_aside()
    await alice.commit()
    bob = await opened(log, BOB, strict_sequence=True)
    assert bob.materialize() == alice.materialize() == {"first": 1, "last": 2}


async def test_version_1_counts_on_from_what_the_log_holds() -> None:
    log = PickyLog()
    alice = await opened(log, wire="starfish")
    alice.set_field("x", 1)
    await alice.commit()
    alice.set_field("x", 2)
    await refuse_next(log, alice)
    alice.set_field("y", 3)
    await alice.set_aside()
    await alice.commit()
    alice.set_field("y", 4)
    await alice.commit()
    bob = await opened(log, BOB, wire="starfish", strict_sequence=True)
    assert bob.materialize() == {"x": 1, "y": 4}
    assert [entry.author_seq for entry in bob._log.ledger.entries] == [1, 2, 3]

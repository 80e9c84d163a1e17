"""Logs of one document, written by honest documents and by whoever wants to do harm, to be folded.

- A log is a list of items in the order in which a relay accepted them: elements and snapshots.
- `in_parts` folds one the way an archive does: part by part, and anew where a part is not enough.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    KEY,
    MALLORY,
    MEMBERS,
    JsonElement,
    RiggedLog,
    RiggedSnapshots,
    document,
    link_of,
    put_in,
    set_op,
    signed,
    spoiled,
    write_packed,
    write_starfish,
)
from walstore.canon import canonical_bytes
from walstore.crdt.runs import Insert, Set
from walstore.document import RejectedElementsError, WalDocument
from walstore.document.folding import Folded, FoldRules, ReadAgain, fold
from walstore.document.opening import started
from walstore.document.ports import RawElement
from walstore.document.snapshot import Cut, make_deletion, make_snapshot, read_snapshot
from walstore.sealed.encryptor import PlainEncryptor
from walstore.signed import Identity
from walstore.wire.envelope import Profile

ARCHIVE = Identity.from_seed(bytes([9]) * 32)
RULES = FoldRules(KEY, is_writer=MEMBERS.__contains__, is_producer=MEMBERS.__contains__)

Item: TypeAlias = RawElement | dict[str, Any]


def raw(element: JsonElement) -> RawElement:
    """An element as a relay hands it out."""
    return RawElement(
        element["ts"],
        canonical_bytes(element["data"]),
        element["authorPubkey"],
        element["authorSignature"],
    )


def fold_items(
    items: Sequence[Item],
    rules: FoldRules = RULES,
    *,
    previous: dict[str, Any] | None = None,
    identity: Identity | None = ARCHIVE,
    is_final: bool = False,
) -> Folded | ReadAgain:
    """Fold some items on top of what was kept."""
    return fold(
        rules,
        [item for item in items if isinstance(item, RawElement)],
        identity=identity,
        previous=previous,
        snapshots=[item for item in items if isinstance(item, dict)],
        is_final=is_final,
    )


def at_once(items: Sequence[Item], rules: FoldRules = RULES) -> Folded:
    """Fold all of them."""
    folded = fold_items(items, rules)
    assert isinstance(folded, Folded), folded
    return folded


def in_parts(items: Sequence[Item], ends: Sequence[int], rules: FoldRules = RULES) -> Folded:
    """Fold them part by part, each up to one of the ends."""
    folded: Folded | None = None
    start = 0
    for end in [*sorted(ends), len(items)]:
        previous = None if folded is None else folded.state
        after = fold_items(items[start:end], rules, previous=previous)
        folded = at_once(items[:end], rules) if isinstance(after, ReadAgain) else after
        start = end
    assert folded is not None
    return folded


class Script:
    """Writes a log, as random as it is told."""

    def __init__(self, rng: random.Random, *, encryptor: Any = None) -> None:
        self._rng = rng
        self.log = RiggedLog(page_size=rng.choice([1, 3, 1000]))
        # What was cut, and after how many elements.
        self.snapshots: list[tuple[int, dict[str, Any]]] = []
        self._documents: dict[tuple[Identity, int], WalDocument] = {}
        self._encryptor = encryptor
        self._seq = 0
        self._spoiled: list[JsonElement] = []

    @property
    def items(self) -> list[Item]:
        """The log and its snapshots."""
        items: list[Item] = [raw(element) for element in self.log.elements]
        for place, snapshot in reversed(self.snapshots):
            items.insert(place, snapshot)
        return items

    async def opened(self, page_size: int = 1000) -> WalDocument:
        """What a reader makes of the log and of the snapshot that is stored."""
        stored = self.snapshots[-1][1] if self.snapshots else None
        reader = document(
            RiggedLog(self.log.elements, page_size=page_size),
            snapshot_store=RiggedSnapshots(stored),
            posture="trust",
            on_author_error="skip",
            encryptor=self._encryptor,
        )
        return await reader.open()

    # ── honest writers ─────────────────────────────────────────────────────────────────

    async def edit(self) -> None:
        """Somebody edits something and commits."""
        rng = self._rng
        doc = await self._writer()
        if rng.random() < 0.5:
            with suppress(RejectedElementsError):
                await doc.pull()
        for _ in range(rng.randint(1, 3)):
            self._edit(doc)
            if rng.random() < 0.5:
                await doc.commit()
        await doc.commit()

    async def _writer(self) -> WalDocument:
        who = self._rng.choice([ALICE, ALICE, BOB, CAROL])
        session = self._rng.randint(0, 1)
        doc = self._documents.get((who, session))
        if doc is None:
            doc = document(
                self.log,
                who,
                snapshot_store=self._stored(),
                posture="trust",
                session_nonce=f"{len(self.snapshots)}-{session}",
                on_author_error="skip",
                encryptor=self._encryptor,
            )
            self._documents[who, session] = await doc.open()
        return doc

    def _stored(self) -> RiggedSnapshots:
        return RiggedSnapshots(self.snapshots[-1][1] if self.snapshots else None)

    def _edit(self, doc: WalDocument) -> None:
        rng = self._rng
        length = doc.length("text")
        match rng.randint(0, 5):
            case 0 | 1:
                for place, character in enumerate("word"[: rng.randint(1, 4)]):
                    doc.insert_text("text", min(length, rng.randint(0, 9)) + place, character)
            case 2:
                doc.remove_text("text", rng.randint(0, max(length - 1, 0)), rng.randint(1, 3))
            case 3:
                doc.set_field(rng.choice("ab"), rng.randint(0, 9))
            case 4:
                doc.put("map", rng.choice("kl"), rng.randint(0, 9))
            case _:
                doc.drop("map", rng.choice("kl"))

    # ── others ─────────────────────────────────────────────────────────────────────────

    def harm(self) -> None:
        """Somebody appends what no honest writer would."""
        rng = self._rng
        self._seq += 1
        way = rng.randint(0, 9)
        who = rng.choice([ALICE, BOB])
        replica = f"{who.public_key}:x"
        run = Insert("text", replica, self._seq * 10, "", 0, "!?")
        match way:
            case 0:
                put_in(self.log, write_packed(MALLORY, [], session="m", seq=self._seq))
            case 1:
                element = spoiled(write_packed(who, [run], session="x", seq=self._seq))
                self._spoiled.append(element)
                put_in(self.log, element)
            case 2 if self._spoiled:
                self._vouch(rng.choice(self._spoiled), is_first=False)
            case 3:
                element = spoiled(write_packed(who, [run], session="x", seq=self._seq))
                self._vouch(element, is_first=True)
                put_in(self.log, element)
            case 4:
                far = Set("a", f"{who.public_key}:far", 2**40 * self._seq, self._seq)
                put_in(self.log, write_packed(who, [far], session="far", seq=self._seq))
            case 5:
                # One clock, again and again, with other content each time.
                again = Set("b", f"{who.public_key}:f", 1, self._seq)
                put_in(self.log, write_packed(who, [again], session="f", seq=1))
            case 6 if self.log.elements:
                place = rng.randrange(len(self.log.elements))
                # Of what only a later element proves, a copy after that is counted as rejected.
                if not self.log.elements[place]["authorSignature"].startswith("AAAA"):
                    self.log.replay(place)
            case 7:
                put_in(self.log, signed({"v": 2, "author": who.public_key, "body": []}, who))
            case 8:
                orphan = Insert("odd", replica, self._seq * 10, replica, rng.randint(1, 40), "o")
                seen = {f"{CAROL.public_key}:unseen": self._seq}
                element = write_packed(who, [orphan], session="x", seq=self._seq, seen=seen)
                put_in(self.log, element)
            case _:
                op = set_op(who, self._seq, "one")
                put_in(self.log, write_starfish(who, [op], seq=rng.randint(1, 4)))

    def _vouch(self, element: JsonElement, *, is_first: bool) -> None:
        who = ALICE if element["authorPubkey"] == ALICE.public_key else BOB
        run = Set("a", f"{who.public_key}:v", self._seq * 7, "vouched")
        later = write_packed(who, [run], session="v", seq=self._seq, prev=link_of(element))
        put_in(self.log, later if is_first or self._rng.random() < 0.8 else spoiled(later))

    def lose(self) -> None:
        """The relay loses an element."""
        last = self.snapshots[-1][0] if self.snapshots else 0
        if len(self.log.elements) > last + 1:
            del self.log.elements[self._rng.randrange(last, len(self.log.elements) - 1)]

    # ── snapshots ──────────────────────────────────────────────────────────────────────

    def cut(self) -> None:
        """Somebody with the role lets go of something, having read the log nearly to its end."""
        elements = self.log.elements
        past = self._rng.randint(0, 2)
        read = elements[: max(len(elements) - past, 0)]
        log = RULES.new_log()
        cuts: list[Cut] = []
        if self.snapshots:
            last = read_snapshot(
                self.snapshots[-1][1],
                document_key=KEY,
                is_producer=MEMBERS.__contains__,
                encryptor=PlainEncryptor(),
            )
            started(log, last)
            cuts = list(last.cuts)
        log.read([each for each in read if each["ts"] > log.checkpoint])
        seqs = log.tracker.seqs()
        if seqs is None or log.checkpoint <= max([cut.ts for cut in cuts], default=0):
            return
        common: dict[str, Any] = {
            "document_key": KEY,
            "upto_ts": log.checkpoint,
            "writer_seq": log.tracker.writer_seq(),
            "seqs": seqs,
            "identity": ALICE,
        }
        if self._rng.random() < 0.5:
            snapshot = make_deletion(**common)
        else:
            small = log.crdt.collected()
            if not small.horizon:
                return
            snapshot = make_snapshot(
                small,
                heads=log.heads,
                encryptor=PlainEncryptor(),
                profile=Profile.PACKED,
                cuts=[*cuts, Cut(log.checkpoint, small.horizon)],
                **common,
            )
        self.snapshots.append((len(elements) + len(self.snapshots), snapshot))
        # Whoever goes on writing starts from there.
        self._documents.clear()

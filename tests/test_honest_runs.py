"""Nobody cries wolf: whatever honest writers, relays and bad networks do, there is no alarm.

- Two to four people write one log, some of them in several tabs: documents of ours, packed or for
  TypeScript peers, in every posture, and emulated peers with all their habits.
- Requests and answers get lost, and all is sent again; a relay stores again what it has stored, if
  it is one that does. Snapshots are taken, the log is pruned below them, removed elements are let
  go of; people leave and come back, others come late.
- In the end all who read hold the same bytes. Nobody was told of anything, but for one thing: one
  clock with two contents, which a peer that calls every session "0" does sign. Of that those are
  told who have read both, and nobody where there is none.

`WALSTORE_HONEST_RUNS` says how many runs, `WALSTORE_HONEST_SEED` which ones; it is printed.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from random import Random
from typing import Any, TypeAlias

from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    MALLORY,
    OfflineError,
    RiggedSnapshots,
    opened,
    state_of,
)
from tests.starfish_peer import StarfishPeer
from walstore.canon import canonical_text, parse
from walstore.document import (
    CheckpointTooOldError,
    Event,
    Fork,
    Marks,
    SnapshotVerdict,
    WalDocument,
)
from walstore.document.ports import Body, RawElement
from walstore.signed import Identity
from walstore.wire.element import Element
from walstore.wire.envelope import Profile

RUNS = int(os.environ.get("WALSTORE_HONEST_RUNS", "240"))
SEED = int(os.environ.get("WALSTORE_HONEST_SEED", "1"))

# Mallory is honest here.
PEOPLE = [ALICE, BOB, CAROL, MALLORY]
LATE = Identity.from_seed(bytes([5]) * 32)
WRITERS = frozenset(who.public_key for who in (*PEOPLE, LATE))
POSTURES = ["trust", "trust-retain-tail", "re-derive"]

# What people use. A peer passes over what is packed, so it signs no snapshot beside that.
FLEETS = [
    ["packed"],
    ["starfish"],
    ["peer"],
    ["starfish", "peer", "peer"],
    ["packed", "starfish", "peer"],
]

# What could be taken for an attack, and is none.
QUIRKS = [
    "elements stored twice",
    "seqs of two tabs",
    "seqs sent again with more",
    "clocks with two contents",
    "snapshots without sessions",
    "logs pruned below what authors have counted",
    "answers lost",
    "requests lost",
    "pages lost",
    "marks taken along",
    "removed elements let go",
]


# Whoever writes.
Tab: TypeAlias = WalDocument | StarfishPeer


class HonestRelay:
    """A relay that does what it says, behind a network that fails when it is told to.

    Attributes:
        rows: The log.
        written: All that was ever in it.
        fault: What is lost of the next call: the `request`, the `answer`, or the second `page`.
        floor: Up to where it is pruned.
    """

    def __init__(self, chance: Random, done: Counter[str]) -> None:
        self.rows: list[RawElement] = []
        self.written: list[RawElement] = []
        self.fault: str | None = None
        self._page_size = chance.choice([2, 5, 1000])
        # Ours knows an element again; the stock server stores it once more.
        self._is_stock = chance.random() < 0.5
        self.floor = 0
        self._done = done

    async def append(self, document_key: str, body: Body) -> int:
        fault, self.fault = self.fault, None
        if fault == "request":
            self._lose("requests lost")
        ts = self._store(body)
        if fault == "answer":
            self._lose("answers lost")
        return ts

    async def pull(self, document_key: str, checkpoint: int) -> list[RawElement]:
        if checkpoint < self.floor:
            raise CheckpointTooOldError(self.floor)
        if self.fault == "page":
            # The next one is lost.
            self.fault = "next page"
        elif self.fault == "next page":
            self.fault = None
            self._lose("pages lost")
        start = bisect_right(self.rows, checkpoint, key=attrgetter("ts"))
        return self.rows[start : start + self._page_size]

    def repeat(self, chance: Random) -> None:
        """A request that was under way for long comes once more."""
        if self.written:
            self._store(Body(*chance.choice(self.written)[1:]))

    def prune(self, upto: int) -> None:
        self.floor = max(self.floor, upto)
        self.rows = [each for each in self.rows if each.ts > upto]

    def _store(self, body: Body) -> int:
        known = [each.ts for each in self.written if each.signature == body.signature]
        if known and not self._is_stock:
            return known[0]
        stored = RawElement(len(self.written) + 1, *body)
        self.written.append(stored)
        self.rows.append(stored)
        return stored.ts

    def _lose(self, what: str) -> None:
        self._done[what] += 1
        raise OfflineError


class Run:
    """One log, those who write it, and what they are told."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.done = Counter[str]()
        self.relay = HonestRelay(chance, self.done)
        self.documents: list[WalDocument] = []
        self.peers: list[StarfishPeer] = []
        # What each reader was told, those who have left as well.
        self.told: list[list[Event]] = []
        self._snapshots = RiggedSnapshots()
        self._people = PEOPLE[: chance.randint(2, 4)]
        self._fleet = chance.choice(FLEETS)

    async def play(self) -> None:
        """Let everybody write, then send and read everything."""
        for who in self._people:
            await self._come(who)
        for _ in range(self.chance.randint(10, 100)):
            await self._step()
        await self._meet()
        for posture in POSTURES:
            self.documents.append(await self.open(LATE, posture=posture))

    async def open(self, who: Identity, **options: Any) -> WalDocument:
        """A document of ours, which raises at whatever is wrong."""
        self.told.append([])
        self.relay.fault = None
        return await opened(
            self.relay,
            who,
            **{
                "writers": WRITERS,
                "snapshot_role": WRITERS,
                "snapshot_store": self._snapshots,
                "session_nonce": self.chance.randbytes(16).hex(),
                "strict_sequence": True,
                "on_event": self.told[-1].append,
                **options,
            },
        )

    async def _come(self, who: Identity, marks: Marks | None = None) -> None:
        """Somebody opens one more tab, where they have read before or anew."""
        chance, kind = self.chance, self.chance.choice(self._fleet)
        if kind == "peer":
            nonce = "0" if chance.random() < 0.8 else chance.randbytes(8).hex()
            peer = StarfishPeer(who, self.relay, self._snapshots, nonce=nonce)
            self.relay.fault = None
            # Of a log that is pruned, only the snapshot shows all.
            is_trusting = self.relay.floor > 0 or chance.random() < 0.7
            self.peers.append(await peer.open(is_trusting=is_trusting))
            return
        self.done["marks taken along"] += marks is not None
        self.documents.append(
            await self.open(
                who,
                wire=kind,
                chained=kind == "packed" or chance.random() < 0.7,
                posture=chance.choice(POSTURES),
                retain_tail_n=chance.choice([0, 3, 64]),
                history_max=chance.choice([None, 1, 5]),
                marks=marks,
            )
        )

    def _tabs(self) -> list[Tab]:
        return [*self.documents, *self.peers]

    async def _step(self) -> None:
        chance = self.chance
        who = chance.choice(self._tabs())
        rest: list[tuple[int, Callable[[], Any]]] = [
            (20, lambda: self._edit(who)),
            (30, lambda: self._commit(who)),
            (20, lambda: self._pull(who)),
            (6, lambda: self._snapshot(who)),
            (4, self._prune),
            (3, self._let_go),
            (4, lambda: self._leave(who)),
            (6, lambda: self._come(chance.choice(self._people))),
            (5, lambda: self.relay.repeat(chance)),
        ]
        (chosen,) = chance.choices([each for _, each in rest], [rate for rate, _ in rest])
        doing = chosen()
        if doing is not None:
            await doing

    def _edit(self, who: Tab) -> None:
        chance = self.chance
        if isinstance(who, StarfishPeer):
            who.edit(chance)
            return
        name, size = chance.choice(["body", "todo"]), who.length("body")
        match chance.randint(0, 5 if "peer" in self._fleet else 7):
            case 0 | 1:
                who.insert_text("body", chance.randint(0, size), chance.choice(["x", "yz"]))
            case 2:
                who.remove_text("body", chance.randint(0, size), chance.randint(1, 2))
            case 3:
                who.set_field(chance.choice("xyz"), chance.randint(0, 99))
            case 4:
                who.delete_field(chance.choice("xyz"))
            case 5:
                who.push(name, chance.randint(0, 99))
            case 6:
                who.put("map", chance.choice("kl"), chance.randint(0, 99))
            case _:
                who.drop("map", chance.choice("kl"))

    async def _commit(self, who: Tab) -> None:
        self._edit(who)
        self.relay.fault = self.chance.choice([None, None, "request", "answer"])
        with suppress(OfflineError):
            await who.commit()

    async def _pull(self, who: Tab) -> None:
        self.relay.fault = self.chance.choice([None, "page"])
        try:
            await who.pull()
        except OfflineError:
            pass
        except CheckpointTooOldError:
            # A peer has to be opened anew then, and forgets what it has not sent.
            assert isinstance(who, StarfishPeer)
            await self._leave(who)

    async def _snapshot(self, who: Tab) -> None:
        self.relay.fault = None
        if isinstance(who, WalDocument):
            # Peers read what is written for them, and nothing else.
            if "peer" not in self._fleet or who._producer.profile is Profile.STARFISH:
                await who.snapshot()
        elif "packed" not in self._fleet:
            with suppress(CheckpointTooOldError):
                await who.snapshot()
                self.done["snapshots without sessions"] += 1

    def _prune(self) -> None:
        stored: Any = self._snapshots.document
        if stored is not None:
            upto = self.chance.randint(0, stored["uptoTs"])
            self.done["logs pruned below what authors have counted"] += bool(
                stored["writerSeq"] and upto
            )
            self.relay.prune(upto)

    async def _let_go(self) -> None:
        """Let go of removed elements, which only those can do who write nothing but packed."""
        if self._fleet != ["packed"] or not self.documents:
            return
        await self._meet()
        readers = {str(at): each.current_checkpoint for at, each in enumerate(self.documents)}
        await self.documents[0].snapshot(collect=readers)
        self.done["removed elements let go"] += 1
        for each in self.documents:
            await each.adopt_barrier()

    async def _leave(self, who: Tab) -> None:
        """Somebody closes a tab, whatever is not sent, and opens another one."""
        if isinstance(who, WalDocument):
            self.documents.remove(who)
            await self._come(who._identity, who.marks)
        else:
            self.peers.remove(who)
            await self._come(who.who)

    async def _meet(self) -> None:
        """Have everybody send and read everything."""
        self.relay.fault = None
        for each in self._tabs():
            await each.commit()
        for document in self.documents:
            await document.pull()
        for peer in list(self.peers):
            try:
                await peer.pull()
            except CheckpointTooOldError:
                await self._leave(peer)

    def check(self) -> None:
        """Nothing was noticed that is not there, and all agree."""
        reused = self._reused()
        for events in self.told:
            for event in events:
                assert isinstance(event, Fork), event
                assert _op_of(event, event.first) != _op_of(event, event.second)
        if not self.relay.floor:
            # The last one has folded all of the log, whatever snapshot there is.
            told = [event for event in self.told[-1] if isinstance(event, Fork)]
            assert {event.second.signature for event in told} == reused
        for each in self.documents:
            assert not each.is_read_only, each.rollback
            assert (each.rejected(), each.detected_gaps()) == ([], [])
            assert (each.unreadable, each.unsent, each.unconfirmed) == (0, 0, 0)
            verdicts = SnapshotVerdict.MISMATCH, SnapshotVerdict.FORGED
            assert each.snapshot_verdict not in verdicts
        states = {state_of(each) for each in self.documents}
        if "packed" not in self._fleet and not reused:
            states |= {each.fold.canonical_state() for each in self.peers}
        assert len(states) == 1, states

    def _reused(self) -> set[str]:
        """The elements that use a clock for something else than an element before them."""
        ops: dict[str, str] = {}
        seqs: dict[tuple[str, int], list[list[str]]] = {}
        reused = set[str]()
        for each in self.relay.written:
            data: Any = parse(each.data)
            if data["v"] != 1:
                continue
            said = [canonical_text(op) for op in data["ops"]]
            for before in seqs.setdefault((each.author, data["seq"]), []):
                self.done[_quirk_of(before, said)] += 1
            seqs[each.author, data["seq"]].append(said)
            clocks = [canonical_text(op["clock"]) for op in data["ops"]]
            if [ops.setdefault(*pair) for pair in zip(clocks, said, strict=True)] != said:
                self.done["clocks with two contents"] += each.signature not in reused
                reused.add(each.signature)
        return reused


def _op_of(fork: Fork, element: Element) -> str:
    """What an element uses the clock of a fork for."""
    ops: Any = element.data["ops"]
    clock = {"c": fork.counter, "r": fork.replica}
    (op,) = [op for op in ops if op["clock"] == clock]
    return canonical_text(op)


def _quirk_of(first: list[str], second: list[str]) -> str:
    """What two elements with one seq of one author are."""
    if first == second:
        return "elements stored twice"
    is_more = second[: len(first)] == first
    return "seqs sent again with more" if is_more else "seqs of two tabs"


async def play(number: int) -> Run:
    """One run, and whether anybody was alarmed."""
    run = Run(Random(f"{SEED}:{number}"))
    try:
        await run.play()
        run.check()
    except BaseException as error:
        error.add_note(f"WALSTORE_HONEST_SEED={SEED}, run {number}, {run._fleet}")
        raise
    return run


async def test_whatever_honest_people_do_nobody_is_alarmed_and_all_agree() -> None:
    print(f"WALSTORE_HONEST_SEED={SEED}")
    done, elements = Counter[str](), 0
    for number in range(RUNS):
        run = await play(number)
        done += run.done
        elements += len(run.relay.written)
    missed = [quirk for quirk in QUIRKS if not done[quirk]]
    assert not missed or RUNS < 50, f"nothing was tried: {missed}"
    print(f"{RUNS} honest runs, {elements} elements, {done.total()} quirks: {dict(done)}")

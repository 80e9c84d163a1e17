"""Documents that live beside a member who signs anything: all who read come to the same bytes.

- Three people edit one log through documents that stay open. Bob writes elements of his own making
  into it: he lies about seqs, links and counters, names ids before they are there, says to have
  seen what is not, forges signatures and sends elements late; and the relay repeats some.
- Meanwhile snapshots are taken, removed elements are let go of, the document is deleted, Bob is
  revoked, and people hear of that one after the other.
- In the end everybody reads on, and newcomers open the log in every posture and page by page. They
  hold the same; nobody is told of a roll-back, and no honest snapshot is called false.

`WALSTORE_LIVE_LOGS` says how many logs of each kind; the seed is printed, `WALSTORE_LIVE_SEED` sets
it.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    MALLORY,
    JsonElement,
    RiggedLog,
    RiggedSnapshots,
    link_of,
    opened,
    put_in,
    spoiled,
    state_of,
    write_packed,
)
from walstore.crdt import Run, unpack_ops
from walstore.crdt.runs import Insert, Put, Remove, Set
from walstore.document import SnapshotVerdict, WalDocument
from walstore.document.faults import SnapshotRefusedError
from walstore.document.ledger import highest_counter
from walstore.errors import MalformedError
from walstore.signed import Identity
from walstore.signed.roster import Counts
from walstore.wire.limits import COUNTER_JUMP_MAX

LOGS = int(os.environ.get("WALSTORE_LIVE_LOGS", "40"))
# On every change the same logs, so that it was the change if one of them fails; else others.
DRAWN = 1 if LOGS <= 40 else time.time_ns() % 10**6
SEED = int(os.environ.get("WALSTORE_LIVE_SEED", "0")) or DRAWN

# What Bob, the relay and the others do.
KINDS = [
    "lies jumps late forged",
    "lies snapshots late forged repeats",
    "lies names snapshots forgets late",
    "revoke lies snapshots seen late",
    "revoke lies jumps forgets names repeats",
    "revoke lies snapshots cuts",
    "revoke lies snapshots deletes",
    "revoke lies jumps forged snapshots cuts names seen repeats late",
    "revoke lies jumps forged snapshots cuts deletes names seen repeats late",
]

# Mallory is honest here.
PEOPLE = {"alice": (ALICE, "a"), "carol": (CAROL, "c"), "dave": (MALLORY, "d")}
MEMBERS = frozenset(who.public_key for who in (ALICE, BOB, CAROL, MALLORY))


class Liar:
    """Somebody who makes up elements for a log that others write to as well."""

    def __init__(self, town: Town) -> None:
        self._town, self._chance = town, town.chance
        self._newest: dict[str, tuple[int, str | None]] = {}
        self._links: list[str] = []
        self._counters: dict[str, int] = {}
        # What was signed, and is not sent yet.
        self.kept: list[JsonElement] = []

    def write(self) -> None:
        """Sign an element, and send it now or keep it."""
        chance, town = self._chance, self._town
        session = chance.choice("sst")
        replica = f"{BOB.public_key}:{session}"
        seq, prev = self._newest.get(session, (0, None))
        prev = prev or (self._links[-1] if self._links else None)
        if town.may("lies", 0.35):
            seq = chance.choice([seq, chance.randint(0, seq), seq + 1])
            prev = chance.choice([*self._links, "ab" * 32, None])
        runs, end = self._runs(replica, self._counter(replica))
        seen = {"seen": self._seen()} if town.may("seen", 0.3) else {}
        element = write_packed(BOB, runs, session=session, seq=seq + 1, prev=prev, **seen)
        self._counters[replica] = max(self._counters.get(replica, 0), end)
        self._links.append(link_of(element))
        if seq + 1 >= self._newest.get(session, (0, None))[0]:
            self._newest[session] = seq + 1, self._links[-1]
        if town.may("late", 0.3):
            self.kept.append(element)
        else:
            self._send(element)

    def send_late(self) -> None:
        """Send something that was kept, if there is anything."""
        if self.kept:
            put_in(self._town.log, self.kept.pop(self._chance.randrange(len(self.kept))))

    def _send(self, element: JsonElement) -> None:
        if not self._town.may("forged", 0.4):
            put_in(self._town.log, element)
            return
        # The same element is shown with a signature that is none as well, before or after, or at
        # first alone.
        shown = [spoiled(element), element]
        if self._chance.random() < 0.3:
            shown.reverse()
        elif self._chance.random() < 0.4:
            self.kept.append(shown.pop())
        for each in shown:
            put_in(self._town.log, each)

    def _seen(self) -> dict[str, int]:
        who, session = self._chance.choice(list(PEOPLE.values()))
        return {f"{who.public_key}:{session}": self._chance.randint(1, 4)}

    def _counter(self, replica: str) -> int:
        chance, highest = self._chance, self._town.highest()
        if self._town.may("jumps", 0.15):
            return highest + COUNTER_JUMP_MAX + chance.choice([-2, 0, 1, 2, 3])
        if self._town.may("lies", 0.08):
            return chance.randint(1, highest + 1)
        return self._counters.get(replica, 0) + 1 if chance.random() < 0.25 else highest + 1

    def _runs(self, replica: str, counter: int) -> tuple[list[Run], int]:
        chance, ids = self._chance, self._town.ids()
        runs: list[Run] = []
        if chance.random() < 0.7:
            text = chance.choice(["A", "BC", "DEF"])
            runs.append(Insert("body", replica, counter, *self._anchor(replica, counter), text))
            counter += len(text)
        elif chance.random() < 0.5:
            runs.append(Set("title", replica, counter, counter))
            counter += 1
        else:
            runs.append(Put("map", chance.choice("kl"), replica, counter, counter))
            counter += 1
        if ids and chance.random() < 0.3:
            runs.append(Remove("body", replica, counter, *chance.choice(ids[-8:])))
            counter += 1
        return runs, counter - 1

    def _anchor(self, replica: str, counter: int) -> tuple[str, int]:
        chance, ids = self._chance, self._town.ids()
        if self._town.may("names", 0.15):
            others = [f"{who.public_key}:{session}" for who, session in PEOPLE.values()]
            names = [*others, replica, f"{BOB.public_key}:t"]
            return chance.choice(names), max(counter + chance.randint(-3, 3), 1)
        if not ids or chance.random() < 0.15:
            return "", 0
        after, at = chance.choice(ids[-8:])
        return after, at + (chance.randint(1, 3) if chance.random() < 0.07 else 0)


class Town:
    """The log, those who live with it, and what they know of who counts."""

    def __init__(self, chance: Random, kind: str) -> None:
        self.chance, self._kind = chance, frozenset(kind.split())
        self.log = RiggedLog(page_size=chance.choice([1, 2, 3, 1000]))
        self.snapshots = RiggedSnapshots()
        self.documents: dict[str, WalDocument] = {}
        # What counts of Bob, once the owner has said it, and what each of them has heard.
        self._roster: dict[str, Counts] = {}
        self._heard: dict[str, dict[str, Counts]] = {name: {} for name in PEOPLE}
        self._liar = Liar(self)
        # What came of the steps.
        self.done: Counter[str] = Counter()

    def may(self, what: str, rate: float) -> bool:
        """Whether something happens now that belongs to the kind of the log."""
        return what in self._kind and self.chance.random() < rate

    async def start(self) -> None:
        """Open everybody's document."""
        for name, (who, session) in PEOPLE.items():
            forgets = name != "alice" and "forgets" in self._kind
            self.documents[name] = await self._open(
                who,
                self.log,
                self._heard[name],
                session_nonce=session,
                history_max=self.chance.choice([1, 2, 5]) if forgets else None,
            )

    async def _open(
        self, who: Identity, log: RiggedLog, known: dict[str, Counts], **options: Any
    ) -> WalDocument:
        return await opened(
            log,
            who,
            writers=MEMBERS,
            snapshot_role=MEMBERS,
            snapshot_store=self.snapshots,
            revoked=known.get,
            on_author_error="skip",
            **options,
        )

    def highest(self) -> int:
        """The highest counter of anybody, as far as it is no jump."""
        return max(min(each._log.counter, 10**9) for each in self.documents.values())

    def ids(self) -> list[tuple[str, int]]:
        """List elements that were inserted lately."""
        found: list[tuple[str, int]] = []
        for element in self.log.elements[-12:]:
            data = element["data"]
            with suppress(MalformedError):
                for run in unpack_ops(data["body"]["ops"]):
                    if isinstance(run, Insert):
                        replica = run.replica or f"{data['author']}:{data['session']}"
                        last = run.counter + len(run.values) - 1
                        found += [(replica, run.counter), (replica, last)]
        return found

    async def step(self) -> None:
        """Let something happen."""
        chance, name = self.chance, self.chance.choice(list(PEOPLE))
        document = self.documents[name]
        rest: list[tuple[float, Callable[[], Any]]] = [
            (0.25, self._liar.write),
            (0.07, self._liar.send_late),
            (0.23, lambda: self._edit(document)),
            (0.14, document.commit),
            (0.18, document.pull),
            (0.04, self._revoke),
            (0.04, lambda: self._hear(name)),
            (0.03, lambda: self._snapshot(name)),
            (0.04, self._cut),
            (0.02, self._delete),
            (0.03, self._repeat),
        ]
        (chosen,) = chance.choices([each for _, each in rest], [rate for rate, _ in rest])
        doing = chosen()
        if doing is not None:
            await doing

    def _edit(self, document: WalDocument) -> None:
        chance, size = self.chance, document.length("body")
        roll = chance.random()
        if roll < 0.55:
            text = chance.choice(["x", "yz", "uvw"])
            document.insert_text("body", chance.randint(0, size), text)
        elif roll < 0.75 and size:
            at = chance.randrange(size)
            document.remove_text("body", at, min(chance.randint(1, 2), size - at))
        elif roll < 0.88:
            document.set_field("title", chance.randint(0, 99))
        elif document.entries("map") and chance.random() < 0.5:
            document.drop("map", chance.choice(sorted(document.entries("map"))))
        else:
            document.put("map", chance.choice("kl"), chance.randint(0, 99))

    async def _revoke(self) -> None:
        if "revoke" in self._kind and not self._roster:
            self._roster[BOB.public_key] = await self.documents["alice"].recount(BOB.public_key)
            self.done["revocations"] += 1
            await self._hear("alice")

    async def _hear(self, name: str) -> None:
        document = self.documents[name]
        if self._heard[name] != self._roster:
            self._heard[name].update(self._roster)
            if not document.counts_all(BOB.public_key):
                await document.reread()

    async def _snapshot(self, name: str) -> None:
        if "snapshots" in self._kind:
            await self._hear(name)
            with suppress(SnapshotRefusedError):
                await self.documents[name].snapshot()
                self.done["snapshots"] += 1

    async def _cut(self) -> None:
        if "cuts" not in self._kind:
            return
        await self._meet()
        readers = {name: each.current_checkpoint for name, each in self.documents.items()}
        with suppress(SnapshotRefusedError):
            await self.documents["alice"].snapshot(collect=readers)
            self.done["cuts"] += 1
        for each in self.documents.values():
            await each.adopt_barrier()

    async def _delete(self) -> None:
        if "deletes" not in self._kind:
            return
        await self._hear("alice")
        alice = self.documents["alice"]
        await alice.commit()
        await alice.pull()
        with suppress(SnapshotRefusedError):
            await alice.delete_document()
            self.done["deletions"] += 1
        for name, each in self.documents.items():
            await self._hear(name)
            await each.adopt_barrier()

    def _repeat(self) -> None:
        if "repeats" not in self._kind or not self.log.elements:
            return
        place = self.chance.randrange(len(self.log.elements))
        ops = self.log.elements[place]["data"]["body"]["ops"]
        # What was rejected of the revoked for its counter, and comes again, is a matter of its own:
        # docs/reliability.md, "What is known not to hold".
        if "revoke" not in self._kind or highest_counter(unpack_ops(ops)) < COUNTER_JUMP_MAX // 2:
            self.log.replay(place)

    async def _meet(self) -> None:
        """Have everybody send and read everything."""
        for name, each in self.documents.items():
            await self._hear(name)
            await each.commit()
        for each in self.documents.values():
            await each.pull()

    async def readers(self) -> dict[str, WalDocument]:
        """Everybody who reads the log, in the end, by how they do."""
        await self._meet()
        for each in self.documents.values():
            await each.adopt_barrier()
        found = dict(self.documents)
        for posture in ("trust", "trust-retain-tail", "re-derive"):
            for size in (1, 3, 1000):
                log = RiggedLog(self.log.elements, page_size=size)
                found[f"{posture}, {size} a page"] = await self._open(
                    CAROL, log, dict(self._roster), posture=posture
                )
        return found


@pytest.mark.parametrize("kind", KINDS)
async def test_however_somebody_lies_all_who_read_agree(kind: str) -> None:
    print(f"WALSTORE_LIVE_SEED={SEED}")
    done = Counter[str]()
    for number in range(LOGS):
        name = f"WALSTORE_LIVE_SEED={SEED}, {kind}, log {number}"
        town = Town(Random(f"{SEED}:{kind}:{number}"), kind)
        await town.start()
        for _ in range(town.chance.randint(10, 60)):
            await town.step()
        states: dict[str, list[str]] = {}
        for how, reader in (await town.readers()).items():
            assert not reader.is_read_only, f"{name}: {how}: {reader.rollback}"
            verdict = reader.snapshot_verdict
            assert verdict not in (SnapshotVerdict.MISMATCH, SnapshotVerdict.FORGED), (name, how)
            assert reader.crdt.canonical_state() == state_of(reader), f"{name}: {how}"
            states.setdefault(state_of(reader), []).append(how)
        assert len(states) <= 1, f"{name}: {list(states.values())}"
        done += town.done
    wanted = {"revoke": "revocations", "snapshots": "snapshots", "cuts": "cuts"}
    missed = [what for word, what in wanted.items() if word in kind and not done[what]]
    assert not missed or LOGS < 10, f"nothing was tried: {missed}"
    print(f"{kind}: {LOGS} logs, {dict(done)}")

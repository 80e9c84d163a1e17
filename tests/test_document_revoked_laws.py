"""However the log of somebody revoked is read, whoever reads it comes to the same bytes.

- Bob types in two sessions; others type behind what he wrote, and behind what does not count. The
  owner revokes him having read a beginning of the log, and the relay hands it out in any order.
- Readers differ in how they page, in their postures, in whether they were there before he was
  revoked, in how much they remember, and in whether they start from a snapshot.
- Where Bob lies about seqs and links, one branch counts, and a snapshot that was signed before may
  hold the other: of these, only those who read the log are compared.
- Who misses something is told of a gap, and need not agree.

`WALSTORE_REVOKED_LOGS` says how many logs; the seed is printed, `WALSTORE_REVOKED_SEED` sets it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    JsonElement,
    RiggedLog,
    RiggedSnapshots,
    link_of,
    opened,
    put_in,
    state_of,
    write_packed,
)
from walstore.crdt.runs import Insert, Remove, Run, Set
from walstore.document import WalDocument
from walstore.document.faults import SnapshotRefusedError
from walstore.signed import Identity
from walstore.signed.roster import Counts
from walstore.wire.limits import COUNTER_JUMP_MAX

LOGS = int(os.environ.get("WALSTORE_REVOKED_LOGS", "40"))
# On every change the same logs, so that it was the change if one of them fails; else others.
DRAWN = 1 if LOGS <= 40 else time.time_ns() % 10**6
SEED = int(os.environ.get("WALSTORE_REVOKED_SEED", "0")) or DRAWN

# A seed and a log, shuffled, of somebody who lies, that readers differed in once.
FAILED_ONCE = (781990, 261)


class Typists:
    """People who type into one log, each behind what somebody else wrote lately."""

    def __init__(self, chance: Random, *, lies: float, far: float) -> None:
        self.chance, self.lies, self.far = chance, lies, far
        self.elements: list[JsonElement] = []
        self._newest: dict[tuple[str, str], tuple[int, str]] = {}
        self._bobs: list[str] = []
        self._ids: list[tuple[str, int]] = []
        self._counters: dict[str, int] = {}
        self._highest = 0

    def type(self) -> None:
        """Add an element."""
        chance = self.chance
        who, session = BOB, chance.choice("sst")
        if chance.random() < 0.4:
            who, session = chance.choice([ALICE, CAROL]), "k"
        seq, prev = self._newest.get((who.public_key, session), (0, None))
        if who is BOB:
            prev = prev or (self._bobs[-1] if self._bobs else None)
            if self._bobs and chance.random() < self.lies:
                seq = chance.choice([seq, chance.randint(0, seq), seq + 1])
                prev = chance.choice([*self._bobs, "ab" * 32, None])
        self._add(who, session, seq + 1, prev)

    def _add(self, who: Identity, session: str, seq: int, prev: str | None) -> None:
        replica = f"{who.public_key}:{session}"
        runs, end = self._runs(replica, self._counter(who, replica))
        element = write_packed(who, runs, session=session, seq=seq, prev=prev)
        self.elements.append(element)
        self._counters[replica] = max(self._counters.get(replica, 0), end)
        if end < self._highest + COUNTER_JUMP_MAX:
            self._highest = max(self._highest, end)
        if who is BOB:
            self._bobs.append(link_of(element))
        if seq >= self._newest.get((who.public_key, session), (0, ""))[0]:
            self._newest[who.public_key, session] = seq, link_of(element)

    def _counter(self, who: Identity, replica: str) -> int:
        if who is BOB and self.chance.random() < self.far:
            return self._highest + COUNTER_JUMP_MAX + self.chance.choice([-2, 0, 2, 3])
        if self.chance.random() < 0.2:
            # Somebody who has not seen what others wrote.
            return self._counters.get(replica, 0) + 1
        return self._highest + 1

    def _runs(self, replica: str, counter: int) -> tuple[list[Run], int]:
        chance = self.chance
        runs: list[Run] = []
        if chance.random() < 0.8:
            after, at = "", 0
            if self._ids and chance.random() < 0.85:
                after, at = chance.choice(self._ids[-6:])
                at += chance.randint(1, 3) if chance.random() < 0.07 else 0
            text = chance.choice(["a", "bc", "def"])
            runs.append(Insert("body", replica, counter, after, at, text))
            counter += len(text)
            self._ids += [(replica, counter - 1), (replica, counter - len(text))]
        else:
            runs.append(Set("title", replica, counter, counter))
            counter += 1
        if self._ids and chance.random() < 0.15:
            runs.append(Remove("body", replica, counter, *chance.choice(self._ids[-8:])))
            counter += 1
        return runs, counter - 1


def logged(elements: Sequence[JsonElement], page_size: int = 1000) -> RiggedLog:
    log = RiggedLog(page_size=page_size)
    for element in elements:
        put_in(log, element)
    return log


async def reading(log: RiggedLog, who: Identity = CAROL, **options: Any) -> WalDocument:
    return await opened(log, who, on_author_error="skip", **options)


async def readers_of(
    elements: Sequence[JsonElement], counts: Counts, chance: Random
) -> dict[str, WalDocument]:
    """Those who read the log, by how they do."""
    known = {BOB.public_key: counts}.get
    found = {
        f"{posture}, {size} a page": await reading(
            logged(elements, size), revoked=known, posture=posture
        )
        for posture in ("trust", "re-derive")
        for size in (1, 3, 1000)
    }
    for there in (len(elements), chance.randint(0, len(elements))):
        revoked: dict[str, Counts] = {}
        log = logged(elements[:there], 1)
        found[f"there for {there}"] = document = await reading(log, revoked=revoked.get)
        revoked[BOB.public_key] = counts
        if not document.counts_all(BOB.public_key):
            await document.reread()
        await follow(document, log, elements[there:])
    for size in (1, 2, 5):
        log = logged([], 1)
        document = await reading(log, revoked=known, history_max=size)
        found[f"remembers {size}"] = document
        await follow(document, log, elements)
    return found


def others_in(document: WalDocument) -> list[int]:
    """The elements of the others that were folded."""
    return [each.ts for each in document.history() if each.author != BOB.public_key]


async def follow(document: WalDocument, log: RiggedLog, rest: Sequence[JsonElement]) -> None:
    for element in rest:
        put_in(log, element)
        await document.pull()


async def starters_from(
    elements: Sequence[JsonElement], counts: Counts, cut: int, *, is_told: bool
) -> dict[str, WalDocument]:
    """Those who start from a snapshot of a beginning, by one who knew of the revocation or not."""
    known = {BOB.public_key: counts}.get
    log, snapshots = logged(elements[:cut], 1), RiggedSnapshots()
    producer = await reading(log, snapshot_store=snapshots, revoked=known if is_told else {}.get)
    try:
        await producer.snapshot()
    except SnapshotRefusedError:
        return {}
    for element in elements[cut:]:
        put_in(log, element)
    return {
        f"{posture}, from a snapshot of {cut}, {is_told=}": await reading(
            log, revoked=known, snapshot_store=snapshots, posture=posture
        )
        for posture in ("trust", "trust-retain-tail", "re-derive")
    }


async def check(seed: int, number: int, *, lies: float, far: float, is_shuffled: bool) -> int:
    """Hold everybody who reads one log against everybody else; how many they are."""
    name, count = f"WALSTORE_REVOKED_SEED={seed}, log {number}", 0
    chance = Random(f"{seed}:{number}")
    typists = Typists(chance, lies=lies, far=far)
    for _ in range(chance.randint(4, 14)):
        typists.type()
    elements = typists.elements
    cut = chance.randint(1, len(elements))
    owner = await reading(logged(elements[:cut]), ALICE)
    counts = owner.counted(BOB.public_key)
    if is_shuffled:
        chance.shuffle(elements)
    found = await readers_of(elements, counts, chance)
    if not lies:
        for is_told in (False, True):
            for upto in {cut, chance.randint(1, len(elements))}:
                found |= await starters_from(elements, counts, upto, is_told=is_told)
    states: dict[str, list[str]] = {}
    for how, reader in found.items():
        # Who was kept from something knows it.
        if not reader.detected_gaps():
            states.setdefault(state_of(reader), []).append(how)
            count += 1
    assert len(states) <= 1, f"{name}: {list(states.values())}"
    # Whatever counts of Bob, it takes nothing from anybody else.
    untold = await reading(logged(elements))
    assert others_in(found["trust, 1000 a page"]) == others_in(untold), name
    return count


@pytest.mark.parametrize("is_shuffled", [False, True])
@pytest.mark.parametrize(("lies", "far"), [(0.0, 0.0), (0.0, 0.1), (0.3, 0.1)])
async def test_however_it_is_read_what_the_revoked_wrote_is_the_same(
    lies: float, far: float, is_shuffled: bool
) -> None:
    print(f"WALSTORE_REVOKED_SEED={SEED}")
    count = 0
    for number in range(LOGS):
        count += await check(SEED, number, lies=lies, far=far, is_shuffled=is_shuffled)
    assert count > 5 * LOGS
    print(f"{LOGS} logs of somebody revoked, read {count} times")


async def test_who_remembers_little_forgets_nothing_that_leads_up_to_what_is_missing() -> None:
    assert await check(*FAILED_ONCE, lies=0.3, far=0.1, is_shuffled=True)

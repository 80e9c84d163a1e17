"""Whole documents whose members sign anything: nobody is stopped, and all readers agree.

- A log holds honest elements, and elements of two members who sign whatever comes out of the
  fuzzer: envelopes of both versions, chained or not, some repeated, some out of order.
- Readers differ in how they page, and in whether they were there all the time. They come to the
  same bytes; what is rejected is told; and the next honest edit wins.

`WALSTORE_FUZZ_LOGS` says how many logs; the seed is printed, `WALSTORE_FUZZ_SEED` sets it.
"""

from __future__ import annotations

import json
import os
import time
from random import Random
from typing import Any

from tests.fuzzing.mutations import mutated
from tests.rigged import (
    ALICE,
    BOB,
    CAROL,
    MALLORY,
    RiggedLog,
    link_of,
    opened,
    put_in,
    set_op,
    signed,
    state_of,
    write_starfish,
)
from walstore.canon import parse
from walstore.crdt import WalCrdt, Writer
from walstore.document import WalDocument
from walstore.errors import MalformedError, NotJsonError
from walstore.signed import Identity
from walstore.wire.envelope import Header, inner_packed, outer_packed

LOGS = int(os.environ.get("WALSTORE_FUZZ_LOGS", "300"))
SEED = int(os.environ.get("WALSTORE_FUZZ_SEED", "0")) or time.time_ns() % 10**6

# How many elements a hostile member has in a log, and how often one is left as it was.
ELEMENTS = 6
GOOD = 0.3


def specimens(author: Identity, seq: int, prev: str | None) -> list[bytes]:
    """What a member might write, as text."""
    replica = f"{author.public_key}:s"
    writer = Writer(WalCrdt(), replica)
    writer.insert_text("text", 0, "hello")
    writer.set("title", seq)
    writer.put("map", "k", [seq])
    packed = outer_packed(
        inner_packed(replica, writer.take()), author.public_key, Header("s", seq, prev, {})
    )
    ops = [
        set_op(author, 10 * seq, "x"),
        {
            "t": "ins",
            "list": "text",
            "id": f"{10 * seq + 1}@{replica}",
            "after": f"{1}@{ALICE.public_key}:s" if seq % 2 else None,
            "clock": {"c": 10 * seq + 1, "r": replica},
            "value": "y",
        },
        {
            "t": "rmv",
            "list": "text",
            "id": f"1@{replica}",
            "clock": {"c": 10 * seq + 2, "r": replica},
        },
    ]
    data = write_starfish(author, ops, seq=seq)["data"]
    return [json.dumps(each, separators=(",", ":")).encode() for each in (packed, data)]


def hostile_elements(chance: Random, author: Identity) -> list[dict[str, Any]]:
    """Well signed, whatever they say."""
    elements: list[dict[str, Any]] = []
    for seq in range(1, ELEMENTS + 1):
        prev = link_of(elements[-1]) if elements and chance.random() < 0.7 else None
        texts = specimens(author, seq, prev)
        text = chance.choice(texts) if chance.random() < GOOD else mutated(chance, texts)
        try:
            data = parse(text)
            elements.append(signed(data, author))
        except (MalformedError, NotJsonError):
            continue
    return elements


async def log_of(chance: Random) -> RiggedLog:
    log = RiggedLog()
    alice = await opened(log, wire=chance.choice(["packed", "starfish"]), session_nonce="s")
    waiting = [each for who in (BOB, MALLORY) for each in hostile_elements(chance, who)]
    waiting += chance.choices(waiting, k=2) if waiting else []
    chance.shuffle(waiting)
    for number, element in enumerate(waiting):
        put_in(log, element)
        if number % 4 == 0:
            alice.insert_text("text", 0, f"{number}")
            await alice.commit()
    return log


async def reading(log: RiggedLog, page_size: int, who: Identity = CAROL) -> WalDocument:
    paged = RiggedLog(log.elements, page_size=page_size)
    return await opened(paged, who, on_author_error="skip", writers=WRITERS)


WRITERS = frozenset(each.public_key for each in (ALICE, BOB, CAROL, MALLORY))


async def test_members_who_sign_anything_stop_nobody_and_divide_nobody() -> None:
    print(f"WALSTORE_FUZZ_SEED={SEED}")
    rejected = folded = 0
    for number in range(LOGS):
        chance = Random(f"{SEED}:{number}")
        log = await log_of(chance)
        readers = [await reading(log, size) for size in (1, 3, 1000)]
        assert len({state_of(reader) for reader in readers}) == 1, f"SEED={SEED}:{number}"
        rejected += len(readers[0].rejected())
        folded += len(readers[0].history())
        live = await opened(log, CAROL, on_author_error="skip", writers=WRITERS)
        live.set_field("title", "honest")
        await live.commit()
        again = await reading(log, 1000, ALICE)
        assert again.field("title") == "honest", f"SEED={SEED}:{number}"
        assert state_of(again) == state_of(live), f"SEED={SEED}:{number}"
    # Some of it has to be good, and some bad, or nothing was tried.
    assert rejected > LOGS
    assert folded > LOGS
    print(f"{LOGS} logs, {folded} elements folded, {rejected} rejected")

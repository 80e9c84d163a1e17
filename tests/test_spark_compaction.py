"""Snapshots that Spark signs: a relay with roles takes them, and may let go of what they cover."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.relay_process import Forker, forking
from tests.rigged import ALICE, BOB, MALLORY
from tests.test_archive_folded import Place, Shared, set_fields
from walstore.archive.authority import Authority
from walstore.document import WalDocument
from walstore.document.snapshot import SNAPSHOT_SUFFIX
from walstore.errors import UsageError
from walstore.net.websocket import WebSocketTransport
from walstore.signed import Identity
from walstore.signed.card import Card
from walstore.store.sharing import Sharing
from walstore.store.sharing_state import MemorySlots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="the extra spark is not installed")

WRITERS = [ALICE.public_key]
SIGNERS = [BOB.public_key]
ROLES = f"""
[[grant]]
prefix = ""
read = "any"
write = ["{ALICE.public_key}", "{MALLORY.public_key}"]

[[grant]]
prefix = "notes/"
snapshot = ["{BOB.public_key}"]
"""
RETENTION = """
[retention]
log_mode = "compact_below_snapshot"
retain_tail_n = 0
"""


async def opened(transport: WebSocketTransport, key: str, who: Identity = ALICE) -> WalDocument:
    return await WalDocument(
        key,
        transport=transport,
        snapshot_store=transport,
        identity=who,
        writers=WRITERS,
        snapshot_role=SIGNERS,
        on_author_error="skip",
    ).open()


async def fill(url: str) -> None:
    """Long and short documents, one that nobody may sign, and one with a stranger's elements."""
    async with WebSocketTransport(url, identity=ALICE) as transport:
        for key, count in (("notes/a", 12), ("notes/b", 12), ("notes/c", 3), ("locked/d", 12)):
            document = await opened(transport, key)
            for number in range(count):
                document.insert_text("body", number, "abc"[number % 3])
                await document.commit()
    async with WebSocketTransport(url, identity=MALLORY) as transport:
        document = WalDocument(
            "notes/b",
            transport=transport,
            identity=MALLORY,
            writers=[MALLORY.public_key],
            snapshot_role=[],
            on_author_error="skip",
        )
        await document.open()
        document.set_field("body", "mine")
        await document.commit()


async def texts(url: str) -> dict[str, object]:
    """What a reader finds that starts anew."""
    async with WebSocketTransport(url, identity=ALICE) as transport:
        keys = ("notes/a", "notes/b", "notes/c", "locked/d")
        return {key: (await opened(transport, key)).materialize() for key in keys}


async def run(forker: Forker, *arguments: str) -> str:
    number, output = forker.fork(*arguments)
    with output:
        said = await asyncio.to_thread(output.read)
    forker.kill(number)
    return said


async def test_long_documents_get_snapshots_and_the_relay_lets_go(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from walstore.spark.address import Address
    from walstore.spark.compaction import Compaction, compact
    from walstore.spark.signer import Signer

    (tmp_path / "roles.toml").write_text(ROLES)
    (tmp_path / "relay.toml").write_text(RETENTION)
    BOB.save(tmp_path / "bob.key")
    place = str(tmp_path / "bob.key")
    flags = ("--database", "relay.db", "--roles", "roles.toml")
    authority = Authority(writers={"": WRITERS}, producers={"": SIGNERS})
    with forking(tmp_path) as forker:
        relay = await forker.start(*flags)
        await fill(relay.url)
        before = await texts(relay.url)
        source = Address(relay=relay.url, identity=place)
        compaction = Compaction(relay.url, Signer(place), authority)
        found = await asyncio.to_thread(compact, spark, source, compaction, tail_min=10)
        outcomes = {each.document: each.outcome for each in found}
        assert outcomes == {"notes/a": "stored", "notes/b": "stored", "locked/d": "refused"}
        assert all((each.upto_ts is not None) == (each.outcome == "stored") for each in found)
        assert next(each.reason for each in found if each.outcome == "refused")
        # Their tails are short now.
        again = await asyncio.to_thread(compact, spark, source, compaction, tail_min=10)
        assert [each.document for each in again] == ["locked/d"]
        # A key that is not there is told, document by document.
        nobody = Compaction(relay.url, Signer(str(tmp_path / "gone.key")), authority)
        failed = await asyncio.to_thread(compact, spark, source, nobody, tail_min=10)
        assert {each.outcome for each in failed} == {"failed"}
        assert "gone.key" in (failed[0].reason or "")
        forker.kill(relay.number)

        said = await run(
            forker, "relay", "compact", "--config", "relay.toml", "--database", "relay.db", "--json"
        )
        assert json.loads(said)["removed"]["elements"] >= 24
        relay = await forker.start(*flags)
        assert await texts(relay.url) == before


# ── what a relay makes up ──────────────────────────────────────────────────────────────

BY_ROSTER = Authority("roster", owners={"": [ALICE.public_key]})


async def compacted(place: Place, who: Identity, authority: Authority) -> Any:
    from walstore.spark.compaction import Compaction
    from walstore.spark.signer import Signer

    transport: Any = place.transport
    return await Compaction("ws://here", Signer("a"), authority)._compact("a", transport, who)


async def make_up(place: Place) -> None:
    """What a relay can do alone: own a document, and write to it."""
    sharing = Sharing(
        "a",
        identity=MALLORY,
        owner=MALLORY.public_key,
        records=place.transport,
        slots=MemorySlots(),
        is_sealed=False,
    )
    await sharing.settle()
    only = {"writers": [MALLORY.public_key], "snapshot_role": [MALLORY.public_key]}
    await set_fields(await place.opened("a", MALLORY, **only), 666)


@pytest.mark.parametrize("is_made_up", [True, False])
async def test_a_roster_that_is_made_up_or_missing_has_nothing_signed(is_made_up: bool) -> None:
    place = Place()
    await set_fields(await place.opened("a", ALICE), 1)
    if is_made_up:
        await make_up(place)
    done = await compacted(place, BOB, BY_ROSTER)
    assert done.outcome == "refused"
    assert "roster" in done.reason
    assert await place.transport.read("a" + SNAPSHOT_SUFFIX) is None


@pytest.mark.parametrize(("role", "outcome"), [("snapshot", "stored"), ("write", "refused")])
async def test_who_has_no_role_by_the_roster_stores_nothing(role: Any, outcome: str) -> None:
    place = Place()
    shared = Shared(place, is_sealed=False)
    await shared.alice.settle()
    await set_fields(await shared.opened(ALICE, shared.alice), 1)
    await shared.alice.invite(Card.of(BOB), ["read", role])
    done = await compacted(place, BOB, BY_ROSTER)
    assert done.outcome == outcome
    assert (await place.transport.read("a" + SNAPSHOT_SUFFIX) is not None) == (outcome == "stored")


async def rolled_back_to(place: Place, roster: Any) -> Any:
    """Put another roster in place of the current one, as a relay can; the current one."""
    current = await place.log.record("a", "roster")
    assert current is not None
    await place.log.put_record("a", "roster", roster.text, current.revision)
    return current


@pytest.mark.parametrize("is_late", [False, True])
async def test_an_older_roster_has_nothing_signed_away(
    is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place()
    shared = Shared(place, is_sealed=False)
    await shared.alice.settle()
    await set_fields(await shared.opened(ALICE, shared.alice), 1)
    await shared.alice.invite(Card.of(BOB), ["read", "snapshot"])
    old = await place.log.record("a", "roster")
    await shared.alice.invite(Card.of(MALLORY), ["read", "write"])
    invited = shared.sharing(MALLORY)
    await invited.refresh()
    await set_fields(await shared.opened(MALLORY, invited), 2)
    current = await rolled_back_to(place, old)
    read, readings = place.transport.pull, []

    async def pull(key: str, after: int) -> Any:
        # What came last is held back until the snapshot is about to be signed.
        readings.append(after)
        is_held_back = is_late and len(readings) <= 2
        elements = await read(key, after)
        return [each for each in elements if not is_held_back or each.author == ALICE.public_key]

    monkeypatch.setattr(place.transport, "pull", pull)
    done = await compacted(place, BOB, BY_ROSTER)
    assert done.outcome == "refused"
    assert "the relay may have served an older one" in done.reason
    assert await place.transport.read("a" + SNAPSHOT_SUFFIX) is None
    await rolled_back_to(place, current)
    assert (await compacted(place, BOB, BY_ROSTER)).outcome == "stored"
    assert (await shared.opened(ALICE, shared.alice)).materialize() == {"count": 2}


async def test_the_revoked_keep_spark_from_no_snapshot() -> None:
    place = Place()
    shared = Shared(place, is_sealed=False)
    await shared.alice.settle()
    alice = await shared.opened(ALICE, shared.alice)
    await set_fields(alice, 1)
    await shared.alice.invite(Card.of(BOB), ["read", "snapshot"])
    await shared.alice.invite(Card.of(MALLORY), ["read", "write"])
    invited = shared.sharing(MALLORY)
    await invited.refresh()
    mallory = await shared.opened(MALLORY, invited)
    await set_fields(mallory, 2)
    await alice.pull()
    await shared.alice.revoke(MALLORY.public_key)
    await set_fields(mallory, 3)
    assert (await compacted(place, BOB, BY_ROSTER)).outcome == "stored"
    assert (await shared.opened(ALICE, shared.alice)).materialize() == {"count": 2}


async def test_who_has_no_role_by_the_list_stores_nothing() -> None:
    place = Place()
    await set_fields(await place.opened("a", ALICE), 1)
    done = await compacted(place, BOB, Authority({"": WRITERS}, producers={"": WRITERS}))
    assert (done.outcome, done.reason) == ("refused", "this key does not hold the snapshot role")
    assert await place.transport.read("a" + SNAPSHOT_SUFFIX) is None


async def test_rosters_by_anybody_are_not_believed() -> None:
    with pytest.raises(UsageError):
        await compacted(Place(), BOB, Authority("roster"))

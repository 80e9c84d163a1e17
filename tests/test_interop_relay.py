"""Two Python processes and the published JavaScript document edit one log through a real relay."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.node.documents import NodeDocument
from tests.node.peer import NodePeer, node_peer_or_skip
from tests.node.person import Person
from tests.node.scenario import POSTURES, Posture, random_edits
from tests.relay_editor import RelayEditor
from tests.relay_process import forking

ROUNDS = 6

# A release has as many of them as a fifth of its seeds without a relay.
SEEDS = max(2, int(os.environ.get("WALSTORE_INTEROP_SEEDS", "0")) // 5)


@pytest.fixture(scope="module")
def peer() -> Iterator[NodePeer]:
    with node_peer_or_skip() as running:
        yield running


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    with forking(tmp_path) as forker:
        relay = await forker.start("--database", str(tmp_path / "relay.db"))
        yield relay.url


class Table:
    """Three people, each in a process of their own, around one document of a relay."""

    def __init__(self, peer: NodePeer, url: str, stack: AsyncExitStack, seed: int) -> None:
        self.random = random.Random(seed)
        self.people = [Person(self.random) for _ in range(3)]
        self._peer = peer
        self._url = url
        self._stack = stack
        self._key = f"spaces/relay/{seed}"
        self._opened = 0

    async def ours(self, person: Person, posture: Posture = "trust-retain-tail") -> RelayEditor:
        """A process of ours that has the document open."""
        editor = RelayEditor(
            url=self._url,
            key=self._key,
            private_key=person.private_key,
            writers=self._writers,
            posture=posture,
        )
        return await self._stack.enter_async_context(editor)

    async def theirs(self, person: Person, posture: Posture = "trust-retain-tail") -> NodeDocument:
        """A document of the packages."""
        self._opened += 1
        document = NodeDocument(self._peer, f"{self._key} {self._opened}")
        return await asyncio.to_thread(
            document.open,
            key=self._key,
            publicKey=person.public_key,
            privateKey=person.private_key,
            writers=self._writers,
            roles=self._writers,
            relay=self._url,
            posture=posture,
            # A reader who comes later is another session of the same person.
            sessionNonce=str(self._opened),
        )

    @property
    def _writers(self) -> list[str]:
        return [person.public_key for person in self.people]


async def edit_ours(editor: RelayEditor, edits: list[Any]) -> int:
    return await editor.call("edit", edits=edits) or 0


async def edit_theirs(document: NodeDocument, edits: list[Any]) -> int:
    await asyncio.to_thread(document.edit, *edits)
    return await asyncio.to_thread(document.commit) or 0


async def check_agreement(
    head: int, ours: Sequence[RelayEditor], theirs: Sequence[NodeDocument]
) -> dict[str, Any]:
    """Everybody who has read up to the head sees the same, and nobody has found fault."""
    seen: list[Any] = []
    told: dict[str, Any] = {}
    for editor in ours:
        await editor.call("reach", ts=head)
        told = await editor.call("describe")
        assert (told["alarms"], told["gaps"]) == ([], [])
        seen.append((told["canonical"], told["materialize"], told["texts"]))
    for document in theirs:
        await asyncio.to_thread(document.pull)
        told = await asyncio.to_thread(document.describe)
        assert (told["gaps"], told["checkpoint"]) == ([], head)
        seen.append((told["canonical"], told["materialize"], dict(told["texts"])))
    assert all(each == seen[0] for each in seen)
    return told


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_two_python_processes_and_a_node_process_converge_through_a_relay(
    peer: NodePeer, url: str, seed: int
) -> None:
    async with AsyncExitStack() as stack:
        table = Table(peer, url, stack, seed)
        ann, bob, cid = table.people
        ours = await asyncio.gather(table.ours(ann), table.ours(bob))
        theirs = await table.theirs(cid)
        head = 0
        for _ in range(ROUNDS):
            # Each edits what it sees at the moment; all of it is under way at once.
            shown = [await editor.call("shown") for editor in ours]
            edits = [random_edits(table.random, each) for each in shown]
            seen = await asyncio.to_thread(theirs.materialize)
            written = await asyncio.gather(
                *(edit_ours(editor, each) for editor, each in zip(ours, edits, strict=True)),
                edit_theirs(theirs, random_edits(table.random, seen)),
            )
            head = max(head, *written)
        await check_agreement(head, ours, [theirs])
        assert head


@pytest.mark.parametrize("by_peer", [False, True])
async def test_a_snapshot_of_one_side_on_a_relay_is_read_by_the_other(
    peer: NodePeer, url: str, by_peer: bool
) -> None:
    async with AsyncExitStack() as stack:
        table = Table(peer, url, stack, 100 + by_peer)
        ann, bob, cid = table.people
        ours, theirs = await table.ours(ann), await table.theirs(cid)
        await edit_ours(ours, [("setField", "title", "Grüße"), ("insertText", "body", 0, "😀 one")])
        head = await edit_theirs(theirs, [("push", "todo", 1), ("setField", "meta", {"a": -0.0})])
        await check_agreement(head, [ours], [theirs])
        if by_peer:
            await asyncio.to_thread(theirs.snapshot)
        else:
            await ours.call("snapshot")
        head = await edit_ours(ours, [("insertText", "body", 0, "above: ")])
        late = await asyncio.gather(*(table.ours(bob, posture) for posture in POSTURES))
        verdicts = {(await editor.call("describe"))["verdict"] for editor in late}
        assert verdicts == {"TRUSTED", "VERIFIED"}
        others = [await table.theirs(cid, posture) for posture in POSTURES]
        told = await check_agreement(head, [ours, *late], [theirs, *others])
        assert told["snapshotVerified"] is True

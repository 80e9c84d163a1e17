"""The fold against the published JavaScript packages, on random ops in one Node process."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.delivery import deliver, keeps_arrival, random_delivery, through_json
from tests.node.peer import NodePeer, NodePeerError, node_peer_or_skip
from tests.oracle import IGNORED_NAME, AnyOp, Oracle, canon, canonical_parts
from tests.strategies import adversarial_history, adversarial_state, honest_history, shuffled
from walstore.crdt import WalCrdt

SETS = int(os.environ.get("WALSTORE_DIFFERENTIAL_SETS", "2000"))
MAP_KINDS = ("put", "drop")


@pytest.fixture(scope="module")
def peer() -> Iterator[NodePeer]:
    with node_peer_or_skip() as running:
        yield running


def random_ops(seed: int) -> list[AnyOp]:
    rng = random.Random(f"differential {seed}")
    if seed % 2:
        return adversarial_history(rng, 40)
    ops = honest_history(rng, edits=rng.randint(1, 25))
    return shuffled(rng, ops) if seed % 4 else ops


def without_maps(ops: Sequence[AnyOp]) -> list[AnyOp]:
    """What the peer shows: it knows no maps and ignores their ops."""
    return [op for op in ops if op["t"] not in MAP_KINDS]


def as_utf16(text: str) -> str:
    """JavaScript's text: two surrogates that meet are one character there."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def check_against(
    answer: dict[str, Any], document: WalCrdt | Oracle, *, arrival: bool = True
) -> None:
    assert document.canonical_state() == answer["canonical"]
    if arrival:
        assert canon(document.export_state()) == answer["state"]
    assert canon(document.materialize()) == answer["materialize"]
    texts = {name: text for name, text in answer["texts"] if name != IGNORED_NAME}
    assert {name: as_utf16(document.text(name)) for name in document.list_names()} == texts
    ids = {name: shown for name, shown in answer["ids"] if name != IGNORED_NAME}
    assert {name: document.list_ids(name) for name in document.list_names()} == ids


def test_the_oracle_agrees_with_the_peer(peer: NodePeer) -> None:
    for seed in range(SETS):
        ops = random_ops(seed)
        answer = peer.call("fold", ops=ops)
        check_against(answer, Oracle().fold(through_json(without_maps(ops))))


def test_the_document_agrees_with_the_peer(peer: NodePeer) -> None:
    for seed in range(SETS):
        ops = random_ops(seed)
        answer = peer.call("fold", ops=ops)
        steps = random_delivery(random.Random(seed), through_json(without_maps(ops)))
        check_against(answer, deliver(steps), arrival=keeps_arrival(steps))


def test_map_ops_change_nothing_that_the_peer_holds(peer: NodePeer) -> None:
    for seed in range(SETS):
        ops = random_ops(seed)
        answer = peer.call("fold", ops=ops)
        state = deliver(random_delivery(random.Random(seed), ops)).export_state()
        assert canon(canonical_parts(state)) == answer["canonical"]


def test_either_side_goes_on_from_the_state_of_the_other(peer: NodePeer) -> None:
    for seed in range(SETS // 4):
        ops = without_maps(random_ops(seed))
        half = len(ops) // 2
        crdt = WalCrdt()
        crdt.fold(ops[:half])
        answer = peer.call("fold", state=crdt.export_state(), ops=ops[half:])
        crdt.fold(ops[half:])
        check_against(answer, crdt)
        crdt.import_state(peer.call("export", ops=ops[:half]))
        crdt.fold(ops[half:])
        check_against(answer, crdt)


def test_any_state_is_taken_up_as_the_peer_takes_it_up(peer: NodePeer) -> None:
    for seed in range(SETS // 2):
        rng = random.Random(f"state {seed}")
        state, ops = adversarial_state(rng), without_maps(adversarial_history(rng))
        answer = peer.call("fold", state=state, ops=ops)
        crdt = WalCrdt()
        crdt.import_state(state)
        crdt.fold(ops)
        check_against(answer, crdt)


def test_the_bridge_refuses_what_would_never_end(peer: NodePeer) -> None:
    op = {"t": "rmv", "list": "body", "id": "", "clock": {"c": 1, "r": "a"}}
    with pytest.raises(NodePeerError, match="empty element id"):
        peer.call("fold", ops=[op])


def test_a_peer_that_does_not_answer_is_given_up(peer: NodePeer) -> None:
    with node_peer_or_skip() as silent, pytest.raises(NodePeerError, match="no answer within"):
        silent.call("never", seconds_max=0.01)
    assert peer.call("ping") == "pong"

"""Our documents and those of the published JavaScript packages, writing one log together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.node.peer import NodePeer, node_peer_or_skip
from tests.node.scenario import POSTURES, Scenario

SEEDS = 64


@pytest.fixture(scope="module")
def peer() -> Iterator[NodePeer]:
    with node_peer_or_skip() as running:
        yield running
        running.call("forgetDocuments")


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_all_replicas_of_both_sides_agree_and_nobody_raises_an_alarm(
    peer: NodePeer, seed: int
) -> None:
    scenario = Scenario(peer, seed)
    await scenario.play()
    rng = scenario.rng
    for posture in POSTURES:
        scenario.replicas.append(await scenario.open_ours(rng.choice(scenario.ours), posture))
        reader = await scenario.open_theirs(rng.choice(scenario.theirs), posture)
        scenario.replicas.append(reader)
    expected = scenario.replicas[0].seen()
    for replica in scenario.replicas:
        replica.check_calm()
        assert replica.seen() == expected

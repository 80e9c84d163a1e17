"""Seeded stories of our documents and those of the JavaScript packages, on either's servers."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.node.peer import NodePeer, node_peer_or_skip
from tests.node.places import OnRelay, OnStarfish
from tests.node.scenario import Scenario, check_agreement
from tests.node.starfish_server import collection, log_collection
from tests.relay_process import forking

# Of each kind: through either server, plain and sealed.
SEEDS = int(os.environ.get("WALSTORE_INTEROP_SEEDS", "2"))

# Of each kind, a fifth as many where all is under way at once.
SEEDS_AT_ONCE = max(2, SEEDS // 5)

# The first that are sealed have keys that either side made, and a rotation by us …
TURNS = range(2, 2 + SEEDS)

# … or by the peer. They are other seeds, and so other logs.
AT_ONCE = range(100_006, 100_006 + SEEDS_AT_ONCE)

# As much as a snapshot of these stories may come to.
BODY_BYTES_MAX = 2**20

kinds = pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])


@pytest.fixture(scope="module")
def peer() -> Iterator[NodePeer]:
    with node_peer_or_skip() as running:
        yield running


@pytest.fixture(scope="module")
def relay_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("relay")
    with forking(directory) as forker:
        yield asyncio.run(forker.start("--database", str(directory / "relay.db"))).url


@pytest.fixture(scope="module")
def starfish_urls(peer: NodePeer) -> Iterator[dict[bool, str]]:
    """A stock server for plain logs, and one for logs that their writers seal."""
    urls = {}
    for sealed in (False, True):
        options = {
            "encryption": "delegated" if sealed else "none",
            "maxBodyBytes": BODY_BYTES_MAX,
        }
        collections = [
            log_collection("spaces/{id}/doc", **options),
            collection("snap", "spaces/{id}/doc__snapshot", **options),
        ]
        config = {"version": 1, "collections": collections, "namespaces": {}}
        urls[sealed] = peer.call(
            "startServer", config=config, mount="/", bodyBytesMax=BODY_BYTES_MAX
        )
    yield urls
    for url in urls.values():
        peer.call("stopServer", url=url)


@pytest.fixture(scope="module")
def told() -> Iterator[Counter[str]]:
    """How much was done, to be said in the end."""
    done: Counter[str] = Counter()
    yield done
    print(f"\n{done['elements']} elements of {done['stories']} stories on servers")


@kinds
@pytest.mark.parametrize("seed", TURNS)
async def test_all_who_write_in_turns_through_our_relay_agree(
    peer: NodePeer, relay_url: str, told: Counter[str], sealed: bool, seed: int
) -> None:
    async with OnRelay(relay_url) as relay:
        scenario = Scenario(peer, 2 * seed + sealed, relay)
        await scenario.play()
        await check(scenario, told)


@kinds
@pytest.mark.parametrize("seed", TURNS)
async def test_all_who_write_in_turns_through_a_stock_starfish_server_agree(
    peer: NodePeer, starfish_urls: dict[bool, str], told: Counter[str], sealed: bool, seed: int
) -> None:
    async with OnStarfish(starfish_urls[sealed]) as server:
        scenario = Scenario(peer, 2 * seed + sealed, server)
        await scenario.play()
        await check(scenario, told)


@kinds
@pytest.mark.parametrize("seed", AT_ONCE)
async def test_all_who_write_at_once_through_our_relay_agree(
    peer: NodePeer, relay_url: str, told: Counter[str], sealed: bool, seed: int
) -> None:
    async with OnRelay(relay_url) as relay:
        scenario = Scenario(peer, 2 * seed + sealed, relay)
        await scenario.play_at_once()
        await check(scenario, told)


@kinds
@pytest.mark.parametrize("seed", AT_ONCE)
async def test_all_who_write_at_once_through_a_stock_starfish_server_agree(
    peer: NodePeer, starfish_urls: dict[bool, str], told: Counter[str], sealed: bool, seed: int
) -> None:
    async with OnStarfish(starfish_urls[sealed]) as server:
        scenario = Scenario(peer, 2 * seed + sealed, server)
        await scenario.play_at_once()
        await check(scenario, told)


async def check(scenario: Scenario, told: Counter[str]) -> None:
    """Everybody agrees, late readers too, and everybody has written in the form that was meant."""
    await scenario.read_late()
    check_agreement(scenario.replicas)
    story = scenario.story
    elements = await scenario.elements()
    assert {element.author for element in elements} == set(story.writers)
    assert all(("_encrypted" in element.data) is scenario.is_sealed for element in elements)
    told.update(stories=1, elements=len(elements))
    story.peer.call("forgetDocuments")

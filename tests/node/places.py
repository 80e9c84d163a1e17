"""Where the log of a scenario is: with the JavaScript peer, on a relay, or on a Starfish server.

- Each side reaches it in its own way: ours with a transport of the library, the peer with ports of
  its own (relay.mjs) or of the published packages (starfish_server.mjs).
- Everybody has one connection, and writes under their own key: neither server takes anything else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from typing import Any, NamedTuple, Protocol, Self

from tests.node.documents import NodeLog, NodeSnapshots
from tests.node.peer import NodePeer
from tests.node.person import Person
from tests.node.starfish_server import capability_of
from walstore.canon import canonical_bytes, parse
from walstore.document import Body, SnapshotStore, Transport
from walstore.document.log import ts_of
from walstore.document.ports import RawElement
from walstore.net import WebSocketTransport
from walstore.net.starfish import StarfishClient, StarfishHttpTransport, StarfishSnapshots


class Ports(NamedTuple):
    """How a document of ours reaches its log and its snapshot."""

    log: Transport
    snapshots: SnapshotStore


class Place(Protocol):
    """Where a log is, and how it is reached.

    Attributes:
        keeps_newest: Whether no snapshot is replaced by one that covers less. The packages do not
            look at what the stored one covers, so elsewhere theirs may fall behind one of ours
            that was signed at the same time, and that is what a roll-back looks like.
    """

    @property
    def keeps_newest(self) -> bool: ...

    async def ports(self, document_key: str, person: Person) -> Ports:
        """The ports of somebody on our side."""
        ...

    def peer_options(self, person: Person) -> dict[str, Any]:
        """What `openDocument` in documents.mjs needs to reach it."""
        ...


class InPeer:
    """In the memory of the peer, where anybody may write anything."""

    keeps_newest = False

    def __init__(self, peer: NodePeer) -> None:
        self._peer = peer

    async def ports(self, document_key: str, person: Person) -> Ports:
        """The same for everybody."""
        return Ports(NodeLog(self._peer), NodeSnapshots(self._peer, document_key))

    def peer_options(self, person: Person) -> dict[str, Any]:
        """Nothing: it is there."""
        return {}


class _OnServer(ABC):
    """On a server, with a connection for each person, for the length of a block."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stack = AsyncExitStack()
        self._ports: dict[str, Ports] = {}

    async def __aenter__(self) -> Self:
        """Begin; connections are made when they are asked for."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them."""
        await self._stack.aclose()

    async def ports(self, document_key: str, person: Person) -> Ports:
        """The ports on the connection of this person."""
        if person.public_key not in self._ports:
            self._ports[person.public_key] = await self._connect(person)
        return self._ports[person.public_key]

    @abstractmethod
    async def _connect(self, person: Person) -> Ports: ...


class OnRelay(_OnServer):
    """On a relay of ours."""

    keeps_newest = True

    async def _connect(self, person: Person) -> Ports:
        relay = WebSocketTransport(self._url, identity=person.identity)
        await self._stack.enter_async_context(relay)
        return Ports(relay, relay)

    def peer_options(self, person: Person) -> dict[str, Any]:
        """Where it is."""
        return {"relay": self._url}


class OnStarfish(_OnServer):
    """On a stock Starfish server."""

    keeps_newest = False

    async def _connect(self, person: Person) -> Ports:
        capability = capability_of(person.identity)
        client = StarfishClient(self._url, identity=person.identity, capability=capability)
        await self._stack.enter_async_context(client)
        return Ports(StarfishHttpTransport(client), StarfishSnapshots(client))

    def peer_options(self, person: Person) -> dict[str, Any]:
        """Where it is, and what the caller may do there."""
        capability = parse(capability_of(person.identity).canonical)
        return {"server": {"url": self._url, "capability": capability}}


async def elements_of(log: Transport, document_key: str) -> list[Body]:
    """All elements of a log, as they were appended."""
    elements: list[Body] = []
    checkpoint = 0
    while page := await log.pull(document_key, checkpoint):
        elements += map(_body_of, page)
        checkpoint = ts_of(page[-1])
    return elements


def _body_of(element: Any) -> Body:
    if isinstance(element, RawElement):
        return Body(element.data, element.author, element.signature)
    return Body(
        canonical_bytes(element["data"]), element["authorPubkey"], element["authorSignature"]
    )

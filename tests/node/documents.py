"""Documents of the JavaScript peer, and the log that it shares with ours.

- The log is kept in the peer; `NodeLog` and `NodeSnapshots` are our ports to it, so that every
  element of ours passes through a JavaScript store before anybody reads it.
- A fault is a name: "lost" stores an element and loses the answer, "refused" stores nothing. It is
  met between a document and its log, wherever that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.node.peer import NodePeer
from walstore.canon import parse
from walstore.document import Body, SnapshotConflictError, StoredSnapshot, Transport
from walstore.errors import TransportError


class NodeLog:
    """A `Transport` to a log in the peer."""

    def __init__(self, peer: NodePeer) -> None:
        self._peer = peer

    async def append(self, document_key: str, body: Body) -> int:
        """Append an element, also one that is there already."""
        element = {
            "data": parse(body.canonical),
            "authorPubkey": body.author,
            "authorSignature": body.signature,
        }
        ts: int = self._peer.call("appendElement", key=document_key, body=element)
        return ts

    async def pull(self, document_key: str, checkpoint: int) -> list[Any]:
        """All elements above a checkpoint."""
        return self.elements(document_key, checkpoint)

    def elements(self, document_key: str, checkpoint: int = 0) -> list[Any]:
        """All elements above a checkpoint, for a test to look at."""
        elements: list[Any] = self._peer.call(
            "pullElements", key=document_key, checkpoint=checkpoint
        )
        return elements

    def repeat(self, document_key: str, element: dict[str, Any]) -> None:
        """Store an element once more, under another `ts`."""
        self._peer.call("appendElement", key=document_key, body=element)


class FaultyLog:
    """A `Transport` between a document of ours and its log, where what is sent meets faults."""

    def __init__(self, log: Transport) -> None:
        self._log = log
        # What the next append meets.
        self.fault: str | None = None

    async def append(self, document_key: str, body: Body) -> int:
        """Append an element.

        Raises:
            TransportError: A fault was asked for, or what the log raises.
        """
        fault, self.fault = self.fault, None
        if fault == "refused":
            raise TransportError(fault, retryable=True)
        ts = await self._log.append(document_key, body)
        if fault == "lost":
            raise TransportError(fault, retryable=True)
        return ts

    async def pull(self, document_key: str, checkpoint: int) -> Sequence[object]:
        """Elements above a checkpoint."""
        return await self._log.pull(document_key, checkpoint)

    def __getattr__(self, name: str) -> Any:
        """What else the log can do."""
        return getattr(self._log, name)


class NodeSnapshots:
    """A `SnapshotStore` in the peer."""

    def __init__(self, peer: NodePeer, document_key: str) -> None:
        self._peer = peer
        self._document_key = document_key

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        """The stored snapshot, or None."""
        answer = self._peer.call("readSnapshot", key=self._document_key)
        if answer["document"] is None:
            return None
        return StoredSnapshot(answer["document"], answer["revision"])

    async def write(
        self, snapshot_key: str, document: dict[str, Any], revision: str | None
    ) -> None:
        """Replace a revision; "0" is that of no snapshot.

        Raises:
            SnapshotConflictError: The stored revision is another one.
        """
        replaced = self._peer.call(
            "writeSnapshot", key=self._document_key, document=document, revision=revision or "0"
        )
        if not replaced:
            raise SnapshotConflictError


class NodeDocument:
    """A `WalDocument` of the published packages.

    Args:
        peer: Where it lives.
        handle: Tells it from the other documents there.
    """

    def __init__(self, peer: NodePeer, handle: str) -> None:
        self._peer = peer
        self.handle = handle

    def open(self, **options: Any) -> NodeDocument:
        """Open it; the options are those of `openDocument` in documents.mjs.

        Raises:
            NodePeerError: The package threw.
        """
        self._peer.call("openDocument", handle=self.handle, **options)
        return self

    def edit(self, *edits: Sequence[Any]) -> None:
        """Call methods, each given as its name and its arguments."""
        self._peer.call("editDocument", handle=self.handle, edits=edits)

    def commit(self, fault: str | None = None) -> int | None:
        """Commit; the `ts`, or None if there was nothing to commit.

        Raises:
            TransportError: The fault that was asked for was met.
        """
        answer = self._peer.call("commitDocument", handle=self.handle, fault=fault)
        if "failed" in answer:
            raise TransportError(answer["failed"], retryable=True)
        ts: int | None = answer["ts"]
        return ts

    def pull(self) -> int:
        """How many elements were folded.

        Raises:
            NodePeerError: The package threw.
        """
        folded: int = self._peer.call("pullDocument", handle=self.handle)
        return folded

    def snapshot(self) -> dict[str, Any]:
        """Sign and store a snapshot."""
        document: dict[str, Any] = self._peer.call("snapshotDocument", handle=self.handle)
        return document

    def rekey(self, sealing: dict[str, Any]) -> None:
        """Seal and open with another keyring from now on."""
        self._peer.call("rekey", handle=self.handle, sealing=sealing)

    def materialize(self) -> dict[str, Any]:
        """The document as JSON."""
        document: dict[str, Any] = self._peer.call("materializeDocument", handle=self.handle)
        return document

    def describe(self) -> dict[str, Any]:
        """What `describe` in bridge.mjs tells, with gaps, verdict and checkpoint."""
        description: dict[str, Any] = self._peer.call("describeDocument", handle=self.handle)
        return description

"""Logs and snapshots on a Starfish server, as the TypeScript packages keep them.

- A log is a collection that the server only appends to; a snapshot is a document beside it,
  replaced by compare and swap on its hash. A path is the key, unless the caller says otherwise.
- A stock server stores an element again that is sent again; readers fold it once.
- It answers a pull with everything above the checkpoint, so there is one page.
- Elements are handed out as the JSON values that they were parsed to: their text is not canonical
  in general, and would have to be parsed again.

    the last segment of the key    collections on the server                snapshot_path
    literal, `spaces/{id}/doc`     spaces/{id}/doc, …/doc__snapshot         left out
    a parameter, `docs/{id}`       docs/{id}, __snapshots/docs/{id}         `snapshots_apart`

Stock servers cannot route `docs/{id}__snapshot` beside `docs/{id}`. TypeScript peers look for a
snapshot under its key and nowhere else: with them, only the first way works.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from walstore.canon import canonical_bytes
from walstore.document.faults import SnapshotRefusedError
from walstore.document.log import ts_of
from walstore.document.ports import (
    Body,
    CheckpointTooOldError,
    SnapshotConflictError,
    StoredSnapshot,
)
from walstore.document.snapshot import SNAPSHOT_SUFFIX, find_dropped_name
from walstore.net.starfish_answers import (
    Answer,
    StarfishAnswerError,
    StarfishRefusedError,
    StarfishStatusError,
    StarfishTooLargeError,
    error_of,
    read_document,
    read_hash,
    read_items,
    read_ts,
    says,
)
from walstore.net.starfish_http import StarfishClient

__all__ = [
    "SnapshotUnroutableError",
    "StarfishAnswerError",
    "StarfishClient",
    "StarfishHttpTransport",
    "StarfishRefusedError",
    "StarfishSnapshots",
    "StarfishStatusError",
    "StarfishTooLargeError",
    "snapshots_apart",
]


class SnapshotUnroutableError(StarfishStatusError):
    """The server takes the path of a snapshot for that of a log.

    Attributes:
        path: The path.
    """

    def __init__(self, path: str, reason: str) -> None:
        hint = f"{reason}: {path!r} is a log here; end document keys with a literal segment, "
        super().__init__(400, hint + "or see snapshot_path", retryable=False)
        self.path = path


class StarfishHttpTransport:
    """Logs on a Starfish server."""

    def __init__(self, client: StarfishClient, *, field: str = "items") -> None:
        """Use an open connection.

        Args:
            client: The connection.
            field: What the server calls the list of elements.
        """
        self._client = client
        self._field = field

    async def append(self, document_key: str, body: Body) -> int:
        """Append an element; one that is sent again is stored again, under another `ts`.

        Raises:
            StarfishRefusedError: The caller may not write, or is not the author.
            StarfishTooLargeError: It is larger than the server takes.
            TransportError: It is not known to be stored; the same body may be sent again.
        """
        answer = await self._client.post("push", document_key, _append_text(body))
        return read_ts(_body(answer))

    async def pull(self, document_key: str, checkpoint: int) -> list[object]:
        """All elements above a checkpoint.

        Raises:
            StarfishRefusedError: The caller may not read.
            CheckpointTooOldError: The server no longer serves the log from here on.
            TransportError: The log cannot be read now.
        """
        answer = await self._client.get("pull", document_key, f"checkpoint={checkpoint:d}")
        if says(answer, 400, "checkpoint_too_old"):
            # The server does not say from where on it would; this is the least that can be true.
            raise CheckpointTooOldError(checkpoint + 1)
        return self._elements(answer)

    async def tail(self, document_key: str, upto: int, count: int) -> list[object]:
        """The newest elements up to a `ts`.

        Raises:
            StarfishRefusedError: The caller may not read.
            TransportError: The log cannot be read now.
        """
        asked = count
        while True:
            answer = await self._client.get("pull", document_key, f"last={asked:d}")
            newest = self._elements(answer)
            covered = [element for element in newest if ts_of(element) <= upto]
            # A server that has fewer than it was asked for has shown all that it shows.
            if len(covered) >= count or len(newest) < asked:
                return covered[max(len(covered) - count, 0) :]
            asked *= 2

    def _elements(self, answer: Answer) -> list[object]:
        return [] if answer.status == 404 else read_items(_body(answer), self._field)


def snapshots_apart(snapshot_key: str) -> str:
    """The path of a snapshot whose document key ends with a parameter of the server's."""
    return "__snapshots/" + snapshot_key.removesuffix(SNAPSHOT_SUFFIX)


class StarfishSnapshots:
    """Snapshot documents on a Starfish server."""

    def __init__(
        self, client: StarfishClient, *, snapshot_path: Callable[[str], str] | None = None
    ) -> None:
        """Use an open connection.

        Args:
            client: The connection.
            snapshot_path: From the key of a snapshot to its path; the key itself if left out.
                Signatures are over the key, wherever the snapshot is.
        """
        self._client = client
        self._path = _same if snapshot_path is None else snapshot_path

    async def read(self, snapshot_key: str) -> StoredSnapshot | None:
        """The stored snapshot, or None if the server says that there is none.

        Raises:
            StarfishRefusedError: The caller may not read.
            SnapshotUnroutableError: The path is that of a log.
            TransportError: It is not known whether there is one.
        """
        path = self._path(snapshot_key)
        answer = await self._client.get("pull", path)
        if answer.status == 404:
            return None
        if says(answer, 400, "pull_bound_required"):
            raise SnapshotUnroutableError(path, "pull_bound_required")
        return read_document(_body(answer))

    async def write(
        self, snapshot_key: str, document: dict[str, Any], revision: str | None
    ) -> None:
        """Replace the revision that was read; None if there was none.

        Raises:
            SnapshotConflictError: The stored revision is another one.
            SnapshotRefusedError: The server would drop a name in it, and the signature with it.
            StarfishRefusedError: The caller may not write.
            StarfishTooLargeError: It is larger than the server takes.
            TransportError: It is not known to be stored.
        """
        name = find_dropped_name(document)
        if name is not None:
            raise SnapshotRefusedError([f"the name {name!r}, which the server drops"])
        text = canonical_bytes(document)
        body = b'{"data":' + text + b',"baseHash":' + canonical_bytes(revision) + b"}"
        answer = await self._client.post("push", self._path(snapshot_key), body)
        if says(answer, 409, "hash_mismatch"):
            raise SnapshotConflictError
        if read_hash(_body(answer)) != hashlib.sha256(text).hexdigest():
            raise StarfishAnswerError("it stored another snapshot than was sent", retryable=False)


def _append_text(body: Body) -> bytes:
    """The element as the format spells it, around the very text that was signed."""
    author, signature = canonical_bytes(body.author), canonical_bytes(body.signature)
    return b'{"data":%b,"authorPubkey":%b,"authorSignature":%b}' % (
        body.canonical,
        author,
        signature,
    )


def _body(answer: Answer) -> bytes:
    if answer.status != 200:
        raise error_of(answer)
    return answer.body


def _same(snapshot_key: str) -> str:
    return snapshot_key

"""What is told of every commit, and what an archive needs of those whom it is told to.

- An event is told after the commit, at least once, and is advice: whoever misses one finds
  everything in the manifest. The same commit is always told in the same words.
- Positions are decimal text in JSON, as in the manifest; times are ISO 8601 in UTC.
- A sink makes one attempt. Trying again, and giving up, is for `delivery`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from walstore.archive.manifest import POSITION_MAX, Artifact, Kind, Manifest
from walstore.archive.times import time_ms, time_text
from walstore.canon import Json, canonical_bytes, parse
from walstore.errors import MalformedError, TransportError

# How many parts of an artifact are listed; queues take messages of some 200 KiB.
URIS_MAX = 64

_NAMES = frozenset(
    {
        "table",
        "kind",
        "epoch",
        "from_position",
        "to_position",
        "head_position",
        "manifest_uri",
        "formats",
        "created_at",
    }
)


class SinkError(TransportError):
    """An event was not delivered, as far as anybody knows.

    Attributes:
        sink: The name of the sink.
        reason: What went wrong.
        pause_ms: How long the other side wants not to be asked again, if it said so.
    """

    def __init__(
        self, sink: str, reason: str, *, retryable: bool, pause_ms: int | None = None
    ) -> None:
        super().__init__(f"{sink}: {reason}", retryable=retryable)
        self.sink = sink
        self.reason = reason
        self.pause_ms = pause_ms


@dataclass(frozen=True, slots=True)
class CommitEvent:
    """An artifact has been committed.

    Attributes:
        table: What the archive is of.
        kind: Whether it is a base or a diff.
        epoch: The archive epoch.
        from_position: Where a diff begins; None for a base.
        to_position: The position that the table has reached with it.
        head_position: The position that the archive has reached.
        manifest_uri: Where the manifest is.
        formats: Where the artifact is, by format; a URI for each part, and none if there are
            more than `URIS_MAX` parts.
        created_ms: When the artifact was made.
    """

    table: str
    kind: Kind
    epoch: int
    from_position: int | None
    to_position: int
    head_position: int
    manifest_uri: str
    formats: Mapping[str, tuple[str, ...]]
    created_ms: int

    @classmethod
    def of(cls, manifest: Manifest, artifact: Artifact, manifest_uri: str) -> CommitEvent:
        """What is told of an artifact that a manifest names."""
        return cls(
            manifest.table,
            artifact.kind,
            artifact.epoch,
            artifact.from_position,
            artifact.to_position,
            manifest.head_position,
            manifest_uri,
            {
                name: tuple(part.uri for part in parts) if len(parts) <= URIS_MAX else ()
                for name, parts in artifact.formats.items()
            },
            artifact.created_ms,
        )

    @property
    def text(self) -> bytes:
        """The event as canonical JSON text."""
        start = self.from_position
        return canonical_bytes(
            {
                "table": self.table,
                "kind": self.kind.value,
                "epoch": self.epoch,
                "from_position": None if start is None else str(start),
                "to_position": str(self.to_position),
                "head_position": str(self.head_position),
                "manifest_uri": self.manifest_uri,
                "formats": {
                    name: uris[0] if len(uris) == 1 else list(uris)
                    for name, uris in self.formats.items()
                },
                "created_at": time_text(self.created_ms),
            }
        )

    @property
    def id(self) -> str:
        """What tells it from other events, and a repetition from a new one."""
        return sha256(self.text).hexdigest()


class EventSink(Protocol):
    """Somebody who is told of commits."""

    @property
    def name(self) -> str:
        """What messages and metrics call it."""
        ...

    async def publish(self, event: CommitEvent) -> None:
        """Tell of a commit, once; it may be told again if the answer gets lost.

        Raises:
            SinkError: It is not known to have arrived.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections; nothing is published afterwards."""
        ...


def read_event(text: str | bytes) -> CommitEvent:
    """The event that a text holds; members that are not known here are passed over.

    Raises:
        MalformedError: It holds none.
    """
    found = parse(text)
    if not isinstance(found, dict) or not found.keys() >= _NAMES:
        raise _malformed("a member is missing")
    kinds = {kind.value: kind for kind in Kind}
    kind = kinds.get(_text(found["kind"]))
    epoch, created_ms = found["epoch"], time_ms(_text(found["created_at"]))
    if kind is None or type(epoch) is not int or epoch < 1 or created_ms is None:
        raise _malformed("its kind, epoch or time is none")
    return CommitEvent(
        _text(found["table"]),
        kind,
        epoch,
        None if found["from_position"] is None else _position(found["from_position"]),
        _position(found["to_position"]),
        _position(found["head_position"]),
        _text(found["manifest_uri"]),
        _uris(found["formats"]),
        created_ms,
    )


def _malformed(reason: str) -> MalformedError:
    return MalformedError("commit event", reason)


def _text(found: Json) -> str:
    if not isinstance(found, str):
        raise _malformed("a member is not text")
    return found


def _position(found: Json) -> int:
    text = _text(found)
    # Only digits, and few of them, are made a number of.
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(POSITION_MAX))):
        raise _malformed("a position is no decimal number")
    return int(text)


def _uris(found: Json) -> dict[str, tuple[str, ...]]:
    if not isinstance(found, dict):
        raise _malformed("its formats are no object")
    return {
        name: tuple(map(_text, uris)) if isinstance(uris, list) else (_text(uris),)
        for name, uris in found.items()
    }

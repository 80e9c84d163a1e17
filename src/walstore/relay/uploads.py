"""Snapshots that come in pieces: what all connections hold of them has one limit.

- Where it is passed, the one whose last piece is the oldest makes room. So whoever stops half-way,
  or sends a byte now and then, keeps nobody else from being heard.
- What has come whole counts until it is stored, and makes no room: whoever sends on gives way.
"""

from __future__ import annotations


class Uploads:
    """The snapshots that are on their way to a relay, one for each owner."""

    def __init__(self, *, bytes_max: int) -> None:
        """Hold no more than so many bytes, or one snapshot if that is larger."""
        self._bytes_max = bytes_max
        # The one that was added to last stands last.
        self._texts: dict[object, bytearray] = {}
        self._bytes = 0

    def begin(self, owner: object) -> None:
        """Begin anew."""
        self.forget(owner)
        self._texts[owner] = bytearray()

    def add(self, owner: object, piece: bytes) -> int | None:
        """Add a piece; how many bytes there are then, or None if they had to make room."""
        text = self._texts.pop(owner, None)
        if text is None:
            return None
        text += piece
        self._texts[owner] = text
        self._bytes += len(piece)
        while self._bytes > self._bytes_max and len(self._texts) > 1:
            self.forget(next(iter(self._texts)))
        if self._bytes > max(self._bytes_max, len(text)):
            self.forget(owner)
            return None
        return len(text)

    def take(self, owner: object) -> bytes:
        """The whole, which counts until it is `done`."""
        return bytes(self._texts.pop(owner))

    def done(self, size: int) -> None:
        """So many bytes that were taken are held no longer."""
        self._bytes -= size

    def forget(self, owner: object) -> None:
        """Give up what has come."""
        self._bytes -= len(self._texts.pop(owner, b""))

"""Snapshots that come in pieces: what all connections hold of them has one limit.

- Where it is passed, whichever key holds most makes room, with the largest of its own. So whoever
  holds much, however often it is added to, keeps nobody from being heard who sends less.
- What has come whole counts until it is stored, and makes no room: whoever sends on gives way, and
  first of all whose key it is of. Of one key, only so much is stored at a time that others find
  room beside it.
"""

from __future__ import annotations

from collections import Counter


class Uploads:
    """The snapshots that are on their way to a relay, one for each owner."""

    def __init__(self, *, bytes_max: int) -> None:
        """Hold no more than so many bytes, or one snapshot if that is larger."""
        self._bytes_max = bytes_max
        self._texts: dict[object, bytearray] = {}
        self._keys: dict[object, str] = {}
        # What has come whole, by owner: in the name of which key, and how many bytes.
        self._storing: dict[object, tuple[str, int]] = {}
        self._bytes = 0

    def begin(self, owner: object, key: str) -> None:
        """Begin anew, in the name of a key."""
        self.forget(owner)
        self._texts[owner] = bytearray()
        self._keys[owner] = key

    def add(self, owner: object, piece: bytes) -> int | None:
        """Add a piece; how many bytes there are then, or None if they had to make room."""
        text = self._texts.get(owner)
        if text is None:
            return None
        text += piece
        self._bytes += len(piece)
        if self._bytes > max(self._bytes_max, len(text)):
            self._make_room(len(text))
        return len(text) if owner in self._texts else None

    def take(self, owner: object) -> bytes | None:
        """The whole, which counts until it is `done`; None if its key has enough of them here."""
        key, size = self._keys[owner], len(self._texts[owner])
        beside = self._stored_by()[key]
        if beside and beside + size > self._bytes_max // 2:
            self.forget(owner)
            return None
        self._storing[owner] = key, size
        del self._keys[owner]
        return bytes(self._texts.pop(owner))

    def done(self, owner: object) -> None:
        """What was taken is held no longer."""
        self._bytes -= self._storing.pop(owner)[1]

    def forget(self, owner: object) -> None:
        """Give up what has come."""
        self._keys.pop(owner, None)
        self._bytes -= len(self._texts.pop(owner, b""))

    def _make_room(self, size: int) -> None:
        """Forget the largest of whoever holds most, until all fit or one of that size is alone."""
        held = self._stored_by()
        for owner, text in self._texts.items():
            held[self._keys[owner]] += len(text)
        sizes = {owner: (held[self._keys[owner]], len(text)) for owner, text in self._texts.items()}
        for owner in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if self._bytes <= max(self._bytes_max, size):
                return
            self.forget(owner)

    def _stored_by(self) -> Counter[str]:
        """How many bytes have come whole of each key, and are not stored yet."""
        held: Counter[str] = Counter()
        for key, size in self._storing.values():
            held[key] += size
        return held

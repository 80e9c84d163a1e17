"""How far readers are: noted as they read, written down now and then.

Only a compaction asks for it, to tell which known readers it would strand; so a mark may be some
seconds old, and losing the last ones in a crash makes a reader look further behind, never ahead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from walstore.relay.log import LogError, ReaderMark, RelayLog
from walstore.relay.peer import Peer

_logger = logging.getLogger("walstore.relay")

# Marks that wait to be written; past this, readers that are new since are not noted.
_MARKS_MAX = 100_000


class Readers:
    """The marks of a relay's readers."""

    def __init__(self, log: RelayLog, now_ms: Callable[[], int]) -> None:
        self._log = log
        self._now_ms = now_ms
        self._marks: dict[tuple[str, str], ReaderMark] = {}

    def note(self, peer: Peer, document: str, checkpoint: int) -> None:
        """A peer has read a document up to a checkpoint."""
        now_ms = self._now_ms()
        for key in peer.session.keys:
            if len(self._marks) < _MARKS_MAX or (document, key) in self._marks:
                self._marks[document, key] = ReaderMark(document, key, checkpoint, now_ms)

    def note_all(self, peers: Iterable[Peer]) -> None:
        """Note how far the live subscriptions of peers are."""
        for peer in peers:
            for subscription in peer.subscriptions.values():
                self.note(peer, subscription.document, subscription.cursor)

    async def write_down(self) -> None:
        """Keep what was noted."""
        marks, self._marks = list(self._marks.values()), {}
        if not marks:
            return
        try:
            await self._log.note_readers(marks)
        except LogError as error:
            _logger.error("%s", error)

"""Who is believed in one document, and what opens it: the rules that its log is folded by.

- A rule has a name, so that a state that was folded by other rules is known when it is met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from walstore.canon import Json
from walstore.document.log import DocumentLog
from walstore.document.revoked import Revoked, counted_seq, is_overreaching, nobody_revoked
from walstore.document.snapshot import Snapshot
from walstore.sealed.encryptor import Encryptor, PlainEncryptor

_PLAIN = PlainEncryptor()


@dataclass(frozen=True, slots=True)
class FoldRules:
    """Who is believed in one document, and what opens it.

    Attributes:
        document_key: Its key, which every signature covers.
        is_writer: Whether an author key may write.
        is_producer: Whether a key may sign snapshots.
        revoked: What still counts of an author who was revoked.
        encryptor: Opens what is sealed.
        writers_id: Names the three rules above: other rules, another name.
        keys_id: Names the keys that are at hand.
        sharing: What the rules were made of, to be kept with the state; see `kept_note`.
    """

    document_key: str
    is_writer: Callable[[str], bool]
    is_producer: Callable[[str], bool]
    revoked: Revoked = nobody_revoked
    encryptor: Encryptor = _PLAIN
    writers_id: str = ""
    keys_id: str = ""
    sharing: Json = None

    def new_log(self) -> DocumentLog:
        """The log, not read yet."""
        return DocumentLog(
            self.document_key,
            encryptor=self.encryptor,
            is_writer=self.is_writer,
            revoked=self.revoked,
        )

    def counted(self, author: str, session: str | None, seq: int) -> int:
        """How far a session counts that has been read up to a seq."""
        if self.revoked(author) is None and not self.is_writer(author):
            return 0
        return counted_seq(self.revoked, author, session, seq)

    def counts_all(self, snapshot: Snapshot) -> bool:
        """Whether everything counts that a snapshot covers."""
        return not is_overreaching(self.revoked, snapshot)

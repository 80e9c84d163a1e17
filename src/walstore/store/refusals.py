"""What the log of one store refuses: shown while it is first in the queue, kept once it is not.

- What is refused is noted in the local file, so that it is shown the next time before a relay is
  reached. A relay that is reached is asked once more: it may take more by now.
"""

from __future__ import annotations

from contextlib import suppress

from walstore.document import WalDocument
from walstore.document.document import SetAside
from walstore.document.outbox import Refusal
from walstore.errors import StorageError
from walstore.local import LocalFile
from walstore.store.refused import Refused, refused_of
from walstore.store.shelf import Shelf

# The slot of the element that is refused.
_SLOT = "refused"


class Refusals:
    """What is refused in one document.

    Attributes:
        shelf: What was set aside.
    """

    def __init__(self, file: LocalFile | None, *, document_key: str, author: str) -> None:
        """Go on from what was kept in a file."""
        self._file = file
        self.shelf = Shelf(file, document_key=document_key, author=author)
        self._noted: Refusal | None = None
        # What is shown of the element that is refused, by its link: it is asked for often.
        self._shown: tuple[str, Refused] | None = None

    def attach(self, document: WalDocument, *, is_recalled: bool) -> None:
        """Follow a document that was opened just now.

        Args:
            document: The document.
            is_recalled: Whether what was refused before is not to be sent until that is worth it;
                somebody has to say then when it is.
        """
        self.shelf.attach(document.read_body)
        match None if self._file is None else self._file.get(_SLOT):
            case {"link": str(link), "reason": str(reason), "is_of_author": bool(is_of_author)}:
                self._noted = Refusal(link, reason, is_of_author)
                document.note_refused(self._noted)
                if not is_recalled:
                    document.retry_refused()

    def shown(self, document: WalDocument) -> Refused | None:
        """What is refused now."""
        found = document.refused
        if found is None:
            return None
        refusal, sealed = found
        if self._shown is None or self._shown[0] != refusal.link:
            shown = refused_of(sealed, refusal.reason, is_of_author=refusal.is_of_author)
            self._shown = (refusal.link, shown)
        return self._shown[1]

    def note(self, document: WalDocument) -> None:
        """Keep what is refused now."""
        found = document.refused
        refusal = None if found is None else found[0]
        if self._file is None or refusal == self._noted:
            return
        # That it is not shown next time, until it is refused once more, is no loss.
        with suppress(StorageError):
            self._file.put(_SLOT, None if refusal is None else refusal._asdict())
            self._noted = refusal

    def is_of_author(self, document: WalDocument) -> bool:
        """Whether nothing of this author's is taken."""
        found = document.refused
        return found is not None and found[0].is_of_author

    async def set_aside(self, document: WalDocument) -> SetAside | None:
        """Take what is refused out of the queue; raises as `WalDocument.set_aside` does."""
        session = document.session
        aside = await document.set_aside()
        if aside is not None and self._file is None:
            self.shelf.keep(aside.refused, session)
        self.note(document)
        return aside

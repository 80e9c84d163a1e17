"""What a document can be called at a relay."""

from __future__ import annotations

from walstore.document.snapshot import SNAPSHOT_SUFFIX
from walstore.net.faults import DocumentKeyRefusedError
from walstore.wire.limits import DOCUMENT_KEY_SIZE_MAX


def checked_key(document_key: str) -> str:
    """A key that relays take.

    Raises:
        DocumentKeyRefusedError: None would.
    """
    if not 1 <= len(document_key) <= DOCUMENT_KEY_SIZE_MAX:
        reason = f"not 1 to {DOCUMENT_KEY_SIZE_MAX} characters long"
        raise DocumentKeyRefusedError(document_key, reason)
    if not document_key.isprintable():
        raise DocumentKeyRefusedError(document_key, "it has characters that cannot be shown")
    if document_key.endswith(SNAPSHOT_SUFFIX):
        raise DocumentKeyRefusedError(document_key, f"{SNAPSHOT_SUFFIX} names snapshots")
    return document_key

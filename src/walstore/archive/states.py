"""The state that a folded row carries: whether it was signed, and is that of the row."""

from __future__ import annotations

from walstore.archive.rows import Row
from walstore.document.fold_note import read_note
from walstore.document.snapshot import read_snapshot
from walstore.errors import PeerError
from walstore.sealed.encryptor import PlainEncryptor


def is_bare(row: Row) -> bool:
    """Whether a row has a value, and no state that proves it."""
    return row.get("state") is None and row.get("value") is not None


def state_flaw(row: Row) -> str | None:
    """What is wrong with the state of a row; None if nothing is, or it has none."""
    document, state = row.get("document"), row.get("state")
    if state is None:
        return None
    if not isinstance(document, str):
        return "it has no document"
    try:
        kept = read_snapshot(
            state,
            document_key=document,
            # Whoever has signed it: that it was signed at all shows that it is whole.
            is_producer=lambda _: True,
            encryptor=PlainEncryptor(),
        )
        seq = read_note(kept.document).relay_seq
    except PeerError as error:
        return f"its state cannot be used: {error}"
    if kept.upto_ts != row.get("ts"):
        return f"its state reaches {kept.upto_ts}, the row {row.get('ts')}"
    # Former versions did not say it.
    if seq and seq != row.get("seq"):
        return f"its state is that of {seq}, the row is at {row.get('seq')}"
    return None if kept.crdt.materialize() == row.get("value") else "its state holds another value"

"""How a local file is opened: who may, whose it is, and what is wrong with it.

- The lock comes first, so that nobody else looks at or moves the file meanwhile.
- Whether the file is ours is told before SQLite opens it: a foreign file is not written to.
"""

from __future__ import annotations

import os
from pathlib import Path

from walstore.local.database import Database
from walstore.local.faults import (
    DamageFoundError,
    LocalFileReadOnlyError,
    OtherAuthorError,
    OtherDocumentError,
)
from walstore.local.guard import Guard
from walstore.local.salvage import log_of, put_log_back, set_aside
from walstore.local.schema import Owner, check_header, create, read_owner


def open_database(path: str | os.PathLike[str], *, document_key: str, author: str) -> Database:
    """Open the file of a document and an author, or make it; see `LocalFile.open`."""
    # Two names of one file have one lock.
    place = Path(os.path.realpath(path))
    guard = Guard.acquire(place)
    try:
        put_log_back(place)
        try:
            return Database(place, guard, _owner(place, guard, document_key, author))
        except DamageFoundError as damage:
            owner = Owner(document_key, author, b"")
            raise set_aside(place, owner, damage, release=lambda: None) from damage
    except BaseException:
        guard.close()
        raise


def _owner(path: Path, guard: Guard, document_key: str, author: str) -> Owner:
    if not path.exists():
        if log_of(path).exists():
            raise DamageFoundError("the file is gone, its -wal is not", hides_loss=True)
        create(path, document_key=document_key, author=author)
    # SQLite would go on without the right to write, and fail somewhere else.
    elif not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise LocalFileReadOnlyError(path)
    check_header(path, marked=guard.marked)
    owner = read_owner(path)
    if owner.document_key != document_key:
        raise OtherDocumentError(path, owner.document_key)
    if owner.author != author:
        raise OtherAuthorError(path, owner.author)
    return owner

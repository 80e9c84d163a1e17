"""What was set aside, because the log refused it: kept in the local file, to be read and exported.

    queue ──refused──► set_aside ──► shelf ──► export, discard

- An element stays here until it is discarded by hand: nobody loses an edit without saying so.
- It is kept as it was signed, sealed if the document is. What is in it is read when somebody asks.
- It is written in the same step that takes it out of the queue; without a file, it is kept as long
  as the store is open.
- A file of it is one of unsent edits, as a damaged local file leaves behind (`read_unsent`).
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from walstore.canon import Json
from walstore.document.journal import LeftBody, RefusedBodies
from walstore.document.sealing import Sealed
from walstore.errors import MalformedError, UsageError
from walstore.local import LocalFile, OutboxBody
from walstore.local.faults import fault_of_system
from walstore.local.rows import Pending
from walstore.local.unsent import Unsent, write_unsent
from walstore.store.refused import SetAside, refused_of

# Slots are called so, with a number.
_SLOT = "aside."

# Elements that are kept; one more is refused, and stays in the queue.
SHELF_MAX = 65_536

_WHAT = "what was set aside"


class ShelfFullError(UsageError):
    """So much was set aside that there is no room for more: export it and discard it first."""

    def __init__(self) -> None:
        super().__init__(f"more than {SHELF_MAX} elements were set aside; discard some first")


class Shelved(NamedTuple):
    """An element that was set aside, as it is kept."""

    number: int
    at_ms: int
    reason: str
    is_of_author: bool
    body: OutboxBody


Opener = Callable[[LeftBody], Sealed]


class Shelf:
    """Everything of one document that was set aside on this device."""

    def __init__(self, file: LocalFile | None, *, document_key: str, author: str) -> None:
        """Go on from what was kept."""
        self._file = file
        self._document_key = document_key
        self._author = author
        self._opened: Opener | None = None
        # What is kept where there is no file, by its number.
        self._here: dict[int, Json] = {}
        self._number = max(self._numbers(), default=0)

    def attach(self, opener: Opener) -> None:
        """Open what is sealed with the keys of a document."""
        self._opened = opener

    def __len__(self) -> int:
        return len(self._numbers())

    def __iter__(self) -> Iterator[SetAside]:
        """Everything that was set aside, the oldest first."""
        for shelved in self._shelved():
            assert self._opened is not None
            body = shelved.body
            left = LeftBody(
                body.canonical, body.author, body.signature, body.link, body.epoch, False
            )
            refused = refused_of(
                self._opened(left), shelved.reason, is_of_author=shelved.is_of_author
            )
            yield SetAside(shelved.number, shelved.at_ms, refused)

    def export(self, path: str | os.PathLike[str]) -> int:
        """Write everything that was set aside to a new file; how many elements that are.

        Raises:
            LocalFileError: It cannot be written; or there is a file already.
        """
        bodies = [shelved.body for shelved in self._shelved()]
        unsent = Unsent(self._document_key, self._author, Pending([], bodies), {}, 0)
        try:
            write_unsent(Path(path), unsent)
        except OSError as error:
            raise fault_of_system(Path(path), error) from error
        return len(bodies)

    def discard(self, number: int) -> None:
        """Let go of an element for good; one that is not there changes nothing."""
        self._here.pop(number, None)
        if self._file is not None:
            self._file.put_all({}, gone=[_slot(number)])

    def slots_for(self, refused: RefusedBodies, session: str) -> dict[str, Json]:
        """What is to be put into slots to keep refused bodies.

        Args:
            refused: The bodies.
            session: Who has sealed those that do not say it.

        Raises:
            ShelfFullError: There is no room for them.
        """
        if self._file is not None and len(self) + len(refused.bodies) > SHELF_MAX:
            raise ShelfFullError
        at_ms = time.time_ns() // 1_000_000
        return {
            _slot(number): _entry(kept_body(sealed, session), refused, at_ms)
            for number, sealed in enumerate(refused.bodies, self._number + 1)
        }

    def kept(self, slots: dict[str, Json]) -> None:
        """Take note that slots were filled."""
        self._number = max(map(_number_of, slots), default=self._number)

    def keep(self, refused: RefusedBodies, session: str) -> None:
        """Keep refused bodies as long as the store is open: there is no file."""
        slots = self.slots_for(refused, session)
        self._here |= {_number_of(name): entry for name, entry in slots.items()}
        self.kept(slots)

    def _numbers(self) -> list[int]:
        if self._file is None:
            return list(self._here)
        return [_number_of(name) for name in self._file.names(_SLOT)]

    def _shelved(self) -> Iterator[Shelved]:
        for number in self._numbers():
            entry = self._here.get(number) if self._file is None else self._file.get(_slot(number))
            yield _read_entry(number, entry)


def kept_body(sealed: Sealed, session: str) -> OutboxBody:
    """A sealed body as it is kept in a local file."""
    header = sealed.header
    return OutboxBody(
        sealed.body.canonical,
        sealed.body.author,
        sealed.body.signature,
        sealed.link,
        session if header is None else header.session,
        (sealed.author_seq or 0) if header is None else header.seq,
        "",
        str(sealed.epoch),
    )


def _slot(number: int) -> str:
    return f"{_SLOT}{number:010d}"


def _number_of(name: str) -> int:
    return int(name.removeprefix(_SLOT))


def _entry(body: OutboxBody, refused: RefusedBodies, at_ms: int) -> dict[str, Any]:
    return {
        "v": 1,
        "at": at_ms,
        "reason": refused.reason,
        "isOfAuthor": refused.is_of_author,
        "canonical": base64.b64encode(body.canonical).decode(),
        "author": body.author,
        "signature": body.signature,
        "link": body.link,
        "session": body.session,
        "seq": body.seq,
        "epoch": body.epoch,
    }


def _read_entry(number: int, entry: object) -> Shelved:
    match entry:
        case {
            "v": 1,
            "at": int(at_ms),
            "reason": str(reason),
            "isOfAuthor": bool(is_of_author),
            "canonical": str(canonical),
            "author": str(author),
            "signature": str(signature),
            "link": str(link),
            "session": str(session),
            "seq": int(seq),
            "epoch": str(epoch),
        }:
            text = base64.b64decode(canonical)
            body = OutboxBody(text, author, signature, link, session, seq, "", epoch)
            return Shelved(number, at_ms, reason, is_of_author, body)
        case _:
            raise MalformedError(_WHAT, "an entry is not one of version 1")

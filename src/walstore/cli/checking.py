"""Checks what is kept of a document, on a copy: nothing is changed, whatever is found.

- Every row against its checksum, every element and every unsent body against its author's
  signature; and if the document is known here, also what its readers would say: whether its authors
  may write, whether something is missing, whether somebody used one clock twice.
- What somebody wrote who may not is no flaw of a document: readers reject it, and say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from walstore.cli.copies import copied
from walstore.cli.documents import KnownDocument, document_names, find_document
from walstore.cli.identities import find_identity
from walstore.cli.past import Past, opened_past
from walstore.cli.progress import Progress
from walstore.document.events import Fork, Gap, Rejection
from walstore.errors import StorageError
from walstore.local import LocalFile, LocalFileDamagedError
from walstore.local.faults import DamageFoundError, LocalFileForeignError
from walstore.local.schema import check_header, read_owner
from walstore.local.unsent import read_unsent
from walstore.signed.author import Domain, SigningFrame, verify_bytes
from walstore.wire.limits import PULL_ELEMENTS_MAX

# Rejections and the like that are told one by one; whoever floods a log says little with each.
_TOLD_MAX = 20


@dataclass
class Checked:
    """What was checked, and what is wrong with it.

    Attributes:
        key: The document.
        elements: How many elements of the log were checked.
        unsent: How many unsent bodies were.
        authors: Who has signed them.
        flaws: What is wrong.
        notes: What is worth knowing, and not wrong.
    """

    key: str
    elements: int = 0
    unsent: int = 0
    authors: set[str] = field(default_factory=set)
    flaws: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.flaws


async def check_document(document: KnownDocument) -> Checked:
    """Check a document of this computer.

    Raises:
        WalStoreError: It cannot be looked at.
    """
    checked = Checked(document.key)
    author = find_identity(document.identity).identity.public_key
    async with copied(document.file) as file:
        try:
            await asyncio.to_thread(_check_rows, file, checked, author)
            if checked.is_sound:
                async with opened_past(document, file) as past:
                    _check_past(past, checked)
        except LocalFileDamagedError as error:
            checked.flaws.append(f"the local file is damaged: {error.reason}")
    return checked


class NotALocalFileError(StorageError):
    """There is nothing in a file that could be checked here."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path}: this is neither the local file of a document nor a file of unsent edits;"
            f" the database of a relay is looked at with: walstore inspect {path}"
        )


async def check_file(path: Path) -> Checked:
    """Check a local file, whoever's it is.

    Raises:
        NotALocalFileError: It is none; nothing was put beside it.
        LocalFileError: It cannot be read.
    """
    try:
        # Before it is copied: that takes a lock, and nobody else's file gets one of ours.
        check_header(path, marked=None)
    except LocalFileForeignError as error:
        raise NotALocalFileError(path) from error
    except DamageFoundError:
        pass
    async with copied(path) as file:
        try:
            check_header(file, marked=None)
            owner = read_owner(file)
            checked = Checked(owner.document_key)
            await asyncio.to_thread(_check_rows, file, checked, owner.author)
        except (DamageFoundError, LocalFileDamagedError) as error:
            return Checked(str(path), flaws=[f"the file is damaged: {error.reason}"])
    known = [each for name in document_names() if (each := find_document(name)).key == checked.key]
    if not known:
        checked.notes.append("who may write it is not known here: signatures alone were checked")
    return checked


def check_unsent(path: Path) -> Checked:
    """Check a file of unsent edits.

    Raises:
        UnsentFileError: It is none.
    """
    unsent = read_unsent(path)
    checked = Checked(unsent.document_key)
    frame = SigningFrame(Domain.APPEND, unsent.document_key)
    for body in unsent.pending.bodies:
        checked.unsent += 1
        _check_signature(checked, frame, body.author, body.canonical, body.signature, "unsent")
    if unsent.unreadable:
        checked.flaws.append(f"{unsent.unreadable} lines cannot be read")
    if unsent.pending.recorded:
        checked.notes.append(f"{len(unsent.pending.recorded)} edits were not signed yet")
    return checked


def _check_rows(file: Path, checked: Checked, author: str) -> None:
    frame = SigningFrame(Domain.APPEND, checked.key)
    with (
        LocalFile.open(file, document_key=checked.key, author=author) as local,
        Progress("signatures") as progress,
    ):
        for ts, who, data, signature in _elements(local):
            checked.elements += 1
            progress.show(checked.elements)
            _check_signature(checked, frame, who, data, signature, f"the element at {ts}")
        pending = local.pending()
        for body in pending.bodies:
            checked.unsent += 1
            what = f"the unsent commit {checked.unsent}"
            _check_signature(checked, frame, body.author, body.canonical, body.signature, what)
        # It is read here alone; whatever else there is was read when the file was opened.
        local.stranded()
        if local.state() is None and local.state_fault is not None:
            checked.flaws.append(f"the kept state is damaged: {local.state_fault}")


def _elements(local: LocalFile) -> Iterator[tuple[int, str, bytes, str]]:
    after = -1
    while page := local.page(after, PULL_ELEMENTS_MAX):
        for element in page:
            yield element.ts, element.author, element.data, element.signature
        after = page[-1].ts


def _check_signature(
    checked: Checked, frame: SigningFrame, author: str, data: bytes, signature: str, what: str
) -> None:
    if verify_bytes(author, frame.around(data), signature):
        checked.authors.add(author)
    else:
        checked.flaws.append(f"{what} was not signed by the key that it names, {author[:8]}…")


def _check_past(past: Past, checked: Checked) -> None:
    for event in past.events[:_TOLD_MAX]:
        match event:
            case Rejection():
                who = "somebody" if event.author is None else f"{event.author[:8]}…"
                told = checked.notes if event.proven else checked.flaws
                told.append(f"rejected, of {who} at {event.ts}: {event.reason}")
            case Gap():
                missing = f"{event.author[:8]}… {event.expected} to {event.got - 1}"
                checked.flaws.append(f"elements are missing: of {missing}")
            case Fork():
                what = f"{event.author[:8]}… has used one clock for two things"
                checked.flaws.append(f"{what}, at {event.first.ts} and {event.second.ts}")
            case _:
                pass
    if past.document.unreadable:
        checked.notes.append(f"{past.document.unreadable} elements wait for a key")
    if not past.is_whole:
        checked.notes.append("what is older than its snapshot was taken on its producer's word")


def integrity(document: KnownDocument) -> Checked:
    """Check a document, from code that is not async; raises as `check_document` does."""
    return asyncio.run(check_document(document))

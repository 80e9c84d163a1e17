"""`walstore restore`: bring back what was saved of a file that was damaged.

- What was signed goes back among what is unsent, byte for byte: what the log holds already is
  noticed and let go of, however often it is brought back.
- What was not signed yet stays where it was saved. Where its session stood may be lost with the
  file, and a session that counted again from 1 would contradict itself.
- So does what is not as it was signed. As long as anything stays, the file does, and is told of.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from walstore.cli.arguments import document_parser, parsed
from walstore.cli.documents import KnownDocument, find_document
from walstore.cli.identities import find_identity
from walstore.cli.output import many, note, put_json
from walstore.cli.waiting import in_turn
from walstore.errors import WalStoreError
from walstore.local import LocalFile, OutboxBody, Unsent, read_unsent, unsent_files
from walstore.signed.author import Domain, SigningFrame, verify_bytes


class NothingSavedError(WalStoreError):
    """No file of unsent edits lies beside a document."""

    def __init__(self, document: KnownDocument) -> None:
        super().__init__(f"nothing was saved of a damaged file of {document.name}")


def parser() -> ArgumentParser:
    """What `walstore restore` takes."""
    return document_parser(
        "restore",
        "Bring back the unsent edits that were saved when the document's file was found damaged.",
    )


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore restore …`; the exit code."""
    flags = parsed(parser(), arguments)
    document = find_document(flags.document)
    saved = [(file, read_unsent(file)) for file in unsent_files(document.file)]
    if not saved:
        raise NothingSavedError(document)
    signed = [_signed(document, unsent) for _, unsent in saved]
    restored = asyncio.run(_put_back(document, [body for bodies in signed for body in bodies]))
    note(f"brought back {many(restored, 'commit')} of {document.name}")
    left = 0
    for (file, unsent), bodies in zip(saved, signed, strict=True):
        staying = unsent.pending.size - len(bodies) + unsent.unreadable
        _tidy(file, staying)
        left += staying
    if flags.json:
        put_json({"name": document.name, "restored": restored, "left": left})
    return 0


def _signed(document: KnownDocument, unsent: Unsent) -> list[OutboxBody]:
    """What a relay would take: signed, and for this document."""
    frame = SigningFrame(Domain.APPEND, document.key)
    return [
        body
        for body in unsent.pending.bodies
        if verify_bytes(body.author, frame.around(body.canonical), body.signature)
    ]


async def _put_back(document: KnownDocument, bodies: Sequence[OutboxBody]) -> int:
    author = find_identity(document.identity).identity.public_key

    async def open_file() -> LocalFile:
        return LocalFile.open(document.file, document_key=document.key, author=author)

    with await in_turn(document.file, open_file) as local:
        known = {body.link for body in local.pending().bodies}
        missing = {body.link: body for body in bodies if body.link not in known}
        local.replace((), list(missing.values()))
        local.sync()
    return len(missing)


def _tidy(file: Path, left: int) -> None:
    """Let nobody be told again of what is back; what is not is said."""
    if left:
        note(
            f"{many(left, 'edit')} in {file} cannot be brought back: never signed, damaged, or not"
            " as signed"
        )
    else:
        file.replace(_free_name(file))


def _free_name(file: Path) -> Path:
    """The name of a file of unsent edits that are back; of its number, or the next free one."""
    name, _, number = file.stem.rpartition(".unsent-")
    names = (file.with_name(f"{name}.restored-{each}.jsonl") for each in count(int(number)))
    return next(each for each in names if not each.exists())

"""`walstore undo`: take back what you did last in a document; what others wrote stays."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from walstore.cli.arguments import SYNC, counted, document_parser, parsed
from walstore.cli.copies import copied
from walstore.cli.differing import put_differences
from walstore.cli.documents import KnownDocument, find_document
from walstore.cli.opened import opened
from walstore.cli.output import many, note
from walstore.cli.values import all_values
from walstore.cli.writing import writing
from walstore.errors import WalStoreError
from walstore.store.store import WalStore


class NothingToUndoError(WalStoreError):
    """There is no edit of one's own that could be taken back."""

    def __init__(self, document: KnownDocument, *, is_redo: bool) -> None:
        verb = "redo" if is_redo else "undo"
        super().__init__(
            f"there is nothing of yours to {verb} in {document.name}; `walstore log"
            f" {document.name}` shows what was done"
        )


def parser() -> ArgumentParser:
    """What `walstore undo` takes."""
    made = document_parser(
        "undo", "Take back what you did last, and show what that changes. Others' edits stay."
    )
    made.add_argument("--steps", type=counted, default=1, metavar="N", help="how many steps (1)")
    made.add_argument("--redo", action="store_true", help="do again what was undone last")
    made.add_argument("--dry-run", action="store_true", help="only show what would change")
    made.add_argument("--sync", action="store_true", help=SYNC)
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore undo …`; the exit code."""
    return asyncio.run(_undo(parsed(parser(), arguments)))


async def _undo(flags: Namespace) -> int:
    document = find_document(flags.document)
    if flags.dry_run:
        return await _preview(document, flags)
    done = f"{'redid' if flags.redo else 'undid'} it in {document.name}"
    async with writing(document, done=done, is_synced=flags.sync) as store:
        before, after = _move(store, document, flags)
        await store.flush()
        put_differences(before, after, is_json=flags.json)
    return 0


async def _preview(document: KnownDocument, flags: Namespace) -> int:
    """Undo it in a copy: what is shown is what would come of it."""
    async with copied(document.file) as file, opened(document, file=file) as store:
        before, after = _move(store, document, flags)
    put_differences(before, after, is_json=flags.json)
    note("nothing was changed")
    return 0


def _move(
    store: WalStore, document: KnownDocument, flags: Namespace
) -> tuple[dict[str, Any], dict[str, Any]]:
    before, count = all_values(store), 0
    while count < flags.steps and (store.redo() if flags.redo else store.undo()) is not None:
        count += 1
    if not count:
        raise NothingToUndoError(document, is_redo=flags.redo)
    if count < flags.steps:
        note(f"there were only {many(count, 'step')}")
    return before, all_values(store)

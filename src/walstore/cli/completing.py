"""Names that a shell completes and that are found in documents: what is in them, their versions.

- Whoever presses a key has not asked for anything yet: a copy is looked into, so that nothing is
  changed, sealed or set aside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from walstore.cli.copies import copied
from walstore.cli.documents import KnownDocument, find_document
from walstore.cli.identities import identity_names
from walstore.cli.opened import opened
from walstore.cli.past import opened_past

# Who has pressed a key does not wait for long, whatever else has the document open.
_LOOK_S_MAX = 2.0


def names_for(dest: str, given: Sequence[str]) -> list[str]:
    """What an argument may be.

    Args:
        dest: The argument: `identity`, `place` for a name in a document, else a version.
        given: What was typed before it, but for options.

    Raises:
        WalStoreError: That cannot be found out.
    """
    if dest == "identity":
        return identity_names()
    if not given:
        return []
    document = find_document(given[0])
    looking = _places(document) if dest == "place" else _versions(document)
    try:
        return asyncio.run(asyncio.wait_for(looking, _LOOK_S_MAX))
    except TimeoutError:
        return []


async def _places(document: KnownDocument) -> list[str]:
    async with copied(document.file) as copy, opened(document, file=copy) as store:
        return list(store)


async def _versions(document: KnownDocument) -> list[str]:
    async with copied(document.file) as copy, opened_past(document, copy) as past:
        return ["now", *(version.label for version in past.versions[::-1])]

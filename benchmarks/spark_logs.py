"""The logs that `benchmarks.spark` archives, and how."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from walstore.archive.config import Settings, read_settings
from walstore.document import ALLOW_ANY, WalDocument
from walstore.net.memory import MemoryTransport
from walstore.relay.log import NewElement
from walstore.relay.sqlite import SqliteLog
from walstore.signed import Identity
from walstore.signed.author import Domain, signing_input_of
from walstore.signed.chain import link

START_MS = 1_700_000_000_000
PARTS = 8

_APPEND_COUNT = 2_000


async def write_logs(directory: Path, documents: int, elements: int) -> None:
    """A log of all documents, and one of every tenth of them."""
    async with (
        SqliteLog.open(str(directory / "large.db")) as large,
        SqliteLog.open(str(directory / "small.db")) as small,
    ):
        waiting: list[NewElement] = []
        for number in range(documents):
            made = [each async for each in elements_of(f"notes/{number:06}", elements)]
            waiting += made
            if number % 10 == 0:
                await small.append(made, START_MS)
            if len(waiting) >= _APPEND_COUNT:
                await large.append(waiting, START_MS)
                waiting = []
        if waiting:
            await large.append(waiting, START_MS)
    # Last of all: where it is, logs are whole.
    Identity.from_seed(bytes([9]) * 32).save(directory / "archive.key")


async def elements_of(key: str, count: int) -> AsyncIterator[NewElement]:
    """The elements of a document of so many edits, as a relay takes them."""
    identity = Identity.from_seed(bytes([1]) * 32)
    transport = MemoryTransport()
    document = await WalDocument(
        key,
        transport=transport,
        identity=identity,
        writers=ALLOW_ANY,
        snapshot_role=ALLOW_ANY,
        session_nonce="session",
    ).open()
    for number in range(count):
        document.insert_text("body", number, "word "[number % 5])
        await document.commit()
    checkpoint = 0
    while page := await transport.pull(key, checkpoint):
        for each in page:
            signed = signing_input_of(Domain.APPEND, key, each.data)
            name = link(signed, author_pubkey=each.author, author_signature=each.signature)
            yield NewElement(key, name, each.author, each.signature, each.data)
        checkpoint = page[-1].ts


def settings_of(directory: Path, size: str) -> Settings:
    """How one of the logs is archived."""
    return read_settings(
        {
            "source": {"database": f"{size}.db", "prefix": "notes/", "identity": "archive.key"},
            "archive": {"table": "notes", "mode": "folded", "parts": PARTS},
            "limits": {"buffer_bytes_max": 2**40},
            "destinations": [{"url": "out"}],
        },
        directory=directory,
    )

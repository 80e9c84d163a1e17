"""What simulated fleets have found, each as a test of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.put_back import Prunable, quiet, write
from tests.stores import ADA, BEN, KEY, until
from walstore.document.faults import RollbackDetectedError
from walstore.document.ports import RawElement
from walstore.relay import MemoryLog, Relay
from walstore.store.store import WalStore


class Reconnecting(Prunable):
    """A log that may be put back while a page of it is on its way."""

    meanwhile: Callable[[], None] | None = None

    async def pull(self, document_key: str, checkpoint: int) -> list[RawElement]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return await super().pull(document_key, checkpoint)


async def test_a_page_that_comes_over_a_new_connection_does_not_hide_a_rollback(
    tmp_path: Path,
) -> None:
    log = Reconnecting()
    async with quiet(ADA, log, tmp_path / "ada.wal") as ada, quiet(BEN, log) as ben:
        await write(ada, "one")
        older = log.saved()
        await write(ada, "two")
        await ben.pull()
        await write(ben, "three")
        newest = log.saved()[-1]
        # The log forgets what was read last, and goes on beyond it.
        log.meanwhile = lambda: log.put_back([*older, newest], ada)
        with pytest.raises(RollbackDetectedError):
            await ada.pull()
        assert ada["words"] == ["one", "two"]
        await ada.accept_rollback()
        await ada.flush()
        await ada.pull()
        await ben.pull()
        assert sorted(ada["words"]) == sorted(ben["words"]) == ["one", "three", "two"]


def owned(relay: Relay | None, path: Path | None = None) -> WalStore:
    url = None if relay is None else relay.url
    owner = ADA.public_key
    return WalStore.open(KEY, identity=ADA, relay=url, path=path, owner=owner, is_sealed=True)


async def test_an_owner_whose_file_is_gone_has_the_key_of_before() -> None:
    async with Relay.serve(MemoryLog()) as relay:
        async with owned(relay) as ada:
            await until([ada], lambda: ada.status.state == "live")
            await ada.sharing.settle()
            ada.list("words").append("before")
            await ada.flush()
        async with owned(relay) as ada:
            await until([ada], lambda: ada.status.state == "live")
            await ada.pull()
            assert ada["words"] == ["before"]
            assert (ada.status.rejected, ada.status.unreadable) == ((), 0)


async def test_a_document_that_was_begun_again_offline_goes_on_with_the_keys_of_before(
    tmp_path: Path,
) -> None:
    async with Relay.serve(MemoryLog()) as relay:
        async with owned(relay) as ada:
            await until([ada], lambda: ada.status.state == "live")
            await ada.sharing.settle()
            ada["title"] = "before"
            await ada.flush()
        async with owned(None, tmp_path / "again.wal") as ada:
            ada["more"] = "again"
        async with owned(relay, tmp_path / "again.wal") as ada:
            await until([ada], lambda: ada.status.state == "live")
            await ada.sharing.settle()
            await ada.flush()
            assert ada.view() == {"title": "before", "more": "again"}
        async with owned(relay) as ada:
            await until([ada], lambda: ada.status.state == "live")
            await ada.pull()
            assert ada.view() == {"title": "before", "more": "again"}
            assert (ada.status.rejected, ada.status.unreadable) == ((), 0)

"""`walstore inspect` over a relay's PostgreSQL database, which a real server holds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.inspected import ADA, BO, looking
from tests.postgres_cluster import Cluster, binaries, running_cluster
from walstore import WalStore
from walstore.cli.inspect_relay import DatabasePlace, database_overview, opened_database
from walstore.cli.main import main
from walstore.relay import Relay
from walstore.relay.config import without_password
from walstore.relay.postgres import PostgresLog

KEY = "notes/lake"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = binaries()
    if found is None:
        pytest.skip("no PostgreSQL server is installed below /usr/lib/postgresql")
    with running_cluster(found) as started:
        yield started


@pytest.fixture
def address(cluster: Cluster) -> str:
    """The address of a new database, as an operator types it."""
    dsn = dict(each.split("=", 1) for each in cluster.new_database().split())
    return f"postgresql://relay:secret@/{dsn['dbname']}?host={quote(dsn['host'], safe='')}"


async def test_a_database_is_listed_and_read_while_its_relay_runs(
    address: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    people = [ADA.public_key, BO.public_key]
    async with (
        await PostgresLog.open(address) as log,
        Relay.serve(log) as relay,
        WalStore.open(KEY, identity=ADA, relay=relay.url, writers=people) as store,
    ):
        store.set_text("body", "Meet at the lake.")
        await store.flush()
        assert await asyncio.to_thread(main, ["inspect", address]) == 0
        listed = capsys.readouterr().out
        assert "1 document" in listed
        assert KEY in listed
        assert "secret" not in listed

        one = ["inspect", address, "--document", KEY, "--json", "--writer", ADA.public_key]
        assert await asyncio.to_thread(main, one) == 0
        shown = capsys.readouterr().out
        told = json.loads(shown)
        assert told["names"] == [{"name": "body", "kind": "text", "length": 17}]
        assert told["authors"][0]["author"] == ADA.public_key
        assert "secret" not in shown

        missing = ["inspect", address, "--document", "notes/lak", "--text"]
        assert await asyncio.to_thread(main, missing) == 1
        assert f"did you mean {KEY}?" in capsys.readouterr().err

        async with opened_database(address) as reading:
            subject = await looking(DatabasePlace(reading, "here", KEY))
            store.set_text("body", "Meet at the old lake.")
            await store.flush()
            await asyncio.wait_for(subject.place.wait(), 20)
            assert await subject.refresh()
            assert [each.author for each in subject.versions] == [ADA.public_key] * 2
            overview = await database_overview(reading, "here")()
            assert [(row.key, row.elements) for row in overview.documents] == [(KEY, 2)]


def test_a_database_that_is_none_of_a_relays_is_said(
    address: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    assert main(["inspect", address]) == 1
    empty = capsys.readouterr()
    assert empty.err.startswith("walstore inspect: ")
    assert main(["inspect", address.replace("host=", "host=%2Fnowhere")]) == 1
    absent = capsys.readouterr()
    assert (empty.out, absent.out) == ("", "")
    assert "secret" not in empty.err + absent.err


def test_a_password_is_not_shown_however_it_is_given() -> None:
    assert without_password("postgresql://relay:secret@host/db") == "postgresql://relay:…@host/db"
    assert without_password("postgresql://relay@host/db") == "postgresql://relay@host/db"
    given = "postgresql:///db?user=relay&password=secret&host=x"
    assert without_password(given) == "postgresql:///db?user=relay&password=…&host=x"
    assert without_password("relay.db") == "relay.db"

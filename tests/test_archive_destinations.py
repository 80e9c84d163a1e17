"""Destinations are opened by their addresses, or refused in plain words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from walstore.archive.destination import Destination
from walstore.archive.destinations import open_destination
from walstore.archive.local import LocalDestination
from walstore.archive.memory import MemoryDestination
from walstore.archive.objects import ObjectDestination
from walstore.errors import UsageError
from walstore.testing.destination import DestinationContract


class TestMemory(DestinationContract):
    @pytest.fixture
    def destination(self) -> Destination:
        return open_destination("memory:")


def test_stores_are_known_by_their_addresses(tmp_path: Path) -> None:
    assert isinstance(open_destination(tmp_path), LocalDestination)
    for address in ("archive", "./a:b", "C:/archive", "/archive", "file:///archive"):
        assert isinstance(open_destination(address), LocalDestination)
    assert isinstance(open_destination("memory:"), MemoryDestination)
    assert isinstance(open_destination("S3://bucket"), ObjectDestination)
    assert open_destination("s3://bucket/a/").uri("key") == "s3://bucket/a/key"
    assert open_destination("gs://bucket").uri("key") == "gs://bucket/key"
    azure = open_destination("az://container/a", account_name="account")
    assert azure.uri("key") == "az://container/a/key"
    assert open_destination("s3://bucket", name="mine").name == "mine"
    assert open_destination("s3://bucket").name == "s3://bucket"


@pytest.mark.parametrize(
    ("address", "options", "said"),
    [
        ("ftp://host/path", {}, "none of file, memory, s3"),
        ("https://host/path", {}, "none of file, memory, s3"),
        ("s3://", {}, "s3://"),
        ("az://container", {}, "[Aa]ccount"),
        ("s3://bucket", {"regoin": "x"}, "regoin"),
        ("s3://bucket", {"region": 7}, "str"),
        ("s3://bucket", {"timeout": "3 parsecs"}, "parsecs"),
        ("s3://bucket?secret=x", {}, "more than a bucket"),
        ("s3://user:secret@bucket", {}, "more than a bucket"),
        ("memory:", {"region": "x"}, "does not take region"),
        ("", {}, "empty"),
        ("file://host/path", {}, "file:///path"),
        ("/path", {"region": "x"}, "does not take region"),
    ],
)
def test_what_cannot_be_opened_is_refused(address: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        open_destination(address, **options)
    assert "secret" not in str(caught.value)


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, ObjectDestination.__module__)
    for module in ("obstore", "obstore.exceptions", "obstore.store"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=r"pip install 'walstore\[archive\]'"):
        open_destination("s3://bucket")

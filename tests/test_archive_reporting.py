"""How a relay hears what is archived: the last of it, as soon as it listens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from walstore.archive.config import Settings, read_settings
from walstore.archive.manifest import Part, opened
from walstore.archive.reporting import Progress, Reporting
from walstore.archive.writer import Committed
from walstore.cli import archive_report
from walstore.errors import TransportError
from walstore.net.backoff import Backoff

AT_ONCE = Backoff(quick_ms_min=0, quick_ms_max=1, pause_ms_min=1, pause_ms_max=2)


class Relay:
    """Hears what it is told, when it listens."""

    def __init__(self) -> None:
        self.heard: list[Progress] = []
        self.attempts = 0
        self.fault: TransportError | None = None
        self.open = asyncio.Event()
        self.open.set()

    async def hear(self, progress: Progress) -> None:
        self.attempts += 1
        await self.open.wait()
        if self.fault is not None:
            raise self.fault
        self.heard.append(progress)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.001)


def at(position: int, archive: str = "notes") -> Progress:
    return Progress(archive, f"{archive}/", position, "relay")


def test_a_position_is_said_as_text() -> None:
    assert json.loads(at(2**60).text) == {
        "archive": "notes",
        "prefix": "notes/",
        "position": str(2**60),
        "relay_id": "relay",
    }


def reporting_settings(directory: Path) -> Settings:
    (directory / "token").write_text("secret\n")
    (directory / "token").chmod(0o600)
    return read_settings(
        {
            "source": {"relay": "ws://127.0.0.1:1", "prefix": "all/"},
            "archive": {"table": "notes", "mode": "sealed"},
            "destinations": [{"url": "memory:"}],
            "report": {"token_file": "token"},
        },
        directory=directory,
    )


@pytest.mark.parametrize(("archived", "said"), [("notes/", "notes/"), ("", ""), (None, "all/")])
async def test_what_is_said_is_of_the_documents_that_were_archived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archived: str | None, said: str
) -> None:
    bodies: list[bytes] = []
    monkeypatch.setattr(
        archive_report, "ask_relay", lambda *_, body, **options: bodies.append(body)
    )
    settings = reporting_settings(tmp_path)
    manifest = opened("notes", now_ms=1, prefix=archived, source="r")
    manifest = manifest.with_base(to=7, count=0, formats={"jsonl": (Part("x", 0),)}, now_ms=1)
    async with archive_report.reporting(settings) as say:
        assert say is not None
        say(Committed(manifest.artifacts[0], manifest, "x", None))
    assert [json.loads(each) for each in bodies] == [
        {"archive": "notes", "position": "7", "prefix": said, "relay_id": "r"}
    ]


async def test_nothing_is_said_of_an_archive_that_has_missed_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bodies: list[bytes] = []
    monkeypatch.setattr(
        archive_report, "ask_relay", lambda *_, body, **options: bodies.append(body)
    )
    settings = reporting_settings(tmp_path)
    manifest = opened("notes", now_ms=1, prefix="notes/", source="r")
    manifest = manifest.with_base(to=7, count=0, formats={"jsonl": (Part("x", 0),)}, now_ms=1)
    manifest = replace(manifest, gap_upto=5)
    async with archive_report.reporting(settings) as say:
        assert say is not None
        for _ in range(2):
            say(Committed(manifest.artifacts[0], manifest, "x", None))
    assert bodies == []
    assert caplog.text.count("events up to 5 may be missing") == 1


async def test_only_the_last_of_each_archive_is_said() -> None:
    relay = Relay()
    relay.open.clear()
    async with Reporting(relay.hear, backoff=AT_ONCE) as reporting:
        reporting.say(at(1))
        await relay.until(lambda: relay.attempts == 1)
        for position in range(2, 100):
            reporting.say(at(position))
            reporting.say(at(position, "tasks"))
        relay.open.set()
        await relay.until(lambda: len(relay.heard) == 3)
    assert relay.heard == [at(1), at(99), at(99, "tasks")]


async def test_what_may_pass_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    relay = Relay()
    relay.fault = TransportError("nobody there", retryable=True)
    async with Reporting(relay.hear, backoff=AT_ONCE) as reporting:
        reporting.say(at(1))
        await relay.until(lambda: relay.attempts > 5)
        relay.fault = None
        await relay.until(lambda: relay.heard == [at(1)])
    assert caplog.text.count("nobody there") == 1


async def test_what_will_not_pass_waits_for_the_next_commit() -> None:
    relay = Relay()
    relay.fault = TransportError("a wrong token", retryable=False)
    async with Reporting(relay.hear, backoff=AT_ONCE) as reporting:
        reporting.say(at(1))
        await relay.until(lambda: relay.attempts == 1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert relay.attempts == 1
        relay.fault = None
        reporting.say(at(2))
        await relay.until(lambda: relay.heard == [at(2)])


async def test_what_is_refused_keeps_nothing_else_from_being_said() -> None:
    heard: list[Progress] = []

    async def hear(progress: Progress) -> None:
        if progress.archive == "bad":
            raise TransportError("it is of another relay", retryable=False)
        heard.append(progress)

    async with Reporting(hear, backoff=AT_ONCE) as reporting:
        for archive in ("bad", "notes", "tasks"):
            reporting.say(at(1, archive))
        await Relay().until(lambda: len(heard) == 2)
    assert heard == [at(1), at(1, "tasks")]


async def test_at_the_end_it_is_said_once_more_and_not_waited_for_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    relay = Relay()
    relay.fault = TransportError("nobody there", retryable=True)
    async with Reporting(relay.hear, backoff=Backoff(quick_ms_min=60_000)) as reporting:
        reporting.say(at(1))
        await relay.until(lambda: relay.attempts == 1)
        relay.fault = None
    assert relay.heard == [at(1)]
    relay.open.clear()
    async with Reporting(relay.hear, closing_ms_max=10) as reporting:
        reporting.say(at(2))
    assert relay.heard == [at(1)]
    assert "was not told" in caplog.text

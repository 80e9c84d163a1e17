"""What goes wrong in the peer's servers, row by row, and does not go wrong in the relay.

The other half of `test_weaknesses`, under the same numbers; and a count of both.
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.relay_clients import (
    ANNA,
    BEN,
    Speaker,
    appending,
    identity,
    snapshot_text,
    speaking,
)
from walstore.relay import Relay, SqliteLog
from walstore.relay.log import LogCorruptError, LogError
from walstore.testing.relay_log import NOW_MS, elements
from walstore.wire.frames import Append, Code, Elements, EndOfStored, Ok, Pull
from walstore.wire.limits import PULL_BYTES_MAX, PULL_ELEMENTS_MAX

HERE = Path(__file__).parent
DOCUMENT = "docs/one"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "relay.db"


@pytest.fixture
async def relay(path: Path) -> AsyncIterator[Relay]:
    async with SqliteLog.open(path) as log, Relay.serve(log) as relay:
        yield relay


async def test_w37_an_append_writes_itself_and_not_the_log(path: Path) -> None:
    """Counted in bytes that reach the disk, so that a slow machine changes nothing."""
    wal = path.with_name("relay.db-wal")

    async def written(log: SqliteLog, start: int) -> int:
        before = wal.stat().st_size
        for each in elements(start + 20)[start:]:
            await log.append([each], NOW_MS)
        return wal.stat().st_size - before

    async with SqliteLog.open(path) as log:
        await log.append(elements(1), NOW_MS)
        early = await written(log, 1)
        await log.append(elements(5_000), NOW_MS)
        late = await written(log, 5_000)
        assert early > 0
        assert late < 3 * early
        again = await log.append(elements(20), NOW_MS)
        assert not any(each.is_new for each in again)


async def test_w38_a_torn_file_is_refused_and_never_read_as_an_empty_log(path: Path) -> None:
    async with SqliteLog.open(path) as log:
        await log.append(elements(40), NOW_MS)
    whole = path.read_bytes()
    chance = random.Random(38)
    for _ in range(40):
        torn = whole[: chance.randrange(len(whole))]
        path.write_bytes(torn)
        with pytest.raises(LogError):
            async with SqliteLog.open(path):
                pass
        # What is left is left alone: a repair needs it.
        assert path.read_bytes() == torn
    path.write_bytes(whole)
    async with SqliteLog.open(path) as log:
        page = await log.page("notes/a", 0, count_max=100, bytes_max=2**30)
        assert len(page.rows) == 40


async def test_w38_a_file_that_is_gone_is_no_empty_log_either(path: Path) -> None:
    async with SqliteLog.open(path) as log:
        await log.append(elements(3), NOW_MS)
    path.unlink()
    with pytest.raises(LogCorruptError):
        async with SqliteLog.open(path):
            pass


async def test_w39_a_relay_takes_elements_only_from_their_authors(relay: Relay) -> None:
    async with speaking(relay.url, ANNA) as anna:
        await anna.say(appending(BEN, DOCUMENT, {"n": 1}, ref="others"))
        assert (await anna.refusal("others")).code is Code.RESTRICTED
        await anna.append(ANNA, DOCUMENT, {"n": 2})
        await anna.prove(BEN)
        # Whoever holds both keys is both authors.
        await anna.append(BEN, DOCUMENT, {"n": 3})
        assert len(await page_of(anna, DOCUMENT)) == 2


async def page_of(speaker: Speaker, document: str, after: int = 0) -> list[bytes]:
    """What one pull brings."""
    await speaker.say(Pull("page", document, None, after, PULL_ELEMENTS_MAX, False))
    data: list[bytes] = []
    while True:
        frame = await speaker.hear()
        if isinstance(frame, EndOfStored):
            return data
        assert isinstance(frame, Elements)
        data += [each.data for each in frame.elements]


async def test_w42_a_relay_answers_with_a_page_whatever_was_asked_for(relay: Relay) -> None:
    large = "x" * (PULL_BYTES_MAX // 4)
    async with speaking(relay.url, ANNA) as anna:
        frames = [
            appending(ANNA, "many", {"n": number}, ref=f"m{number}")
            for number in range(PULL_ELEMENTS_MAX + 50)
        ] + [appending(ANNA, "large", {"n": n, "x": large}, ref=f"l{n}") for n in range(12)]
        await acknowledged(anna, frames)
        assert len(await page_of(anna, "many")) == PULL_ELEMENTS_MAX
        pages = await page_of(anna, "large")
        assert 1 <= len(pages) < 12
        assert sum(map(len, pages[:-1])) <= PULL_BYTES_MAX


async def acknowledged(speaker: Speaker, frames: list[Append]) -> None:
    for start in range(0, len(frames), 100):
        part = frames[start : start + 100]
        await speaker.say(*part)
        for frame in part:
            await speaker.get(Ok, frame.ref)


async def test_w43_every_document_has_a_snapshot_of_its_own_beside_it(relay: Relay) -> None:
    writers = {f"docs/{number}": identity(40 + number) for number in range(3)}
    async with speaking(relay.url, *writers.values()) as anna:
        texts: dict[str, bytes] = {}
        for document, author in writers.items():
            place = await anna.append(author, document, {"of": document})
            text = snapshot_text(author, document, upto_ts=place.result["ts"])
            texts[document] = text
            assert isinstance(await anna.put(document, text, replaces=None), Ok)
        for document, text in texts.items():
            assert await anna.snapshot(document) == text
            await anna.say(
                appending(writers[document], f"{document}__snapshot", {"n": 1}, ref="mixed up")
            )
            assert (await anna.refusal("mixed up")).code is Code.INVALID


def test_every_weakness_has_a_test_of_its_number() -> None:
    """`pytest -k W17` runs what shows that this library is not affected by row 17."""
    source = "".join(file.read_text() for file in HERE.glob("test_weaknesses*.py"))
    numbered = {
        int(number) for number in re.findall(r"^(?:async )?def test_w(\d\d)_", source, re.M)
    }
    assert numbered == set(range(1, 45))

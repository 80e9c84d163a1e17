"""What a relay makes of websocket frames that are no good, byte by byte.

- The cases are a selection of those that RFC 6455 tells apart, against a running relay. The whole
  Autobahn suite runs against the same endpoint where it is installed: `python -m tests.autobahn`.
- Each ends with the code that the RFC wants, and each leaves the relay as it was: somebody else is
  served, and nothing was logged.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import AsyncIterator

import pytest

from tests.raw_websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    FIN,
    PING,
    PONG,
    RSV1,
    RSV2,
    RSV3,
    TEXT,
    Heard,
    RawSocket,
    closing,
    framed,
    raw_websocket,
)
from tests.relay_clients import ANNA, speaking
from walstore.relay import MemoryLog, Relay
from walstore.relay.limits import Limits

LIMITS = Limits(frame_bytes_max=64 * 1024, close_ms_max=500)

# A request that is always answered, under a name that takes several bytes a character.
ASKED = '["CLOSE","größe漢🦉"]'.encode()


@pytest.fixture
async def relay(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Relay]:
    caplog.set_level(logging.WARNING)
    async with Relay.serve(MemoryLog(), limits=LIMITS) as relay:
        yield relay
        async with speaking(relay.url, ANNA) as honest:
            await honest.append(ANNA, "notes/a", {"n": 1})
    assert [record.getMessage() for record in caplog.records] == []


async def assert_answered(socket: RawSocket) -> None:
    heard = await socket.hear()
    assert heard.opcode == TEXT
    assert "größe漢🦉" in heard.payload.decode()


BROKEN = {
    "a frame that is not masked": [framed(TEXT, ASKED, is_masked=False)],
    "the first reserved bit": [framed(TEXT, ASKED, flags=FIN | RSV1)],
    "the second reserved bit": [framed(TEXT, ASKED, flags=FIN | RSV2)],
    "the third reserved bit": [framed(TEXT, ASKED, flags=FIN | RSV3)],
    "a reserved bit on a ping": [framed(PING, b"", flags=FIN | RSV1)],
    **{f"the opcode {code}": [framed(code, b"x")] for code in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
    "a large ping": [framed(PING, b"x" * 126)],
    "a large pong": [framed(PONG, b"x" * 126)],
    "a large close": [framed(CLOSE, b"\x03\xe8" + b"x" * 124)],
    "a ping in parts": [framed(PING, b"a", flags=0), framed(CONTINUATION, b"b")],
    "a close in parts": [framed(CLOSE, b"\x03\xe8", flags=0)],
    "an end without a start": [framed(CONTINUATION, ASKED)],
    "a middle without a start": [framed(CONTINUATION, ASKED, flags=0), framed(TEXT, ASKED)],
    "a start within a message": [framed(TEXT, ASKED[:4], flags=0), framed(TEXT, ASKED)],
    "a close of one byte": [framed(CLOSE, b"\x03")],
    **{f"the code {code}": [closing(code)] for code in (0, 999, 1004, 1005, 1006, 1015, 2999)},
    "the code 65535": [closing(65535)],
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_frame_ends_the_connection_as_such(relay: Relay, name: str) -> None:
    async with raw_websocket(relay.port) as socket:
        await socket.say(*BROKEN[name])
        assert await socket.close_code() == 1002


@pytest.mark.parametrize(
    "text",
    [
        b"\xff",
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xf0\x80\x80\x80",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\x80",
        b"ok\xce",
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
async def test_text_that_is_no_utf8_ends_the_connection(
    relay: Relay, text: bytes, size: int
) -> None:
    async with raw_websocket(relay.port) as socket:
        await socket.say(*in_parts(text, size))
        assert await socket.close_code() == 1007


async def test_a_close_whose_reason_is_no_utf8_ends_the_connection(relay: Relay) -> None:
    async with raw_websocket(relay.port) as socket:
        await socket.say(closing(1000, b"\xff"))
        assert await socket.close_code() == 1007


def in_parts(text: bytes, size: int) -> list[bytes]:
    """A message in frames of so many bytes each."""
    starts = range(0, len(text), size)
    return [
        framed(
            TEXT if start == 0 else CONTINUATION,
            text[start : start + size],
            flags=FIN if start == starts[-1] else 0,
        )
        for start in starts
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_a_message_may_be_cut_anywhere(relay: Relay, size: int) -> None:
    async with raw_websocket(relay.port) as socket:
        for _ in range(3):
            await socket.say(*in_parts(ASKED, size))
            await assert_answered(socket)


async def test_pings_between_the_parts_of_a_message_are_answered(relay: Relay) -> None:
    async with raw_websocket(relay.port) as socket:
        for number, part in enumerate(in_parts(ASKED, 1)):
            name = b"%d" % number
            await socket.say(part, framed(PING, name), framed(PONG, b"nobody has asked"))
        pongs = [await socket.hear() for _ in range(len(ASKED) - 1)]
        assert pongs == [Heard(PONG, b"%d" % number) for number in range(len(ASKED) - 1)]
        last = [await socket.hear(), await socket.hear()]
        assert {heard.opcode for heard in last} == {TEXT, PONG}


async def test_bytes_may_come_one_by_one(relay: Relay) -> None:
    async with raw_websocket(relay.port) as socket:
        for byte in framed(PING, b"x" * 125) + framed(TEXT, ASKED):
            await socket.say(bytes([byte]))
        assert await socket.hear() == Heard(PONG, b"x" * 125)
        await assert_answered(socket)


async def test_frames_without_content_are_no_trouble(relay: Relay) -> None:
    async with raw_websocket(relay.port) as socket:
        await socket.say(framed(PING), framed(PONG))
        assert await socket.hear() == Heard(PONG, b"")
        await socket.say(framed(TEXT, b"", flags=0), framed(CONTINUATION, b"", flags=0))
        await socket.say(framed(CONTINUATION, ASKED))
        await assert_answered(socket)


async def test_a_message_in_parts_of_tens_of_bytes_is_taken(relay: Relay) -> None:
    long = b'["CLOSE","%b"]' % (b"x" * (LIMITS.frame_bytes_max - 20))
    async with raw_websocket(relay.port) as socket:
        # So many parts are too many for a message without content.
        parts = in_parts(long, 40)
        assert len(parts) > 1_600
        await socket.say(*parts)
        assert (await socket.hear()).opcode == TEXT


@pytest.mark.parametrize("content", [b"", b"x"])
async def test_a_message_in_crumbs_ends_the_connection(relay: Relay, content: bytes) -> None:
    crumb = framed(CONTINUATION, content, flags=0)
    async with raw_websocket(relay.port) as socket:
        await socket.say(framed(TEXT, content, flags=0), *[crumb] * 10_000)
        assert await socket.close_code() == 1008


@pytest.mark.parametrize("opcode", [PING, PONG])
async def test_pings_without_end_end_the_connection(relay: Relay, opcode: int) -> None:
    async with raw_websocket(relay.port) as socket:
        await socket.say(*[framed(opcode, b"x" * 100)] * 256)
        await socket.say(framed(TEXT, ASKED))
        heard = [await socket.hear() for _ in range(257 if opcode == PING else 1)]
        assert {each.opcode for each in heard} == {TEXT, PONG} if opcode == PING else {TEXT}
        await socket.say(*[framed(opcode, b"x" * 100)] * 10_000)
        assert await socket.close_code() == 1008


@pytest.mark.parametrize("code", [1000, 1001, 1002, 1003, 1007, 1011, 3000, 3999, 4000, 4999])
async def test_a_close_is_answered_with_its_own_code(relay: Relay, code: int) -> None:
    async with raw_websocket(relay.port) as socket:
        await socket.say(closing(code, "good bye, größe".encode()), framed(TEXT, ASKED))
        assert await socket.hear() == Heard(CLOSE, code.to_bytes(2) + "good bye, größe".encode())


async def test_a_close_without_a_code_is_answered(relay: Relay) -> None:
    async with raw_websocket(relay.port) as socket:
        await socket.say(framed(CLOSE))
        assert (await socket.hear()).close_code in (1000, 1005)


async def test_binary_messages_are_not_taken(relay: Relay) -> None:
    async with raw_websocket(relay.port) as socket:
        await socket.say(framed(BINARY, ASKED))
        assert await socket.close_code() == 1003


# ── sizes ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [LIMITS.frame_bytes_max + 1, 2**31, 2**62])
async def test_a_frame_that_claims_to_be_too_large_is_refused_before_it_comes(
    relay: Relay, size: int
) -> None:
    async with raw_websocket(relay.port) as socket:
        await socket.say(framed(TEXT, b"", size=size))
        assert await socket.close_code() == 1009


async def test_parts_that_together_are_too_large_are_refused_where_they_become_so(
    relay: Relay,
) -> None:
    part = framed(CONTINUATION, b"x" * 1000, flags=0)
    async with raw_websocket(relay.port) as socket:
        await socket.say(framed(TEXT, b"x", flags=0), *[part] * 66)
        assert await socket.close_code() == 1009


@pytest.mark.parametrize("size", [LIMITS.frame_bytes_max + 1, 1000 * LIMITS.frame_bytes_max])
async def test_what_unpacks_to_more_than_fits_is_refused_where_it_does(
    relay: Relay, size: int
) -> None:
    packer = zlib.compressobj(wbits=-12)
    packed = b"".join(packer.compress(b" " * 2**16) for _ in range(size // 2**16))
    packed += packer.compress(b" " * (size % 2**16))
    packed += packer.flush(zlib.Z_SYNC_FLUSH)[:-4]
    # What comes is small; only what it unpacks to is not.
    assert len(packed) < max(LIMITS.frame_bytes_max, size // 900)
    async with raw_websocket(relay.port, extensions="permessage-deflate") as socket:
        for start in range(0, len(packed), 50_000):
            is_last = start + 50_000 >= len(packed)
            flags = (FIN if is_last else 0) | (0 if start else RSV1)
            opcode = CONTINUATION if start else TEXT
            await socket.say(framed(opcode, packed[start : start + 50_000], flags=flags))
        assert await socket.close_code() == 1009


async def test_what_does_not_unpack_ends_the_connection(relay: Relay) -> None:
    async with raw_websocket(relay.port, extensions="permessage-deflate") as socket:
        await socket.say(framed(TEXT, b"\xff\xff\xff\xff", flags=FIN | RSV1))
        assert await socket.close_code() in (1002, 1007)

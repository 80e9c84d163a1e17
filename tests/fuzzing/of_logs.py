"""What reads logs: canonical text, elements, states, snapshots, frames.

An element and a snapshot are signed anew after they were changed: an authorised writer may be the
hostile one. What was taken has to be a sound document.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from tests.fuzzing.reader import Reader
from tests.rigged import ALICE, BOB, KEY, MEMBERS, signed_snapshot
from tests.test_wire_frames import SPECIMENS
from walstore.canon import canonical_bytes, parse
from walstore.crdt import Run, WalCrdt, Writer, pack_ops, unpack_ops
from walstore.document.snapshot import Cut, make_deletion, make_snapshot, read_snapshot
from walstore.errors import MalformedError, NotJsonError, PeerError
from walstore.sealed import ContentKeys, NativeEncryptor, PlainEncryptor, SealContext
from walstore.signed.chain import Head
from walstore.wire.element import read_raw_element
from walstore.wire.envelope import (
    Header,
    Profile,
    inner_packed,
    inner_starfish,
    outer_packed,
    outer_starfish,
    read_header,
    read_packed,
    read_starfish,
)
from walstore.wire.frames import read_client_frame, read_relay_frame
from walstore.wire.keystrokes import read_keystrokes

SESSION = "s" * 32
REPLICA = f"{ALICE.public_key}:{SESSION}"
HEADER = Header(SESSION, 2, "ab" * 32, {f"{BOB.public_key}:t": 3})
PLAIN = PlainEncryptor()
SEALER = NativeEncryptor(ContentKeys(1, {1: bytes(32)}), randomness=os.urandom)


def _written() -> tuple[WalCrdt, list[Run]]:
    """A small document with everything in it, and the ops that made it."""
    crdt = WalCrdt()
    writer = Writer(crdt, REPLICA)
    writer.insert_text("text", 0, "hello wörld 🦉")
    writer.remove("text", 2, 3)
    writer.insert_text("text", 4, "x")
    writer.set("title", {"deep": [1, None, "a"]})
    writer.set("gone", 1)
    writer.delete("gone")
    writer.put("map", "key", [1.5])
    writer.put("map", "other", True)
    writer.drop("map", "other")
    return crdt, writer.take()


CRDT, RUNS = _written()


def _typed() -> list[bytes]:
    """A word that is typed, a character that is removed, and one that is typed after it."""
    writer = Writer(WalCrdt(), REPLICA)
    edits: tuple[Callable[[], None], ...] = (
        lambda: writer.insert_text("text", 0, "hé\\llo 🦉"),
        lambda: writer.remove("text", 2),
        lambda: writer.insert_text("text", 1, '"'),
    )
    typed: list[bytes] = []
    for seq, edit in enumerate(edits, start=1):
        edit()
        header = Header(SESSION, seq, "ab" * 32 if seq > 1 else None, {})
        body = inner_packed(REPLICA, writer.take())
        typed.append(canonical_bytes(outer_packed(body, ALICE.public_key, header)))
    return typed


KEYSTROKES = _typed()


def _read_canonical(text: bytes) -> None:
    again = canonical_bytes(parse(text))
    assert canonical_bytes(parse(again)) == again


def _read_data(text: bytes) -> None:
    """The data of an element whose signature fits, as a document reads them, and its fold."""
    element = read_raw_element(1, text, ALICE.public_key, "signature")
    data = element.data
    header = read_header(data)
    if data.get("v") == 2:
        if header is None or not isinstance(data.get("body"), dict):
            raise MalformedError("envelope", "not one")
        envelope = read_packed(data["body"], ALICE.public_key, header)
    else:
        envelope = read_starfish(data, ALICE.public_key, header)
    crdt = WalCrdt()
    crdt.fold_runs(envelope.runs)
    _check(crdt)


def _read_keystrokes(text: bytes) -> None:
    """The short way of reading must not take what the long way refuses, nor take it otherwise."""
    if not read_keystrokes([text]):
        raise MalformedError("keystroke", "not one")
    for texts in ([text], [KEYSTROKES[0], text], [text, text]):
        for typing in read_keystrokes(texts):
            quick, whole = WalCrdt(), WalCrdt()
            quick.fold_runs(typing.runs())
            for taken in texts[typing.place :][: len(typing)]:
                data = read_raw_element(1, taken, typing.author, "signature").data
                assert data["author"] == typing.author
                header = read_header(data)
                assert header is not None
                assert header.session == typing.session
                whole.fold_runs(read_packed(data["body"], typing.author, header).runs)
            assert quick.export_packed() == whole.export_packed()


def _read_packed_ops(text: bytes) -> None:
    crdt = WalCrdt()
    crdt.fold_runs(unpack_ops(parse(text)))
    _check(crdt)


def _read_state(text: bytes) -> None:
    crdt = WalCrdt()
    crdt.import_state(parse(text))
    _check(crdt)


def _read_packed_state(text: bytes) -> None:
    value = parse(text)
    crdt, lazy = WalCrdt(), WalCrdt()
    lazy.import_packed(value, lazy=True)
    crdt.import_packed(value)
    _check(crdt)
    assert lazy.canonical_state() == crdt.canonical_state()


def _check(crdt: WalCrdt) -> None:
    crdt.check()
    crdt.materialize()
    crdt.canonical_state()
    crdt.export_state()


def _read_snapshot(text: bytes) -> None:
    """A snapshot by a producer who holds the role and signs anything."""
    value = parse(text)
    if isinstance(value, dict) and isinstance(value.get("uptoTs"), int):
        members = ("state", "uptoTs", "writerSeq", "producedBy")
        value = signed_snapshot({name: value.get(name) for name in members}, ALICE)
    found = read_snapshot(
        value, document_key=KEY, is_producer=MEMBERS.__contains__, encryptor=PLAIN
    )
    _check(found.crdt)


def _read_sealed(text: bytes) -> None:
    SEALER.open(parse(text), SealContext(KEY, ALICE.public_key, 1))


def _frames(text: bytes) -> None:
    refusals = []
    for read in (read_client_frame, read_relay_frame):
        try:
            read(text)
        except PeerError as error:
            refusals.append(error)
    if len(refusals) == 2:
        raise refusals[0]


def _snapshot(profile: Profile) -> bytes:
    document = make_snapshot(
        CRDT,
        document_key=KEY,
        upto_ts=30,
        writer_seq={ALICE.public_key: 2},
        heads={ALICE.public_key: [Head("ab" * 32, SESSION, 2)]},
        seqs={REPLICA: 2},
        identity=ALICE,
        encryptor=PLAIN,
        profile=profile,
        cuts=[Cut(7, 5)] if profile is Profile.PACKED else (),
    )
    return canonical_bytes(document)


def _deletion() -> bytes:
    document = make_deletion(
        document_key=KEY,
        upto_ts=30,
        writer_seq={},
        seqs={REPLICA: 2},
        identity=ALICE,
    )
    return canonical_bytes(document)


PACKED_DATA = outer_packed(inner_packed(REPLICA, RUNS, "a message"), ALICE.public_key, HEADER)
STARFISH_DATA = outer_starfish(inner_starfish(ALICE.public_key, 4, RUNS[:6], "why"), HEADER)

READERS = {
    "canonical": Reader(
        [b'{"a":[1,2.5,-0.0,1e21,null,true,"\xc3\xa9\\ud83e\\udd89"],"b":{"":[]}}', b"[]", b'"x"'],
        _read_canonical,
    ),
    "envelope": Reader([canonical_bytes(PACKED_DATA), canonical_bytes(STARFISH_DATA)], _read_data),
    "keystrokes": Reader(KEYSTROKES, _read_keystrokes),
    "packed-ops": Reader([canonical_bytes(pack_ops(RUNS))], _read_packed_ops),
    "state": Reader([canonical_bytes(CRDT.export_state())], _read_state),
    "packed-state": Reader([canonical_bytes(CRDT.export_packed())], _read_packed_state),
    "snapshot": Reader(
        [_snapshot(Profile.PACKED), _snapshot(Profile.STARFISH), _deletion()],
        _read_snapshot,
    ),
    "sealed": Reader(
        [canonical_bytes(SEALER.seal({"a": 1}, SealContext(KEY, ALICE.public_key, 1)))],
        _read_sealed,
        (PeerError, NotJsonError),
    ),
    "frames": Reader(SPECIMENS, _frames),
}

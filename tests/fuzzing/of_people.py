"""What reads statements, keyrings, presences, manifests and files.

Statements are signed anew after they were changed: an owner or an issuer may be the hostile one.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

from tests.archive_tables import COLUMNS
from tests.fuzzing.reader import Reader
from tests.manifests import example, parted_example
from tests.rigged import ALICE, BOB, CAROL, KEY
from walstore.archive.jsonl import JsonlFormat
from walstore.archive.manifest_json import read_manifest, write_manifest
from walstore.archive.rows import Action, RowChange
from walstore.canon import canonical_bytes, canonical_text, content_hash, parse
from walstore.errors import MalformedError, PeerError
from walstore.sealed import PlainEncryptor, create_keyring, open_keyring
from walstore.signed import verify_bytes
from walstore.signed.capability import CAPABILITY_DOMAIN, Scope, issue_capability, read_capability
from walstore.signed.card import Card
from walstore.signed.encoding import encode_signature
from walstore.signed.grant import read_grant, sign_grant
from walstore.signed.invitation import Invitation
from walstore.signed.roster import new_roster, read_roster
from walstore.signed.statement import from_line, sign_statement, to_line
from walstore.store.file_format import FileRefusedError, Style, read_json
from walstore.store.presence_message import Body, Header, read_body, read_header, write_message

NOW_MS = 1_700_000_000_000


def _keyring() -> dict[str, Any]:
    return create_keyring(
        [ALICE.kem_public_key, BOB.kem_public_key],
        scope=KEY,
        adder=ALICE,
        now_s=1_700_000_000,
        randomness=random.Random(1).randbytes,
    )


def _read_keyring(text: bytes) -> None:
    keyring = parse(text)
    for is_unbound in (False, True):
        open_keyring(
            keyring,
            recipient=BOB,
            trusted_adders={ALICE.public_key},
            verify=verify_bytes,
            scope=KEY,
            epoch_min=0,
            trust_unbound=is_unbound,
        )


def _resigned(value: object, domain: bytes) -> Any:
    """A statement whose author signs anything."""
    if not isinstance(value, dict):
        return value
    rest = {name: member for name, member in value.items() if name != "signature"}
    return sign_statement(domain, rest, ALICE)


def _read_roster(text: bytes) -> None:
    roster = _resigned(parse(text), b"walstore-roster-v1\n")
    read_roster(canonical_text(roster), document=KEY, owner=ALICE.public_key)


def _read_grant(text: bytes) -> None:
    read_grant(_resigned(parse(text), b"walstore-grant-v1\n"))


def _read_invitation(text: bytes) -> None:
    value = _resigned(parse(text), b"walstore-invitation-v1\n")
    Invitation.read(to_line("walstore-invitation", value))


def _read_card(text: bytes) -> None:
    Card.read(to_line("walstore-card", _resigned(parse(text), b"walstore-card-v1\n")))


def _read_lines(text: bytes) -> None:
    line = text.decode(errors="replace")
    with suppress(MalformedError):
        Card.read(line)
        return
    Invitation.read(line)


def _read_capability(text: bytes) -> None:
    value = parse(text)
    if isinstance(value, dict):
        rest = {name: member for name, member in value.items() if name != "sig"}
        signature = ALICE.sign(CAPABILITY_DOMAIN + canonical_bytes(rest))
        value = {**rest, "sig": encode_signature(signature)}
    read_capability(value)


def _read_presence(text: bytes) -> None:
    value = parse(text)
    if isinstance(value, dict):
        rest = {name: member for name, member in value.items() if name != "signature"}
        statement = sign_statement(b"walstore-presence-v1\n", {**rest, "document": KEY}, ALICE)
        value = {**rest, "signature": statement["signature"]}
    found = read_header(value)
    if not isinstance(found, Header):
        raise MalformedError("presence", str(found))
    body = read_body(found, KEY, PlainEncryptor())
    if not isinstance(body, Body):
        raise MalformedError("presence", str(body))


def _read_manifest(text: bytes) -> None:
    """As it is, and with a checksum that fits."""
    value = parse(text)
    if isinstance(value, dict):
        rest = {name: member for name, member in value.items() if name != "checksum"}
        text = canonical_bytes({**rest, "checksum": content_hash(rest)})
    manifest = read_manifest(text)
    assert read_manifest(write_manifest(manifest)) == manifest


def _read_rows(text: bytes) -> None:
    refusals = []
    for read in (JsonlFormat().read_base, JsonlFormat().read_diff):
        try:
            list(read(text, COLUMNS))
        except PeerError as error:
            refusals.append(error)
    if len(refusals) == 2:
        raise refusals[0]


def _read_file(text: bytes) -> None:
    read_json(text, Style())


ROW: dict[str, Any] = {"team": "red", "id": 1, "value": [1, {"nested": None}]}
LINE = Invitation.sign(
    ALICE,
    document=KEY,
    to=BOB.public_key,
    relay="ws://relay.example",
    log=None,
    is_sealed=True,
).line

READERS = {
    "keyring": Reader([canonical_bytes(_keyring())], _read_keyring),
    "roster": Reader(
        [new_roster(ALICE, KEY, now_ms=NOW_MS).text.encode()],
        _read_roster,
    ),
    "grant": Reader(
        [
            canonical_bytes(
                sign_grant(
                    ALICE,
                    prefix="notes/",
                    to=BOB.public_key,
                    roles=["read", "write"],
                    at_ms=NOW_MS,
                    expires_ms=NOW_MS + 1,
                )
            )
        ],
        _read_grant,
    ),
    "invitation": Reader(
        [canonical_bytes(from_line("walstore-invitation", LINE))], _read_invitation
    ),
    "card": Reader([canonical_bytes(from_line("walstore-card", Card.of(ALICE).line))], _read_card),
    "lines": Reader([LINE.encode(), Card.of(ALICE).line.encode()], _read_lines, is_exact=True),
    "capability": Reader(
        [
            issue_capability(
                ALICE,
                scope=Scope(("read",), ("docs",), ("docs/*",)),
                not_before_s=1,
                expires_s=2,
                nonce=bytes(16),
                kind="audience",
                audience=[BOB.public_key, CAROL.public_key],
            ).canonical
        ],
        _read_capability,
    ),
    "presence": Reader(
        [
            canonical_bytes(
                write_message(
                    Body("Alice", "#112233", None, {"at": [1]}),
                    document_key=KEY,
                    identity=ALICE,
                    encryptor=PlainEncryptor(),
                    session="s" * 32,
                    at_ms=NOW_MS,
                    count=1,
                )
            )
        ],
        _read_presence,
    ),
    "manifest": Reader(
        [write_manifest(example()), write_manifest(parted_example())],
        _read_manifest,
    ),
    "rows": Reader(
        [
            JsonlFormat().write_base([ROW], COLUMNS),
            JsonlFormat().write_diff([RowChange(Action.DELETE, ("red", 1), ROW)], COLUMNS),
        ],
        _read_rows,
    ),
    "file": Reader([b'{\n  "title": "x",\n  "n": [1, 2.5]\n}\n'], _read_file, (FileRefusedError,)),
}

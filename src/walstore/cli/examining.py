"""What `walstore doctor` looks at, one thing after the other; each finding says what to do.

- Nothing is changed, and one thing that is wrong does not keep the others from being looked at.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Literal, NamedTuple

from walstore.cli.checking import integrity
from walstore.cli.config import load_config
from walstore.cli.documents import KnownDocument, document_names, find_document
from walstore.cli.identities import ExposedKeyError, find_identity, identity_file, identity_names
from walstore.cli.main import FAILED, NO_NETWORK, NOT_VERIFIED
from walstore.cli.output import many
from walstore.cli.places import data_directory
from walstore.cli.reaching import reach
from walstore.errors import WalStoreError
from walstore.local import unsent_files

# The exit codes, the worst first.
LEVELS = (NOT_VERIFIED, FAILED, NO_NETWORK)

# A package of each extra that is not there without it.
EXTRAS = {
    "net": "websockets",
    "relay": "prometheus_client",
    "postgres": "psycopg",
    "starfish": "cryptography",
    "textual": "textual",
    "archive": "obstore",
    "parquet": "pyarrow",
    "protobuf": "google.protobuf",
    "aws": "boto3",
    "spark": "pyspark",
    "keychain": "keyring",
}

# How far a clock may be off before versions look odd; what is far ahead is refused by readers.
_CLOCK_S_MAX = 120.0


class Finding(NamedTuple):
    """Something that was looked at.

    Attributes:
        level: Whether it is as it should be.
        what: What was looked at.
        found: What was found.
        advice: What to do about it; empty if nothing has to be done.
        code: The exit code, if something is wrong.
    """

    level: Literal["ok", "note", "wrong"]
    what: str
    found: str
    advice: str = ""
    code: int = FAILED


def examine(*, is_offline: bool) -> Iterator[Finding]:
    """Look at everything."""
    yield _installation()
    yield from _extras()
    yield from _directories()
    try:
        names, _ = document_names(), identity_names()
    except WalStoreError as error:
        yield Finding("wrong", "directory", str(error), "run it as the one whose directory it is")
        return
    yield from _identities()
    documents: list[KnownDocument] = []
    for name in names:
        try:
            documents.append(find_document(name))
        except WalStoreError as error:
            yield Finding("wrong", f"document {name}", str(error), "put back a copy of it")
    for document in documents:
        yield from _document(document)
    if not is_offline:
        yield from _relays(documents)


def _installation() -> Finding:
    try:
        installed = version("walstore")
    except PackageNotFoundError:
        return Finding("wrong", "walstore", "it is not installed", "pip install walstore")
    python = ".".join(map(str, sys.version_info[:3]))
    return Finding("ok", "walstore", f"{installed} on Python {python}")


def _extras() -> Iterator[Finding]:
    there = [extra for extra, package in EXTRAS.items() if _is_there(package)]
    yield Finding("ok", "extras", ", ".join(there) or "none")
    missing = [extra for extra in EXTRAS if extra not in there]
    if missing:
        advice = f"if you need one: pip install 'walstore[{missing[0]}]'"
        yield Finding("note", "extras that are not installed", ", ".join(missing), advice)


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _directories() -> Iterator[Finding]:
    directory = data_directory()
    if not directory.exists():
        advice = "make a document: walstore init notes"
        yield Finding("note", "directory", f"{directory} is not there yet", advice)
        return
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        yield Finding("wrong", "directory", f"{directory} cannot be written to", "check its owner")
    elif os.name == "posix" and directory.stat().st_mode & 0o077:
        advice = f"chmod 700 {directory}"
        yield Finding("wrong", "directory", f"others can look into {directory}", advice)
    else:
        yield Finding("ok", "directory", str(directory))
    try:
        load_config()
    except WalStoreError as error:
        yield Finding("wrong", "configuration", str(error), "mend it")


def _identities() -> Iterator[Finding]:
    for name in identity_names():
        what = f"identity {name}"
        try:
            kept = find_identity(name)
        except ExposedKeyError as error:
            advice = f"chmod 600 {identity_file(name)}"
            yield Finding("wrong", what, str(error), advice)
        except WalStoreError as error:
            yield Finding("wrong", what, str(error), "put back a copy of it")
        else:
            yield Finding("ok", what, f"{kept.identity.public_key[:8]}…, in {kept.place}")


def _document(document: KnownDocument) -> Iterator[Finding]:
    what = f"document {document.name}"
    try:
        checked = integrity(document)
    except WalStoreError as error:
        yield Finding("wrong", what, str(error), f"walstore verify {document.name}")
        return
    if not checked.is_sound:
        advice = f"walstore verify {document.name} tells all; the relay has what was sent"
        yield Finding("wrong", what, checked.flaws[0], advice, NOT_VERIFIED)
        return
    found = f"sound, {many(checked.elements, 'element')}, {checked.unsent} unsent"
    advice = f"walstore sync {document.name}" if checked.unsent and document.relay else ""
    yield Finding("ok", what, found, advice)
    for left in unsent_files(document.file):
        advice = f"walstore restore {document.name} brings them back"
        yield Finding("note", what, f"edits were saved from a damaged file: {left}", advice)


def _relays(documents: list[KnownDocument]) -> Iterator[Finding]:
    by_relay = {each.relay: each for each in documents if each.relay is not None}
    if not by_relay:
        return
    if not _is_there("websockets"):
        yield Finding("wrong", "relays", "websockets is missing", "pip install 'walstore[net]'")
        return
    for relay, document in sorted(by_relay.items()):
        try:
            reached = asyncio.run(reach(relay, find_identity(document.identity).identity))
        except WalStoreError as error:
            advice = "check the address and the network; everything works offline meanwhile"
            yield Finding("wrong", f"relay {relay}", str(error), advice, NO_NETWORK)
            continue
        yield Finding("ok", f"relay {relay}", f"answers within {reached.ms} ms")
        if reached.time_s is not None:
            yield _clock(relay, time.time() - reached.time_s)


def _clock(relay: str, ahead_s: float) -> Finding:
    if abs(ahead_s) <= _CLOCK_S_MAX:
        return Finding("ok", "clock", f"within {_CLOCK_S_MAX:.0f} s of {relay}")
    where = "ahead of" if ahead_s > 0 else "behind"
    found = f"{abs(ahead_s):,.0f} s {where} {relay}"
    return Finding("wrong", "clock", found, "set the clock of this computer")

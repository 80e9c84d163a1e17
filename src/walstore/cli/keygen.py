"""`walstore keygen`: make an identity, and print the card that others invite it by."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from getpass import getpass

from walstore.cli.arguments import command_parser, parsed
from walstore.cli.config import load_config
from walstore.cli.identities import (
    FILE_VARIABLE,
    SEED_VARIABLE,
    KeptIdentity,
    UnknownIdentityError,
    find_identity,
    identity_names,
    make_identity,
)
from walstore.cli.output import columns, note, put_json, put_line
from walstore.cli.places import checked_name
from walstore.signed.card import Card

# A private key in hex, and whatever blank somebody has pasted with it.
_SEED_SIZE_MAX = 256


def parser() -> ArgumentParser:
    """What `walstore keygen` takes."""
    made = command_parser(
        "keygen",
        "Make an identity unless there is one, and print its card: a line that holds no secret,"
        " for whoever is to invite you.",
        epilog="Private keys are never arguments. They are kept in a file that only you can read,"
        f" or in the keychain; {SEED_VARIABLE}, 64 hex digits, or {FILE_VARIABLE} takes the place"
        " of both.",
    )
    made.add_argument("name", nargs="?", help="what to call it (default)")
    made.add_argument(
        "--keychain",
        action="store_true",
        help="keep it in the keychain of the operating system (pip install 'walstore[keychain]')",
    )
    made.add_argument(
        "--import",
        action="store_true",
        dest="is_imported",
        help="take a private key that exists, 64 hex digits, from a prompt or standard input",
    )
    made.add_argument("--list", action="store_true", help="list the identities that there are")
    return made


def run(arguments: Sequence[str]) -> int:
    """Carry out `walstore keygen …`; the exit code."""
    flags = parsed(parser(), arguments)
    if flags.list:
        _list(is_json=flags.json)
        return 0
    name = checked_name(flags.name or load_config().identity)
    _show(_found(name, flags.is_imported, flags.keychain), is_json=flags.json)
    return 0


def _found(name: str, is_imported: bool, is_in_keychain: bool) -> KeptIdentity:
    if not is_imported:
        try:
            kept = find_identity(name)
        except UnknownIdentityError:
            pass
        else:
            note(f"{kept.name} is kept in {kept.place}; this is its card")
            return kept
    seed = _asked() if is_imported else None
    kept = make_identity(name, seed=seed, is_in_keychain=is_in_keychain)
    note(f"made {name}, kept in {kept.place}; give others this card, and nobody the key")
    return kept


def _asked() -> str:
    """A private key from a person, unseen, or from a pipe."""
    if sys.stdin.isatty():
        return getpass("private key (64 hex digits): ").strip()
    return sys.stdin.readline(_SEED_SIZE_MAX).strip()


def _show(kept: KeptIdentity, *, is_json: bool) -> None:
    card = Card.of(kept.identity)
    if is_json:
        members = {"name": kept.name, "public_key": card.public_key, "card": card.line}
        put_json({**members, "place": kept.place})
    else:
        put_line(card.line)


def _list(*, is_json: bool) -> None:
    found = [find_identity(name) for name in identity_names()]
    if is_json:
        put_json(
            [
                {"name": each.name, "public_key": each.identity.public_key, "place": each.place}
                for each in found
            ]
        )
        return
    for line in columns([(each.name, each.identity.public_key, each.place) for each in found]):
        put_line(line)

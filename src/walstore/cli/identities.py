"""Who this is: identities by name, and where their private keys come from.

- A private key is never an argument, where every process of the computer could read it. It comes,
  in this order, from WALSTORE_SEED, from the file that WALSTORE_IDENTITY_FILE names, from a file of
  its own that nobody else may read, or from the keychain of the operating system.
- Nothing is ever put in the place of a private key: one that is lost cannot be made again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import orjson

from walstore.cli.keychain import find_secret, keep_secret
from walstore.cli.output import note
from walstore.cli.places import checked_name, data_directory, make_private, replace_file
from walstore.errors import StorageError, UsageError
from walstore.signed.identity import Identity, SeedError
from walstore.signed.keyfile import KeyfileExistsError, KeyfileExposedError

SEED_VARIABLE = "WALSTORE_SEED"
FILE_VARIABLE = "WALSTORE_IDENTITY_FILE"

_SEED_BYTES = 32
_FILE, _KEYCHAIN = ".json", ".keychain"


class UnknownIdentityError(UsageError):
    """There is no such identity on this computer."""

    def __init__(self, name: str) -> None:
        option = "" if name == "default" else f" {name}"
        super().__init__(
            f"there is no identity called {name!r} here; `walstore keygen{option}` makes one"
        )


class IdentityExistsError(UsageError):
    """There is one already, and it is not given up."""

    def __init__(self, name: str, place: Path) -> None:
        super().__init__(
            f"there is an identity called {name} already, in {place}; name another one:"
            " walstore keygen NAME"
        )


class OtherKeyError(StorageError):
    """The keychain holds another key than the one that was put there."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the keychain holds another key for {name} than it was given")


class ExposedKeyError(StorageError):
    """Others may read a private key."""

    def __init__(self, path: Path, mode: int) -> None:
        super().__init__(
            f"{path}: others can get at this private key (mode {mode:04o}); close it with"
            f" `chmod 600 {path}`, and if others were there meanwhile, make a new identity"
        )


@dataclass(frozen=True, slots=True)
class KeptIdentity:
    """An identity, and where it was found."""

    name: str
    identity: Identity
    place: str


def identity_names() -> list[str]:
    """What the identities of this computer are called."""
    root = data_directory() / "identities"
    try:
        found = [*root.glob(f"*{_FILE}"), *root.glob(f"*{_KEYCHAIN}")]
    except OSError as error:
        raise StorageError(f"{root}: {error.strerror}; check who owns it") from error
    return sorted({each.stem for each in found})


def find_identity(name: str) -> KeptIdentity:
    """An identity, with its private key.

    Raises:
        UnknownIdentityError: There is none.
        UsageError: What the environment holds is no private key.
        ExposedKeyError: Others can read it.
        StorageError: Its file, or the keychain, does not give it.
    """
    seed, file = os.environ.get(SEED_VARIABLE), os.environ.get(FILE_VARIABLE)
    if seed:
        return KeptIdentity(name, _from_environment(seed), f"the environment, {SEED_VARIABLE}")
    if file:
        return KeptIdentity(name, _load(Path(file)), file)
    path, stub = identity_file(name), _place(name, _KEYCHAIN)
    if path.exists():
        return KeptIdentity(name, _load(path), str(path))
    if stub.exists():
        return KeptIdentity(name, _from_keychain(name, stub), "the keychain")
    raise UnknownIdentityError(name)


def find_or_make_identity(name: str) -> KeptIdentity:
    """An identity; a new one, in a file, if there is none, which is said."""
    try:
        return find_identity(name)
    except UnknownIdentityError:
        try:
            made = make_identity(name)
        except IdentityExistsError:
            return find_identity(name)
    note(f"made the identity {name}, kept in {made.place}")
    return made


def make_identity(
    name: str, *, seed: str | None = None, is_in_keychain: bool = False
) -> KeptIdentity:
    """Keep a new identity.

    Args:
        name: What to call it.
        seed: Its private key, if it is not to be a new one.
        is_in_keychain: Whether to keep it in the keychain, not in a file.

    Raises:
        IdentityExistsError: There is one called so.
        SeedError: That is no private key.
        StorageError: It cannot be kept.
    """
    for place in (identity_file(name), _place(name, _KEYCHAIN)):
        if place.exists():
            raise IdentityExistsError(name, place)
    secret = os.urandom(_SEED_BYTES).hex() if seed is None else seed
    identity = identity_of(secret)
    if is_in_keychain:
        keep_secret(name, secret)
        replace_file(_place(name, _KEYCHAIN), orjson.dumps({"publicKey": identity.public_key}))
        return KeptIdentity(name, identity, "the keychain")
    path = identity_file(name)
    make_private(path.parent)
    try:
        identity.save(path)
    except KeyfileExistsError as error:
        # Another command has made it just now.
        raise IdentityExistsError(name, path) from error
    return KeptIdentity(name, identity, str(path))


def identity_file(name: str) -> Path:
    """Where an identity is, if it is in a file."""
    return _place(name, _FILE)


def identity_of(seed: str) -> Identity:
    """The identity of a private key as text.

    Raises:
        SeedError: It is none; what it is instead is not said.
    """
    try:
        return Identity.from_seed(seed.strip())
    except SeedError:
        # Without the context: whoever prints a traceback prints no secret.
        raise SeedError from None


def _from_environment(seed: str) -> Identity:
    try:
        return identity_of(seed)
    except SeedError as error:
        raise UsageError(f"{SEED_VARIABLE}: {error}") from None


def _load(path: Path) -> Identity:
    try:
        return Identity.load(path)
    except KeyfileExposedError as error:
        raise ExposedKeyError(path, error.mode) from error


def _from_keychain(name: str, stub: Path) -> Identity:
    identity = identity_of(find_secret(name))
    try:
        expected = orjson.loads(stub.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        expected = None
    if expected != {"publicKey": identity.public_key}:
        raise OtherKeyError(name)
    return identity


def _place(name: str, suffix: str) -> Path:
    return data_directory() / "identities" / f"{checked_name(name)}{suffix}"

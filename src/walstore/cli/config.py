"""What to assume where nothing is said: `config.toml`, then the environment.

    relay = "wss://relay.example"     the relay of documents that are made
    identity = "work"                 who makes them

- The environment, WALSTORE_RELAY and WALSTORE_IDENTITY, counts more than the file; a flag most.
- Secrets are in neither: see `identities`.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

from walstore.cli.places import checked_name, config_file
from walstore.errors import UsageError

RELAY_VARIABLE = "WALSTORE_RELAY"
IDENTITY_VARIABLE = "WALSTORE_IDENTITY"

_NAMES = {"relay", "identity"}


class ConfigFileError(UsageError):
    """The configuration cannot be followed."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}; mend or remove it")


@dataclass(frozen=True, slots=True)
class Config:
    """What is assumed.

    Attributes:
        relay: The relay of a new document; None for none.
        identity: Who makes it.
    """

    relay: str | None = None
    identity: str = "default"


def load_config() -> Config:
    """What is assumed on this computer, for this process.

    Raises:
        ConfigFileError: The file cannot be followed.
        BadNameError: The identity has no such name.
    """
    said = {**_file(config_file()), **_environment()}
    return Config(said.get("relay"), checked_name(said.get("identity", "default")))


def _environment() -> dict[str, str]:
    named = {"relay": RELAY_VARIABLE, "identity": IDENTITY_VARIABLE}
    return {name: text for name, each in named.items() if (text := os.environ.get(each))}


def _file(path: Path) -> dict[str, str]:
    try:
        members = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigFileError(path, str(error)) from error
    for name, value in members.items():
        if name not in _NAMES:
            raise ConfigFileError(path, f"{name!r} is none of {', '.join(sorted(_NAMES))}")
        if not isinstance(value, str) or not value:
            raise ConfigFileError(path, f"{name!r} is not a text")
    return members

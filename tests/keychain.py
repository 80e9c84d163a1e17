"""A keychain for tests: what an operating system keeps, in a file that TEST_KEYCHAIN names."""

from __future__ import annotations

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend


class FileKeychain(KeyringBackend):
    """Keeps secrets where nobody would."""

    priority = 1

    def get_password(self, service: str, username: str) -> str | None:
        """A secret."""
        return _kept().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        """Keep a secret."""
        _file().write_text(json.dumps({**_kept(), f"{service}/{username}": password}))


def _file() -> Path:
    return Path(os.environ["TEST_KEYCHAIN"])


def _kept() -> dict[str, str]:
    kept: dict[str, str] = json.loads(_file().read_text()) if _file().exists() else {}
    return kept

"""One table of a configuration, read member by member.

- What is of another type or out of range is refused by its full name, such as `http.port`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

from walstore.archive.formats import FORMAT_IDS
from walstore.archive.policy import parse_duration_ms
from walstore.errors import UsageError

_KEY = re.compile("[0-9a-f]{64}")


class ConfigError(UsageError):
    """A setting cannot be used.

    Attributes:
        where: The setting by its full name.
        reason: What is wrong with it.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where} {reason}")
        self.where = where
        self.reason = reason


class Section:
    """A table of a configuration."""

    def __init__(self, name: str, members: object) -> None:
        self.name = name
        self.members = dictionary(f"[{name}]", members)

    def text(self, name: str, *, may_be_empty: bool = False) -> str | None:
        value = self.members.get(name)
        if value is None:
            return None
        if type(value) is not str or not value.isprintable() or not (value or may_be_empty):
            raise ConfigError(self._where(name), f"is {value!r}, and not a line of text")
        return value

    def path(self, name: str, directory: Path) -> Path | None:
        text = self.text(name)
        return None if text is None else directory / Path(text).expanduser()

    def integer(self, name: str, default: int, smallest: int = 0, largest: int = 2**53 - 1) -> int:
        value = self.members.get(name, default)
        if type(value) is not int or not smallest <= value <= largest:
            raise ConfigError(
                self._where(name), f"is {value!r}, and not a number from {smallest} to {largest}"
            )
        return value

    def boolean(self, name: str, default: bool) -> bool:
        value = self.members.get(name, default)
        if type(value) is not bool:
            raise ConfigError(self._where(name), f"is {value!r}, and neither true nor false")
        return value

    def duration_ms(self, name: str, default_ms: int) -> int:
        value = self.members.get(name)
        found = parse_duration_ms(value) if type(value) is str else None
        if value is None:
            return default_ms
        if not found:
            raise ConfigError(
                self._where(name), f"is {value!r}, and not a time such as 30s, 5m or 6h"
            )
        return found

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        value = self.members.get(name, choices[0])
        if value not in choices:
            raise ConfigError(self._where(name), f"is {value!r}; {known(choices)}")
        return cast(str, value)

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.members.get(name, [])
        if type(value) is not list or not all(type(each) is str and each for each in value):
            raise ConfigError(self._where(name), f"is {value!r}, and not a list of texts")
        return tuple(value)

    def keys(self, name: str) -> tuple[str, ...]:
        found = self.texts(name)
        for each in found:
            if not _KEY.fullmatch(each):
                raise ConfigError(
                    self._where(name), f"has {each!r}, and not a public key: 64 digits of 0-9a-f"
                )
        return found

    def formats(self, name: str) -> tuple[str, ...]:
        chosen = self.texts(name) if name in self.members else ("jsonl",)
        for each in chosen:
            if each not in FORMAT_IDS:
                raise ConfigError(self._where(name), f"has {each!r}; {known(FORMAT_IDS)}")
        if not chosen or len(set(chosen)) < len(chosen):
            raise ConfigError(self._where(name), "is empty, or names a format twice")
        return chosen

    def writers(self) -> Literal["any", "roster"] | tuple[str, ...]:
        value = self.members.get("writers", "any")
        if value in ("any", "roster"):
            return cast(Literal["any", "roster"], value)
        keys = self.keys("writers") if type(value) is list else ()
        if not keys:
            raise ConfigError(
                self._where("writers"), f"is {value!r}, and not any, roster or a list of keys"
            )
        return keys

    def _where(self, name: str) -> str:
        return f"{self.name}.{name}"


def known(names: Sequence[str]) -> str:
    return f"known are {', '.join(names)}"


def dictionary(where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(where, "is not a table")
    return value

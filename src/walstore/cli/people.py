"""What other people are called on this computer: names for keys, given when they were invited.

- A name proves nothing and goes nowhere: it is how this computer's user tells keys apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import orjson

from walstore.cli.output import KEY_SHOWN
from walstore.cli.places import checked_name, data_directory, replace_file
from walstore.errors import StorageError, UsageError

_FILE_BYTES_MAX = 2**20

# Fewer digits than this are more likely a mistake than a key.
_PREFIX_MIN = 6


class UnknownPersonError(UsageError):
    """Nobody is called so, or more than one key begins so."""

    def __init__(self, text: str, known: Iterable[str]) -> None:
        listed = ", ".join(known) or "nobody"
        super().__init__(f"{text!r} is no member; the members are: {listed}")


class NameTakenError(UsageError):
    """A name that stands for another key already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"somebody else is called {name} here already; choose another --as")


class People:
    """The names of this computer, by key."""

    def __init__(self, names: dict[str, str], own: str | None = None) -> None:
        self._names = names
        self._own = own

    @classmethod
    def load(cls, own: str | None = None) -> People:
        """The names that were given so far; `own` is called `you`.

        Raises:
            StorageError: They cannot be read.
        """
        path = _file()
        try:
            with path.open("rb") as file:
                found = orjson.loads(file.read(_FILE_BYTES_MAX))
        except FileNotFoundError:
            return cls({}, own)
        except (OSError, orjson.JSONDecodeError) as error:
            raise StorageError(f"{path}: {error}; mend or remove it") from error
        if not isinstance(found, dict):
            raise StorageError(f"{path}: this is not a JSON object; mend or remove it")
        return cls({key: name for key, name in found.items() if isinstance(name, str)}, own)

    def check(self, name: str, key: str) -> None:
        """Make sure that a name may be given to a key.

        Raises:
            BadNameError: It is no name.
            NameTakenError: It is somebody else's.
        """
        checked_name(name)
        if any(each == name and other != key for other, each in self._names.items()):
            raise NameTakenError(name)

    def give(self, name: str, key: str) -> None:
        """Call a key something from now on; raises as `check` does."""
        self.check(name, key)
        self._names[key] = name
        replace_file(_file(), orjson.dumps(self._names, option=orjson.OPT_INDENT_2))

    def name_of(self, key: str) -> str:
        """What somebody is called: `you`, a name, or the beginning of the key."""
        if key == self._own:
            return "you"
        return self._names.get(key, key[:KEY_SHOWN])

    def find(self, text: str, keys: Iterable[str]) -> str:
        """The one of some keys that is meant by a name, a key or its beginning.

        Raises:
            UnknownPersonError: It is none of them, or not clear which.
        """
        known = list(keys)
        found = [key for key in known if self._names.get(key) == text or key == text]
        if not found and len(text) >= _PREFIX_MIN:
            found = [key for key in known if key.startswith(text.lower())]
        if len(found) != 1:
            raise UnknownPersonError(text, [self.name_of(key) for key in known])
        return found[0]


def _file() -> Path:
    return data_directory() / "people.json"

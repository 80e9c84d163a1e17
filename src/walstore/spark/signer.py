"""Whose key signs, by where it is: a plan names the place, and never holds what is there."""

from __future__ import annotations

import os
from dataclasses import dataclass

from walstore.errors import UsageError
from walstore.signed.identity import Identity, SeedError


class SignerError(UsageError):
    """A key is not where it is said to be.

    Attributes:
        place: The file or variable; never anything of what is in it.
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place} {reason}")
        self.place = place


@dataclass(frozen=True)
class Signer:
    """An identity, by the file or the environment variable that has it.

    Attributes:
        file: The file that `Identity.save` has written, where tasks run.
        variable: The variable with the seed in hex, where tasks run.
    """

    file: str | None = None
    variable: str | None = None

    def __post_init__(self) -> None:
        if (self.file is None) == (self.variable is None):
            raise UsageError("say where the key is: a file, or the name of a variable")

    @classmethod
    def at(cls, place: str) -> Signer:
        """The one at a place: a file, or `env:NAME`."""
        kind, colon, name = place.partition(":")
        return cls(variable=name) if colon and kind == "env" else cls(file=place)

    @property
    def place(self) -> str:
        """Where it is."""
        return f"env:{self.variable}" if self.file is None else self.file

    def load(self) -> Identity:
        """The identity.

        Raises:
            SignerError: The variable is not set, or holds no key.
            KeyfileError: The file cannot be used.
        """
        if self.file is not None:
            return Identity.load(self.file)
        name = self.variable or ""
        text = os.environ.get(name)
        if text is None:
            raise SignerError(f"${name}", "is not set where tasks run")
        try:
            return Identity.from_seed(text.strip())
        except SeedError:
            # Its cause is left out: nothing of what was read is told.
            raise SignerError(f"${name}", "holds no key: 64 lower-case hex digits") from None

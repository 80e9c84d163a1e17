"""Packages that not every archive needs, imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from walstore.errors import UsageError


class ExtraMissingError(UsageError, ImportError):
    """An extra of walstore is not installed.

    Attributes:
        what: What needs it.
        extra: Its name.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'walstore[{extra}]'")
        self.what = what
        self.extra = extra


def needed(module: str, *, what: str, extra: str) -> Any:
    """Import a module of an extra.

    Raises:
        ExtraMissingError: It is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ExtraMissingError(what, extra) from error

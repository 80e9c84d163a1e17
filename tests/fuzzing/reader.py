"""What a reader of hostile input is: good input to begin with, and what it may raise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from walstore.errors import PeerError


class Reader(NamedTuple):
    """Something that reads bytes of others.

    Attributes:
        specimens: Good input.
        read: Reads anything: returns, or raises what is documented; all else is a crash.
        refuses: The exceptions that are documented.
        is_exact: Whether any change at all makes good input bad.
    """

    specimens: Sequence[bytes]
    read: Callable[[bytes], object]
    refuses: tuple[type[Exception], ...] = (PeerError,)
    is_exact: bool = False

    def takes(self, text: bytes) -> bool:
        """Read it; whether it was taken.

        Raises:
            Exception: It was neither taken nor refused as it should be.
        """
        try:
            self.read(text)
        except self.refuses:
            return False
        return True

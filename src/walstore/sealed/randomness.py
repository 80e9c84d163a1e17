"""Where keys and nonces come from: a function that the caller passes in, `os.urandom` as a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from walstore.errors import UsageError

Randomness: TypeAlias = Callable[[int], bytes]


class RandomnessError(UsageError):
    """The source of randomness did not give what was asked for."""

    def __init__(self, count: int) -> None:
        super().__init__(f"the source of randomness must give exactly {count} bytes")


def draw(randomness: Randomness, count: int) -> bytes:
    """Exactly `count` random bytes; a short nonce would be accepted below and ruin the key.

    Raises:
        RandomnessError: The source gave something else.
    """
    drawn = randomness(count)
    if type(drawn) is not bytes or len(drawn) != count:
        raise RandomnessError(count)
    return drawn

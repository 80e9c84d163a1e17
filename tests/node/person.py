"""Somebody with keys that both sides can use."""

from __future__ import annotations

import random

from walstore.signed.identity import Identity


class Person:
    """Somebody who writes.

    Args:
        rng: Draws the keys.
    """

    def __init__(self, rng: random.Random) -> None:
        self.private_key = rng.randbytes(32).hex()
        self.kem_private_key = rng.randbytes(32).hex()
        self.identity = Identity.from_seed(self.private_key, kem_private_key=self.kem_private_key)
        self.public_key = self.identity.public_key

    @property
    def as_adder(self) -> dict[str, str]:
        """The keys in the spelling of the keyring package."""
        return {"edPubHex": self.public_key, "edPrivHex": self.private_key}

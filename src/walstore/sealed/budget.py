"""How often a content key may seal.

- AES-256-GCM with random 96-bit nonces is safe for 2^32 seals under one key. The next one is
  refused, whatever the cipher.
- Other writers seal under the same key and nobody can count them all. Rotation is therefore
  due long before: after 2^24 own seals, so that 256 such writers stay within the bound.
- The counts are the caller's to keep, in the same transaction as the sealed element. A seal that
  was never stored never left the process and need not be counted.
"""

from __future__ import annotations

from collections.abc import Mapping

from walstore.sealed.keys import ContentKeys
from walstore.sealed.outcomes import SealBudgetError

SEALS_MAX = 2**32
SEALS_BEFORE_ROTATION = 2**24


class SealBudget:
    """Counts seals by the id of the content key.

    Args:
        counts: What was counted before, as `counts` gave it.
    """

    __slots__ = ("_counts",)

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self._counts = dict(counts or {})

    @property
    def counts(self) -> dict[str, int]:
        """Seals so far by key id, to be stored."""
        return dict(self._counts)

    def spend(self, keys: ContentKeys) -> None:
        """Count one seal under the current key.

        Raises:
            SealBudgetError: The key is used up; nothing was counted.
        """
        spent = self._spent(keys)
        if spent >= SEALS_MAX:
            raise SealBudgetError(keys.current_epoch)
        self._counts[keys.key_ids[keys.current_epoch]] = spent + 1

    def rotation_due(self, keys: ContentKeys) -> bool:
        """Whether the current key should be replaced soon."""
        return self._spent(keys) >= SEALS_BEFORE_ROTATION

    def _spent(self, keys: ContentKeys) -> int:
        return self._counts.get(keys.key_ids[keys.current_epoch], 0)

"""Who may write to a document, as its readers enforce it: the owner, and whom the roster names.

- It is asked for every element, and answers from the newest roster that was adopted.
- Without a roster, nobody but the owner may write.
- Somebody who was revoked is still an author: of what they wrote, that part counts which the
  owner had read by then.
"""

from __future__ import annotations

from walstore.signed.roster import Counts, Roster


class Membership:
    """The members of one document.

    Attributes:
        owner: Whose word counts.
        roster: What the owner says; None if that is not known yet.
    """

    __slots__ = ("owner", "roster")

    def __init__(self, owner: str, roster: Roster | None = None) -> None:
        """Begin with what is known."""
        self.owner = owner
        self.roster = roster

    def is_writer(self, key: str) -> bool:
        """Whether something that a key has written may count."""
        if self.roster is None:
            return key == self.owner
        return self.roster.may_write(key) or self.roster.counted_of(key) is not None

    def is_producer(self, key: str) -> bool:
        """Whether a key may sign snapshots."""
        return key == self.owner if self.roster is None else self.roster.is_producer(key)

    def revoked(self, key: str) -> Counts | None:
        """What counts of a key that may no longer write, by session."""
        return None if self.roster is None else self.roster.counted_of(key)

    def may_write(self, key: str) -> bool:
        """Whether a key may write now."""
        return key == self.owner if self.roster is None else self.roster.may_write(key)

    def is_member(self, key: str) -> bool:
        """Whether a key may read or write now."""
        return self.may_read(key) or self.may_write(key)

    def may_read(self, key: str) -> bool:
        """Whether a key may read now."""
        return key == self.owner if self.roster is None else self.roster.may_read(key)

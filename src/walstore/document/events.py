"""What a document noticed about its log: facts with their evidence, never guesses.

- A rejected element changed nothing. An unreadable one is kept and tried again.
- A gap is withdrawn when the missing elements arrive.
- A fork is two signed elements that use one clock for different content. The elements are the
  proof; which of them counts is the same for every reader: the first in the log.
- What hangs on an element that a snapshot has let go of is kept, near where it was.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from walstore.wire.element import Element

# Why an element of somebody unknown is rejected.
NOT_A_WRITER = "its author may not write"


class Rejection(NamedTuple):
    """An element that was not folded.

    Attributes:
        ts: Its `ts`, or None if it has none.
        author: Whose key it carries, proven or not; None if it carries none.
        reason: Why.
        evidence: The element as it was pulled; None if a store had read it before it was opened.
        proven: Whether the author did sign it.
    """

    ts: int | None
    author: str | None
    reason: str
    evidence: object
    proven: bool


class Gap(NamedTuple):
    """Elements of an author that are missing: from `expected` up to, not including, `got`.

    Attributes:
        author: The author key.
        expected: The first missing seq.
        got: The seq that showed that something is missing.
        session: The session that counts, or None where a peer counts by author.
    """

    author: str
    expected: int
    got: int
    session: str | None


class Fork(NamedTuple):
    """One clock, two contents: the author, or somebody with the author's key, wrote both."""

    author: str
    counter: int
    replica: str
    first: Element
    second: Element


class Rollback(NamedTuple):
    """The log no longer holds what it held before.

    Attributes:
        reason: What is missing.
        head: Where the log ends now, if it ends before what was read of it; else None.
    """

    reason: str
    head: int | None = None


class Displaced(NamedTuple):
    """Somebody wrote after an element that was removed and let go: it stands elsewhere now.

    Attributes:
        list: The list.
        replica: The session that wrote it.
        counter: The counter of its first element.
        size: How many elements it has.
    """

    list: str
    replica: str
    counter: int
    size: int


Event: TypeAlias = Rejection | Gap | Fork | Rollback | Displaced

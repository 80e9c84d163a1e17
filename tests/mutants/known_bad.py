"""Five weaknesses of the peer, put back: `python -m tests.mutants`.

Each is a small edit that makes the library behave as the peer does. The tests must fail with it,
and must pass without it. What two checks keep away is put back for each of them alone as well, so
that neither hides that nothing tests the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.mutants.tree import Ending, Tree, copied


class KnownBad(NamedTuple):
    """A weakness, as an edit of one module.

    Attributes:
        weakness: Its number.
        says: What happens with it.
        path: The module, below `src`.
        old: What is there, exactly once.
        new: What the peer has instead.
    """

    weakness: str
    says: str
    path: str
    old: str
    new: str

    def put_back(self, text: str) -> str:
        """The module with the weakness."""
        assert text.count(self.old) == 1, f"{self.weakness} no longer fits {self.path}"
        return text.replace(self.old, self.new)


KNOWN_BAD = [
    KnownBad(
        "W01",
        "adopting a snapshot does not advance the clock",
        "walstore/crdt/crdt.py",
        "        self._registers, self.folded, self._maps, self.counter = content\n",
        "        self._registers, self.folded, self._maps, _ = content\n",
    ),
    KnownBad(
        "W03",
        "a clock need not be its signer's",
        "walstore/wire/envelope.py",
        "        if not replica.startswith(prefix):\n",
        "        if not replica:\n",
    ),
    KnownBad(
        "W07",
        "what is edited while a commit is in flight is dropped from the queue",
        "walstore/document/document.py",
        "                return await self._send()\n        finally:\n",
        "                ts = await self._send()\n"
        "                self._content.take()\n"
        "                self._outbox._recorded = []\n"
        "                return ts\n"
        "        finally:\n",
    ),
    KnownBad(
        "W16",
        "a snapshot after pruning holds the surviving tail alone",
        "walstore/document/document.py",
        "        fold = self._log.fold_at(TS_MAX)\n        return Draft(",
        "        fold = self._log.fold_on(None)\n"
        "        self._log.ledger.fold_into(fold, upto_ts=TS_MAX)\n"
        "        return Draft(",
    ),
    KnownBad(
        "W20",
        "an emptied log opens as an empty document",
        "walstore/document/document.py",
        "        self._marks = Marks() if marks is None else marks\n",
        "        self._marks = Marks()\n",
    ),
    KnownBad(
        "W20",
        "a log that ends earlier than before is taken as it is",
        "walstore/document/document.py",
        "        if self._log.checkpoint < self._marks.ts:\n",
        "        if False:\n",
    ),
    KnownBad(
        "W20",
        "the last element of one author is taken back, and newer ones hide it",
        "walstore/document/document.py",
        "            if self._log.tracker.has_lost(author, session or None, counted):\n",
        "            if False:\n",
    ),
]

# What every change is tested with, and what tells of these among it.
NAMED = ["tests/test_weaknesses.py"]
MANY = [
    *NAMED,
    "tests/test_document_snapshots.py",
    "tests/test_document_attacks.py",
    "tests/test_document_commit.py",
    "tests/test_store_offline.py",
    "tests/test_store_rollback.py",
]


def survivors(say: Callable[[str], None], *, is_thorough: bool) -> list[str]:
    """Put each weakness back and run tests; which of them no test has noticed.

    Args:
        say: Told what becomes of each.
        is_thorough: Whether to leave out the test of its number, so that others have to notice.
    """
    with copied() as tree:
        ending = tree.run(MANY if is_thorough else NAMED)
        assert ending is Ending.PASSED, "the tests fail without any weakness: they show nothing"
        return [bad.weakness for bad in KNOWN_BAD if not _is_noticed(tree, bad, say, is_thorough)]


def _is_noticed(tree: Tree, bad: KnownBad, say: Callable[[str], None], is_thorough: bool) -> bool:
    number = bad.weakness.lower()
    tests: Sequence[str] = [*NAMED, "-k", number]
    if is_thorough:
        tests = [*MANY, "-k", f"not {number}"]
    whole = tree.read(bad.path)
    try:
        tree.write(bad.path, bad.put_back(whole))
        ending = tree.run(tests)
    finally:
        tree.write(bad.path, whole)
    say(f"{bad.weakness} ({bad.says}): the tests {ending.value}")
    return ending is Ending.FAILED

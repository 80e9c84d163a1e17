"""What is measured, in which unit, and what walstore has to reach.

- A workload is one kind of work; its cases are the figures that one worker run gives.
- A target divides walstore's figure by a yardstick of the same run: a peer's figure, walstore's
  own figure of another case, or nothing (then the limit has the case's unit).
- Interpreted and compiled walstore have targets of their own.

To add a workload: an entry here, a function in `worker.py` (and `node/worker.mjs`), an input in
`inputs.py` if it needs one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.inputs import Sizes

BEST_PEER = "*"

# Made once for each peer before the workloads that read it.
Made = Literal["make", "make-concurrent"]


@dataclass(frozen=True)
class Target:
    """walstore's `case` must be at most `limit` times the yardstick."""

    case: str
    limit: float
    peer: str = ""
    other_case: str = ""


@dataclass(frozen=True)
class Workload:
    """One table of the report."""

    name: str
    what: str
    unit: str
    cases: tuple[str, ...]
    pure: tuple[Target, ...] = ()
    compiled: tuple[Target, ...] = ()
    needs: Made | None = None
    repeats: bool = True
    # Everyone shows the same text; where edits are counted, workers check it themselves.
    alike: bool = False

    def targets(self, *, compiled: bool) -> tuple[Target, ...]:
        """What holds for this build: the compiled column where it has an entry."""
        return self.compiled if compiled and self.compiled else self.pure


def faster(case: str, times: float, peer: str) -> Target:
    """walstore has to be this many times faster, or smaller, than a peer."""
    return Target(case, 1 / times, peer)


def at_most(case: str, times: float, peer: str) -> Target:
    """walstore may need this many times what a peer needs."""
    return Target(case, times, peer)


def workloads(sizes: Sizes) -> tuple[Workload, ...]:
    """Every workload, in the order of the report."""
    return _editing() + _bytes() + _folding(sizes) + _documents(sizes)


def _editing() -> tuple[Workload, ...]:
    return (
        Workload(
            "W1",
            "local edits of the trace, one transaction each",
            "µs/edit",
            ("edit",),
            pure=(at_most("edit", 1.3, "loro"), faster("edit", 10, "pycrdt")),
            compiled=(faster("edit", 1.3, "loro"),),
        ),
        Workload(
            "W1b",
            "local edits, one call each, one transaction per burst",
            "µs/edit",
            ("edit",),
            pure=(at_most("edit", 1, "loro"),),
            compiled=(faster("edit", 3, "loro"),),
        ),
        Workload(
            "W1c",
            "local edits, each giving its unsigned message",
            "µs/edit",
            ("edit",),
            pure=(faster("edit", 3, "loro"),),
            compiled=(faster("edit", 6, "loro"),),
        ),
        Workload(
            "W1s",
            "one keystroke: signed and sent, received and verified",
            "µs/edit",
            ("send", "receive", "sign alone", "verify alone"),
            pure=(
                Target("send", 1.3, other_case="sign alone"),
                Target("receive", 1.3, other_case="verify alone"),
            ),
            compiled=(
                Target("send", 1.3, other_case="sign alone"),
                Target("receive", 1.3, other_case="verify alone"),
                faster("send", 50, "starfish-js"),
                faster("receive", 50, "starfish-js"),
            ),
        ),
    )


def _bytes() -> tuple[Workload, ...]:
    return (
        Workload(
            "W2",
            "every message of the trace from bytes, one by one",
            "µs/message",
            ("message",),
            pure=(at_most("message", 1.2, "y-py"), faster("message", 2, "loro")),
            compiled=(at_most("message", 1, BEST_PEER),),
            needs="make",
        ),
        Workload(
            "W2m",
            "the whole history from bytes, as one message, to the text",
            "ms",
            ("history",),
            pure=(at_most("history", 3, "loro"),),
            compiled=(at_most("history", 1, "loro"),),
            needs="make",
            alike=True,
        ),
        Workload(
            "W3",
            "bytes: the history, a snapshot, one typed character on the wire",
            "bytes",
            (
                "history",
                "history deflated",
                "snapshot",
                "snapshot deflated",
                "shallow",
                "character",
            ),
            pure=(at_most("history", 0.75, "automerge"), at_most("snapshot", 0.5, "automerge")),
            needs="make",
            repeats=False,
        ),
        Workload(
            "W4",
            "a snapshot from bytes to the text, and to the first edit",
            "ms",
            ("shown", "shallow shown", "first edit"),
            pure=(at_most("shown", 1, "loro"), Target("first edit", 15)),
            compiled=(faster("shown", 2, "loro"), Target("first edit", 15)),
            needs="make",
            alike=True,
        ),
    )


def _folding(sizes: Sizes) -> tuple[Workload, ...]:
    chain, shuffled = str(sizes.chain), str(sizes.shuffled)
    few, many = map(str, sizes.siblings)
    # n log n allows 12.5 from 10,000 to 100,000; the rest is what rounds differ by.
    linearithmic = Target(many, 12.5 * 1.4, other_case=few)
    return (
        Workload(
            "W5-chain",
            "version-1 inserts typed as one chain: fold and materialise",
            "ms",
            (chain,),
            pure=(faster(chain, 3, "starfish-js"),),
            compiled=(faster(chain, 8, "starfish-js"),),
            alike=True,
        ),
        Workload(
            "W5-shuffled",
            "version-1 inserts of two replicas, shuffled: fold and materialise",
            "ms",
            (shuffled,),
            alike=True,
        ),
        Workload(
            "W5-siblings",
            "version-1 inserts at one anchor, oldest first: fold and materialise",
            "ms",
            (few, many),
            pure=(at_most(few, 3, "starfish-js"), at_most(many, 3, "starfish-js"), linearithmic),
            compiled=(
                at_most(few, 1, "starfish-js"),
                at_most(many, 1, "starfish-js"),
                linearithmic,
            ),
            alike=True,
        ),
        Workload(
            "W5-scrambled",
            "the same in any order: fold and materialise",
            "ms",
            (few, many),
            pure=(linearithmic,),
            alike=True,
        ),
    )


def _documents(sizes: Sizes) -> tuple[Workload, ...]:
    random_edits = tuple(map(str, sizes.random_edits))
    characters = tuple(map(str, sizes.characters))
    return (
        Workload(
            "W6",
            "set_text: one character in 1k, 10k, 100k; 1,000 rewritten; 50 scattered in 20k; "
            "5,000 all different",
            "ms",
            ("1k", "10k", "100k", "rewrite", "scattered", "different"),
            pure=(
                faster("100k", 4, "loro"),
                faster("100k", 1000, "starfish-js"),
                faster("different", 10, "loro"),
                at_most("scattered", 3, "loro"),
            ),
            compiled=(
                faster("100k", 6, "loro"),
                faster("100k", 1000, "starfish-js"),
                faster("different", 10, "loro"),
                at_most("scattered", 1, "loro"),
            ),
        ),
        Workload(
            "replay",
            "single-keystroke elements of one writer, re-derived from the log",
            "µs/element",
            ("chain", "each verified", "parse and hash"),
            pure=(Target("chain", 1 / 10, other_case="each verified"),),
            compiled=(Target("chain", 2, other_case="parse and hash"),),
        ),
        Workload(
            "W7",
            "the concurrent trace from bytes, one message per transaction",
            "ms",
            ("trace",),
            pure=(faster("trace", 1.5, "pycrdt"),),
            compiled=(faster("trace", 3, "pycrdt"),),
            needs="make-concurrent",
        ),
        Workload(
            "W8",
            "single characters inserted at random positions",
            "µs/edit",
            random_edits,
            pure=(at_most(random_edits[-1], 2, "loro"),),
            compiled=(at_most(random_edits[-1], 1, "loro"),),
            alike=True,
        ),
        Workload(
            "growth",
            "cost of an edit in a document of so many characters",
            "µs/edit",
            characters,
            pure=(Target(characters[-1], 2, other_case=characters[0]),),
            alike=True,
        ),
        Workload(
            "memory-edits",
            "resident memory that W1 adds",
            "MB",
            ("edits",),
            pure=(Target("edits", 10),),
            compiled=(Target("edits", 4),),
        ),
        Workload(
            "memory-loaded",
            "resident memory that opening the snapshot adds",
            "MB",
            ("loaded",),
            pure=(Target("loaded", 10),),
            compiled=(Target("loaded", 4),),
            needs="make",
        ),
    )

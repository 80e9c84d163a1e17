"""Who is measured: walstore and the libraries it is compared with, each at one exact version.

- A peer belongs to a runtime: `self` is the interpreter that runs the benchmark, `python` and
  `node` are environments under `.cache/bench`.
- A peer's `adapter` names the module under `benchmarks/adapters` or `benchmarks/node`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Peer:
    """One column of the comparison; `packages` are (name, exact version)."""

    name: str
    runtime: Literal["self", "python", "node"]
    adapter: str
    packages: tuple[tuple[str, str], ...] = ()
    # Where its modules are, if not where the interpreter finds them.
    path: str = ""
    # Left out of quick runs: no target names it, and its engine is measured from Python.
    slow: bool = False

    @property
    def version(self) -> str:
        """The version that is compared, empty for walstore itself."""
        return self.packages[0][1] if self.packages else ""


WALSTORE = Peer("walstore", "self", "walstore")

# The same source as C, as `make compiled` leaves it.
COMPILED = Peer("walstore compiled", "self", "walstore", path=".cache/compiled/lib")
BUILDS = (WALSTORE, COMPILED)

PEERS = (
    Peer("pycrdt", "python", "pycrdt", (("pycrdt", "0.14.10"),)),
    Peer("loro", "python", "loro", (("loro", "1.17.1"),)),
    Peer("automerge", "python", "automerge", (("automerge", "1.0.0rc1"),)),
    Peer("y-py", "python", "y_py", (("y-py", "0.6.2"),)),
    Peer(
        "starfish-wal",
        "python",
        "starfish",
        (("starfish-wal", "3.0.0a72"), ("starfish-protocol", "3.0.0a72")),
    ),
    Peer("yjs", "node", "yjs", (("yjs", "13.6.33"),)),
    Peer("loro-js", "node", "loro", (("loro-crdt", "1.17.1"),), slow=True),
    Peer("automerge-js", "node", "automerge", (("@automerge/automerge", "3.5.0"),), slow=True),
    Peer(
        "starfish-js",
        "node",
        "starfish",
        (
            ("@drakkar.software/starfish-wal", "3.0.0-alpha.65"),
            ("@drakkar.software/starfish-protocol", "3.0.0-alpha.65"),
        ),
    ),
)

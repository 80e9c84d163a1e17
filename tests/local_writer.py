"""Processes that write to a local file until they are killed.

- Each line on the input forks one; it tells every step on the output, before or after it is taken.
- `did` lines come after a call has returned: what they say must be found in the file.
- `will` lines come before a call: what they say may be found.
"""

from __future__ import annotations

import os
import random
import sys

from walstore.local import LocalFile, OutboxBody

DOCUMENT_KEY = "notes/today"
AUTHOR = "a" * 64


def body(session: str, seq: int, edits: list[bytes]) -> OutboxBody:
    """A body that holds edits, one in each line."""
    text = b"\n".join(edits)
    return OutboxBody(text, AUTHOR, "sig", f"{session}/{seq}", session, seq, "{}", "1")


def tell(*words: object) -> None:
    """Write a line at once."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def write(path: str, session: str) -> None:
    """Record, seal, acknowledge and confirm for ever."""
    chance = random.Random(session)
    tell("pid", os.getpid())
    with LocalFile.open(path, document_key=DOCUMENT_KEY, author=AUTHOR) as file:
        seal_leftovers(file)
        for count in range(10**9):
            step(file, session, count, chance)


def seal_leftovers(file: LocalFile) -> None:
    """Seal what dead sessions have recorded, as those sessions."""
    left: dict[str, list[tuple[int, bytes]]] = {}
    for session, number, packed in file.pending().recorded:
        left.setdefault(session, []).append((number, packed))
    for session, edits in left.items():
        seal(file, session, edits)


def seal(file: LocalFile, session: str, edits: list[tuple[int, bytes]]) -> None:
    """Seal edits as the session's next body."""
    last = file.last_sealed(session)
    made = body(session, 1 if last is None else last.seq + 1, [packed for _, packed in edits])
    tell("will seal", made.link, *(packed.decode() for _, packed in edits))
    file.seal(session, edits[-1][0], [made])
    tell("did seal", made.link)


def step(file: LocalFile, session: str, count: int, chance: random.Random) -> None:
    """Take one step."""
    pending = file.pending()
    match chance.randrange(8):
        case 0 if pending.recorded:
            seal(file, session, [(edit.number, edit.packed) for edit in pending.recorded])
        case 1 if pending.bodies:
            link = chance.choice(pending.bodies).link
            file.acknowledged(link, 1000 + count)
            tell("did acknowledge", link, 1000 + count)
        case 2 if pending.bodies:
            link = pending.bodies[0].link
            tell("will confirm", link)
            file.confirmed([link])
            tell("did confirm", link)
        case 3 if count % 4 == 0:
            file.sync()
        case _:
            edit = f"{session}:{count}"
            tell("will record", edit)
            file.record(session, edit.encode())
            tell("did record", edit)


def main(path: str) -> None:
    """Fork a writer for each line on the input, and tell when it has ended."""
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            write(path, line.strip())
        os.waitpid(pid, 0)
        tell("ended")


if __name__ == "__main__":
    main(sys.argv[1])

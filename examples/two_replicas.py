"""Two people edit one document offline at the same time, exchange bytes, and converge.

- Each holds a document of their own; all that passes between them is messages, as bytes.
- A message may arrive late or twice: folding is the same in any order and however often.
- The exit status is 0 only if both documents end up byte-identical.
"""

from __future__ import annotations

import hashlib
import json
import sys

from walstore import WalCrdt, Writer, pack_ops, unpack_ops
from walstore.canon import canonical_bytes, parse


class Person:
    """Someone with a document of their own, who knows of others only what a message tells."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.document = WalCrdt()
        # A replica id is any text that nobody else writes as.
        self.writer = Writer(self.document, name.lower())

    def send(self) -> bytes:
        """What was edited since the last message."""
        return canonical_bytes(pack_ops(self.writer.take()))

    def receive(self, message: bytes) -> None:
        """Fold a message of someone else."""
        self.document.fold_runs(unpack_ops(parse(message)))


def main() -> int:
    """Play the script; 0 if both end up with the same document."""
    ada, bo = Person("Ada"), Person("Bo")
    print("Two replicas, one document")
    print("==========================\n")

    step("1. Ada starts the document and sends it to Bo.")
    ada.writer.set("title", "Picnic")
    ada.writer.insert_text("note", 0, "Meet at the lake.")
    ada.writer.insert("todo", 0, ["bake bread", "buy cheese"])
    first = ada.send()
    bo.receive(first)
    show(ada)
    show(bo)

    step("2. Both go offline, and both edit all three parts.")
    ada.writer.set("title", "Picnic on Sunday")
    ada.writer.insert_text("note", len("Meet at the lake"), " at noon")
    ada.writer.remove("todo", 0)
    ada.writer.insert("todo", 1, ["make lemonade"])
    show(ada)
    bo.writer.set("title", "Lake picnic")
    bo.writer.remove("note", 0, len("Meet"))
    bo.writer.insert_text("note", 0, "Let us all meet")
    bo.writer.insert("todo", 2, ["borrow a blanket"])
    show(bo)

    step("3. They meet again and exchange what they wrote. Networks repeat themselves: so do we.")
    from_ada, from_bo = ada.send(), bo.send()
    deliver(from_ada, ada, bo)
    deliver(from_bo, bo, ada)
    bo.receive(from_ada)
    print("   Ada -> Bo, the same bytes once more\n")

    step("4. Note and list hold every edit. Of two titles with one counter, the higher id's stays.")
    show(ada)
    show(bo)

    step("5. Are they the same?")
    return verdict(ada, bo, exchanged=[first, from_ada, from_bo, from_ada])


def verdict(ada: Person, bo: Person, *, exchanged: list[bytes]) -> int:
    """Say whether both documents are the same, and return the exit status."""
    documents = [canonical_bytes(person.document.materialize()) for person in (ada, bo)]
    states = [person.document.canonical_state().encode() for person in (ada, bo)]
    for what, (left, right) in (("materialised document", documents), ("whole state", states)):
        print(f"   The {what}: {'byte-identical' if left == right else 'DIFFERENT'}")
        print(f"      {ada.name:<4} sha256 {hashlib.sha256(left).hexdigest()}")
        print(f"      {bo.name:<4} sha256 {hashlib.sha256(right).hexdigest()}")
    print(f"   Exchanged: {sum(map(len, exchanged))} bytes in {len(exchanged)} messages\n")
    print("This is the core. `make demo` puts such a document on a screen.")
    return 0 if documents[0] == documents[1] and states[0] == states[1] else 1


def deliver(message: bytes, sender: Person, receiver: Person) -> None:
    """Hand a message over and show it: a table of replicas, then one row per run."""
    receiver.receive(message)
    print(f"   {sender.name} -> {receiver.name}, {len(message)} bytes")
    for row in json.loads(message):
        print(f"      {canonical_bytes(row).decode()}")
    print()


def step(line: str) -> None:
    """Begin the next step of the script."""
    print(f"{line}\n")


def show(person: Person) -> None:
    """Print a document; a text is a list of characters, so its characters are joined."""
    document = person.document.materialize()
    print(f"   {person.name:<6}title  {document['title']}")
    print(f"         note   {''.join(document['note'])}")
    print(f"         todo   {', '.join(document['todo'])}\n")


if __name__ == "__main__":
    sys.exit(main())

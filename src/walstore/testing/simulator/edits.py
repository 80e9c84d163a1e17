"""What people do to a document: every kind of edit that there is, with values that tell them apart.

- Names are used for one kind of content each, and all of them by everybody.
- Whoever writes sees what they have written, at once.
- What an edit removes is noted: nothing can be expected of it any more.
"""

from __future__ import annotations

from random import Random

from walstore.document import WalDocument
from walstore.testing.simulator.tokens import Tokens, shown_in
from walstore.testing.simulator.verdicts import demand

REGISTERS = ("r0", "r1", "r2")
LISTS = ("l0", "l1")
TEXTS = ("t0", "t1")
MAP = "m0"


class Hand:
    """The edits of one session.

    Attributes:
        unsent: The tokens that were written and are not acknowledged.
    """

    def __init__(self, tokens: Tokens, session: str) -> None:
        self.tokens = tokens
        self.session = session
        self.unsent: list[str] = []

    def edit(self, document: WalDocument, chance: Random) -> str:
        """Edit something; what it was, in a word."""
        kind = chance.choice(("register", "list", "list", "text", "text", "text", "map", "view"))
        getattr(self, f"_{kind}")(document, chance)
        return kind

    def acknowledged(self, tokens: list[str]) -> None:
        """A relay has taken what was written so far."""
        self.tokens.acknowledged.update(tokens)
        taken = set(tokens)
        self.unsent = [token for token in self.unsent if token not in taken]

    def lost(self) -> None:
        """The process is gone, and nothing was kept."""
        self.tokens.forgotten.add(self.session)

    def _register(self, document: WalDocument, chance: Random) -> None:
        name = chance.choice(REGISTERS)
        if chance.random() < 0.15:
            document.delete_field(name)
            demand(document.field(name) is None, "a register shows after it was deleted")
        else:
            value = self.tokens.item(self.session)
            document.set_field(name, value)
            demand(document.field(name) == value, "a register does not show what was written")

    def _map(self, document: WalDocument, chance: Random) -> None:
        key = chance.choice("abc")
        if chance.random() < 0.3:
            document.drop(MAP, key)
            demand(key not in document.entries(MAP), "a key shows after it was dropped")
        else:
            value = self.tokens.item(self.session)
            document.put(MAP, key, value)
            demand(document.entries(MAP)[key] == value, "a key does not show what was written")

    def _list(self, document: WalDocument, chance: Random) -> None:
        name = chance.choice(LISTS)
        values = document.values(name)
        if values and chance.random() < 0.2:
            place = chance.randrange(len(values))
            self.tokens.contest([values[place]])
            document.remove_at(name, place)
            return
        item, place = self._listed(), chance.randint(0, len(values))
        wanted = [*values[:place], item, *values[place:]]
        if chance.random() < 0.3:
            document.set_list(name, wanted)
        else:
            document.insert(name, place, item)
        demand(document.values(name) == wanted, "a list does not show what was inserted")

    def _text(self, document: WalDocument, chance: Random) -> None:
        name = chance.choice(TEXTS)
        text = document.text(name)
        place = chance.randint(0, len(text))
        removed = text[place : place + chance.randint(1, 4)] if chance.random() < 0.25 else ""
        self.tokens.contest(removed)
        written = "" if removed and chance.random() < 0.5 else self._typed(chance)
        wanted = text[:place] + written + text[place + len(removed) :]
        if chance.random() < 0.4:
            document.set_text(name, wanted)
        else:
            document.splice(name, place, len(removed), written)
        demand(document.text(name) == wanted, "a text does not show what was typed")

    def _view(self, document: WalDocument, chance: Random) -> None:
        """Edit a value that was shown, and hand all of it back."""
        view = document.view()
        wanted = {name: document.values(name) for name in LISTS if document.kind(name) == "list"}
        if not wanted:
            self._list(document, chance)
            return
        name = chance.choice(list(wanted))
        wanted[name].append(self._listed())
        document.update({**view, **wanted}, base=view)

    def _typed(self, chance: Random) -> str:
        typed = [self.tokens.character(self.session) for _ in range(chance.randint(1, 5))]
        self.unsent += typed
        return "".join(typed)

    def _listed(self) -> str:
        item = self.tokens.listed(self.session)
        self.unsent.append(item)
        return item

    def noticing(self, document: WalDocument) -> set[str]:
        """What shows, to be given to `vanished` later."""
        return set(shown_in(document.materialize()))

    def vanished(self, document: WalDocument, before: set[str]) -> None:
        """Note what an undo has removed."""
        self.tokens.contest(before - self.noticing(document))

"""Keystrokes in a page of a log, gathered so that they can be checked and folded together.

- Only what needs no second look is gathered: pulled as text, of the right types, in the right
  order, within the limits. With anything else in the page, all of it is left as it is.
- Nothing is decided here but shape: who wrote them, and whether they may, is still to be checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import lt
from typing import NamedTuple, cast

from walstore.document.entries import Stretch
from walstore.document.ports import RawElement
from walstore.signed.author import SigningFrame
from walstore.signed.chain import ChainColumns
from walstore.wire.element import Element
from walstore.wire.keystrokes import Typing, read_keystrokes
from walstore.wire.limits import ELEMENT_BYTES_MAX


class Strokes(NamedTuple):
    """Elements that are keystrokes in a row, not proven yet.

    Attributes:
        typing: What they say.
        times: The `ts` of each.
        texts: The canonical data of each.
        signatures: What is said to be the author's signature of each.
    """

    typing: Typing
    times: tuple[int, ...]
    texts: tuple[bytes, ...]
    signatures: tuple[str, ...]

    def elements(self) -> Iterator[Element]:
        """The elements one by one."""
        return map(Element, self.times, self.texts, repeat(self.typing.author), self.signatures)

    def add_to(self, chain: ChainColumns, frame: SigningFrame) -> None:
        """Tell the chain what it needs to know of them."""
        typing = self.typing
        chain.extend(
            writer=typing.author,
            session=typing.session,
            seq=typing.seq,
            prevs=typing.prevs,
            signed=map(frame.around, self.texts),
            signatures=self.signatures,
        )

    def stretch(self, links: Sequence[str]) -> Stretch:
        """The same to be kept, once they are folded."""
        typing = self.typing
        stretch = Stretch(typing.author, typing.session, typing.seq)
        stretch.times.extend(self.times)
        stretch.texts += self.texts
        stretch.signatures += self.signatures
        stretch.links += links
        stretch.counters.extend([counter for _, counter, _, _ in typing.strokes])
        stretch.end = typing.end
        return stretch


def gather_strokes(page: Sequence[object], *, ts_min: int, ts_max: int) -> list[object]:
    """The elements of a page, those that are keystrokes in a row as `Strokes`.

    Args:
        page: The elements as they were pulled.
        ts_min: The lowest `ts` that is not known yet.
        ts_max: The highest `ts` to believe.
    """
    if set(map(type, page)) != {RawElement}:
        return list(page)
    times, texts, authors, signatures = zip(*cast("Sequence[RawElement]", page), strict=True)
    if not (
        set(map(type, times)) == {int}
        and set(map(type, texts)) == {bytes}
        and set(map(type, authors)) == set(map(type, signatures)) == {str}
        and ts_min <= times[0]
        and times[-1] <= ts_max
        and all(map(lt, times, times[1:]))
        and max(map(len, texts)) <= ELEMENT_BYTES_MAX
    ):
        return list(page)
    parts: list[object] = []
    end = 0
    for typing in read_keystrokes(texts):
        start = typing.place
        parts += page[end:start]
        end = start + len(typing)
        if authors[start:end].count(typing.author) == len(typing):
            parts.append(Strokes(typing, times[start:end], texts[start:end], signatures[start:end]))
        else:
            parts += page[start:end]
    return [*parts, *page[end:]]

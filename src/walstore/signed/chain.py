"""Chained authorship: one signature vouches for everything its writer signed before it.

    session 1:  e1 ◄── e2 ◄── e3              an arrow is a link: the hash of the element before,
                        ▲                     inside the bytes that were signed
    session 2:          └──── f1 ◄── f2       leaves: e3 and f2

- An element is accepted if its own signature verifies, or if an accepted element of the same
  writer links to it. Nothing else is ever accepted.
- Only leaves are verified. If a leaf is forged, what it links to becomes a leaf in turn, so
  exactly the bad elements are found, at worst by verifying each one.
- A link is SHA-256 over the writer's key, the signature and the signed bytes. The signed bytes
  alone would leave the signature of an earlier element open: a relay could spoil it, and
  whoever met that element alone would reject what others accept. With both inside, an element
  is pinned as it is stored. The signed bytes hold the document key, so a link never reaches
  into another document.
- A link counts only if its hex text stands in the signed bytes of the element that carries it;
  what a relay puts beside them vouches for nothing. For the same reason links cannot form a ring.
- A key or signature with another spelling than the strict one is rejected whoever links to it.
- Branches are normal: two sessions of one key grow from the same element. Two elements of one
  session with one writer seq are not: an honest session counts up. They are reported as twins.
- An element rejected as forged may be offered again together with later ones: a writer who links
  to an element without a good signature has vouched for it, and all readers then agree.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import NamedTuple

from walstore.errors import MalformedError
from walstore.signed.encoding import decode_public_key, decode_signature
from walstore.signed.many import SignatureCheck, verify_many

_DOMAIN = b"walstore-link-v1\n"


class ChainElement(NamedTuple):
    """What the chain needs to know of an element.

    Attributes:
        writer: The author key.
        session: The session that wrote it.
        seq: The writer seq, which counts the session's elements.
        prev: The link to the writer's previous element; None for the first, or if there is none.
        signed: The exact bytes under the signature. Writer, session, seq and prev were read
            out of them, or are checked against them by the caller.
        signature: The author signature as text.
    """

    writer: str
    session: str
    seq: int
    prev: str | None
    signed: bytes
    signature: str


class Head(NamedTuple):
    """The newest element of a branch, as a snapshot or a store remembers it."""

    link: str
    session: str
    seq: int


class Verdict(Enum):
    """What became of an element, and why."""

    SIGNED = "its signature verifies"
    LINKED = "an accepted element of its writer links to it"
    KNOWN = "it is a known head"
    MALFORMED = "its key or signature is not in the strict form"
    FORGED = "its signature does not verify and nothing accepted links to it"

    @property
    def accepted(self) -> bool:
        """Whether the writer is proven."""
        return self in _ACCEPTED


_ACCEPTED = frozenset({Verdict.SIGNED, Verdict.LINKED, Verdict.KNOWN})


class Twins(NamedTuple):
    """Two accepted elements of one session with one writer seq: the session was forked."""

    writer: str
    session: str
    seq: int
    links: tuple[str, str]


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What `check_chain` found.

    Attributes:
        verdicts: One per element, in the order given.
        links: The link of each element, to be named by the writer's next one; None if malformed.
        heads: The heads by writer, old and new, without those that an accepted element continues.
        unlinked: Positions of accepted elements whose previous one is neither here nor a known
            head: pruned, not pulled yet, or withheld.
        twins: Forked sessions.
    """

    verdicts: list[Verdict]
    links: list[str | None]
    heads: dict[str, frozenset[Head]]
    unlinked: list[int]
    twins: list[Twins]


def link(signed: bytes, *, author_pubkey: str, author_signature: str) -> str:
    """The name of an element, for its writer's next one to carry: 64 hex digits.

    Raises:
        MalformedError: The key or the signature is not in the strict form.
    """
    key, signature = decode_public_key(author_pubkey), decode_signature(author_signature)
    if key is None or signature is None:
        raise MalformedError("author proof", "the key or signature is not in the strict form")
    return _link(key, signature, signed)


def check_chain(
    elements: Sequence[ChainElement],
    heads: Mapping[str, Collection[Head]] | None = None,
    *,
    pool: Executor | None = None,
) -> ChainReport:
    """Tell the proven elements from the others with as few signature checks as possible.

    Args:
        elements: Of any writers, in any order, repeated or not.
        heads: By writer, links to elements that the caller has verified or takes on trust, from
            earlier calls or a snapshot. Such an element is accepted unseen and vouches for what
            it links to, so a reader that trusts no snapshot must not pass the heads of one.
        pool: Threads for the signature checks, as for `verify_many`.
    """
    known = {writer: frozenset(each) for writer, each in (heads or {}).items()}
    forest = _Forest(elements, known)
    forest.grow()
    forest.judge(pool)
    accepted = forest.accepted()
    return ChainReport(
        verdicts=[forest.verdict(place) for place in range(len(elements))],
        links=forest.links,
        heads=_heads(forest, accepted, known),
        unlinked=[place for place in accepted if forest.lacks_previous(place)],
        twins=_twins(forest, accepted, known),
    )


def _link(key: bytes, signature: bytes, signed: bytes) -> str:
    return sha256(b"%b%b%b%b" % (_DOMAIN, key, signature, signed)).hexdigest()


def _links(elements: Sequence[ChainElement]) -> list[str | None]:
    keys = {writer: decode_public_key(writer) for writer in {each.writer for each in elements}}
    links: list[str | None] = []
    for element in elements:
        key, signature = keys[element.writer], decode_signature(element.signature)
        if key is None or signature is None:
            links.append(None)
        else:
            links.append(_link(key, signature, element.signed))
    return links


class _Forest:
    """The trees that the elements of one call form, each element once."""

    def __init__(
        self, elements: Sequence[ChainElement], known: Mapping[str, frozenset[Head]]
    ) -> None:
        self.elements = elements
        self.links = _links(elements)
        # Copies of one element share a link, and so the place of the first copy.
        self._places: dict[str, int] = {}
        for place, name in enumerate(self.links):
            if name is not None:
                self._places.setdefault(name, place)
        self._known = {head.link: writer for writer, each in known.items() for head in each}
        self._previous: dict[int, str] = {}
        self._parents: dict[int, int] = {}
        self._children_left = dict.fromkeys(self._places.values(), 0)
        self._verdicts: dict[int, Verdict] = {}

    def grow(self) -> None:
        """Tie each element to the one of the same writer that it links to, if that is at hand."""
        for place in self._places.values():
            element = self.elements[place]
            if element.prev is None or self._writer_of(element.prev) != element.writer:
                continue
            if element.prev.encode(errors="replace") not in element.signed:
                continue
            self._previous[place] = element.prev
            parent = self._places.get(element.prev)
            if parent is not None:
                self._parents[place] = parent
                self._children_left[parent] += 1

    def judge(self, pool: Executor | None) -> None:
        """Give every element in the trees its verdict."""
        for name in self._known.keys() & self._places.keys():
            self._accept(self._places[name], Verdict.KNOWN)
        leaves = [place for place, count in self._children_left.items() if count == 0]
        while leaves := [place for place in leaves if place not in self._verdicts]:
            answers = verify_many([self._check(place) for place in leaves], pool)
            judged = list(zip(leaves, answers, strict=True))
            for place, good in judged:
                if good:
                    self._accept(place, Verdict.SIGNED)
            leaves = [
                parent for place, good in judged if not good for parent in self._reject(place)
            ]

    def verdict(self, place: int) -> Verdict:
        """The verdict on the element, which is that on its first copy."""
        name = self.links[place]
        return Verdict.MALFORMED if name is None else self._verdicts[self._places[name]]

    def accepted(self) -> dict[int, str]:
        """The places of the accepted elements, each element once, with their links."""
        return {
            place: name
            for name, place in self._places.items()
            if self._verdicts[place] is not Verdict.FORGED
        }

    def previous(self, place: int) -> str | None:
        """The link to the previous element, if that element is at hand or a known head."""
        return self._previous.get(place)

    def lacks_previous(self, place: int) -> bool:
        """Whether the element links to one that is neither here nor a known head."""
        return self.elements[place].prev is not None and place not in self._previous

    def _writer_of(self, name: str) -> str | None:
        place = self._places.get(name)
        return self._known.get(name) if place is None else self.elements[place].writer

    def _check(self, place: int) -> SignatureCheck:
        element = self.elements[place]
        return SignatureCheck(element.writer, element.signed, element.signature)

    def _accept(self, place: int, verdict: Verdict) -> None:
        self._verdicts[place] = verdict
        parent = self._parents.get(place)
        # Whatever is judged already was accepted, and has passed the word on to its own parent.
        while parent is not None and parent not in self._verdicts:
            self._verdicts[parent] = Verdict.LINKED
            parent = self._parents.get(parent)

    def _reject(self, place: int) -> list[int]:
        """Judge an element forged; returns its parent if that has become a leaf."""
        self._verdicts[place] = Verdict.FORGED
        parent = self._parents.get(place)
        if parent is None:
            return []
        self._children_left[parent] -= 1
        return [parent] if self._children_left[parent] == 0 else []


def _heads(
    forest: _Forest, accepted: dict[int, str], known: dict[str, frozenset[Head]]
) -> dict[str, frozenset[Head]]:
    continued = set(map(forest.previous, accepted))
    newest = _newest_seqs(known)
    heads = {
        writer: {head for head in each if head.link not in continued}
        for writer, each in known.items()
    }
    for place, name in accepted.items():
        if name in continued:
            continue
        element = forest.elements[place]
        # An old element pulled once more must not count as the end of a branch.
        if element.seq >= newest.get((element.writer, element.session), 0):
            head = Head(name, element.session, element.seq)
            heads.setdefault(element.writer, set()).add(head)
    return {writer: frozenset(each) for writer, each in heads.items()}


def _newest_seqs(known: dict[str, frozenset[Head]]) -> dict[tuple[str, str], int]:
    newest: dict[tuple[str, str], int] = {}
    for writer, each in known.items():
        for head in each:
            session = (writer, head.session)
            newest[session] = max(newest.get(session, 0), head.seq)
    return newest


def _twins(
    forest: _Forest, accepted: dict[int, str], known: dict[str, frozenset[Head]]
) -> list[Twins]:
    first: dict[tuple[str, str, int], str] = {
        (writer, head.session, head.seq): head.link
        for writer, each in known.items()
        for head in each
    }
    twins = []
    for place, name in accepted.items():
        element = forest.elements[place]
        count = (element.writer, element.session, element.seq)
        other = first.setdefault(count, name)
        if other != name:
            twins.append(Twins(*count, links=(other, name)))
    return twins

"""Presences in memory: for tests, and between the documents of one process.

- What somebody says is passed on to all others at the document, and forgotten when they leave.
- What it hands out has been text, as if it had come over a wire.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from walstore.canon import canonical_bytes, parse
from walstore.net.follow import Bells, Follow
from walstore.net.following import Peer


class MemoryPresences:
    """Passes on between connections what everybody says of themselves."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._said: dict[str, dict[str, Peer]] = {}
        self._bells: dict[str, dict[str, Bells]] = {}

    def connect(self) -> MemoryPresence:
        """Somebody new."""
        return MemoryPresence(self, f"memory-{next(self._numbers)}")

    def say(self, name: str, document_key: str, payload: Mapping[str, Any] | None) -> None:
        """Tell the others at a document; None to leave."""
        said = self._said.setdefault(document_key, {})
        said.pop(name, None)
        if payload is not None:
            members = parse(canonical_bytes(dict(payload)))
            assert isinstance(members, dict)
            said[name] = Peer(None, members)
        for other, bells in self._bells.get(document_key, {}).items():
            if other != name:
                bells.peers.ring()

    def said(self, name: str, document_key: str) -> dict[str, Peer]:
        """What the others at a document say."""
        said = self._said.get(document_key, {})
        return {other: peer for other, peer in said.items() if other != name}

    def bells(self, name: str, document_key: str) -> Bells:
        """What rings when the others at a document say something."""
        return self._bells.setdefault(document_key, {}).setdefault(name, Bells())


class MemoryPresence:
    """One connection: it tells, and is told what the others say."""

    def __init__(self, exchange: MemoryPresences, name: str) -> None:
        """Made by `MemoryPresences.connect`."""
        self._exchange = exchange
        self._name = name

    def set_presence(self, document_key: str, payload: Mapping[str, Any] | None) -> None:
        """Tell the others who is there; None to leave.

        Raises:
            NotJsonError: The payload has no JSON text.
        """
        self._exchange.say(self._name, document_key, payload)

    def peers(self, document_key: str) -> dict[str, Peer]:
        """The others who are at a document, by the name of their connection."""
        return self._exchange.said(self._name, document_key)

    @asynccontextmanager
    async def follow(self, document_key: str) -> AsyncIterator[Follow]:
        """Be told who else is there, for the length of a block."""
        bells = self._exchange.bells(self._name, document_key)
        yield Follow(bells, peers=lambda: self.peers(document_key), check=lambda: None)

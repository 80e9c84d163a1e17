"""Which document to open, as whom, and where it is kept; and what is open of them."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from walstore import ALLOW_ANY, Identity, WalStore

# Invitations begin with this; document keys do not.
_INVITATION = "walstore-invitation"

# What those are called who have not said it.
_GUESTS = (
    "Badger", "Beaver", "Curlew", "Dipper", "Ermine", "Falcon", "Gannet", "Heron",
    "Ibex", "Jackdaw", "Kestrel", "Lynx", "Marten", "Newt", "Otter", "Plover",
)  # fmt: skip


@dataclass(frozen=True)
class Session:
    """What to open.

    Attributes:
        document: The key of a document.
        name: What the others call us.
        identity: Who we are.
        relay: The address of a relay; None to work alone.
        file: Where edits are kept; None to keep them no longer than the session.
        invitation: The line that somebody has invited us with.
        is_owned: Whether the document is ours to share: then only those whom we invite may write.
            Otherwise everybody may who knows its key.
        visited: The sessions from which this one was opened, by what was asked for.
    """

    document: str
    name: str
    identity: Identity
    relay: str | None = None
    file: Path | None = None
    invitation: str | None = None
    is_owned: bool = False
    visited: Mapping[str, Session] = field(default_factory=dict, repr=False, compare=False)

    def store(self) -> WalStore:
        """The store, to be used within `async with`."""
        if self.invitation is not None:
            return WalStore.join(self.invitation, identity=self.identity, path=self.file)
        if self.is_owned:
            return WalStore.open(
                self.document,
                identity=self.identity,
                relay=self.relay,
                path=self.file,
                owner=self.identity.public_key,
            )
        return WalStore.open(
            self.document,
            identity=self.identity,
            relay=self.relay,
            path=self.file,
            writers=ALLOW_ANY,
            snapshot_role=ALLOW_ANY,
        )

    @property
    def wanted(self) -> str:
        """What was asked for: the key of a document, or an invitation."""
        return self.document if self.invitation is None else self.invitation

    @property
    def command(self) -> str:
        """What somebody else types to join."""
        relay = [] if self.relay is None else ["--relay", self.relay]
        return shlex.join([*editor_command(), *relay, "--document", self.document, "--name", "Bo"])

    def other(self, wanted: str) -> Session:
        """The same for another document: a key, or the invitation to one.

        A document that was open before is kept where it was then.
        """
        visited = {**self.visited, self.wanted: self}
        if wanted in visited:
            return replace(visited[wanted], visited=visited)
        file = self.file
        if file is not None:
            digest = sha256(wanted.encode("utf-8", "replace")).hexdigest()[:16]
            file = file.with_name(f"{digest}.walstore")
        if wanted.startswith(_INVITATION):
            return replace(self, invitation=wanted, is_owned=False, file=file, visited=visited)
        return replace(self, document=wanted, invitation=None, file=file, visited=visited)


class Desk:
    """The documents that are open; all are closed when the block ends."""

    def __init__(self) -> None:
        self._stacks: dict[WalStore, AsyncExitStack] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Desk:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close what is open; what can be sent is sent."""
        for store in list(self._stacks):
            self.close(store)
        await self._closed()

    async def open(self, session: Session) -> WalStore:
        """Open a document.

        Raises:
            WalStoreError: It cannot be opened.
        """
        # It may be one of those that are being closed.
        await self._closed()
        stack = AsyncExitStack()
        store = await stack.enter_async_context(session.store())
        self._stacks[store] = stack
        return store

    def close(self, store: WalStore) -> None:
        """Close a document before long; whoever goes on to another one need not wait."""
        stack = self._stacks.pop(store, None)
        if stack is not None:
            task = asyncio.create_task(stack.aclose())
            self._closing.add(task)

    async def _closed(self) -> None:
        closing, self._closing = self._closing, set()
        await asyncio.gather(*closing)


def editor_command() -> list[str]:
    """What starts the editor from the directory that we are in."""
    python = Path(sys.executable)
    if python.is_relative_to(Path.cwd()):
        python = python.relative_to(Path.cwd())
    return [os.fspath(python), "-m", "examples.textual_editor"]


def load_identity(file: Path | None) -> Identity:
    """Who we were the last time; somebody new if nothing is kept."""
    if file is None:
        return Identity.generate()
    path = file.with_name("identity.json")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        Identity.generate().save(path)
    return Identity.load(path)


def guest_name(identity: Identity) -> str:
    """What to call somebody who has not said it: an animal, always the same one."""
    return _GUESTS[int(identity.public_key[:8], 16) % len(_GUESTS)]

"""Which document to open, as whom, and where it is kept."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from walstore import ALLOW_ANY, Identity, WalStore

# Invitations begin with this; document keys do not.
_INVITATION = "walstore-invitation"


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
    """

    document: str
    name: str
    identity: Identity
    relay: str | None = None
    file: Path | None = None
    invitation: str | None = None
    is_owned: bool = False

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
    def command(self) -> str:
        """What somebody else types to join."""
        relay = [] if self.relay is None else ["--relay", self.relay]
        python = [sys.executable, "-m", "examples.textual_editor"]
        return shlex.join([*python, *relay, "--document", self.document, "--name", "Bo"])

    def other(self, wanted: str) -> Session:
        """The same for another document: a key, or the invitation to one."""
        file = self.file
        if file is not None:
            digest = sha256(wanted.encode("utf-8", "replace")).hexdigest()[:16]
            file = file.with_name(f"{digest}.walstore")
        if wanted.startswith(_INVITATION):
            return replace(self, invitation=wanted, is_owned=False, file=file)
        return replace(self, document=wanted, invitation=None, file=file)


def load_identity(file: Path | None) -> Identity:
    """Who we were the last time; somebody new if nothing is kept."""
    if file is None:
        return Identity.generate()
    path = file.with_name("identity.json")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        Identity.generate().save(path)
    return Identity.load(path)

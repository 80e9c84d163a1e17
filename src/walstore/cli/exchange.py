"""One exchange with a relay: who may write, what is unsent here, what is new there.

- Whoever cannot reach the relay has lost nothing: what was written waits in the local file.
- A relay that has lost what it had, or refuses something for good, is a matter for a person: it is
  said what that is, and which option goes on.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NamedTuple

from walstore.cli.documents import KnownDocument
from walstore.cli.faults import NotVerifiedError
from walstore.cli.output import many, note, put_json
from walstore.cli.progress import Progress, watched
from walstore.cli.waiting import told_if_slow
from walstore.document.faults import RollbackDetectedError
from walstore.document.ports import OtherLogError
from walstore.errors import PeerError, TransportError, UsageError, WalStoreError
from walstore.store.refused import NotWriterError
from walstore.store.status import StoreStatus
from walstore.store.store import WalStore

# How long a relay may take to let somebody in.
REACH_S = 10.0


class UnreachableError(TransportError):
    """There is no connection to the relay of a document."""

    def __init__(self, document: KnownDocument, reason: str, unsent: int) -> None:
        kept = f"; {unsent} unsent, kept here" if unsent else ""
        # It says so already.
        why = reason.removeprefix("offline: ")
        super().__init__(
            f"no connection to {document.relay}: {why}{kept}; try again later: {_again(document)}",
            retryable=True,
        )


class NoRelayGivenError(UsageError):
    """The document is on this computer alone."""

    def __init__(self, document: KnownDocument) -> None:
        super().__init__(
            f"{document.name} has no relay yet; give it one: walstore sync {document.name} --relay"
            " ws://host:port (`walstore relay` runs one)"
        )


class RolledBackError(NotVerifiedError):
    """The relay has lost what was read from it before."""

    def __init__(self, document: KnownDocument, reason: str) -> None:
        super().__init__(
            f"the relay has lost a part of {document.name}: {reason}; nothing was changed here."
            f" Ask its operator, or go on with what it has: walstore sync {document.name}"
            " --accept-rollback"
        )


class NotTheOwnersWordError(NotVerifiedError):
    """What a relay says about the members of a document is not what its owner has signed."""

    def __init__(self, document: KnownDocument, error: PeerError) -> None:
        super().__init__(
            f"{document.relay} does not give the owner's word about {document.name}: {error};"
            " nothing of it was believed. Ask its operator, or the owner, to sync once"
        )


class RefusedError(WalStoreError):
    """The relay, or the owner, does not take what was written."""

    def __init__(self, document: KnownDocument, status: StoreStatus) -> None:
        refused = status.refused
        reason = "the owner does not let you write" if refused is None else refused.reason
        super().__init__(
            f"{status.unsent} unsent and not taken: {reason}; kept here. If that stays so, put it"
            f" on the shelf and go on with the rest: walstore sync {document.name} --set-aside"
        )


class Exchanged(NamedTuple):
    """What became of an exchange.

    Attributes:
        sent: How many commits were acknowledged.
        received: How many commits of others have come.
        unsent: How many are left.
    """

    sent: int
    received: int
    unsent: int


def _again(document: KnownDocument) -> str:
    """What to type once there is a network; a document that is being joined is not here yet."""
    if document.file.exists():
        return f"walstore sync {document.name}"
    return "walstore join, with the same invitation"


async def exchange(
    document: KnownDocument, store: WalStore, *, since: int | None = None
) -> Exchanged:
    """Send what is unsent, and read what is new.

    Args:
        document: The document.
        store: It, open.
        since: What is above this `ts` is new; what was not here when it was opened, if left out.

    Raises:
        UnreachableError: There is no connection.
        RolledBackError: The relay has lost something.
        RefusedError: It does not take something, and will not.
        NotTheOwnersWordError: What it says about the members is somebody else's.
        TransportError: Something is not known to be stored, or cannot be read now.
    """
    # What was never opened before is read while it opens, and whatever is live reads by itself.
    since = store.opened_at if since is None else since
    before = store.status.unsent
    await _reach(document, store)
    await _settle(document, store)
    await _send(document, store)
    await _receive(document, store)
    own, after = store.identity.public_key, store.status
    if after.rollback is not None:
        raise RolledBackError(document, after.rollback)
    received = [each for each in store.history() if each.ts > since and each.author != own]
    return Exchanged(max(before - after.unsent, 0), len(received), after.unsent)


def tell_exchanged(document: KnownDocument, exchanged: Exchanged, *, is_json: bool) -> None:
    """Say what came of an exchange."""
    if is_json:
        put_json({"name": document.name, **exchanged._asdict()})
    note(f"{document.name}: sent {exchanged.sent}, received {exchanged.received}")


def tell_standing(document: KnownDocument, store: WalStore) -> None:
    """Say what whoever is left out would not notice: that others go on without them."""
    own = store.identity.public_key
    is_member = any(each.public_key == own and each.roles for each in store.sharing.members())
    if not is_member:
        note(f"you are no member of {document.name} any more; ask its owner: walstore share")
    if unreadable := store.status.unreadable:
        note(f"{many(unreadable, 'element')} cannot be opened: the key is not here")


async def _reach(document: KnownDocument, store: WalStore) -> None:
    """Wait until there is a connection, or it is known that there will not be one."""
    settled = asyncio.Event()

    def look(status: StoreStatus) -> None:
        if status.state not in ("connecting", "local"):
            settled.set()

    end = store.on_status(look)
    look(store.status)
    try:
        async with told_if_slow(str(document.relay)), asyncio.timeout(REACH_S):
            await settled.wait()
    except TimeoutError:
        pass
    finally:
        end()
    status = store.status
    if status.state != "live":
        reason = status.reason or "it does not answer"
        raise UnreachableError(document, reason, status.unsent)


async def _settle(document: KnownDocument, store: WalStore) -> None:
    """Tell the relay who may write, or hear it."""
    sharing = store.sharing
    try:
        await (sharing.settle() if sharing.is_owner else sharing.refresh())
    except PeerError as error:
        raise NotTheOwnersWordError(document, error) from error
    except OtherLogError as error:
        # The store has to meet it, too: it is what `accept_rollback` goes on with.
        with suppress(WalStoreError):
            await store.pull()
        raise _told(document, store.status, error) from error


async def _send(document: KnownDocument, store: WalStore) -> None:
    total = store.status.unsent
    with Progress("sent") as progress:
        end = store.on_status(lambda status: progress.show(total - status.unsent, total))
        try:
            await store.flush()
        except WalStoreError as error:
            raise _told(document, store.status, error) from error
        finally:
            end()


async def _receive(document: KnownDocument, store: WalStore) -> None:
    try:
        async with watched("elements read", lambda: store.elements_read):
            await store.pull()
    except WalStoreError as error:
        raise _told(document, store.status, error) from error


def _told(document: KnownDocument, status: StoreStatus, error: WalStoreError) -> WalStoreError:
    """What to say of a failure: what is behind it, if that is known, and what to do about it."""
    if status.rollback is not None or isinstance(error, RollbackDetectedError | OtherLogError):
        return RolledBackError(document, status.rollback or str(error))
    if status.refused is not None or isinstance(error, NotWriterError):
        return RefusedError(document, status)
    return error

"""The relay: websockets in front, a log behind, and as little as possible in between.

- What a frame means is decided by `session`, who gets what by `room`, what is stored by
  `committer`. Here it is carried out.
- One task per connection reads; a subscription that catches up has one more. Everything else
  happens when the log answers.
- Stopping drains: nothing new is taken, what was taken is answered, then connections are closed
  with a reason that tells clients to come back.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from ipaddress import ip_address
from itertools import count
from typing import assert_never
from urllib.parse import urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory

from walstore.errors import MalformedError
from walstore.relay.checking_apart import SnapshotChecks, UncheckedError
from walstore.relay.committer import Committer, NotStored, Stored
from walstore.relay.config import Settings
from walstore.relay.connection import (
    connection_class,
    let_nobody_in,
    let_undecided_go,
    request_processor,
)
from walstore.relay.exchange import ConnectionStatus
from walstore.relay.feeds import Feeds
from walstore.relay.following import Following
from walstore.relay.front import Front
from walstore.relay.frontier import is_crowded
from walstore.relay.keeper import Keeper
from walstore.relay.limits import Limits
from walstore.relay.log import (
    Accepted,
    Conflict,
    Filter,
    LogError,
    RelayLog,
    log_id,
)
from walstore.relay.metrics import Metrics
from walstore.relay.peer import Peer
from walstore.relay.rates import Penalties
from walstore.relay.readers import Readers
from walstore.relay.refusals import draining, gone, revoked, unavailable
from walstore.relay.roles import Roles
from walstore.relay.session import (
    Drop,
    KeepGrant,
    Order,
    PutWhole,
    Reply,
    Session,
    Unsubscribe,
    frames_in,
)
from walstore.relay.snapshot_pieces import Sending, SnapshotGoneError, snapshot_pieces
from walstore.relay.steady_time import SteadyTime
from walstore.relay.uploads import Uploads
from walstore.signed.auth import relay_address
from walstore.signed.grant import read_grant
from walstore.wire.frames import (
    Append,
    Code,
    FollowChanges,
    GetRecord,
    GetSnapshot,
    KeepRecord,
    Ok,
    Pull,
    PullTail,
    Record,
    Refusal,
    Request,
    SetPresence,
    SnapshotPiece,
)
from walstore.wire.limits import (
    PULL_BYTES_MAX,
    PULL_ELEMENTS_MAX,
    TS_MAX,
)

_logger = logging.getLogger("walstore.relay")

# Frames of one peer that are looked at in a row; a long one counts as several. What has come
# together could be a thousand.
_FRAMES_IN_A_ROW = 16

# How often it is written down how far readers are, and looked up who may still read.
_HOUSEKEEPING_S = 30

# The pause before a log is asked again for what others have stored; live followers wait for it.
_RETRY_S = 1.0

_PRODUCER = re.compile(rb'\{"authorPubkey":"([0-9a-f]{64})"')

# Small windows: elements of one log are alike, and connections are many.
_COMPRESSION = ServerPerMessageDeflateFactory(
    server_max_window_bits=12,
    client_max_window_bits=12,
    compress_settings={"memLevel": 4},
)


class Relay:
    """A running relay."""

    def __init__(
        self,
        log: RelayLog,
        *,
        roles: Roles,
        limits: Limits,
        software: str,
        authority: str | None,
        now_ms: Callable[[], int],
    ) -> None:
        """Prepare; `serve` runs it."""
        self.log = log
        self.roles = roles
        self.limits = limits
        self.peers: dict[Peer, None] = {}
        self.is_draining = False
        self._software = software
        self._authority = authority
        self._now_ms = now_ms
        self._names = count(1)
        self.metrics = Metrics()
        self._readers = Readers(log, now_ms)
        self._following = Following(
            log,
            self._readers,
            now_ms=now_ms,
            presences_max=limits.subscriptions_max,
            metrics=self.metrics,
        )
        self._feeds = Feeds(log, now_ms=now_ms)
        self._steady_ms = SteadyTime(now_ms)
        self._committer = Committer(
            log,
            queue_max=limits.queue_max,
            queue_bytes_max=limits.queue_bytes_max,
            now_ms=self._steady_ms,
            on_stored=self._stored,
            metrics=self.metrics,
        )
        self._penalties = Penalties(pause_ms=limits.penalty_ms)
        self._uploads = Uploads(bytes_max=limits.uploads_bytes_max)
        self._sending = Sending(now_ms)
        self._checks = SnapshotChecks()
        # The signatures of the grants in the log that were looked at.
        self._grants: set[object] = set()
        # Set when another process has told that it stored something.
        self._noticed = asyncio.Event()
        self._server: Server | None = None
        self._address = ("", 0)

    @classmethod
    @asynccontextmanager
    async def serve(
        cls,
        log: RelayLog,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        roles: Roles | None = None,
        limits: Limits | None = None,
        public_url: str | None = None,
        compression: bool = True,
        software: str = "walstore",
        settings: Settings | None = None,
        now_ms: Callable[[], int] | None = None,
    ) -> AsyncIterator[Relay]:
        """Run a relay on a log for the length of a block, then drain it.

        Args:
            log: Where everything is; whoever opened it closes it.
            host: The address to listen on.
            port: The port to listen on; 0 takes a free one.
            roles: Who may do what; anybody who proves a key if left out.
            limits: How much.
            public_url: What clients dial, if it is not an address of this machine: a name, or
                behind a proxy.
            compression: Whether to compress for clients who ask for it.
            software: What the relay calls itself.
            settings: What is beyond these: the admin token, the retention policy, the times.
            now_ms: The time in milliseconds since 1970; the system's if left out.

        Raises:
            OSError: The address cannot be listened on.
            LogError: The log cannot be read.
        """
        relay = cls(
            log,
            roles=Roles.open_to_all() if roles is None else roles,
            limits=Limits() if limits is None else limits,
            software=software,
            authority=None if public_url is None else authority_of(public_url),
            now_ms=_system_ms if now_ms is None else now_ms,
        )
        await relay._load_grants()
        told = settings or Settings(
            host=host,
            public_url=public_url,
            limits=relay.limits,
            # Whoever gives roles in code has them, as whoever has a file does.
            roles_table=None if roles is None else {},
        )
        keeper = Keeper(
            log,
            told.retention,
            metrics=relay.metrics,
            now_ms=relay._now_ms,
            sending=relay._sending.revisions,
        )
        await keeper.load()
        front = Front(
            told,
            log=log,
            metrics=relay.metrics,
            keeper=keeper,
            connections=relay.connections,
            is_draining=lambda: relay.is_draining,
            now_ms=relay._now_ms,
        )
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            background = [
                tasks.create_task(relay._committer.run()),
                tasks.create_task(relay._keep_house()),
                tasks.create_task(relay._follow_notices()),
                tasks.create_task(relay._follow_feed()),
                tasks.create_task(keeper.run()),
            ]
            relay._server = await serve(
                relay._handle,
                host,
                port,
                compression=None,
                extensions=[_COMPRESSION] if compression else None,
                max_size=relay.limits.frame_bytes_max,
                max_queue=16,
                write_limit=2**16,
                server_header=None,
                logger=_quiet_logger(),
                process_request=request_processor(front),
                create_connection=connection_class(front),
                # The connection keeps this time itself: it may turn out to be plain HTTP.
                open_timeout=None,
                ping_interval=told.ping_interval_ms / 1000,
                ping_timeout=told.ping_interval_ms / 1000,
                close_timeout=told.drain_ms_max / 1000,
            )
            relay._address = next(iter(relay._server.sockets)).getsockname()[:2]
            try:
                yield relay
            finally:
                await relay._drain()
                for task in background:
                    task.cancel()

    def connections(self) -> list[ConnectionStatus]:
        """Who is connected, as an operator sees it."""
        return [
            ConnectionStatus(
                peer=peer.name,
                address=peer.address,
                keys=sorted(peer.session.keys),
                subscriptions=len(peer.subscriptions),
                pending_bytes=peer.pending_bytes,
                in_flight=peer.in_flight,
                delivered=peer.delivered,
                connected_ms=peer.connected_ms,
            )
            for peer in self.peers
        ]

    @property
    def port(self) -> int:
        """The port that it listens on, or has listened on."""
        return self._address[1]

    @property
    def url(self) -> str:
        """Where clients connect, or have connected."""
        host = self._address[0]
        return f"ws://{f'[{host}]' if ':' in host else host}:{self.port}"

    # ── connections ────────────────────────────────────────────────────────────────────

    async def _handle(self, socket: ServerConnection) -> None:
        if len(self.peers) >= self.limits.connections_max:
            await socket.close(1013, "too many connections")
            return
        peer = self._welcome(socket)
        self.peers[peer] = None
        taken = 0
        try:
            async for message in socket:
                if isinstance(message, bytes):
                    peer.drop(Drop(1003, "frames are text"))
                elif peer.is_open:
                    text = message.encode()
                    # What has come is held once, as what is read of it is held beside it.
                    del message
                    await self._take(peer, text)
                    taken += frames_in(text)
                    del text
                if not peer.is_open:
                    break
                if taken >= _FRAMES_IN_A_ROW:
                    # Whatever is here already is taken without a pause otherwise, while all wait.
                    await asyncio.sleep(0)
                    taken = 0
        except ConnectionClosed:
            pass
        finally:
            self.peers.pop(peer, None)
            await self._farewell(peer)

    def _welcome(self, socket: ServerConnection) -> Peer:
        session = Session(
            relay_id=self.log.relay_id,
            authority=own_authority(socket) if self._authority is None else self._authority,
            roles=self.roles,
            limits=self.limits,
            penalties=self._penalties,
            uploads=self._uploads,
            new_challenge=lambda: secrets.token_hex(32),
            now_ms=self._now_ms(),
        )
        peer = Peer(
            f"{next(self._names):x}",
            socket,
            session,
            self.limits,
            connected_ms=self._now_ms(),
            metrics=self.metrics,
        )
        peer.send(session.hello(self._software))
        return peer

    async def _farewell(self, peer: Peer) -> None:
        self._following.forget(peer)
        peer.session.close()
        await peer.ended()

    async def _take(self, peer: Peer, text: bytes) -> None:
        if wait_ms := peer.session.pace(text, self._now_ms()):
            await asyncio.sleep(wait_ms / 1000)
        for outcome in peer.session.receive(text, self._now_ms()):
            if isinstance(outcome, Reply | Drop):
                peer.answer(outcome)
            else:
                await self._carry_out(peer, outcome)

    async def _carry_out(self, peer: Peer, order: Order) -> None:
        try:
            await self._answer(peer, order)
        finally:
            if isinstance(order, PutWhole):
                self._uploads.done(peer.session)

    async def _answer(self, peer: Peer, order: Order) -> None:
        if self.is_draining and not isinstance(order, Unsubscribe | SetPresence):
            peer.send(draining(order.ref))
            return
        try:
            await self._execute(peer, order)
        except LogError as error:
            _logger.error("%s", error)
            ref = None if isinstance(order, SetPresence) else order.ref
            peer.send(unavailable(ref, error))

    async def _execute(self, peer: Peer, order: Order) -> None:
        match order:
            case Append():
                await self._append(peer, order)
            case Pull() if order.is_live:
                self._following.subscribe(peer, order)
            case Pull():
                await self._following.pull(peer, order)
            case PullTail():
                await self._following.pull_tail(peer, order)
            case GetSnapshot():
                await self._get_snapshot(peer, order)
            case PutWhole():
                await self._put_snapshot(peer, order)
            case GetRecord():
                await self._get_record(peer, order)
            case KeepRecord():
                await self._keep_record(peer, order)
            case FollowChanges():
                self._feeds.follow(peer, order)
            case Request():
                await self._feeds.request(peer, order)
            case SetPresence():
                self._following.announce(peer, order.document, order.payload)
            case KeepGrant():
                await self.log.put_grant(order.text, self._now_ms())
                if self.roles.add(order.grant):
                    self._recheck()
                peer.send(Ok(order.ref, {}))
            case Unsubscribe():
                peer.stop(order.ref)
                self._following.unsubscribe(peer, order.ref)
            case _:
                assert_never(order)

    # ── appending ──────────────────────────────────────────────────────────────────────

    async def _append(self, peer: Peer, frame: Append) -> None:
        await peer.room()
        await self._committer.room()
        if self.is_draining:
            peer.send(draining(frame.ref))
            return

        def answer(verdict: Accepted | NotStored) -> None:
            peer.done()
            match verdict:
                case Accepted():
                    log = log_id(self.log.relay_id, frame.document)
                    peer.send(Ok(frame.ref, {"ts": verdict.ts, "seq": verdict.seq, "log": log}))
                case NotStored(Code.INVALID, reason):
                    self._fault(peer, frame.ref, reason)
                case NotStored(code, reason):
                    _logger.error("not stored: %s", reason)
                    peer.send(Refusal(frame.ref, code, "it cannot be stored now", {}))

        peer.begun()
        self._committer.submit(peer, frame, answer)

    def _fault(self, peer: Peer, ref: str, reason: str) -> None:
        for outcome in peer.session.fault(ref, Code.INVALID, reason, self._now_ms()):
            if isinstance(outcome, Reply | Drop):
                peer.answer(outcome)

    def _stored(self, stored: Sequence[Stored]) -> None:
        self._following.stored(stored)
        self._feeds.wake()

    # ── snapshots ──────────────────────────────────────────────────────────────────────

    async def _get_snapshot(self, peer: Peer, frame: GetSnapshot) -> None:
        log = log_id(self.log.relay_id, frame.document)
        pieces = snapshot_pieces(self.log, frame.document, frame.revision, self._sending)
        async with aclosing(pieces):
            try:
                async for revision, piece, is_last in pieces:
                    await peer.drained()
                    if not peer.session.may_read(frame.document, self._now_ms()):
                        peer.send(revoked(frame.ref))
                        return
                    if not peer.is_open:
                        return
                    peer.send(SnapshotPiece(frame.ref, revision, piece, is_last, log))
            except SnapshotGoneError:
                peer.send(gone(frame.ref))

    async def _put_snapshot(self, peer: Peer, order: PutWhole) -> None:
        loop = asyncio.get_running_loop()
        # Its canonical text begins with who has signed it: those who may not, cost no more.
        named = _PRODUCER.match(order.text)
        if named is None:
            self._fault(peer, order.ref, "its text is not canonical, or names no producer")
            return
        refusal = peer.session.refuse_producer(order, named[1].decode(), self._now_ms())
        if refusal is not None:
            peer.send(refusal)
            return
        try:
            snapshot = await self._checks.check(order)
        except MalformedError as error:
            self._fault(peer, order.ref, error.reason)
            return
        except UncheckedError as error:
            _logger.error("a snapshot could not be checked", exc_info=error.__cause__)
            peer.send(Refusal(order.ref, Code.UNAVAILABLE, str(error), {}))
            return
        there = await self.log.snapshots(order.document)
        if await loop.run_in_executor(None, is_crowded, there, snapshot):
            reason = "those that are there, and that it does not cover, are too many or too large"
            peer.send(Refusal(order.ref, Code.TOO_MANY, reason, {}))
            return
        verdict = await self.log.put_snapshot(snapshot, self._now_ms())
        match verdict:
            case Accepted():
                peer.send(Ok(order.ref, {"revision": snapshot.id, "seq": verdict.seq}))
                self._following.kept(order.document, "snapshot", snapshot.id)
                self._feeds.wake()
            case Conflict():
                current = {"revision": verdict.revision}
                peer.send(Refusal(order.ref, Code.CONFLICT, verdict.reason, current))

    # ── records ────────────────────────────────────────────────────────────────────────

    async def _get_record(self, peer: Peer, frame: GetRecord) -> None:
        stored = await self.log.record(frame.document, frame.name)
        revision, text = (None, None) if stored is None else (stored.revision, stored.text.decode())
        await peer.drained()
        if not peer.session.may_read(frame.document, self._now_ms()):
            peer.send(revoked(frame.ref))
            return
        peer.send(Record(frame.ref, revision, text, log_id(self.log.relay_id, frame.document)))

    async def _keep_record(self, peer: Peer, frame: KeepRecord) -> None:
        verdict = await self.log.put_record(
            frame.document, frame.name, frame.text.encode(), frame.revision
        )
        if isinstance(verdict, Conflict):
            current = {"revision": verdict.revision}
            peer.send(Refusal(frame.ref, Code.CONFLICT, verdict.reason, current))
        else:
            peer.send(Ok(frame.ref, {"revision": verdict}))
            self._following.kept(frame.document, frame.name, verdict)

    # ── in the background ──────────────────────────────────────────────────────────────

    async def _follow_notices(self) -> None:
        """Tell of the records that other processes of this relay have stored.

        They do not wait for elements: the feed may be long, or not be readable for a while.
        """
        async for notice in self.log.notices():
            for record in notice.records:
                self._following.kept(*record)
            self._noticed.set()

    async def _follow_feed(self) -> None:
        """Hand out the elements that other processes of this relay have stored."""
        seq: int | None = None
        while True:
            await self._noticed.wait()
            self._noticed.clear()
            seq = await self._catch_up_with_notices(seq)

    async def _catch_up_with_notices(self, seq: int | None) -> int:
        """Hand out what is above a seq, and return up to where.

        A log that cannot be read now is asked again: nobody might ever tell of the same once more.
        """
        while True:
            try:
                # The first notice says that listening has begun: what came before is read once.
                return await (self._begin() if seq is None else self._hand_out_since(seq))
            except LogError as error:
                _logger.error("%s", error)
                await asyncio.sleep(_RETRY_S)

    async def _begin(self) -> int:
        head = await self.log.feed(TS_MAX, None, Filter(), count_max=1, bytes_max=1)
        self._following.resume_all()
        self._feeds.wake()
        return head.head_seq

    async def _hand_out_since(self, seq: int) -> int:
        while True:
            page = await self.log.feed(
                seq, None, Filter(), count_max=PULL_ELEMENTS_MAX, bytes_max=PULL_BYTES_MAX
            )
            if seq + 1 < page.min_seq:
                self._following.resume_all()
                self._feeds.wake()
                return page.head_seq
            self._following.noticed(page.events)
            seq = page.last_seq
            if not page.is_more:
                self._feeds.wake()
                return seq

    def _recheck(self) -> None:
        """Stop sending to those who may no longer read."""
        self._following.recheck(self.peers)
        self._feeds.wake()

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING_S)
            # A jump of the clock, and its end, are seen also while nobody writes.
            self._steady_ms()
            await self._note_readers()
            await self._renew_grants()

    async def _renew_grants(self) -> None:
        """Take in what was granted through other processes, and let expired ones end."""
        try:
            await self._load_grants()
        except LogError as error:
            _logger.error("%s", error)
        self._recheck()

    async def _load_grants(self) -> None:
        kept: set[object] = set()
        for grant in await self.log.grants():
            signature = grant.get("signature")
            kept.add(signature)
            # To verify one takes as long as to look at hundreds that are known.
            if signature not in self._grants:
                try:
                    self.roles.add(read_grant(grant))
                except MalformedError as error:
                    _logger.error("a grant that was kept is not understood: %s", error)
        self._grants = kept

    async def _note_readers(self) -> None:
        self._readers.note_all(self.peers)
        await self._readers.write_down()

    async def _drain(self) -> None:
        """Take nothing new, answer what was taken, then send everybody home."""
        self.is_draining = True
        assert self._server is not None
        await self._committer.drained()
        await self._note_readers()
        await let_nobody_in(self._server)
        goodbye = Drop(1012, "the relay is restarting")
        for peer in list(self.peers):
            peer.drop(goodbye)
        self._server.close(code=goodbye.close_code, reason=goodbye.reason)
        let_undecided_go(self._server)
        await self._server.wait_closed()


def authority_of(url: str) -> str:
    """The host and port of a URL, as clients name them in their proofs.

    A URL that has none gives an empty text, which no proof names.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme in ("wss", "https") else 80)
    except ValueError:
        return ""
    return relay_address(parts.hostname, port) if parts.hostname else ""


def own_authority(socket: ServerConnection) -> str:
    """The host and port that a proof on a connection has to name, if nobody has configured it.

    The name that the client says it has dialled counts only if it is this machine's address. Else
    any other relay could pass on here what its own clients prove to it, under its own name.
    """
    address = socket.local_address
    if not isinstance(address, tuple):
        return ""
    host, port = address[:2]
    own = {relay_address(host, port)}
    if ip_address(host).is_loopback:
        own.add(relay_address("localhost", port))
    claims = [] if socket.request is None else socket.request.headers.get_all("Host")
    claimed = {authority_of(f"ws://{claim}") for claim in claims}
    return next(iter(claimed & own), relay_address(host, port))


def _system_ms() -> int:
    return time.time_ns() // 1_000_000


def _quiet_logger() -> logging.Logger:
    """What the websockets library has to say is about peers' faults; it is for debugging."""
    logger = logging.getLogger("walstore.relay.sockets")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
    return logger

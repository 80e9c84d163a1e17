"""What is done to a server, and what is measured meanwhile; each gives figures by case.

- One thread serves all connections; everything that is sent was made before the clock starts.
- Rates are of wall-clock time, for durability is waiting for a disk. Beside them stands the CPU
  time of the server, which other processes cannot disturb.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from selectors import EVENT_READ, DefaultSelector

from benchmarks.relay.lean import Connection
from benchmarks.relay.servers import Message, Server, cpu_seconds, resident_bytes

Figures = dict[str, float]

_LOAD_S_MAX = 120.0

# How often a store is looked into, and after how long nothing more will come: its own patience
# with a locked database is five seconds.
_LOOK_S = 0.005
_QUIET_S = 8.0

# Connections that are there before memory is looked at: what the first ones load is not theirs.
_WARM = 20


class TooSlowError(Exception):
    """A load did not come to its end in time."""


class Crowd:
    """Connections that are read from as something comes."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._selector = DefaultSelector()
        for connection in connections:
            connection.go_on_without_waiting()
            self._selector.register(connection.socket, EVENT_READ, connection)
        self._until_s = time.perf_counter() + _LOAD_S_MAX

    def arrivals(self, wait_s: float = 1.0) -> Iterator[tuple[Connection, Iterator[bytes]]]:
        """Who has something to read, and what; nobody if nothing comes in time.

        Raises:
            TooSlowError: All of it takes too long.
        """
        if time.perf_counter() > self._until_s:
            raise TooSlowError(f"not done after {_LOAD_S_MAX:.0f} s")
        for key, _ in self._selector.select(wait_s):
            yield key.data, key.data.messages()

    def close(self) -> None:
        """Watch no more."""
        self._selector.close()


# ── durable appends ────────────────────────────────────────────────────────────────────


def appends(
    server: Server, *, writers: int, count: int, latencies: int, is_shared: bool = False
) -> Figures:
    """Writers who each send the next message as soon as the last one was taken.

    Args:
        server: Whom to.
        writers: How many.
        count: Messages of each.
        latencies: Messages of each that the latency is measured with, where it has to be apart.
        is_shared: Whether they write to one document that all of them follow; else each has one.
    """
    documents = ["shared" if is_shared else f"own-{number}" for number in range(writers)]
    prefix = f"{writers}-{count}-"
    with ExitStack() as stack:
        queues: dict[Connection, deque[Message]] = {}
        for number, document in enumerate(documents):
            key = prefix + document
            connection = server.join(key, writer=number, is_follower=is_shared)
            stack.enter_context(closing(connection))
            messages = server.typed(key, writer=number, count=count + latencies)
            queues[connection] = deque(messages)
        crowd = stack.enter_context(closing(Crowd(list(queues))))
        before, cpu = server.stored(), cpu_seconds(server.process)
        begun = time.perf_counter()
        waited = _send_all(server, crowd, queues, left=latencies)
        ended, durable = time.perf_counter(), writers * count
        if before is not None:
            ended, durable = _wait_for(server, before, durable)
        figures = {
            "per second": durable / (ended - begun),
            "lost": writers * count - durable,
            "CPU µs": (cpu_seconds(server.process) - cpu) / durable * 1e6,
        }
        if before is not None:
            waited = _send_in_step(server, crowd, queues)
    return figures | _percentiles(waited)


def _send_all(
    server: Server, crowd: Crowd, queues: dict[Connection, deque[Message]], *, left: int
) -> list[float]:
    """Send until only so many are left of each; how long each took to be taken."""
    waited: list[float] = []
    since: dict[Connection, float] = {}
    for connection, queue in queues.items():
        since[connection] = time.perf_counter()
        connection.send(queue[0].frame)
    open_ends = len(queues)
    while open_ends:
        for connection, messages in crowd.arrivals():
            queue = queues[connection]
            for message in messages:
                if len(queue) == left or not server.acknowledges(message, queue[0]):
                    continue
                now = time.perf_counter()
                waited.append(now - since[connection])
                queue.popleft()
                if len(queue) > left:
                    since[connection] = now
                    connection.send(queue[0].frame)
                else:
                    open_ends -= 1
    return waited


def _send_in_step(
    server: Server, crowd: Crowd, queues: dict[Connection, deque[Message]]
) -> list[float]:
    """Send one of each, wait until all are stored, and so on; how long each took to be stored.

    Which of them was stored when is not told; the first to be stored is taken for the first sent.
    """
    waited: list[float] = []
    while any(queues.values()):
        before = server.stored() or 0
        begun = []
        for connection, queue in queues.items():
            begun.append(time.perf_counter())
            connection.send(queue.popleft().frame)
        grown = time.perf_counter()
        while begun and time.perf_counter() - grown < _QUIET_S:
            new = (server.stored() or 0) - before
            now = time.perf_counter()
            if new:
                grown = now
            waited += [now - each for each in begun[:new]]
            del begun[:new]
            before += new
            for _, messages in crowd.arrivals(_LOOK_S):
                deque(messages, 0)
    return waited


def _wait_for(server: Server, before: int, count: int) -> tuple[float, int]:
    """When the last row was stored, and how many were, of those that were sent."""
    rows, grown = 0, time.perf_counter()
    while rows < count and time.perf_counter() - grown < _QUIET_S:
        new = (server.stored() or 0) - before
        if new > rows:
            rows, grown = new, time.perf_counter()
        time.sleep(_LOOK_S)
    return grown, rows


# ── fan-out ────────────────────────────────────────────────────────────────────────────


@contextmanager
def _following(server: Server, document: str, followers: int) -> Iterator[tuple[Connection, Crowd]]:
    """A sender, and the crowd of those who follow, with the sender among them."""
    with ExitStack() as stack:
        sender = server.join(document, writer=0, is_follower=False)
        stack.enter_context(closing(sender))
        joined = [server.join(document, writer=1, is_follower=True) for _ in range(followers)]
        for connection in joined:
            stack.enter_context(closing(connection))
        yield sender, stack.enter_context(closing(Crowd([sender, *joined])))


def fan_out(server: Server, *, followers: int, count: int, window: int) -> Figures:
    """One sender, as fast as it is taken, and many who receive all of it.

    Args:
        server: Whom to.
        followers: How many receive.
        count: How many messages.
        window: How many of them are under way at once; several may then be received as one.
    """
    document = f"fan-{followers}-{count}"
    queue = deque(server.typed(document, writer=0, count=count))
    with _following(server, document, followers) as (sender, crowd):
        missing, under_way = followers * count, 0
        sent: deque[Message] = deque()
        cpu, begun = cpu_seconds(server.process), time.perf_counter()
        while missing:
            while queue and under_way < window:
                sent.append(queue.popleft())
                sender.send(sent[-1].frame)
                under_way += 1
            for connection, messages in crowd.arrivals():
                for message in messages:
                    if connection is not sender:
                        missing -= len(server.marks(message))
                    elif sent and server.acknowledges(message, sent[0]):
                        sent.popleft()
                        under_way -= 1
        elapsed = time.perf_counter() - begun
        return {
            "per second": followers * count / elapsed,
            "CPU µs": (cpu_seconds(server.process) - cpu) / (followers * count) * 1e6,
        }


def fan_out_latency(server: Server, *, followers: int, count: int, per_second: float) -> Figures:
    """One sender at a fixed pace; how long it takes from there to each who receives."""
    document = f"pace-{followers}-{count}"
    queue = deque(server.typed(document, writer=0, count=count))
    with _following(server, document, followers) as (sender, crowd):
        missing, waited = followers * count, []
        sent_s: dict[bytes, float] = {}
        next_s = time.perf_counter()
        while missing:
            pause_s = next_s - time.perf_counter() if queue else 1.0
            if pause_s <= 0:
                message = queue.popleft()
                sent_s[message.mark] = time.perf_counter()
                sender.send(message.frame)
                next_s += 1 / per_second
                continue
            for connection, messages in crowd.arrivals(pause_s):
                now = time.perf_counter()
                for received in messages:
                    if connection is sender:
                        continue
                    for mark in server.marks(received):
                        missing -= 1
                        waited.append(now - sent_s[mark])
        return _percentiles(waited)


# ── idle connections ───────────────────────────────────────────────────────────────────


def idle(server: Server, *, connections: int, is_compressed: bool) -> Figures:
    """What a connection costs that has proved who it is, follows a document, and is silent."""
    document = f"idle-{is_compressed}"
    with ExitStack() as stack:
        before = 0
        for number in range(_WARM + connections):
            if number == _WARM:
                before = resident_bytes(server.process)
            connection = server.join(
                document, writer=number % 2, is_follower=True, is_compressed=is_compressed
            )
            connection.forget_history()
            stack.enter_context(closing(connection))
        return {"KiB": (resident_bytes(server.process) - before) / connections / 2**10}


# ── one keystroke ──────────────────────────────────────────────────────────────────────


def keystroke(server: Server, *, count: int) -> Figures:
    """Bytes of one typed character to one who follows, compressed, once much was typed."""
    document = "keystroke"
    messages = server.typed(document, writer=0, count=2 * count)
    with (
        closing(server.join(document, writer=0, is_follower=False)) as sender,
        closing(server.join(document, writer=1, is_follower=True, is_compressed=True)) as follower,
    ):
        before = 0
        for place, message in enumerate(messages):
            if place == count:
                before = follower.received_bytes
            sender.send(message.frame)
            while not server.acknowledges(sender.receive(), message):
                pass
            while message.mark not in server.marks(follower.receive()):
                pass
        return {"to a reader": (follower.received_bytes - before) / count}


def _percentiles(waited: Sequence[float]) -> Figures:
    cuts = statistics.quantiles(waited, n=100)
    return {"p50 ms": cuts[49] * 1e3, "p99 ms": cuts[98] * 1e3}

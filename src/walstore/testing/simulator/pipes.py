"""Connections between the nodes of a fleet, in virtual time: what a loop has in place of sockets.

- They are streams: bytes arrive in order, after a while, or the connection breaks and both ends
  are told. What was under way when it broke is lost, whoever sent it.
- A node that loses the network reaches nobody. Its connections go nowhere, and nobody is told so
  before the network is back.
- Callbacks run as the node that they belong to.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextvars import Context, copy_context
from random import Random
from typing import Any

from walstore.testing.simulator.interposing import NODE, Node
from walstore.testing.simulator.rates import Rates
from walstore.testing.simulator.trace import Trace

HOST = "127.0.0.1"

# How long it takes to find out that nobody is there.
_REFUSED_S = 0.05
_UNREACHABLE_S = 3.0

# Bytes that are sent one after the other arrive so far apart at least.
_APART_S = 1e-6

# Of what is sent, how much of the rate of loss breaks a connection: streams resend by themselves.
_BREAKS = 0.05

Factory = Callable[[], asyncio.BaseProtocol]


class Pipe(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: Network, node: Node, context: Context, port: int) -> None:
        super().__init__()
        self._network = network
        self.node = node
        self.context = context
        self._port = port
        self._protocol: Any = None
        self.other: Pipe | None = None
        self.is_lost = False
        # Whether nothing that is sent arrives any more.
        self.is_stuck = False
        self._is_closing = False
        self._is_paused = False
        # When what was sent last arrives.
        self._last_s = 0.0
        # What has come and was not taken yet.
        self._held: list[bytes | None] = []
        self._under_way = 0

    # ── what protocols ask of a transport ──────────────────────────────────────────────

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The addresses."""
        ports = {"sockname": self._port, "peername": self.other._port if self.other else 0}
        return (HOST, ports[name]) if name in ports else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Let somebody else have what comes."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who has what comes."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def is_closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self._is_closing or self.is_lost

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The network takes everything."""

    def get_write_buffer_size(self) -> int:
        """What is under way."""
        return self._under_way

    def pause_reading(self) -> None:
        """Take nothing for now."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Take what has come meanwhile."""
        self._is_paused = False
        held, self._held = self._held, []
        for data in held:
            self._receive(data)

    def is_reading(self) -> bool:
        """Whether anything is taken."""
        return not self._is_paused

    def write(self, data: Any) -> None:
        """Send bytes."""
        if not self.is_closing():
            self._send(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        """Send bytes."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """A stream can be ended on one side."""
        return True

    def write_eof(self) -> None:
        """Send nothing more."""
        if not self.is_closing():
            self._send(None)

    def close(self) -> None:
        """Send what is under way, then end."""
        if self.is_closing():
            return
        self._is_closing = True
        delay_s = max(self._last_s - self._network.loop.time(), 0.0)
        self._network.loop.call_later(delay_s + 0.001, self.lose, None, context=self.context)
        if self.other is not None:
            self.other.end_after(delay_s + 0.001)

    def abort(self) -> None:
        """End at once."""
        self.lose(None)
        if self.other is not None:
            self.other.end_after(0.001)

    # ── the stream ─────────────────────────────────────────────────────────────────────

    def _send(self, data: bytes | None) -> None:
        other, network = self.other, self._network
        if other is None or self.is_stuck:
            return
        if network.breaks():
            network.trace(self.node.name, "broken")
            self._network.break_pipe(self)
            return
        now_s = network.loop.time()
        # Timers of one moment come in any order.
        self._last_s = max(self._last_s + _APART_S, now_s + network.delay_s())
        self._under_way += len(data or b"")
        network.loop.call_later(
            self._last_s - now_s, self._arrive, other, data, context=other.context
        )

    def _arrive(self, other: Pipe, data: bytes | None) -> None:
        self._under_way -= len(data or b"")
        if not self.is_stuck:
            other._receive(data)

    def _receive(self, data: bytes | None) -> None:
        if self.is_lost:
            return
        if self._is_paused:
            self._held.append(data)
        elif data is not None:
            self._protocol.data_received(data)
        elif not self._protocol.eof_received():
            self.close()

    def end_after(self, seconds: float) -> None:
        """The other side has ended."""
        self._network.loop.call_later(seconds, self._ended, context=self.context)

    def _ended(self) -> None:
        if not self.is_lost and not self.is_stuck:
            self._receive(None)
            self.lose(None)

    def lose(self, error: Exception | None) -> None:
        """It is over."""
        if self.is_lost:
            return
        self.is_lost = True
        self._network.pipes.pop(self, None)
        if not self.node.is_dead:
            self._network.loop.call_soon(
                self._protocol.connection_lost, error, context=self.context
            )


class Listener:
    """Where a node takes connections: what is asked of an `asyncio.Server`."""

    def __init__(self, network: Network, factory: Factory, node: Node, port: int) -> None:
        self._network = network
        self.factory = factory
        self.node = node
        self.port = port
        self.context = copy_context()
        self.sockets = (_Address(port),)

    def close(self) -> None:
        """Take no more connections."""
        if self._network.listeners.get(self.port) is self:
            del self._network.listeners[self.port]

    async def wait_closed(self) -> None:
        """Connections end by themselves."""

    def is_serving(self) -> bool:
        """Whether it takes connections."""
        return self._network.listeners.get(self.port) is self


class _Address:
    """What is asked of a listening socket."""

    family = socket.AF_INET

    def __init__(self, port: int) -> None:
        self._port = port

    def getsockname(self) -> tuple[str, int]:
        return HOST, self._port


class Network:
    """Who is connected with whom."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, rates: Rates, chance: Random, trace: Trace
    ) -> None:
        self.loop, self.trace = loop, trace
        self._rates, self._chance = rates, chance
        self.is_healed = False
        # In the order in which they were made.
        self.pipes: dict[Pipe, None] = {}
        self.listeners: dict[int, Listener] = {}
        self._ports = 50_000

    def delay_s(self) -> float:
        """How long the next bytes take."""
        if self.is_healed:
            return 0.001
        return 0.001 + self._chance.uniform(0, self._rates.delay_ms) / 1000

    def breaks(self) -> bool:
        """Whether a connection breaks now."""
        return not self.is_healed and self._chance.random() < self._rates.loss * _BREAKS

    def is_cut_off(self, node: Node) -> bool:
        """Whether a node has no network."""
        return node.is_dead or (not self.is_healed and self.loop.time() < node.cut_until_s)

    def listen(self, factory: Factory, port: int) -> Listener:
        """Take connections, as the node that asks."""
        node = NODE.get()
        listener = self.listeners[port] = Listener(self, factory, node, port)
        return listener

    async def connect(self, factory: Factory, port: int) -> tuple[Pipe, Any]:
        """Connect, as the node that asks."""
        node, listener = NODE.get(), self.listeners.get(port)
        if self.is_cut_off(node) or (listener is not None and self.is_cut_off(listener.node)):
            await asyncio.sleep(_UNREACHABLE_S)
            raise OSError("the network is unreachable")
        await asyncio.sleep(self.delay_s())
        listener = self.listeners.get(port)
        if listener is None:
            await asyncio.sleep(_REFUSED_S)
            raise ConnectionRefusedError("nobody is listening")
        self._ports += 1
        here = Pipe(self, node, copy_context(), self._ports)
        there = Pipe(self, listener.node, listener.context, port)
        here.other, there.other = there, here
        self.pipes[here] = self.pipes[there] = None
        protocol: Any = factory()
        here.set_protocol(protocol)
        accepted: Any = listener.context.copy().run(listener.factory)
        there.set_protocol(accepted)
        self.loop.call_soon(accepted.connection_made, there, context=there.context.copy())
        protocol.connection_made(here)
        return here, protocol

    def cut_off(self, node: Node, seconds: float) -> None:
        """Take the network from a node for a while."""
        node.cut_until_s = self.loop.time() + seconds
        for pipe in [pipe for pipe in self.pipes if pipe.node is node]:
            for end in (pipe, pipe.other):
                if end is not None:
                    end.is_stuck = True
            self.loop.call_later(seconds, self.break_pipe, pipe)

    def break_pipe(self, pipe: Pipe) -> None:
        """Break one connection."""
        for end in (pipe, pipe.other):
            if end is not None:
                end.lose(ConnectionResetError("the connection broke"))

    def break_all(self, node: Node) -> None:
        """Break every connection of a node."""
        for pipe in [pipe for pipe in self.pipes if pipe.node is node]:
            self.break_pipe(pipe)
        for listener in [each for each in self.listeners.values() if each.node is node]:
            listener.close()

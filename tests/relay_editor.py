"""A process that edits one document through a relay, as it is told to, and says what it sees.

Run as `python -m tests.relay_editor`. Each line is a call, `[name, arguments]`, and is answered
with a line: `{"result"}`, or `{"error"}` if it was refused. The first call is `open`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

from tests.node.scenario import METHODS, as_utf16
from walstore.canon import canonical_text
from walstore.document import Event, WalDocument
from walstore.errors import WalStoreError
from walstore.net import WebSocketTransport
from walstore.signed import Identity

_CALL_S_MAX = 30.0


class RelayEditor:
    """Such a process, as a context manager.

    Args:
        options: What `open` takes.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options

    async def __aenter__(self) -> RelayEditor:
        """Start it, and open the document."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.relay_editor",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        await self.call("open", **self._options)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def call(self, name: str, **arguments: Any) -> Any:
        """Have it do something; what it answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
        async with asyncio.timeout(_CALL_S_MAX):
            line = await self._process.stdout.readline()
        assert line, "the process has ended; its error stream says why"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["result"]


# ── in the process ─────────────────────────────────────────────────────────────────────


class _Editor:
    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._events: list[Event] = []

    async def open(
        self, url: str, key: str, private_key: str, writers: list[str], posture: Any
    ) -> None:
        identity = Identity.from_seed(private_key)
        transport = await self._stack.enter_async_context(
            WebSocketTransport(url, identity=identity)
        )
        self._document = WalDocument(
            key,
            transport=transport,
            identity=identity,
            writers=writers,
            snapshot_role=writers,
            snapshot_store=transport,
            posture=posture,
            wire="starfish",
            on_event=self._events.append,
        )
        await self._document.open()
        self._follow = await self._stack.enter_async_context(transport.follow(key, 0))

    async def shown(self) -> dict[str, Any]:
        return self._document.materialize()

    async def edit(self, edits: list[list[Any]]) -> int | None:
        for method, *arguments in edits:
            METHODS[method](self._document, *arguments)
        return await self._document.commit()

    async def reach(self, ts: int) -> None:
        """Go on reading what comes, until an element is there."""
        while self._document.current_checkpoint < ts:
            await self._follow.wait()
            await self._document.pull()

    async def snapshot(self) -> None:
        await self._document.snapshot()

    async def describe(self) -> dict[str, Any]:
        crdt = self._document._content.crdt
        return {
            "canonical": crdt.canonical_state(maps=False),
            "materialize": canonical_text(crdt.materialize()),
            "texts": {name: as_utf16(crdt.text(name)) for name in crdt.list_names()},
            "alarms": [str(event) for event in self._events],
            "gaps": [str(gap) for gap in self._document.detected_gaps()],
            "verdict": self._document.snapshot_verdict.name,
        }


async def _answer_all() -> None:
    async with AsyncExitStack() as stack:
        editor = _Editor(stack)
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, arguments = json.loads(line)
            try:
                answer = {"result": await getattr(editor, name)(**arguments)}
            except WalStoreError as error:
                answer = {"error": f"{name}: {error}"}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(_answer_all())

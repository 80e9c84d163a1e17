"""The editor in browsers on this computer: `textual-serve` runs one for each page that is open.

    browser ── page, websocket ── serve ──┬── editor, as one person ──┬── relay
    browser ──────────────────────────────┴── editor, as another one ─┘

- Only this computer is listened to, and only pages that were served here may open an editor:
  whatever else a browser shows could type into it otherwise.
- Nothing is loaded from anywhere else.
"""

from __future__ import annotations

import logging
import shlex
from pathlib import Path

from aiohttp import web
from textual_serve.app_service import AppService
from textual_serve.server import Server

from examples.textual_editor.sessions import editor_command

HOST = "127.0.0.1"

# Each is a process of its own.
EDITORS_MAX = 16

_PAGES = Path(__file__).with_name("pages")


class EditorServer(Server):
    """Runs an editor for each page."""

    def __init__(self, command: str, *, port: int) -> None:
        super().__init__(
            command,
            host=HOST,
            port=port,
            title="walstore",
            public_url=f"http://{HOST}:{port}",
            templates_path=_PAGES,
        )
        self._pages = 0
        self._editors: set[AppService] = set()

    def initialize_logging(self) -> None:
        """Say what goes wrong, and not who asks for what."""
        logging.basicConfig(level=logging.WARNING)

    async def on_startup(self, app: web.Application) -> None:
        """Say where it is."""
        print(
            f"Open {self.public_url} in a browser, in several windows: each is somebody else."
            " Ctrl+C stops it.",
            flush=True,
        )

    async def handle_index(self, request: web.Request) -> web.StreamResponse:
        """The page; under the one name that it may open an editor from."""
        if request.host != f"{HOST}:{self.port}":
            raise web.HTTPFound(self.public_url)
        response: web.StreamResponse = await super().handle_index(request)
        response.headers["Cache-Control"] = "no-store"
        return response

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """An editor, for as long as the page is open."""
        if request.headers.get("Origin", self.public_url) != self.public_url:
            raise web.HTTPForbidden(text="Only a page from here may open an editor.")
        if self._pages >= EDITORS_MAX:
            raise web.HTTPServiceUnavailable(text="Too many editors are open.")
        self._pages += 1
        try:
            return await super().handle_websocket(request)
        finally:
            self._pages -= 1

    async def _process_messages(
        self, websocket: web.WebSocketResponse, app_service: AppService
    ) -> None:
        self._editors.add(app_service)
        try:
            await super()._process_messages(websocket, app_service)
        finally:
            self._editors.discard(app_service)

    async def on_shutdown(self, app: web.Application) -> None:
        """Let the editors end as if they were left: pages that stay open would be waited for."""
        for editor in list(self._editors):
            await editor.send_meta({"type": "quit"})


def serve(relay: str, *, document: str, port: int) -> None:
    """Serve editors of a document until told to stop.

    Args:
        relay: The relay that they all are at.
        document: The key of the document.
        port: Where browsers find them.
    """
    command = [*editor_command(), "--guest", "--relay", relay, "--document", document]
    EditorServer(shlex.join(command), port=port).serve()

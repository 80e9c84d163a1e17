"""An S3 that answers as it is told, over HTTP on loopback."""

from __future__ import annotations

from collections.abc import Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from types import TracebackType
from typing import NamedTuple, Self


class Request(NamedTuple):
    """What was asked."""

    method: str
    headers: Message
    body: bytes


class Answer(NamedTuple):
    """What to say; the text is a code of S3's unless all is well. Status 0 is to hang up."""

    status: int
    text: str = ""
    headers: Mapping[str, str] = {}

    def body(self) -> bytes:
        """The bytes that are sent."""
        is_error = self.status >= 400 and self.text
        return (f"<Error><Code>{self.text}</Code></Error>" if is_error else self.text).encode()


HANG_UP = Answer(0)


class ScriptedS3:
    """Answers each method as it was told; with the last answer once the others are used up."""

    def __init__(self) -> None:
        self.seen: list[Request] = []
        self._answers: dict[str, list[Answer]] = {}
        self._is_hanging = False
        self._closing = Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def options(self) -> dict[str, str]:
        """What a destination takes to come here."""
        return {
            "endpoint": f"http://127.0.0.1:{self._server.server_port}",
            "region": "us-east-1",
            "access_key_id": "somebody",
            "secret_access_key": "secret",
        }

    def will(self, method: str, *answers: Answer) -> None:
        """Give these answers, one after the other, and the last one for ever."""
        self._answers[method] = list(answers)

    def will_hang(self) -> None:
        """Take requests, and say nothing."""
        self._is_hanging = True

    def _answer(self, request: Request) -> Answer:
        self.seen.append(request)
        if self._is_hanging:
            self._closing.wait()
            return HANG_UP
        answers = self._answers[request.method]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        script = self

        class Handler(BaseHTTPRequestHandler):
            """One connection for each request, so that none outlives the server."""

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

            def _do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = script._answer(Request(self.command, self.headers, body))
                if not answer.status:
                    return
                said = answer.body()
                headers = {
                    "Content-Length": str(len(said)),
                    "Last-Modified": "Wed, 21 Oct 2026 07:28:00 GMT",
                    **answer.headers,
                }
                self.send_response(answer.status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(said)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _do  # noqa: N815

        return Handler

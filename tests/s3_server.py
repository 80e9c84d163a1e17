"""An S3 on loopback: moto's, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from typing import Any
from urllib.request import Request, urlopen

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

BUCKET = "the-archive"

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


@contextmanager
def s3_served(
    around: Callable[[Application], Application] | None = None,
) -> Iterator[dict[str, str]]:
    """Serve S3 with an empty bucket; the options that a destination there takes.

    Args:
        around: What stands between the server and its clients, if something does.
    """
    app = _one_at_a_time(DomainDispatcherApplication(create_backend_app))
    if around is not None:
        app = around(app)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    serving = Thread(target=server.serve_forever, args=(0.01,))
    serving.start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        urlopen(Request(f"{endpoint}/{BUCKET}", method="PUT")).close()
        yield {
            "endpoint": endpoint,
            "region": "us-east-1",
            "access_key_id": "somebody",
            "secret_access_key": "secret",
        }
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def _one_at_a_time(app: Application) -> Application:
    """Answer one request after the other."""
    turn = Lock()

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        # The server looks at a condition first and stores afterwards. S3 does both at once.
        with turn:
            return list(app(environ, start_response))

    return answer

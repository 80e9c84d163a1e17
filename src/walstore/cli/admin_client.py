"""Asks a running relay for what only its operator may ask for.

- The token goes to nobody else: redirects are not followed, and it is not sent in the clear to
  another machine.
"""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlsplit

import orjson

from walstore.errors import TransportError, UsageError
from walstore.net.reasons import reason_of_system
from walstore.relay.config import is_loopback

# What a relay knows of itself it says at once; only long work is worth a longer wait.
TIMEOUT_S = 20.0

ANSWER_BYTES_MAX = 64 * 2**20

_SCHEMES = {"ws": "http", "wss": "https", "http": "http", "https": "https"}


def ask_relay(
    url: str,
    *,
    method: str,
    path: str,
    token: str,
    body: bytes | None = None,
    timeout_s: float = TIMEOUT_S,
) -> dict[str, Any]:
    """What an admin endpoint answers.

    Raises:
        UsageError: The URL cannot be used for this.
        TransportError: The relay cannot be reached, or refuses.
    """
    connection = _connection(split_url(url), timeout_s)
    try:
        headers = {"Authorization": f"Bearer {token}"}
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        status, answer = response.status, response.read(ANSWER_BYTES_MAX)
    except TimeoutError as error:
        raise TransportError(
            f"no answer from {url} within {timeout_s:.0f} s; is it a relay, and not too busy?",
            retryable=True,
        ) from error
    except (OSError, HTTPException) as error:
        reason = reason_of_system(error) if isinstance(error, OSError) else str(error)
        raise TransportError(f"no answer from {url}: {reason}", retryable=True) from error
    finally:
        connection.close()
    return _answer(url, status, answer)


def split_url(url: str) -> SplitResult:
    """The parts of a relay's address.

    Raises:
        UsageError: The admin token cannot be sent there.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"{url} is not a URL: {error}") from error
    if parts.scheme not in _SCHEMES or not parts.hostname or parts.path not in ("", "/", "/ws"):
        raise UsageError(f"{url} is not like http://127.0.0.1:3400")
    if _SCHEMES[parts.scheme] == "http" and not is_loopback(parts.hostname):
        raise UsageError(f"{url} would carry the admin token in the clear; use https://")
    return parts


def _connection(parts: SplitResult, timeout_s: float) -> HTTPConnection:
    kind = HTTPSConnection if _SCHEMES[parts.scheme] == "https" else HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=timeout_s)


def _answer(url: str, status: int, body: bytes) -> dict[str, Any]:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        answer = None
    if status == 200 and isinstance(answer, dict):
        return answer
    reason = answer.get("error") if isinstance(answer, dict) else None
    raise TransportError(
        f"{url} answered {status}: {reason or 'not a relay?'}", retryable=status >= 500
    )

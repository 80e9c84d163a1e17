"""Commits told to a web server: a signed POST of the event's JSON text.

- Headers:

      Walstore-Event       the id of the event; the same one may come again
      Walstore-Timestamp   when it was sent, in seconds since 1970
      Walstore-Signature   sha256=<hex of HMAC-SHA256 over timestamp, a full stop, and the body>

- `verified_event` is for the other side: it takes nothing that is not signed, or old.
- Any answer of 200 to 299 means that the event has arrived. 408, 425, 429 and 5xx mean later, as
  does no answer in time; anything else means that asking again would not help.
- Redirects are not followed: nothing is ever told to another host. Without TLS only this machine is
  told, unless the caller says otherwise.
- httpx comes with the extra `archive`.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import anyio

from walstore.archive.extras import needed
from walstore.archive.sink import CommitEvent, SinkError, read_event
from walstore.errors import PeerError, UsageError

if TYPE_CHECKING:
    import httpx

EVENT_HEADER = "Walstore-Event"
TIMESTAMP_HEADER = "Walstore-Timestamp"
SIGNATURE_HEADER = "Walstore-Signature"

# A secret that is shorter can be guessed.
SECRET_BYTES_MIN = 16

# How long a call may take.
CALL_MS_MAX = 10_000

# How old a call may be, so that one that was overheard cannot be made again for ever.
AGE_MS_MAX = 300_000

_LATER = frozenset({408, 425, 429})
_SCHEME = "sha256="


class WebhookSignatureError(PeerError):
    """A call is not signed with the secret, or is too old."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"a webhook call was refused: {reason}")
        self.reason = reason


class WebhookSink:
    """Posts events to a URL."""

    def __init__(
        self,
        url: str,
        *,
        secret: bytes,
        name: str = "webhook",
        allow_http: bool = False,
        call_ms_max: int = CALL_MS_MAX,
        now_ms: Callable[[], int] | None = None,
        http_transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Tell a server; nothing is sent yet.

        Args:
            url: Where it listens: https, or http on this machine.
            secret: What calls are signed with; the other side knows it too.
            name: What messages and metrics call it. The URL is in neither: it may be a secret.
            allow_http: Whether http may leave this machine.
            call_ms_max: How long a call may take.
            now_ms: The time in milliseconds since 1970; the system's if left out.
            http_transport: How requests travel, to configure proxies or certificates; it is
                closed with the sink.

        Raises:
            ExtraMissingError: httpx is not installed.
            UsageError: The URL or the secret cannot be used.
        """
        self._httpx = needed("httpx", what="a webhook", extra="archive")
        self._url = _checked(self._httpx, url, allow_http=allow_http)
        if len(secret) < SECRET_BYTES_MIN:
            raise UsageError(f"the secret of a webhook needs {SECRET_BYTES_MIN} bytes or more")
        self._secret = secret
        self._name = name
        self._call_ms_max = call_ms_max
        self._now_ms = _system_ms if now_ms is None else now_ms
        self._transport = http_transport
        self._http: httpx.AsyncClient | None = None

    @property
    def name(self) -> str:
        """What messages and metrics call it."""
        return self._name

    async def publish(self, event: CommitEvent) -> None:
        """Post an event; raises as `EventSink.publish` does."""
        try:
            with anyio.fail_after(self._call_ms_max / 1000):
                status, pause_ms = await self._post(event)
        except TimeoutError as error:
            reason = f"no answer within {self._call_ms_max} ms"
            raise SinkError(self._name, reason, retryable=True) from error
        except self._httpx.HTTPError as error:
            raise SinkError(self._name, type(error).__name__, retryable=True) from error
        if not 200 <= status <= 299:
            is_later = status in _LATER or status >= 500
            reason = f"the answer was {status}"
            raise SinkError(self._name, reason, retryable=is_later, pause_ms=pause_ms)

    async def aclose(self) -> None:
        """Close the connections."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def _post(self, event: CommitEvent) -> tuple[int, int | None]:
        """The status of the answer, of which nothing else is read, and the pause it asks for."""
        if self._http is None:
            self._http = self._httpx.AsyncClient(
                transport=self._transport,
                timeout=None,
                follow_redirects=False,
                # A proxy that the environment names would carry plain http to another machine.
                trust_env=self._url.scheme == "https",
            )
        body = event.text
        request = self._http.build_request(
            "POST", self._url, content=body, headers=self._headers(event, body)
        )
        response = await self._http.send(request, stream=True)
        await response.aclose()
        return response.status_code, _pause_ms(response.headers.get("Retry-After"))

    def _headers(self, event: CommitEvent, body: bytes) -> dict[str, str]:
        timestamp = str(self._now_ms() // 1000)
        return {
            "Content-Type": "application/json",
            EVENT_HEADER: event.id,
            TIMESTAMP_HEADER: timestamp,
            SIGNATURE_HEADER: _signature(self._secret, timestamp, body),
        }


def verified_event(
    body: bytes,
    headers: Mapping[str, str],
    *,
    secret: bytes,
    now_ms: int,
    age_ms_max: int = AGE_MS_MAX,
) -> CommitEvent:
    """The event that a call brings.

    Args:
        body: The body of the call, as it came.
        headers: Its headers, in any case.
        secret: What it has to be signed with.
        now_ms: The time in milliseconds since 1970.
        age_ms_max: How old it may be, or how far ahead.

    Raises:
        WebhookSignatureError: It is not signed with the secret, or too old.
        MalformedError: It brings none.
    """
    found = {name.lower(): value for name, value in headers.items()}
    timestamp = found.get(TIMESTAMP_HEADER.lower(), "")
    signature = found.get(SIGNATURE_HEADER.lower(), "")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        raise WebhookSignatureError("it has no time")
    wanted = _signature(secret, timestamp, body)
    if not hmac.compare_digest(wanted.encode(), signature.encode("utf-8", "replace")):
        raise WebhookSignatureError("it is not signed with the secret")
    if abs(now_ms - int(timestamp) * 1000) > age_ms_max:
        raise WebhookSignatureError("it is too old")
    return read_event(body)


def _signature(secret: bytes, timestamp: str, body: bytes) -> str:
    return _SCHEME + hmac.new(secret, timestamp.encode() + b"." + body, sha256).hexdigest()


def _checked(library: Any, text: str, *, allow_http: bool) -> httpx.URL:
    try:
        url: httpx.URL = library.URL(text)
    except (library.InvalidURL, UnicodeError) as error:
        raise UsageError(f"the URL of a webhook is none: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError("the URL of a webhook begins with https:// and has a host")
    if url.userinfo:
        raise UsageError("the URL of a webhook must not hold a password; calls are signed")
    if url.scheme == "http" and not (allow_http or _is_this_machine(url.host)):
        raise UsageError("a webhook on another machine needs https, or to be allowed http")
    return url


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _pause_ms(retry_after: str | None) -> int | None:
    """The pause that an answer asks for; a date, or nonsense, is passed over."""
    if retry_after is None or not (retry_after.isascii() and retry_after.isdigit()):
        return None
    return int(retry_after[:9]) * 1000


def _system_ms() -> int:
    return time.time_ns() // 1_000_000

"""Signed requests to a Starfish server.

- A request is signed over what is sent: path and query, host, body, time, a nonce used once.
- Nothing is followed, remembered or unpacked for a server: no redirects, cookies, compression.
- An answer is read up to a limit and within a time; one that is late or too long is an error.
- Nothing is sent again here: a request whose answer got lost may have been carried out.
- httpx is imported when a client is made, and nowhere before.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any

import anyio

from walstore.errors import TransportError, UsageError
from walstore.net.starfish_address import StarfishAddress, StarfishAddressError
from walstore.net.starfish_answers import Answer, StarfishAnswerError
from walstore.signed.capability import Capability, encode_nonce, request_signature_input
from walstore.signed.capability_shape import NONCE_BYTES
from walstore.signed.encoding import encode_signature
from walstore.signed.identity import Identity

if TYPE_CHECKING:
    import httpx

# A stock server answers with a whole log at once; memory has to hold it parsed.
ANSWER_BYTES_MAX = 64 * 2**20

# What is read of an answer that reports an error.
ERROR_BYTES_MAX = 16 * 2**10

# How long a server may be silent.
IDLE_SECONDS_MAX = 30.0

# How long a whole call may take, however busily the server sends.
CALL_SECONDS_MAX = 300.0

# Node closes idle connections after five seconds; a request must not meet that.
_KEEPALIVE_SECONDS = 4.0


class HttpxMissingError(UsageError, ImportError):
    """The extra that Starfish servers are called with is not installed."""

    def __init__(self) -> None:
        super().__init__("calling a Starfish server needs httpx: pip install 'walstore[starfish]'")


class CapabilityMismatchError(UsageError):
    """A capability is for somebody else than the identity that signs."""

    def __init__(self) -> None:
        super().__init__("the capability is not for this identity")


class NotConnectedError(UsageError):
    """A client is used outside of its `async with` block."""

    def __init__(self) -> None:
        super().__init__("the client is closed; use it inside of `async with`")


class StarfishClient:
    """A connection to a Starfish server, for one identity.

    It may serve any number of documents. Its lifetime is an `async with` block.
    """

    def __init__(
        self,
        url: str,
        *,
        identity: Identity,
        capability: Capability | None,
        namespace: str | None = None,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        idle_seconds_max: float = IDLE_SECONDS_MAX,
        call_seconds_max: float = CALL_SECONDS_MAX,
        now_ms: Callable[[], int] | None = None,
        nonce: Callable[[], bytes] | None = None,
        http_transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Describe a connection; nothing is sent yet.

        Args:
            url: Where the server is, e.g. `https://sync.example`.
            identity: Who calls. An element is only taken from its author.
            capability: What the caller may do; None for what the server allows anybody.
            namespace: The namespace on the server, if it has some.
            answer_bytes_max: The longest answer that is read.
            idle_seconds_max: How long the server may be silent.
            call_seconds_max: How long a call may take.
            now_ms: The time in milliseconds since 1970; the system's if left out.
            nonce: Draws 16 bytes that were never drawn before; random ones if left out.
            http_transport: How requests travel, to configure proxies or certificates; it is
                closed with the client.

        Raises:
            HttpxMissingError: httpx is not installed.
            StarfishAddressError: The URL or the namespace is none.
            CapabilityMismatchError: The capability is for another identity.
        """
        self._httpx = _import_httpx()
        self._address = StarfishAddress(self._read_url(url), namespace)
        self._identity = identity
        self._capability: Capability | None = None
        self.use(capability)
        self._answer_bytes_max = answer_bytes_max
        self._idle_seconds_max = idle_seconds_max
        self._call_seconds_max = call_seconds_max
        self._now_ms = _system_ms if now_ms is None else now_ms
        self._nonce = _random_nonce if nonce is None else nonce
        self._http_transport = http_transport
        self._http: httpx.AsyncClient | None = None

    async def __aenter__(self) -> StarfishClient:
        """Open the connection pool."""
        self._http = self._httpx.AsyncClient(
            transport=self._http_transport,
            timeout=self._idle_seconds_max,
            limits=self._httpx.Limits(keepalive_expiry=_KEEPALIVE_SECONDS),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    def use(self, capability: Capability | None) -> None:
        """Call with another capability from now on.

        Raises:
            CapabilityMismatchError: It is for another identity.
        """
        if capability is not None and not capability.is_for(self._identity.public_key):
            raise CapabilityMismatchError
        self._capability = capability

    def _read_url(self, text: str) -> httpx.URL:
        try:
            url: httpx.URL = self._httpx.URL(text)
        except (self._httpx.InvalidURL, UnicodeError) as error:
            raise StarfishAddressError(f"{text!r} is not a URL: {error}") from error
        return url

    async def get(self, action: str, key: str, query: str = "") -> Answer:
        """Ask for what is stored under a key.

        Raises:
            TransportError: There is no answer, or a longer one than is read.
            StarfishAddressError: The key cannot be part of an address.
            NotConnectedError: The client is closed.
        """
        return await self._call("GET", self._address.of(action, key, query), None)

    async def post(self, action: str, key: str, body: bytes) -> Answer:
        """Send a JSON text to a key; raises as `get` does."""
        return await self._call("POST", self._address.of(action, key), body)

    async def _call(self, method: str, url: httpx.URL, body: bytes | None) -> Answer:
        if self._http is None:
            raise NotConnectedError
        request = self._http.build_request(
            method, url, headers=self._headers(method, url, body), content=body
        )
        try:
            with anyio.fail_after(self._call_seconds_max):
                response = await self._http.send(request, stream=True, auth=None)
                try:
                    return Answer(response.status_code, await self._read(response))
                finally:
                    await response.aclose()
        except TimeoutError as error:
            message = f"the server did not answer within {self._call_seconds_max} s"
            raise TransportError(message, retryable=True) from error
        except (self._httpx.HTTPError, self._httpx.StreamError) as error:
            message = f"the server cannot be reached: {type(error).__name__}: {error}"
            raise TransportError(message, retryable=True) from error

    def _headers(self, method: str, url: httpx.URL, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._capability is not None:
            headers |= self._signed_headers(self._capability, method, url, body or b"")
        return headers

    def _signed_headers(
        self, capability: Capability, method: str, url: httpx.URL, body: bytes
    ) -> dict[str, str]:
        ts_ms, nonce = self._now_ms(), encode_nonce(self._nonce())
        signed = request_signature_input(
            method=method,
            path=url.raw_path.decode("ascii"),
            body=body,
            host=url.netloc.decode("ascii"),
            ts_ms=ts_ms,
            nonce=nonce,
        )
        headers = {
            "Authorization": capability.authorization,
            "X-Starfish-Sig": encode_signature(self._identity.sign(signed)),
            "X-Starfish-Ts": str(ts_ms),
            "X-Starfish-Nonce": nonce,
        }
        if capability.subject is None:
            headers["X-Starfish-Pub"] = self._identity.public_key
        return headers

    async def _read(self, response: httpx.Response) -> bytes:
        """The body of an answer; of one that reports an error, no more than tells what it is."""
        is_error = response.status_code != 200
        if response.headers.get("Content-Encoding", "identity") != "identity":
            if is_error:
                return b""
            raise StarfishAnswerError("it is compressed, which was not asked for")
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if is_error and len(body) > ERROR_BYTES_MAX:
                return b""
            if len(body) > self._answer_bytes_max:
                reason = f"it is longer than answer_bytes_max, {self._answer_bytes_max} bytes"
                raise StarfishAnswerError(reason, retryable=False)
        return bytes(body)


def _import_httpx() -> Any:
    # Imported on first use, so that whoever calls no such server need not have it installed.
    try:
        import httpx
    except ImportError as error:
        raise HttpxMissingError from error
    return httpx


def _system_ms() -> int:
    return time.time_ns() // 1_000_000


def _random_nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)

"""Where a Starfish server keeps what is stored under a key.

    https://sync.example /v1/team /pull/ spaces/s1/doc ?checkpoint=0
    the server's URL     namespace action key           query

- What is sent is what is signed, so an address has one spelling: the server must find nothing in
  it to tidy up.
- Signatures of authors are over the key alone, wherever it is served.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from walstore.errors import UsageError

if TYPE_CHECKING:
    import httpx

_NAMESPACE = re.compile(r"[A-Za-z0-9_-]+")


class StarfishAddressError(UsageError):
    """A URL, namespace or key cannot be part of an address.

    Attributes:
        reason: What is wrong with it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StarfishAddress:
    """The addresses on one server."""

    __slots__ = ("_base", "_prefix")

    def __init__(self, base: httpx.URL, namespace: str | None) -> None:
        """Check the parts that are common to all addresses.

        Args:
            base: Where the server is.
            namespace: The namespace there, if it has some.

        Raises:
            StarfishAddressError: One of them is none.
        """
        if base.scheme not in ("http", "https") or not base.host:
            raise StarfishAddressError(f"{str(base)!r} is not an http or https URL")
        if base.userinfo or base.query or base.fragment:
            raise StarfishAddressError("the server's URL has a user, a query or a fragment")
        if namespace is not None and not _NAMESPACE.fullmatch(namespace):
            raise StarfishAddressError(f"{namespace!r} is not a namespace")
        self._base = base
        self._prefix = base.raw_path.decode("ascii").rstrip("/")
        if namespace is not None:
            self._prefix += f"/v1/{namespace}"

    def of(self, action: str, key: str, query: str = "") -> httpx.URL:
        """The address to pull a key from, or to push it to.

        Raises:
            StarfishAddressError: The key cannot be part of an address.
        """
        path = f"{self._prefix}/{action}/{_key_path(key)}"
        path = f"{path}?{query}" if query else path
        return self._base.copy_with(raw_path=path.encode("ascii"))


def _key_path(key: str) -> str:
    # The server would take these segments out, and verify a signature for another path.
    if any(segment in ("", ".", "..") for segment in key.split("/")):
        raise StarfishAddressError(f"the key {key!r} has an empty segment, or one of dots")
    try:
        return quote(key, safe="/:@")
    except UnicodeEncodeError as error:
        raise StarfishAddressError(f"the key {key!r} has half a character in it") from error

"""Addresses of relays, as people type them."""

from __future__ import annotations

from urllib.parse import urlsplit

from walstore.errors import UsageError


class RelayAddressError(UsageError):
    """It is not the address of a relay."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"{url!r} is not the address of a relay; one is like ws://127.0.0.1:3400 or"
            " wss://relay.example"
        )


def checked_relay(url: str) -> str:
    """An address that a relay may have; whether there is one is another matter.

    Raises:
        RelayAddressError: None can have it.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("ws", "wss") and bool(parts.hostname)
        # A password would be shown whenever the address is.
        is_bare = parts.username is None and parts.password is None and not parts.fragment
        _ = parts.port
    except ValueError:
        raise RelayAddressError(url) from None
    if not is_address or not is_bare:
        raise RelayAddressError(url)
    return url

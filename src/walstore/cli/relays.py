"""Addresses of relays, as people type them."""

from __future__ import annotations

from urllib.parse import urlsplit

from walstore.errors import UsageError


class RelayAddressError(UsageError):
    """It is not the address of a relay."""

    def __init__(self, url: str) -> None:
        meant = _meant(url)
        like = "one is like ws://127.0.0.1:3400 or wss://relay.example"
        hint = f"did you mean {meant}?" if meant else like
        super().__init__(f"{url!r} is not the address of a relay; {hint}")


def checked_relay(url: str) -> str:
    """An address that a relay may have; whether there is one is another matter.

    Raises:
        RelayAddressError: None can have it.
    """
    if not _is_address(url):
        raise RelayAddressError(url)
    return url


def relay_meant(text: str) -> str | None:
    """The address that is meant where its beginning was left out, such as `127.0.0.1:3400`."""
    host, _, port = text.partition(":")
    meant = f"ws://{text}" if _is_near(host) else f"wss://{text}"
    return meant if port.isdecimal() and _is_address(meant) else None


def _meant(url: str) -> str | None:
    """What somebody meant who has typed something else."""
    scheme, there, rest = url.partition("://")
    sockets = {"http": "ws", "https": "wss"}
    if there and scheme in sockets:
        meant = f"{sockets[scheme]}://{rest}"
        return meant if _is_address(meant) else None
    return None if there else relay_meant(url)


def _is_near(host: str) -> bool:
    return host == "localhost" or host.startswith("127.")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    # A password would be shown whenever the address is; what cannot be shown cannot be kept.
    is_bare = (
        url.isprintable()
        and parts.username is None
        and parts.password is None
        and not parts.fragment
    )
    return parts.scheme in ("ws", "wss") and bool(parts.hostname) and is_bare

"""Destinations by their addresses.

    /var/archive, ./archive, file:///var/archive      a directory
    s3://bucket/archive                               S3, and what speaks like it (`endpoint=…`)
    gs://bucket/archive                               Google Cloud Storage
    az://container/archive                            Azure Blob Storage (`account_name=…`)
    memory:                                           this process's memory, empty

- What object stores need is in the extra `archive`, and loaded when one is opened.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from walstore.archive.destination import Destination
from walstore.archive.extras import needed
from walstore.archive.local import LocalDestination
from walstore.archive.memory import MemoryDestination
from walstore.errors import UsageError

OBJECT_SCHEMES = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss")


class DestinationRefusedError(UsageError):
    """An address or an option that no destination can be opened with.

    Attributes:
        address: The address.
        reason: What is wrong with it.
    """

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"the destination {address!r} {reason}")
        self.address = address
        self.reason = reason


def open_destination(
    address: str | Path, *, name: str | None = None, **options: Any
) -> Destination:
    """The destination at an address; nothing is read or written yet.

    Args:
        address: A path or a URL.
        name: What messages and metrics call it, if not by its address.
        options: What its kind takes; only an object store takes any.

    Raises:
        UsageError: There can be none, or an option is unknown, or an extra is not installed.
    """
    scheme = "" if isinstance(address, Path) else _scheme(address)
    if scheme in OBJECT_SCHEMES:
        return _open_objects(str(address), name, options)
    if scheme not in ("", "file", "memory"):
        known = ", ".join(("file", "memory", *OBJECT_SCHEMES))
        raise DestinationRefusedError(str(address), f"begins with none of {known}")
    if options:
        raise DestinationRefusedError(str(address), f"does not take {', '.join(options)}")
    if scheme == "memory":
        return MemoryDestination(name)
    return LocalDestination(_path(address), name=name)


def _scheme(address: str) -> str:
    if not address:
        raise DestinationRefusedError(address, "is empty")
    scheme, colon, rest = address.partition(":")
    # Anything else with a colon is a path.
    return scheme.lower() if colon and (rest.startswith("//") or scheme == "memory") else ""


def _path(address: str | Path) -> Path:
    if isinstance(address, Path) or not address.lower().startswith("file:"):
        return Path(address)
    url = urlsplit(address)
    if url.netloc not in ("", "localhost") or url.query or url.fragment or not url.path:
        raise DestinationRefusedError(address, "is not like file:///path")
    return Path(unquote(url.path))


def _open_objects(address: str, name: str | None, options: dict[str, Any]) -> Destination:
    url = urlsplit(address)
    if url.query or url.fragment or url.password:
        # It would be shown in messages and written into manifests.
        raise DestinationRefusedError(url.hostname or "", "has more than a bucket and a path")
    objects = needed("walstore.archive.objects", what=f"the destination {address}", extra="archive")
    opened: Destination = objects.ObjectDestination.open(address, name=name, **options)
    return opened

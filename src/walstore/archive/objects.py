"""An archive in an object store: S3, Google Cloud Storage or Azure.

- `put_if` is the store's own conditional request: create if there is none, replace by ETag or
  generation. What comes back is told apart with care:

      412, or 404 for a replacement      a conflict; nothing has changed
      409                                requests have met: tried again, some times
      anything else                      nobody knows whether it was stored

- A conditional request is sent once, and never again in the hope of a better answer: the second
  would find what the first has stored, and call it a conflict. Whatever else fails in passing is
  tried again by the client underneath.
- Every call has a time limit, longer for larger bodies.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import anyio
from obstore.exceptions import AlreadyExistsError, BaseError, NotModifiedError, PreconditionError
from obstore.store import from_url

from walstore.archive.destination import ConflictError, DestinationError, Found, Listed, Stored
from walstore.archive.keys import check_key, key_flaw
from walstore.canon import canonical_text, parse
from walstore.errors import MalformedError, UsageError

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutResult, UpdateVersion
    from obstore.store import ObjectStore, RetryConfig

# How long a call may take that moves little, and the slowest that a body may move.
CALL_MS_MAX = 60_000
BYTES_PER_MS_MIN = 256

# How often a conditional request is sent if it keeps meeting others.
MEETINGS_MAX = 8

# How often the client underneath tries a request again whose outcome does not depend on that.
RETRIES_MAX = 4

_PAUSE_MS = 50
_LIST_COUNT_MAX = 1000
_SAID_SIZE_MAX = 500

# How stores say that the bucket itself is missing.
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")

# What says that a conditional request has changed nothing.
_REFUSALS = (AlreadyExistsError, FileNotFoundError, NotModifiedError, PreconditionError)

_RETRYING: RetryConfig = {
    "max_retries": RETRIES_MAX,
    "retry_timeout": timedelta(milliseconds=CALL_MS_MAX),
}
_ONCE: RetryConfig = {"max_retries": 0}

# The options of the client, and not of the store; obstore wants them apart.
_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "default_headers",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)


class ObjectDestination:
    """A bucket, or a place below one."""

    def __init__(
        self,
        store: ObjectStore,
        once: ObjectStore,
        url: str,
        *,
        name: str | None = None,
        call_ms_max: int = CALL_MS_MAX,
    ) -> None:
        """Use a store of obstore's.

        Args:
            store: The store.
            once: The same store, through a client that tries nothing again.
            url: What the URIs of objects begin with.
            name: What messages and metrics call it, if not by its address.
            call_ms_max: How long a call may take that moves little.
        """
        self._store = store
        self._once = once
        self._url = url.rstrip("/")
        self._name = name or url
        self._call_ms_max = call_ms_max

    @classmethod
    def open(
        cls,
        url: str,
        *,
        name: str | None = None,
        call_ms_max: int = CALL_MS_MAX,
        credential_provider: Any = None,
        **options: Any,
    ) -> ObjectDestination:
        """Open the store at an address such as `s3://bucket/archive`.

        Args:
            url: The address.
            name: What messages and metrics call it, if not by its address.
            call_ms_max: How long a call may take that moves little.
            credential_provider: Where credentials come from, as obstore has it.
            options: The store's and the client's own, such as `region`, `endpoint`, `allow_http`.

        Raises:
            UsageError: There can be no such store, or an option is unknown or wrong.
        """
        try:
            store, once = _stores(url, options, credential_provider)
        except (BaseError, OSError, TypeError, ValueError) as error:
            raise UsageError(f"{url}: {_said(error)}") from error
        return cls(store, once, url, name=name, call_ms_max=call_ms_max)

    @property
    def name(self) -> str:
        """What messages and metrics call it."""
        return self._name

    def uri(self, key: str) -> str:
        """Where an object is, or would be."""
        check_key(key)
        return f"{self._url}/{key}"

    async def put(self, key: str, body: bytes) -> Stored:
        """Store an object durably, in place of one that is there."""
        uri = self.uri(key)
        with self._call(len(body)):
            await self._store.put_async(key, body, use_multipart=False)
        return Stored(uri, len(body))

    async def get(self, key: str) -> Found | None:
        """An object; None if there definitely is none."""
        check_key(key)
        try:
            with self._call(0, FileNotFoundError):
                found = await self._store.get_async(key)
            with self._call(found.meta["size"], FileNotFoundError):
                body = bytes(await found.bytes_async())
        except FileNotFoundError:
            return None
        return Found(body, _revision(found.meta))

    async def put_if(self, key: str, body: bytes, revision: str | None) -> str:
        """Replace a revision durably, and return the new one; None if there must not be any."""
        check_key(key)
        version = None if revision is None else _version(revision)
        if revision is not None and version is None:
            # No object here has ever had such a revision.
            raise ConflictError(self._name, key)
        for meetings in range(MEETINGS_MAX):
            await anyio.sleep(meetings * _PAUSE_MS / 1000)
            put = await self._put_once(key, body, version)
            if put is not None:
                return _revision(put)
        raise DestinationError(self._name, f"too many write {key} at once")

    async def list(self, prefix: str) -> AsyncIterator[Listed]:
        """The objects whose keys begin with a prefix, by key."""
        # obstore's own prefixes are whole segments.
        directory = prefix.rpartition("/")[0]
        pages = aiter(self._store.list(directory or None, chunk_size=_LIST_COUNT_MAX))
        while True:
            with self._call(0):
                page = await anext(pages, None)
            if page is None:
                return
            for meta in page:
                if meta["path"].startswith(prefix) and key_flaw(meta["path"]) is None:
                    yield _listed(meta)

    async def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""
        check_key(key)
        with suppress(FileNotFoundError), self._call(0, FileNotFoundError):
            await self._store.delete_async(key)

    async def _put_once(
        self, key: str, body: bytes, version: UpdateVersion | None
    ) -> PutResult | None:
        """Send a conditional request; None if it has met another and can be sent again."""
        try:
            with self._call(len(body), *_REFUSALS):
                return await self._once.put_async(key, body, mode=version or "create")
        except AlreadyExistsError as error:
            # A 409: of requests that have met, or what some stores say if there is an object.
            if version is None and await self._has(key):
                raise ConflictError(self._name, key) from error
            return None
        except _REFUSALS as error:
            if version is None and isinstance(error, FileNotFoundError):
                raise DestinationError(self._name, _said(error)) from error
            raise ConflictError(self._name, key) from error

    async def _has(self, key: str) -> bool:
        try:
            with self._call(0, FileNotFoundError):
                await self._store.head_async(key)
        except FileNotFoundError:
            return False
        return True

    @contextmanager
    def _call(self, size_bytes: int, *passing: type[Exception]) -> Iterator[None]:
        """Limit the time of a call, and say what went wrong in our own words; but for some."""
        limit_ms = self._call_ms_max + size_bytes // BYTES_PER_MS_MIN
        try:
            with anyio.fail_after(limit_ms / 1000):
                yield
        except TimeoutError as error:
            raise DestinationError(self._name, f"no answer in {limit_ms} ms") from error
        except (BaseError, OSError, ValueError) as error:
            if isinstance(error, passing) and not _lacks_bucket(error):
                raise
            raise DestinationError(self._name, _said(error)) from error


def _stores(
    url: str, options: Mapping[str, Any], credential_provider: Any
) -> Sequence[ObjectStore]:
    """A store, and once more with a client that tries nothing again."""
    lowered = {name.lower(): value for name, value in options.items()}
    given: dict[str, Any] = {
        "config": {name: lowered[name] for name in lowered.keys() - _CLIENT_OPTIONS},
        # The limits of our own calls are tighter, and know how much is moved.
        "client_options": {"timeout": timedelta(hours=1)}
        | {name: lowered[name] for name in lowered.keys() & _CLIENT_OPTIONS},
    }
    if str(lowered.get("endpoint", "")).startswith("http://"):
        given["client_options"].setdefault("allow_http", True)
    if credential_provider is not None:
        given["credential_provider"] = credential_provider
    return [from_url(url, retry_config=retry, **given) for retry in (_RETRYING, _ONCE)]


def _revision(version: PutResult | ObjectMeta) -> str:
    return canonical_text([version["e_tag"], version["version"]])


def _version(revision: str) -> UpdateVersion | None:
    """What a revision stands for; None if it is none of an object store."""
    try:
        value = parse(revision)
    except MalformedError:
        return None
    match value:
        case [str() | None as e_tag, str() | None as version] if e_tag or version:
            named = {"e_tag": e_tag, "version": version}
            return cast("UpdateVersion", {name: said for name, said in named.items() if said})
    return None


def _listed(meta: ObjectMeta) -> Listed:
    return Listed(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))


def _lacks_bucket(error: Exception) -> bool:
    """Whether it is not the object that is missing, but everything."""
    return any(code in str(error) for code in _NO_BUCKET)


def _said(error: Exception) -> str:
    """What an error of obstore's says, without the pages that follow."""
    said = " ".join(str(error).partition("\n\nDebug source:")[0].split())
    return said[:_SAID_SIZE_MAX] or type(error).__name__

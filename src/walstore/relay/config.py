"""The settings of a relay: from a TOML file, the environment and the command line.

- The command line wins over the environment, and the environment over the file.
- What is unknown, misspelled or out of range is refused by its name; nothing is guessed.
- The admin token comes from the environment or from a file of its owner's alone, never from an
  argument or from the configuration, which others can read.
- A relay that others can reach does not start without roles, unless it is told to be open.

    [relay]       host, port, database, roles, public_url, …
    [limits]      the members of `Limits`
    [retention]   the members of `Policy`
    [[grant]]     roles, if they have no file of their own
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import urlsplit

from walstore.errors import UsageError
from walstore.relay.limits import Limits
from walstore.relay.retention import Policy, PolicyError
from walstore.relay.roles import Roles
from walstore.signed.keyfile import KeyfileError, read_keyfile

ENVIRONMENT = "WALSTORE_RELAY_"
TOKEN_VARIABLE = f"{ENVIRONMENT}ADMIN_TOKEN"

# Shorter tokens can be guessed through the network; longer ones do not fit a header.
TOKEN_SIZE_MIN = 16
TOKEN_SIZE_MAX = 1024

CONFIG_BYTES_MAX = 16 * 2**20

LOG_LEVELS = ("debug", "info", "warning", "error")

_INTEGER_MAX = 2**53 - 1
_INTEGER = re.compile(r"-?[0-9]{1,16}")
_TOKEN = re.compile(r"[!-~]+")
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_SECTIONS = ("relay", "limits", "retention")


class ConfigError(UsageError):
    """A setting cannot be used.

    Attributes:
        where: The setting by its full name, with the file or variable that it is from.
        reason: What is wrong with it.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where} {reason}")
        self.where = where
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set.

    Attributes:
        host: The address to listen on.
        port: The port to listen on; 0 takes a free one.
        database: The SQLite file, or a `postgresql://` address.
        database_check: How a SQLite file is looked at before it is used: full, quick or none.
        is_open: Whether everybody may do everything even where others can reach the relay.
        public_url: What clients dial, and what their proofs have to name, if it is not this host.
        name: What the relay is called in its info document.
        description: What it says about itself there.
        handshake_ms_max: How long a new connection may take to say what it wants.
        ping_interval_ms: How often peers are asked whether they are still there, and how long
            they may take to say so.
        drain_ms_max: How long peers may take to leave when the relay stops.
        compression: Whether to compress for clients that ask for it.
        log_level: How much is logged: debug, info, warning or error.
        log_json: Whether each line of the log is a JSON object.
        limits: How much one peer may ask for.
        retention: What is kept, unless the operator changes it while the relay runs.
        roles_table: The `[[grant]]` entries; None if there are none and all proved keys may do all.
        roles_source: The file that they are from.
        admin_token: What opens the admin endpoints; None if they stay closed.
    """

    host: str = "127.0.0.1"
    port: int = 3400
    database: str = "walstore-relay.db"
    database_check: Literal["full", "quick", "none"] = "full"
    is_open: bool = False
    public_url: str | None = None
    name: str = "walstore relay"
    description: str = "Orders, keeps and hands out signed logs."
    handshake_ms_max: int = 10_000
    ping_interval_ms: int = 20_000
    drain_ms_max: int = 10_000
    compression: bool = True
    log_level: str = "info"
    log_json: bool = False
    limits: Limits = field(default_factory=Limits)
    retention: Policy = field(default_factory=Policy)
    roles_table: Mapping[str, Any] | None = None
    roles_source: str = ""
    admin_token: str | None = field(default=None, repr=False)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it: not if clients dial another, a proxy say."""
        is_dialled_here = self.public_url is None or is_loopback(_host_of(self.public_url))
        return is_loopback(self.host) and is_dialled_here

    @property
    def is_private_to_machine(self) -> bool:
        """Whether everybody may do everything, and everybody is on this machine."""
        return self.roles_table is None and self.is_loopback

    @property
    def is_postgres(self) -> bool:
        """Whether the database is a PostgreSQL server."""
        return self.database.startswith(("postgresql://", "postgres://"))

    @property
    def database_shown(self) -> str:
        """The database without its password."""
        return without_password(self.database)

    def make_roles(self) -> Roles:
        """Who may do what before any grant is read."""
        if self.roles_table is None:
            return Roles.open_to_all()
        return Roles.from_table(self.roles_table, source=self.roles_source)


def without_password(database: str) -> str:
    """The address of a database as it may be shown."""
    shown = re.sub(r"://([^:@/]*):[^@/]*@", r"://\1:…@", database)
    return re.sub(r"([?&]password=)[^&]*", r"\1…", shown)


class _Given(NamedTuple):
    """A value, where it is from, and what its relative paths are relative to."""

    value: object
    where: str
    directory: Path
    is_text: bool


_Layer = dict[tuple[str, str], _Given]


def load_settings(*, environ: Mapping[str, str], flags: Mapping[str, Any]) -> Settings:
    """Read the settings of a relay.

    Args:
        environ: The environment; every `WALSTORE_RELAY_…` in it has to be known.
        flags: What the command line says, by the names of `[relay]`, and `config`; None if unset.

    Raises:
        UsageError: Something in them cannot be used; the message names it.
    """
    environment = _read_environment(environ)
    told = {
        ("relay", name): _flag(name, value) for name, value in flags.items() if value is not None
    }
    config = told.pop(("relay", "config"), environment.pop(("relay", "config"), None))
    file, grants = ({}, None) if config is None else _read_config(_path(config))
    given = {**file, **environment, **told}
    settings = _apply(given)
    settings = _with_roles(settings, given, grants)
    settings = replace(settings, admin_token=_admin_token(environ, given))
    _check_reach(settings)
    return settings


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _read_config(path: Path) -> tuple[_Layer, dict[str, Any] | None]:
    table = _read_toml(path)
    layer: _Layer = {}
    for section, members in table.items():
        if section == "grant":
            continue
        if section not in _SECTIONS:
            known = ", ".join(f"[{name}]" for name in _SECTIONS)
            raise ConfigError(f"{path}: [{section}]", f"is unknown; known are {known}, [[grant]]")
        if type(members) is not dict:
            raise ConfigError(f"{path}: [{section}]", "is not a table")
        for name, value in members.items():
            where = f"{path}: [{section}] {name}"
            layer[section, name] = _Given(value, where, path.parent, is_text=False)
    grants = {"grant": table["grant"]} if "grant" in table else None
    return layer, grants


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}:", f"cannot be read: {error.strerror}") from error
    if len(content) > CONFIG_BYTES_MAX:
        raise ConfigError(f"{path}:", f"is larger than {CONFIG_BYTES_MAX} bytes")
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}:", f"is not TOML: {error}") from error


def _read_environment(environ: Mapping[str, str]) -> _Layer:
    layer: _Layer = {}
    for variable, text in environ.items():
        if variable.startswith(ENVIRONMENT) and variable != TOKEN_VARIABLE:
            name = variable.removeprefix(ENVIRONMENT).lower()
            section = next((each for each in _SECTIONS[1:] if name.startswith(f"{each}_")), "relay")
            place = section, name if section == "relay" else name.removeprefix(f"{section}_")
            layer[place] = _Given(text, variable, Path(), is_text=True)
    return layer


def _flag(name: str, value: object) -> _Given:
    return _Given(value, f"--{name.replace('_', '-')}", Path(), is_text=isinstance(value, str))


def _apply(given: Mapping[tuple[str, str], _Given]) -> Settings:
    relay: dict[str, Any] = {}
    limits: dict[str, int] = {}
    policy = Policy()
    for (section, name), value in given.items():
        match section:
            case "relay" if name in _RELAY:
                relay[_RENAMED.get(name, name)] = _RELAY[name](value)
            case "limits" if name in _LIMITS:
                limits[name] = _integer(value, smallest=1)
            case "retention":
                policy = _changed(policy, name, value)
            case "relay" if name == "admin_token":
                others = f"{TOKEN_VARIABLE} or admin_token_file"
                raise ConfigError(value.where, f"does not belong here; use {others}")
            case _:
                known = ", ".join(sorted(_RELAY if section == "relay" else _LIMITS))
                raise ConfigError(value.where, f"is unknown; known are {known}")
    for elsewhere in ("roles", "admin_token_file"):
        relay.pop(elsewhere, None)
    return Settings(**relay, limits=Limits(**limits), retention=policy)


def _with_roles(
    settings: Settings, given: Mapping[tuple[str, str], _Given], grants: dict[str, Any] | None
) -> Settings:
    named = given.get(("relay", "roles"))
    if named is None and grants is None:
        return settings
    if named is not None and grants is not None:
        raise ConfigError(named.where, "stands beside [[grant]] entries; roles have one place")
    if settings.is_open:
        raise ConfigError("open", "contradicts the roles that are given; leave out one of them")
    if named is None:
        source, table = "[[grant]] of the configuration", cast(dict[str, Any], grants)
    else:
        source = str(_path(named))
        table = _read_toml(_path(named))
    Roles.from_table(table, source=source)
    return replace(settings, roles_table=table, roles_source=source)


def _admin_token(environ: Mapping[str, str], given: Mapping[tuple[str, str], _Given]) -> str | None:
    file = given.get(("relay", "admin_token_file"))
    if TOKEN_VARIABLE in environ:
        if file is not None:
            raise ConfigError(file.where, f"stands beside {TOKEN_VARIABLE}; give one of them")
        return _checked_token(environ[TOKEN_VARIABLE], TOKEN_VARIABLE)
    if file is None:
        return None
    try:
        content = read_keyfile(_path(file))
        return _checked_token(content.decode("ascii").strip(), file.where)
    except KeyfileError as error:
        raise ConfigError(file.where, f"cannot be used: {error}") from error
    except UnicodeDecodeError:
        raise ConfigError(file.where, "is not ASCII text") from None


def _checked_token(token: str, where: str) -> str:
    if not TOKEN_SIZE_MIN <= len(token) <= TOKEN_SIZE_MAX or not _TOKEN.fullmatch(token):
        size = f"{TOKEN_SIZE_MIN} to {TOKEN_SIZE_MAX}"
        raise ConfigError(where, f"is not a token of {size} printable ASCII characters")
    return token


def _check_reach(settings: Settings) -> None:
    if settings.is_loopback or settings.is_open or settings.roles_table is not None:
        return
    raise ConfigError(
        f"host {settings.public_url or settings.host}",
        "can be reached by others, and there are no roles: name a file with --roles,"
        " or say --open to let everybody read and write everything",
    )


def _text(given: _Given, *, size_max: int = 4096) -> str:
    if type(given.value) is not str or not 1 <= len(given.value) <= size_max:
        raise ConfigError(given.where, f"is not text of 1 to {size_max} characters")
    if not given.value.isprintable():
        raise ConfigError(given.where, "has characters that cannot be shown")
    return given.value


def _short_text(given: _Given) -> str:
    return _text(given, size_max=200)


def _integer(given: _Given, *, smallest: int = 0, largest: int = _INTEGER_MAX) -> int:
    value = given.value
    if given.is_text and _INTEGER.fullmatch(str(value)):
        value = int(str(value))
    if type(value) is not int or not smallest <= value <= largest:
        raise ConfigError(given.where, f"is not an integer from {smallest} to {largest}")
    return value


def _boolean(given: _Given) -> bool:
    value = _BOOLEANS.get(str(given.value).lower()) if given.is_text else given.value
    if type(value) is not bool:
        raise ConfigError(given.where, "is neither true nor false")
    return value


def _one_of(given: _Given, names: tuple[str, ...]) -> str:
    if given.value not in names:
        raise ConfigError(given.where, f"is not one of {', '.join(names)}")
    return str(given.value)


def _level(given: _Given) -> str:
    return _one_of(given, LOG_LEVELS)


def _check(given: _Given) -> str:
    return _one_of(given, ("full", "quick", "none"))


def _path(given: _Given) -> Path:
    return given.directory / _text(given)


def _database(given: _Given) -> str:
    text = _text(given)
    if text.startswith(("postgresql://", "postgres://")):
        return text
    if "://" in text or text.startswith(":"):
        raise ConfigError(given.where, "is neither a file nor a postgresql:// address")
    return str(_path(given))


def _url(given: _Given) -> str:
    text = _text(given)
    try:
        parts = urlsplit(text)
        is_plain = not (parts.username or parts.password or parts.query or parts.fragment)
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise ConfigError(given.where, f"is not a URL: {error}") from error
    if parts.scheme not in ("ws", "wss") or not (is_plain and is_whole):
        raise ConfigError(given.where, "is not like wss://relay.example.org")
    if parts.path not in ("", "/", "/ws"):
        raise ConfigError(given.where, "has a path; clients connect to / or /ws")
    return text


def _changed(policy: Policy, name: str, given: _Given) -> Policy:
    try:
        return policy.changed({name: _plain(given)})
    except PolicyError as error:
        raise ConfigError(given.where, error.reason) from error


def _plain(given: _Given) -> object:
    """A value of the policy, which knows itself what it takes."""
    # TOML has no word for nothing.
    if given.value == "none":
        return None
    if not given.is_text:
        return given.value
    text = str(given.value)
    return int(text) if _INTEGER.fullmatch(text) else _BOOLEANS.get(text.lower(), text)


def _port(given: _Given) -> int:
    return _integer(given, largest=65535)


def _positive(given: _Given) -> int:
    return _integer(given, smallest=1, largest=3_600_000)


_LIMITS = frozenset(limit.name for limit in fields(Limits))

_RELAY: dict[str, Callable[[_Given], object]] = {
    "host": _short_text,
    "port": _port,
    "database": _database,
    "database_check": _check,
    "roles": _path,
    "open": _boolean,
    "public_url": _url,
    "admin_token_file": _path,
    "name": _short_text,
    "description": _short_text,
    "handshake_ms_max": _positive,
    "ping_interval_ms": _positive,
    "drain_ms_max": _positive,
    "compression": _boolean,
    "log_level": _level,
    "log_json": _boolean,
}

_RENAMED = {"open": "is_open"}

"""The settings of an archive: from a TOML file, the environment and the command line.

    [source]        relay or database, prefix, identity
    [archive]       table, mode, key_prefix, parts, state, writers, snapshot_role, owners, resume
    [diff]          interval
    [snapshot]      the members of `Policy`
    [formats]       snapshot, diff
    [retention]     keep_epochs, orphan_grace
    [http]          host, port
    [report]        relay, token_file, name
    [limits]        buffer_bytes_max
    [[destinations]]   url, and what its kind takes; credentials
    [[events]]         type, and what its kind takes; credentials
    [credentials.NAME] see `profiles`
    [[tables]]      what a table has of [archive], and its own prefix, in place of [archive]

- What is unknown, misspelled or out of range is refused by its name; nothing is guessed, and no
  threshold is switched off by a mistake.
- `--set section.name=value` and `WALSTORE_ARCHIVE_SECTION_NAME` go before the file.
- Secrets are in files or in the environment, never in the configuration itself.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from walstore.archive.authority import Authority
from walstore.archive.config_section import ConfigError, Section, dictionary, known
from walstore.archive.manifest import PARTS_MAX
from walstore.archive.orphans import GRACE_MS, GRACE_MS_MIN
from walstore.archive.policy import Policy, PolicyError
from walstore.errors import UsageError

__all__ = [
    "ConfigError",
    "ReportSettings",
    "Settings",
    "TableSettings",
    "load_settings",
    "read_settings",
]

ENVIRONMENT = "WALSTORE_ARCHIVE_"
CONFIG_VARIABLE = f"{ENVIRONMENT}CONFIG"

CONFIG_BYTES_MAX = 2**20

DIFF_INTERVAL_MS = 30_000
BUFFER_BYTES_MAX = 256 * 2**20

_SECTIONS = {
    "source": ("relay", "database", "prefix", "identity"),
    "archive": (
        "table",
        "mode",
        "key_prefix",
        "parts",
        "state",
        "writers",
        "snapshot_role",
        "owners",
        "resume",
    ),
    "diff": ("interval",),
    "snapshot": None,
    "formats": ("snapshot", "diff"),
    "retention": ("keep_epochs", "orphan_grace"),
    "http": ("host", "port"),
    "report": ("relay", "token_file", "name"),
    "limits": ("buffer_bytes_max",),
}
_LISTS = ("destinations", "events", "tables")
_TABLE_KEYS = ("prefix", *(_SECTIONS["archive"] or ()))


@dataclass(frozen=True, slots=True)
class TableSettings:
    """One table of an archive.

    Attributes:
        name: What it is called.
        prefix: What the keys of its documents begin with.
        key_prefix: What the keys of its objects begin with.
        mode: What its rows are.
        parts: How many parts each artifact has.
        keeps_state: Whether folded rows carry what the fold goes on from.
        writers: Whose elements count: anybody's, those whom the roster names, or these keys'.
        snapshot_role: The keys whose snapshots count; anybody's, if there are none.
        owners: The keys that may own documents: whose rosters and keyrings count.
        resumes: Whether a restart goes on with the chain, if the source still reaches back so far.
    """

    name: str
    prefix: str
    key_prefix: str
    mode: Literal["sealed", "folded"] = "folded"
    parts: int = 1
    keeps_state: bool = True
    writers: Literal["any", "roster"] | tuple[str, ...] = "any"
    snapshot_role: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    resumes: bool = True

    @property
    def authority(self) -> Authority:
        """Who is believed."""
        return Authority(
            writers=self.writers if isinstance(self.writers, str) else {"": self.writers},
            producers={"": self.snapshot_role} if self.snapshot_role else None,
            owners={"": self.owners} if self.owners else {},
        )


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """Whom to tell how far the archive has come.

    Attributes:
        relay: The relay.
        token_file: The file with its admin token.
        name: What the relay knows the archive by; the names of its tables, if left out.
    """

    relay: str
    token_file: Path
    name: str | None = None

    def archive(self, table: str) -> str:
        """What the relay knows a table by."""
        return table if self.name is None else f"{self.name}/{table}"


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set.

    Attributes:
        relay: The relay to read, if it is one.
        database: The relay's database to read, if it is that.
        identity: The file with the archive's own identity.
        tables: What is archived.
        diff_interval_ms: How often what has happened is written.
        policy: When a base is due.
        base_formats: What bases are written as.
        diff_formats: What diffs are written as.
        destinations: Where to; each with its `url`.
        events: Who is told; each with its `type`.
        credentials: The named profiles.
        keep_epochs: How many epochs to keep; all if 0.
        orphan_grace_ms: How old an object that nobody names must be to be collected.
        host: Where to answer health checks; the port is 0 for any that is free.
        port: The port; None if they are not answered.
        buffer_bytes_max: How much is held before it is written without waiting.
        report: Which relay is told how far the archive has come; None if none is.
    """

    relay: str | None
    database: str | None
    identity: Path | None
    tables: tuple[TableSettings, ...]
    diff_interval_ms: int = DIFF_INTERVAL_MS
    policy: Policy = field(default_factory=Policy)
    base_formats: tuple[str, ...] = ("jsonl",)
    diff_formats: tuple[str, ...] = ("jsonl",)
    destinations: tuple[Mapping[str, Any], ...] = ()
    events: tuple[Mapping[str, Any], ...] = ()
    credentials: Mapping[str, Any] = field(default_factory=dict)
    keep_epochs: int = 0
    orphan_grace_ms: int = GRACE_MS
    host: str = "127.0.0.1"
    port: int | None = 8080
    buffer_bytes_max: int = BUFFER_BYTES_MAX
    report: ReportSettings | None = None


class NothingToArchiveError(UsageError):
    """Nobody has said what is to be archived, or where to."""

    def __init__(self) -> None:
        super().__init__(
            "say what to archive, and where to, in a file: --config archive.toml; it has at least"
            " source.relay or source.database, source.identity, archive.table and the url of one of"
            " the destinations (docs/archive.md shows one)"
        )


def load_settings(
    path: Path | None, *, environ: Mapping[str, str], changes: Sequence[str] = ()
) -> Settings:
    """Read the settings of an archive.

    Args:
        path: The TOML file.
        environ: The environment; every `WALSTORE_ARCHIVE_…` in it has to be known.
        changes: What the command line says: `section.name=value`.

    Raises:
        UsageError: Something in them cannot be used; the message names it.
    """
    found = {} if path is None else _read_toml(path)
    for place, text in [*_of_environment(environ), *map(_of_flag, changes)]:
        _put(found, place, text)
    if path is None and not found:
        raise NothingToArchiveError
    return read_settings(found, directory=Path() if path is None else path.parent)


def read_settings(found: Mapping[str, Any], *, directory: Path = Path()) -> Settings:
    """The settings of a table that was read.

    Args:
        found: What a TOML file holds.
        directory: What relative paths in it are relative to.

    Raises:
        UsageError: Something in it cannot be used; the message names it.
    """
    _check_names(found)
    section = {name: Section(name, found.get(name, {})) for name in _SECTIONS}
    source, retention, http = section["source"], section["retention"], section["http"]
    relay, database = source.text("relay"), source.text("database")
    if (relay is None) == (database is None):
        raise ConfigError("[source]", "needs relay or database: one of them")
    if database is not None and "://" not in database:
        database = str(directory / database)
    return Settings(
        relay=relay,
        database=database,
        identity=source.path("identity", directory),
        tables=_tables(section["archive"], found.get("tables"), source),
        diff_interval_ms=section["diff"].duration_ms("interval", DIFF_INTERVAL_MS),
        policy=_policy(found.get("snapshot", {})),
        base_formats=section["formats"].formats("snapshot"),
        diff_formats=section["formats"].formats("diff"),
        destinations=_destinations(found.get("destinations"), directory),
        events=_entries("events", found.get("events", [])),
        credentials=dictionary("[credentials]", found.get("credentials", {})),
        keep_epochs=retention.integer("keep_epochs", 0),
        orphan_grace_ms=_grace_ms(retention),
        host=http.text("host") or "127.0.0.1",
        port=http.integer("port", 8080, largest=65535),
        buffer_bytes_max=section["limits"].integer("buffer_bytes_max", BUFFER_BYTES_MAX, 2**20),
        report=_report(section["report"], relay, directory),
    )


def _report(section: Section, source: str | None, directory: Path) -> ReportSettings | None:
    if not section.members:
        return None
    relay, token_file = section.text("relay") or source, section.path("token_file", directory)
    if relay is None:
        raise ConfigError("report.relay", "is missing: the relay whose database is archived")
    if token_file is None:
        raise ConfigError("report.token_file", "is missing: the file with the relay's admin token")
    return ReportSettings(relay, token_file, section.text("name"))


def _tables(archive: Section, tables: object, source: Section) -> tuple[TableSettings, ...]:
    if tables is None:
        read = [_table(archive, source.text("prefix") or "")]
    else:
        entries = _entries("tables", tables)
        read = []
        for index, entry in enumerate(entries):
            where = f"tables[{index}]"
            for name in entry:
                if name not in _TABLE_KEYS:
                    raise ConfigError(f"{where}.{name}", f"is unknown; {known(_TABLE_KEYS)}")
            own = Section(where, {**archive.members, **entry})
            read.append(_table(own, own.text("prefix") or source.text("prefix") or ""))
        if not read:
            raise ConfigError("[[tables]]", "is empty")
    for what in ("name", "key_prefix"):
        names = [getattr(each, what) for each in read]
        if len(set(names)) < len(names):
            raise ConfigError("[[tables]]", f"has two with one {what}: two writers would fight")
    return tuple(read)


def _table(section: Section, prefix: str) -> TableSettings:
    name = section.text("table")
    if name is None:
        raise ConfigError(f"{section.name}.table", "is missing: what the archive is called")
    key_prefix = section.text("key_prefix", may_be_empty=True)
    return TableSettings(
        name=name,
        prefix=prefix,
        key_prefix=f"{name}/" if key_prefix is None else key_prefix,
        mode=cast(Any, section.one_of("mode", ("folded", "sealed"))),
        parts=section.integer("parts", 1, 1, PARTS_MAX),
        keeps_state=section.boolean("state", True),
        writers=section.writers(),
        snapshot_role=section.keys("snapshot_role"),
        owners=section.keys("owners"),
        resumes=section.boolean("resume", True),
    )


def _grace_ms(retention: Section) -> int:
    grace_ms = retention.duration_ms("orphan_grace", GRACE_MS)
    if grace_ms < GRACE_MS_MIN:
        raise ConfigError("retention.orphan_grace", "is below 1m: a commit may take that long")
    return grace_ms


def _policy(found: object) -> Policy:
    try:
        return Policy.read(dictionary("[snapshot]", found))
    except PolicyError as error:
        raise ConfigError(f"snapshot.{error.key}", error.reason) from error


def _destinations(found: object, directory: Path) -> tuple[Mapping[str, Any], ...]:
    entries = _entries("destinations", [] if found is None else found)
    if not entries:
        raise ConfigError("[[destinations]]", "is missing: where the archive is written to")
    return tuple(_located(index, entry, directory) for index, entry in enumerate(entries))


def _located(index: int, entry: Mapping[str, Any], directory: Path) -> Mapping[str, Any]:
    url = entry.get("url")
    if type(url) is not str or not url:
        raise ConfigError(f"destinations[{index}].url", "is missing: a path, or s3://…")
    is_path = ":" not in url.split("/")[0]
    return {**entry, "url": str(directory / Path(url).expanduser())} if is_path else entry


def _check_names(found: Mapping[str, Any]) -> None:
    for name, members in found.items():
        if name in _LISTS or name == "credentials":
            continue
        if name not in _SECTIONS:
            raise ConfigError(f"[{name}]", f"is unknown; {known((*_SECTIONS, *_LISTS))}")
        members_known = _SECTIONS[name]
        for member in dictionary(f"[{name}]", members):
            if members_known is not None and member not in members_known:
                raise ConfigError(f"{name}.{member}", f"is unknown; {known(members_known)}")


def _entries(name: str, value: object) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list):
        raise ConfigError(f"[[{name}]]", "is not a list of tables")
    return tuple(dictionary(f"{name}[{index}]", each) for index, each in enumerate(value))


# ── where they are from ────────────────────────────────────────────────────────────────


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(CONFIG_BYTES_MAX + 1)
        if len(content) > CONFIG_BYTES_MAX:
            raise ConfigError(f"{path}:", f"is larger than {CONFIG_BYTES_MAX} bytes")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise ConfigError(f"{path}:", f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}:", f"is not TOML: {error}") from error


def _of_environment(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    found = []
    for variable, text in environ.items():
        if variable.startswith(ENVIRONMENT):
            section, _, name = variable.removeprefix(ENVIRONMENT).lower().partition("_")
            found.append((f"{section}.{name}", text))
    return found


def _of_flag(change: str) -> tuple[str, str]:
    place, equals, text = change.partition("=")
    if not equals:
        raise ConfigError(f"--set {change}", "is not like section.name=value")
    return place.strip(), text.strip()


def _put(found: dict[str, Any], place: str, text: str) -> None:
    section, dot, name = place.partition(".")
    if not dot or section not in _SECTIONS:
        raise ConfigError(place, f"is not like section.name; {known(tuple(_SECTIONS))}")
    dictionary(f"[{section}]", found.setdefault(section, {}))[name] = _value(text)


def _value(text: str) -> Any:
    """What a text would be in TOML; the text itself, if it would be nothing."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text

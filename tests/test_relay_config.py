"""Settings: where they come from, which one wins, and what is refused by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from walstore.errors import UsageError
from walstore.relay.config import ConfigError, Settings, is_loopback, load_settings
from walstore.relay.limits import Limits
from walstore.relay.retention import Policy, SnapshotMode
from walstore.relay.roles import Role, RolesError
from walstore.signed import Identity

KEY = Identity.from_seed(bytes([1]) * 32).public_key
TOKEN = "0123456789abcdef"
ROLES = f'[[grant]]\nprefix = ""\nwrite = ["{KEY}"]\n'


def load(environ: dict[str, str] | None = None, **flags: Any) -> Settings:
    return load_settings(environ=environ or {}, flags=flags)


def written(path: Path, text: str, mode: int = 0o644) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_without_anything_it_is_an_open_relay_on_this_machine_alone() -> None:
    settings = load()
    assert (settings.host, settings.port) == ("127.0.0.1", 3400)
    assert settings.database == "walstore-relay.db"
    assert settings.limits == Limits()
    assert settings.is_private_to_machine
    assert settings.admin_token is None
    assert settings.make_roles().allows(Role.WRITE, "any", {KEY}, 0)


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    config = written(
        tmp_path / "relay.toml", '[relay]\nport = 1\nname = "file"\ndrain_ms_max = 5\n'
    )
    settings = load(
        {"WALSTORE_RELAY_PORT": "2", "WALSTORE_RELAY_NAME": "env"}, config=config, port=3
    )
    assert (settings.port, settings.name, settings.drain_ms_max) == (3, "env", 5)


def test_every_section_of_a_file_is_read(tmp_path: Path) -> None:
    config = written(
        tmp_path / "relay.toml",
        f"""
        [relay]
        host = "0.0.0.0"
        port = 0
        database = "logs/relay.db"
        public_url = "wss://relay.example.org"
        compression = false
        log_level = "debug"
        log_json = true
        [limits]
        connections_max = 7
        [retention]
        recent_count = 9
        replay_window = "none"
        [[grant]]
        prefix = "notes/"
        write = ["{KEY}"]
        """,
    )
    settings = load(config=config)
    assert settings.host == "0.0.0.0"
    assert settings.database == str(tmp_path / "logs/relay.db")
    assert settings.public_url == "wss://relay.example.org"
    assert (settings.compression, settings.log_level, settings.log_json) == (False, "debug", True)
    assert settings.limits == Limits(connections_max=7)
    assert settings.retention == Policy(recent_count=9, replay_window=None)
    roles = settings.make_roles()
    assert roles.allows(Role.WRITE, "notes/a", {KEY}, 0)
    assert not roles.allows(Role.WRITE, "other", {KEY}, 0)
    assert not settings.is_private_to_machine


def test_everything_can_come_from_the_environment(tmp_path: Path) -> None:
    environ = {
        "WALSTORE_RELAY_HOST": "::1",
        "WALSTORE_RELAY_OPEN": "true",
        "WALSTORE_RELAY_DATABASE": "postgresql://me:secret@db/relay",
        "WALSTORE_RELAY_LIMITS_PENDING_BYTES_MAX": "1000",
        "WALSTORE_RELAY_RETENTION_RECENT_COUNT": "9",
        "WALSTORE_RELAY_RETENTION_PAYLOAD_RETENTION_DAYS": "none",
        "WALSTORE_RELAY_RETENTION_SNAPSHOT_MODE": "full_retention",
        "WALSTORE_RELAY_RETENTION_REQUIRE_ARCHIVE": "true",
        "WALSTORE_RELAY_ADMIN_TOKEN": TOKEN,
        "WALSTORE_RELAY_CONFIG": written(tmp_path / "relay.toml", '[relay]\nname = "mine"\n'),
        "PATH": "/bin",
    }
    settings = load(environ)
    assert (settings.host, settings.is_open, settings.name) == ("::1", True, "mine")
    assert settings.limits.pending_bytes_max == 1000
    assert settings.retention == Policy(
        recent_count=9,
        payload_retention_days=None,
        require_archive=True,
        snapshot_mode=SnapshotMode.FULL_RETENTION,
    )
    assert settings.admin_token == TOKEN
    assert settings.is_postgres


def test_secrets_are_not_shown() -> None:
    environ = {
        "WALSTORE_RELAY_ADMIN_TOKEN": TOKEN,
        "WALSTORE_RELAY_DATABASE": "postgresql://me:secret@db/relay",
    }
    settings = load(environ)
    assert TOKEN not in repr(settings)
    assert settings.database_shown == "postgresql://me:…@db/relay"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[relay]\nprot = 1", "[relay] prot"),
        ("[relai]\nport = 1", "[relai]"),
        ("relay = 7", "[relay]"),
        ("[relay]\nport = 70000", "[relay] port"),
        ("[relay]\nport = -1", "[relay] port"),
        ('[relay]\nport = "3400"', "[relay] port"),
        ("[relay]\nport = true", "[relay] port"),
        ("[relay]\nhost = 7", "[relay] host"),
        ('[relay]\nhost = ""', "[relay] host"),
        ('[relay]\nhost = "a\\nb"', "[relay] host"),
        ('[relay]\nopen = "yes"', "[relay] open"),
        ('[relay]\ndatabase = "mysql://db"', "[relay] database"),
        ('[relay]\ndatabase = ":memory:"', "[relay] database"),
        ('[relay]\ndatabase_check = "deep"', "[relay] database_check"),
        ('[relay]\nlog_level = "loud"', "[relay] log_level"),
        ('[relay]\npublic_url = "relay.example.org"', "[relay] public_url"),
        ('[relay]\npublic_url = "https://relay.example.org"', "[relay] public_url"),
        ('[relay]\npublic_url = "wss://me:pw@relay.example.org"', "[relay] public_url"),
        ('[relay]\npublic_url = "wss://relay.example.org/a"', "[relay] public_url"),
        ('[relay]\npublic_url = "wss://relay.example.org:99999"', "[relay] public_url"),
        ('[relay]\npublic_url = "wss://[::"', "[relay] public_url"),
        ("[relay]\nping_interval_ms = 0", "[relay] ping_interval_ms"),
        (f'[relay]\nadmin_token = "{TOKEN}"', "[relay] admin_token"),
        ('[relay]\nroles = "nowhere.toml"', "nowhere.toml"),
        ("[limits]\nframes = 1", "[limits] frames"),
        ("[limits]\nframe_bytes_max = 0", "[limits] frame_bytes_max"),
        ("[limits]\nframe_bytes_max = 1.5", "[limits] frame_bytes_max"),
        ("[retention]\nrecent = 1", "[retention] recent"),
        ("[retention]\nrecent_count = 0", "[retention] recent_count"),
        ('[retention]\nrecent_count = "4"', "[retention] recent_count"),
        ("[retention]\nttl_days = 1", "[retention] ttl_days"),
        ("not toml", "relay.toml"),
        ("a = " + "[" * 5000, "relay.toml"),
    ],
)
def test_a_mistake_in_the_file_is_refused_by_its_name(tmp_path: Path, text: str, name: str) -> None:
    config = written(tmp_path / "relay.toml", text)
    with pytest.raises(ConfigError) as caught:
        load(config=config)
    assert name in str(caught.value)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("WALSTORE_RELAY_PROT", "1"),
        ("WALSTORE_RELAY_PORT", "many"),
        ("WALSTORE_RELAY_PORT", "9" * 5000),
        ("WALSTORE_RELAY_PORT", "³"),
        ("WALSTORE_RELAY_OPEN", "maybe"),
        ("WALSTORE_RELAY_LIMITS_NOTHING", "1"),
        ("WALSTORE_RELAY_RETENTION_RECENT_COUNT", "some"),
        ("WALSTORE_RELAY_ADMIN_TOKEN", "short"),
        ("WALSTORE_RELAY_ADMIN_TOKEN", "with a space inside"),
        ("WALSTORE_RELAY_ADMIN_TOKEN", ""),
        ("WALSTORE_RELAY_CONFIG", "/nowhere/relay.toml"),
    ],
)
def test_a_mistake_in_the_environment_is_refused_by_its_name(variable: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({variable: text})
    assert (variable if "CONFIG" not in variable else text) in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "relay.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"relay\.toml"):
        load(config=str(path))


# Who can reach it.


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.0.7", "relay.example.org", "127.0.0.1.nip"]
)
def test_a_relay_that_others_can_reach_needs_roles_or_to_be_open(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(host=host)
    assert "--roles" in str(caught.value)
    assert "--open" in str(caught.value)
    assert load(host=host, open=True).is_open
    roles = written(tmp_path / "roles.toml", ROLES)
    assert load(host=host, roles=roles).roles_table is not None


def test_a_relay_behind_a_proxy_needs_roles_or_to_be_open(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(public_url="wss://relay.example")
    assert "wss://relay.example" in str(caught.value)
    assert not load(public_url="wss://relay.example", open=True).is_private_to_machine
    roles = written(tmp_path / "roles.toml", ROLES)
    assert load(public_url="wss://relay.example", roles=roles).roles_table is not None
    for here in ("ws://localhost:3400", "ws://127.0.0.1", "wss://[::1]"):
        assert load(public_url=here).is_private_to_machine
    for nowhere in ("wss://[::", "", "wss://"):
        assert not Settings(public_url=nowhere).is_private_to_machine


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("LocalHost", True),
        ("0.0.0.0", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_loopback_is_this_machine(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_roles_and_being_open_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="open"):
        load(open=True, roles=written(tmp_path / "roles.toml", ROLES))


def test_roles_have_one_place(tmp_path: Path) -> None:
    config = written(tmp_path / "relay.toml", ROLES)
    with pytest.raises(ConfigError, match="roles"):
        load(config=config, roles=written(tmp_path / "roles.toml", ROLES))


def test_a_mistake_in_the_roles_names_file_entry_and_member(tmp_path: Path) -> None:
    roles = written(tmp_path / "roles.toml", ROLES + '[[grant]]\nprefix = ""\nwrite = ["x"]')
    with pytest.raises(RolesError) as caught:
        load(roles=roles)
    for part in (roles, "[[grant]] 2", "`write`"):
        assert part in str(caught.value)


def test_an_empty_role_file_lets_nobody_in(tmp_path: Path) -> None:
    roles = load(roles=written(tmp_path / "roles.toml", "")).make_roles()
    assert not roles.allows(Role.READ, "a", {KEY}, 0)


# The admin token.


def test_the_token_can_be_in_a_file_of_its_owners_alone(tmp_path: Path) -> None:
    written(tmp_path / "token", f"{TOKEN}\n", mode=0o600)
    config = written(tmp_path / "relay.toml", '[relay]\nadmin_token_file = "token"')
    assert load(config=config).admin_token == TOKEN


@pytest.mark.parametrize(
    ("content", "mode"),
    [(TOKEN, 0o644), (TOKEN, 0o640), ("short", 0o600), ("", 0o600), ("tökenökenökenöken", 0o600)],
)
def test_a_token_file_that_others_read_or_that_holds_no_token_is_refused(
    tmp_path: Path, content: str, mode: int
) -> None:
    token = written(tmp_path / "token", content, mode=mode)
    with pytest.raises(ConfigError) as caught:
        load({"WALSTORE_RELAY_ADMIN_TOKEN_FILE": token})
    assert "ADMIN_TOKEN_FILE" in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        load({"WALSTORE_RELAY_ADMIN_TOKEN_FILE": str(tmp_path / "nowhere")})


def test_two_tokens_are_refused(tmp_path: Path) -> None:
    token = written(tmp_path / "token", TOKEN, mode=0o600)
    environ = {"WALSTORE_RELAY_ADMIN_TOKEN": TOKEN, "WALSTORE_RELAY_ADMIN_TOKEN_FILE": token}
    with pytest.raises(ConfigError, match="one of them"):
        load(environ)

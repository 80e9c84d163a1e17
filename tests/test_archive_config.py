"""The settings of an archive: what is wrong is named, and nothing is guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from walstore.archive.config import ConfigError, load_settings, read_settings
from walstore.archive.policy import Policy

LEAST: dict[str, Any] = {
    "source": {"database": "relay.db"},
    "archive": {"table": "notes"},
    "destinations": [{"url": "out"}],
}


def changed(**sections: Any) -> dict[str, Any]:
    both = {**LEAST, **sections}
    return {
        name: {**LEAST.get(name, {}), **section} if isinstance(section, dict) else section
        for name, section in both.items()
    }


def test_the_least_that_is_needed_has_sensible_defaults(tmp_path: Path) -> None:
    settings = read_settings(LEAST, directory=tmp_path)
    assert settings.database == str(tmp_path / "relay.db")
    assert settings.destinations == ({"url": str(tmp_path / "out")},)
    assert settings.diff_interval_ms == 30_000
    assert settings.policy == Policy()
    assert (settings.base_formats, settings.diff_formats) == (("jsonl",), ("jsonl",))
    assert (settings.keep_epochs, settings.port) == (0, 8080)
    (table,) = settings.tables
    assert (table.name, table.prefix, table.key_prefix) == ("notes", "", "notes/")
    assert (table.mode, table.parts, table.writers) == ("folded", 1, "any")


def test_every_setting_arrives() -> None:
    settings = read_settings(
        changed(
            source={"prefix": "notes/", "identity": "key"},
            archive={
                "mode": "sealed",
                "key_prefix": "",
                "parts": 16,
                "state": False,
                "writers": ["a" * 64],
                "snapshot_role": ["b" * 64],
                "owners": ["c" * 64],
                "resume": False,
            },
            diff={"interval": "5s"},
            snapshot={
                "min_interval": "5m",
                "max_interval": "6h",
                "max_diff_bytes": 33554432,
                "max_diff_fraction": 0.25,
                "max_churn_records": 100000,
                "max_churn_fraction": 0.5,
                "quiet_bases": True,
            },
            formats={"snapshot": ["parquet", "jsonl"], "diff": ["protobuf"]},
            retention={"keep_epochs": 3, "orphan_grace": "7d"},
            http={"host": "0.0.0.0", "port": 9000},
            limits={"buffer_bytes_max": 2**21},
            events=[{"type": "jsonl", "path": "events.jsonl"}],
            credentials={"there": {"type": "ambient"}},
        )
    )
    (table,) = settings.tables
    assert table.key_prefix == ""
    assert (table.parts, table.keeps_state, table.resumes) == (16, False, False)
    assert (table.writers, table.snapshot_role) == (("a" * 64,), ("b" * 64,))
    assert table.authority.owners == {"": ("c" * 64,)}
    assert settings.policy.max_interval_ms == 6 * 3_600_000
    assert settings.base_formats == ("parquet", "jsonl")
    assert settings.orphan_grace_ms == 7 * 86_400_000
    assert (settings.host, settings.port) == ("0.0.0.0", 9000)
    assert settings.identity == Path("key")


def test_tables_have_their_own_settings_and_share_the_rest() -> None:
    settings = read_settings(
        {
            "source": {"database": "relay.db"},
            "archive": {"mode": "sealed"},
            "destinations": [{"url": "s3://bucket/x"}],
            "tables": [
                {"table": "notes", "prefix": "notes/"},
                {"table": "tasks", "prefix": "tasks/", "mode": "folded", "parts": 4},
            ],
        }
    )
    assert [(each.name, each.prefix, each.mode) for each in settings.tables] == [
        ("notes", "notes/", "sealed"),
        ("tasks", "tasks/", "folded"),
    ]
    assert settings.destinations == ({"url": "s3://bucket/x"},)


@pytest.mark.parametrize(
    ("found", "where"),
    [
        ({}, r"\[source\]"),
        (changed(source={"relay": "ws://x"}), r"\[source\]"),
        (changed(source={"databse": "x"}), r"source\.databse"),
        (changed(sauce={}), r"\[sauce\]"),
        (changed(source=5), r"\[source\]"),
        (changed(archive={"table": ""}), r"archive\.table"),
        (changed(archive={"table": "a\nb"}), r"archive\.table"),
        (changed(archive={"mode": "open"}), r"archive\.mode"),
        (changed(archive={"parts": 0}), r"archive\.parts"),
        (changed(archive={"parts": 2.0}), r"archive\.parts"),
        (changed(archive={"parts": True}), r"archive\.parts"),
        (changed(archive={"state": "yes"}), r"archive\.state"),
        (changed(archive={"writers": "everybody"}), r"archive\.writers"),
        (changed(archive={"writers": []}), r"archive\.writers"),
        (changed(archive={"writers": [1]}), r"archive\.writers"),
        (changed(archive={"writers": ["ada"]}), r"archive\.writers has 'ada'"),
        (changed(archive={"snapshot_role": "key"}), r"archive\.snapshot_role"),
        (changed(archive={"owners": ["A" * 64]}), r"archive\.owners"),
        (changed(report={"token_file": "token"}), r"report\.relay is missing"),
        (changed(report={"relay": "ws://127.0.0.1:1"}), r"report\.token_file is missing"),
        (changed(report={"relay": 5, "token_file": "token"}), r"report\.relay"),
        (changed(report={"token": "secret"}), r"report\.token is unknown"),
        (changed(diff={"interval": "0s"}), r"diff\.interval"),
        (changed(diff={"interval": 30}), r"diff\.interval"),
        (changed(diff={"interval": "soon"}), r"diff\.interval"),
        (changed(snapshot={"max_interval": "5 minutes"}), r"snapshot\.max_interval"),
        (changed(snapshot={"max_diff_bytes": "many"}), r"snapshot\.max_diff_bytes"),
        (changed(snapshot={"max_diff_bytes": -1}), r"snapshot\.max_diff_bytes"),
        (changed(snapshot={"max_diff_fraction": 0}), r"snapshot\.max_diff_fraction"),
        (changed(snapshot={"max_churn": 5}), r"snapshot\.max_churn "),
        (
            changed(snapshot={"min_interval": "2h", "max_interval": "1h"}),
            r"snapshot\.min_interval",
        ),
        (changed(formats={"snapshot": []}), r"formats\.snapshot"),
        (changed(formats={"diff": ["csv"]}), r"formats\.diff"),
        (changed(formats={"diff": ["jsonl", "jsonl"]}), r"formats\.diff"),
        (changed(retention={"keep_epochs": -1}), r"retention\.keep_epochs"),
        (changed(retention={"orphan_grace": "5s"}), r"retention\.orphan_grace"),
        (changed(http={"port": 70000}), r"http\.port"),
        (changed(limits={"buffer_bytes_max": 5}), r"limits\.buffer_bytes_max"),
        (changed(destinations=[]), r"\[\[destinations\]\]"),
        (changed(destinations=[{}]), r"destinations\[0\]\.url"),
        ({**LEAST, "destinations": {"url": "x"}}, r"\[\[destinations\]\]"),
        (changed(tables=[]), r"\[\[tables\]\]"),
        (changed(tables=[{"table": "a"}, {"table": "a"}]), r"\[\[tables\]\]"),
        (changed(tables=[{"table": "a", "colour": "red"}]), r"tables\[0\]\.colour"),
        (changed(events=["jsonl"]), r"events\[0\]"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_name(found: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        read_settings(found)


def test_flags_go_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "archive.toml"
    path.write_text(
        '[source]\ndatabase = "relay.db"\n[archive]\ntable = "file"\nparts = 1\n'
        '[[destinations]]\nurl = "out"\n'
    )
    settings = load_settings(
        path,
        environ={
            "WALSTORE_ARCHIVE_ARCHIVE_TABLE": "environment",
            "WALSTORE_ARCHIVE_ARCHIVE_PARTS": "2",
            "HOME": "/",
        },
        changes=["archive.parts=4", "snapshot.max_interval=6h"],
    )
    assert (settings.tables[0].name, settings.tables[0].parts) == ("environment", 4)
    assert settings.policy.max_interval_ms == 6 * 3_600_000


@pytest.mark.parametrize(
    ("change", "where"),
    [("archive.parts", "--set"), ("parts=4", "parts"), ("archive.prats=4", r"archive\.prats")],
)
def test_a_flag_that_is_misspelled_is_named(change: str, where: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=where):
        load_settings(None, environ={}, changes=[change])


def test_an_unknown_variable_is_named() -> None:
    with pytest.raises(ConfigError, match="colour"):
        load_settings(None, environ={"WALSTORE_ARCHIVE_COLOUR": "red"})


@pytest.mark.parametrize("content", ["[source", "\ud800".encode("utf-8", "surrogatepass")])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "archive.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError, match=r"archive\.toml: is not TOML"):
        load_settings(path, environ={})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"archive\.toml: cannot be read"):
        load_settings(tmp_path / "archive.toml", environ={})

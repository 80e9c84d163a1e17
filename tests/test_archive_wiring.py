"""Destinations and sinks as a configuration describes them: opened, or refused by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.commits import commit
from walstore.archive.local import LocalDestination
from walstore.archive.objects import ObjectDestination
from walstore.archive.sink_aws import EventBridgeSink, KinesisSink, SnsSink, SqsSink
from walstore.archive.sink_jsonl import JsonlSink
from walstore.archive.sink_webhook import WebhookSink
from walstore.archive.wiring import Wiring
from walstore.errors import UsageError

PROFILES = {
    "there": {
        "type": "assume_role",
        "role_arn": "arn:aws:iam::123456789012:role/archive",
        "region": "eu-west-1",
    }
}
QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/commits"
TOPIC = "arn:aws:sns:eu-west-1:123456789012:commits"


def test_each_kind_of_destination_is_opened_by_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    local, bucket, role = Wiring(PROFILES).destinations(
        [
            {"url": str(tmp_path / "out")},
            {"url": "s3://bucket/archive", "region": "eu-west-1", "name": "cold"},
            {"url": "s3://bucket/archive", "credentials": "there"},
        ]
    )
    assert isinstance(local, LocalDestination)
    assert isinstance(bucket, ObjectDestination)
    assert isinstance(role, ObjectDestination)
    assert bucket.name == "cold"
    assert role.uri("notes/manifest.json") == "s3://bucket/archive/notes/manifest.json"


async def test_each_kind_of_sink_is_opened_by_its_type(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of both sides\n")
    secret.chmod(0o600)
    sinks = Wiring(PROFILES, directory=tmp_path).sinks(
        [
            {"type": "jsonl", "path": "events.jsonl", "name": "file"},
            {"type": "webhook", "url": "https://hooks.example/x", "secret_file": "secret"},
            {"type": "sns", "topic_arn": TOPIC, "credentials": "there"},
            {"type": "sqs", "queue_url": QUEUE, "region": "eu-west-1"},
            {"type": "kinesis", "stream": "commits", "region": "eu-west-1"},
            {"type": "eventbridge", "bus": "commits", "region": "eu-west-1"},
        ]
    )
    kinds = [JsonlSink, WebhookSink, SnsSink, SqsSink, KinesisSink, EventBridgeSink]
    assert [type(each) for each in sinks] == kinds
    assert sinks[0].name == "file"
    await sinks[0].publish(commit())
    assert (tmp_path / "events.jsonl").read_bytes().count(b"\n") == 1
    for each in sinks:
        await each.aclose()


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({}, r"events\[0\]\.type"),
        ({"type": "fax"}, r"events\[0\]\.type is 'fax'; known are jsonl, webhook"),
        ({"type": ["jsonl"]}, r"events\[0\]\.type"),
        ({"type": "jsonl"}, r"events\[0\]\.path is missing"),
        ({"type": "jsonl", "path": 5}, r"events\[0\]\.path"),
        ({"type": "jsonl", "path": "x", "topic_arn": TOPIC}, r"events\[0\]\.topic_arn is unknown"),
        ({"type": "jsonl", "path": "x", "name": 5}, r"events\[0\]\.name"),
        ({"type": "webhook", "url": "https://x"}, r"events\[0\]\.secret_file is missing"),
        (
            {"type": "webhook", "url": "https://x", "secret_file": "nowhere"},
            r"events\[0\]\.secret_file cannot be used",
        ),
        ({"type": "sns"}, r"events\[0\]\.topic_arn is missing"),
        ({"type": "sns", "topic_arn": TOPIC, "region": 5}, r"events\[0\]\.region"),
        ({"type": "sns", "topic_arn": TOPIC, "credentials": "nobody"}, "nobody"),
        ({"type": "sqs", "queue": QUEUE}, r"events\[0\]\.queue_url is missing"),
        ({"type": "kinesis", "stream": "s", "shard": 1}, r"events\[0\]\.shard is unknown"),
        ({"type": "eventbridge", "bus": 5}, r"events\[0\]\.bus"),
    ],
)
def test_a_sink_that_cannot_be_opened_is_named(
    tmp_path: Path, entry: dict[str, Any], named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        Wiring({}, directory=tmp_path).sinks([entry])


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"url": "ftp://host/x"}, "ftp://host/x"),
        ({"url": "out", "region": "eu-west-1"}, "region"),
        ({"url": "out", "name": 5}, r"destinations\[0\]\.name"),
        ({"url": "s3://bucket/x", "colour": "red"}, "colour"),
        ({"url": "s3://bucket/x", "credentials": "nobody"}, "nobody"),
        ({"url": "s3://bucket/x", "credentials": 5}, r"destinations\[0\]\.credentials"),
        ({"url": "gs://bucket/x", "credentials": "there"}, r"destinations\[0\]\.credentials"),
    ],
)
def test_a_destination_that_cannot_be_opened_is_named(entry: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Wiring(PROFILES).destinations([entry])


def test_a_profile_that_cannot_be_used_is_named() -> None:
    with pytest.raises(UsageError, match="there"):
        Wiring({"there": {"type": "assume_role"}})

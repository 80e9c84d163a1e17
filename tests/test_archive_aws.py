"""Amazon's services: profiles of credentials, and the sinks that use them, against moto."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import botocore.client
import pytest
from botocore.exceptions import ConnectTimeoutError
from moto import mock_aws
from moto.server import ThreadedMotoServer

from tests.commits import CREATED_MS, commit
from walstore.archive.credentials import Credentials
from walstore.archive.extras import ExtraMissingError
from walstore.archive.objects import ObjectDestination
from walstore.archive.profiles import Ambient, AssumeRole, ProfileError, read_profiles
from walstore.archive.sink import EventSink, SinkError, read_event
from walstore.archive.sink_aws import (
    AwsSink,
    EventBridgeSink,
    KinesisSink,
    SnsSink,
    SqsSink,
    partition_key,
)

REGION = "eu-west-1"
ROLE = "arn:aws:iam::123456789012:role/archive"
OTHER_ROLE = "arn:aws:iam::123456789012:role/inner"


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Amazon's services, in this process; nothing leaves it."""
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        yield


class Calls:
    """Every call of botocore: what was called, with what, and as whom."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, dict[str, Any], str]] = []
        self.failures: list[Exception] = []
        system = botocore.client.BaseClient._make_api_call  # type: ignore[attr-defined]

        def call(client: Any, operation: str, members: dict[str, Any]) -> Any:
            access_key = client._request_signer._credentials.get_frozen_credentials().access_key
            self.made.append((operation, members, access_key))
            if self.failures and operation != "AssumeRole":
                raise self.failures.pop(0)
            return system(client, operation, members)

        monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", call)

    def of(self, operation: str) -> list[tuple[dict[str, Any], str]]:
        """The calls of one operation."""
        return [(members, key) for name, members, key in self.made if name == operation]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


# ── profiles ───────────────────────────────────────────────────────────────────────────────


def test_profiles_are_read_from_settings() -> None:
    assert read_profiles(
        {
            "here": {"type": "ambient"},
            "there": {"type": "ambient", "region": REGION},
            "role": {"type": "assume_role", "role_arn": ROLE},
            "inner": {
                "type": "assume_role",
                "role_arn": OTHER_ROLE,
                "external_id": "x",
                "session_name": "s",
                "region": REGION,
                "base": "role",
            },
        }
    ) == {
        "here": Ambient(),
        "there": Ambient(REGION),
        "role": AssumeRole(ROLE),
        "inner": AssumeRole(OTHER_ROLE, "x", "s", REGION, "role"),
    }


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        ({}, "its type is None"),
        ({"type": "static"}, "its type is 'static'"),
        ({"type": ["ambient"]}, "its type is"),
        ({"type": "ambient", "role_arn": ROLE}, "'role_arn' is not known"),
        ({"type": "ambient", "region": 1}, "'region' is no text"),
        ({"type": "assume_role"}, "no role_arn"),
        ({"type": "assume_role", "role_arn": ""}, "'role_arn' is no text"),
        ({"type": "assume_role", "role_arn": ROLE, "externalid": "x"}, "'externalid' is not known"),
        ({"type": "assume_role", "role_arn": ROLE, "base": "none"}, "base 'none' is unknown"),
        ({"type": "assume_role", "role_arn": ROLE, "base": "it"}, "go round: it → it"),
        (None, "no table"),
    ],
)
def test_a_profile_that_cannot_be_used_is_refused(profile: Any, reason: str) -> None:
    with pytest.raises(ProfileError, match=reason) as caught:
        read_profiles({"it": profile})
    assert caught.value.profile == "it"


def test_bases_that_go_round_are_refused() -> None:
    ring = {
        "outside": AssumeRole(ROLE, base="a"),
        "a": AssumeRole(ROLE, base="b"),
        "b": AssumeRole(ROLE, base="c"),
        "c": AssumeRole(ROLE, base="a"),
    }
    with pytest.raises(ProfileError, match="go round"):
        Credentials(ring)


def test_an_unknown_profile_is_refused() -> None:
    credentials = Credentials({"a": Ambient(), "b": Ambient()})
    with pytest.raises(ProfileError, match="'c': it is unknown; there are: a, b"):
        credentials.session("c")
    with pytest.raises(ProfileError, match="'c'"):
        credentials.client("sns", "c", REGION)
    with pytest.raises(ProfileError, match="'c'"):
        credentials.provider("c")


def test_a_service_needs_a_region() -> None:
    with pytest.raises(ProfileError, match="sns needs a region"):
        Credentials().client("sns")
    with pytest.raises(ProfileError, match="a role is assumed in a region"):
        Credentials({"role": AssumeRole(ROLE)}).provider("role")


def test_a_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ExtraMissingError, match=r"pip install 'walstore\[aws\]'"):
        Credentials()


def test_a_session_is_made_once_for_each_profile_and_region(calls: Calls) -> None:
    credentials = Credentials({"role": AssumeRole(ROLE, region=REGION), "here": Ambient(REGION)})
    session = credentials.session("role")
    assert credentials.session("role") is session
    assert credentials.session("role", REGION) is session
    assert credentials.session("role", "us-east-2") is not session
    assert credentials.session("here") is not session
    assert credentials.session() is credentials.session()
    assert calls.made == []
    for _ in range(3):
        credentials.client("sns", "role").list_topics()
    assert len(calls.of("AssumeRole")) == 1


def test_a_role_is_assumed_with_what_its_owner_wants_to_hear(calls: Calls) -> None:
    profile = AssumeRole(ROLE, external_id="hello", session_name="mine", region=REGION)
    Credentials({"role": profile}).client("sns", "role").list_topics()
    ((members, as_whom),) = calls.of("AssumeRole")
    assert members == {"RoleArn": ROLE, "RoleSessionName": "mine", "ExternalId": "hello"}
    ((_, then),) = calls.of("ListTopics")
    assert then != as_whom
    assert then.startswith("ASIA")


def test_a_role_may_be_assumed_by_another_role(calls: Calls) -> None:
    profiles = {
        "outer": AssumeRole(ROLE, region=REGION),
        "inner": AssumeRole(OTHER_ROLE, base="outer"),
    }
    Credentials(profiles).client("sns", "inner", REGION).list_topics()
    assumed = calls.of("AssumeRole")
    assert [members["RoleArn"] for members, _ in assumed] == [ROLE, OTHER_ROLE]
    assert len({as_whom for _, as_whom in [*assumed, *calls.of("ListTopics")]}) == 3


def test_an_ambient_profile_assumes_nothing(calls: Calls) -> None:
    Credentials({"here": Ambient(REGION)}).client("sns", "here").list_topics()
    assert calls.of("AssumeRole") == []


def test_an_object_store_is_given_credentials_that_it_asks_for_again() -> None:
    credentials = Credentials({"role": AssumeRole(ROLE, region=REGION), "here": Ambient(REGION)})
    provider = credentials.provider("role")
    given = provider()
    assert given["access_key_id"].startswith("ASIA")
    assert given["token"]
    assert provider.config == {"region": REGION}
    # botocore renews what expires within ten minutes.
    assert given["expires_at"] - datetime.now(UTC) < timedelta(minutes=10)
    assert not credentials.provider("here")()["access_key_id"].startswith("ASIA")


def test_a_machine_without_credentials_is_told_so() -> None:
    credentials = Credentials({"role": AssumeRole(ROLE, region=REGION)})
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.delenv(name)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
        for profile in (None, "role"):
            with pytest.raises(ProfileError, match="there are no credentials"):
                credentials.provider(profile)


# ── sinks ──────────────────────────────────────────────────────────────────────────────────


async def test_a_topic_is_told(calls: Calls) -> None:
    sns, sqs = boto3.client("sns", REGION), boto3.client("sqs", REGION)
    topic = sns.create_topic(Name="commits")["TopicArn"]
    queue = sqs.create_queue(QueueName="commits")["QueueUrl"]
    sns.subscribe(
        TopicArn=topic, Protocol="sqs", Endpoint=f"arn:aws:sqs:{REGION}:123456789012:commits"
    )
    sink = SnsSink(topic, Credentials())
    await sink.publish(commit(1))
    await sink.aclose()
    (message,) = sqs.receive_message(QueueUrl=queue)["Messages"]
    assert read_event(json.loads(message["Body"])["Message"]) == commit(1)


async def test_a_queue_is_told_by_the_role_of_a_profile(calls: Calls) -> None:
    sqs = boto3.client("sqs", REGION)
    queue = sqs.create_queue(QueueName="commits")["QueueUrl"]
    sink = SqsSink(queue, Credentials({"role": AssumeRole(ROLE)}), profile="role", name="mine")
    await sink.publish(commit(1))
    await sink.publish(commit(2))
    await sink.aclose()
    found = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
    assert [read_event(message["Body"]) for message in found] == [commit(1), commit(2)]
    assert all(as_whom.startswith("ASIA") for _, as_whom in calls.of("SendMessage"))
    assert len(calls.of("AssumeRole")) == 1
    assert sink.name == "mine"


async def test_a_queue_in_order_knows_repetitions(calls: Calls) -> None:
    sqs = boto3.client("sqs", REGION)
    queue = sqs.create_queue(QueueName="commits.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    sink = SqsSink(queue, Credentials())
    for number in (1, 2, 2, 1):
        await sink.publish(commit(number, table="日本/語"))
    found = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
    assert [read_event(message["Body"]).to_position for message in found] == [1, 2]
    # The service takes printable ASCII alone, which moto does not mind.
    groups = {members["MessageGroupId"] for members, _ in calls.of("SendMessage")}
    assert len(groups) == 1
    assert groups.pop().isascii()


async def test_a_topic_in_order_is_told(calls: Calls) -> None:
    sns = boto3.client("sns", REGION)
    topic = sns.create_topic(Name="commits.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
    await SnsSink(topic, Credentials()).publish(commit(1))
    ((members, _),) = calls.of("Publish")
    assert (members["MessageGroupId"], members["MessageDeduplicationId"]) == ("notes", commit(1).id)


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("notes", "notes"),
        ("", "walstore"),
        ("日本/語", "日本/語"),
        ("x" * 300, "x" * 256),
        ("a\ud800", "a?"),
    ],
)
async def test_a_stream_is_told_with_the_table_as_its_partition_key(table: str, key: str) -> None:
    kinesis = boto3.client("kinesis", REGION)
    kinesis.create_stream(StreamName="commits", ShardCount=1)
    await KinesisSink("commits", Credentials(), region=REGION).publish(commit(1, table=table))
    shard = kinesis.get_shard_iterator(
        StreamName="commits",
        ShardId="shardId-000000000000",
        ShardIteratorType="TRIM_HORIZON",
    )["ShardIterator"]
    (record,) = kinesis.get_records(ShardIterator=shard)["Records"]
    assert record["PartitionKey"] == key == partition_key(commit(table=table))
    assert read_event(record["Data"]) == commit(1, table=table)


async def test_a_stream_may_be_named_by_its_arn() -> None:
    kinesis = boto3.client("kinesis", REGION)
    kinesis.create_stream(StreamName="commits", ShardCount=1)
    arn = kinesis.describe_stream(StreamName="commits")["StreamDescription"]["StreamARN"]
    await KinesisSink(arn, Credentials()).publish(commit(1))


async def test_a_bus_is_told() -> None:
    events, sqs = boto3.client("events", REGION), boto3.client("sqs", REGION)
    queue = sqs.create_queue(QueueName="commits")["QueueUrl"]
    events.create_event_bus(Name="archive")
    events.put_rule(
        Name="all", EventBusName="archive", EventPattern='{"source":["walstore.archive"]}'
    )
    target = {"Id": "1", "Arn": f"arn:aws:sqs:{REGION}:123456789012:commits"}
    events.put_targets(Rule="all", EventBusName="archive", Targets=[target])
    sink = EventBridgeSink(Credentials(), bus="archive", region=REGION)
    await sink.publish(commit(1))
    (message,) = sqs.receive_message(QueueUrl=queue)["Messages"]
    body = json.loads(message["Body"])
    assert read_event(json.dumps(body["detail"])) == commit(1)
    assert body["detail-type"] == "Archive Commit"
    assert body["resources"] == [commit(1).manifest_uri]
    assert sink.name == "eventbridge"
    assert datetime.fromisoformat(body["time"]) == datetime.fromtimestamp(CREATED_MS // 1000, UTC)


async def test_a_bus_that_does_not_take_an_event_has_not_been_told() -> None:
    class Refusing:
        def put_events(self, **_: Any) -> dict[str, Any]:
            entry = {"ErrorCode": "ThrottlingException", "ErrorMessage": "slow down"}
            return {"FailedEntryCount": 1, "Entries": [entry]}

    sink = EventBridgeSink(Credentials(), region=REGION)
    sink._client = Refusing()
    with pytest.raises(SinkError, match="slow down") as caught:
        await sink.publish(commit(1))
    assert caught.value.retryable


def _missing() -> list[AwsSink]:
    credentials = Credentials()
    return [
        SnsSink(f"arn:aws:sns:{REGION}:123456789012:none", credentials),
        SqsSink(f"https://sqs.{REGION}.amazonaws.com/123456789012/none", credentials),
        KinesisSink("none", credentials, region=REGION),
    ]


@pytest.mark.parametrize("index", range(3))
async def test_a_refusal_is_not_worth_another_attempt(index: int) -> None:
    sink: EventSink = _missing()[index]
    with pytest.raises(SinkError, match=sink.name) as caught:
        await sink.publish(commit(1))
    assert not caught.value.retryable


def _answer(code: str, status: int) -> Exception:
    response: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return botocore.exceptions.ClientError(response, "Publish")


@pytest.mark.parametrize(
    ("failure", "is_later"),
    [
        (_answer("Throttling", 400), True),
        (_answer("ProvisionedThroughputExceededException", 400), True),
        (_answer("ExpiredToken", 403), True),
        (_answer("InternalFailure", 500), True),
        (_answer("Other", 503), True),
        (_answer("Other", 429), True),
        (_answer("AccessDenied", 403), False),
        (_answer("InvalidParameterValue", 400), False),
        (ConnectTimeoutError(endpoint_url="https://x"), True),
    ],
)
async def test_a_failure_says_whether_to_try_again(
    calls: Calls, failure: Exception, is_later: bool
) -> None:
    calls.failures = [failure]
    with pytest.raises(SinkError) as caught:
        await _missing()[0].publish(commit(1))
    assert caught.value.retryable is is_later


async def test_an_unknown_profile_is_reported_and_not_tried_again() -> None:
    sink = KinesisSink("commits", Credentials(), profile="none", region=REGION)
    with pytest.raises(SinkError, match="'none': it is unknown") as caught:
        await sink.publish(commit(1))
    assert not caught.value.retryable


# ── an object store ────────────────────────────────────────────────────────────────────────


@pytest.fixture
def server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


async def test_a_destination_is_written_as_the_role_of_a_profile(server: str) -> None:
    s3 = boto3.client("s3", REGION)
    s3.create_bucket(Bucket="archive", CreateBucketConfiguration={"LocationConstraint": REGION})
    credentials = Credentials({"role": AssumeRole(ROLE, region=REGION)})
    asked: list[str] = []
    provider = credentials.provider("role")

    def given() -> Any:
        found = provider()
        asked.append(found["access_key_id"])
        return found

    destination = ObjectDestination.open(
        "s3://archive",
        credential_provider=given,
        region=REGION,
        endpoint=server,
        allow_http=True,
    )
    await destination.put("a", b"x")
    assert s3.get_object(Bucket="archive", Key="a")["Body"].read() == b"x"
    assert asked
    assert all(key.startswith("ASIA") for key in asked)

"""Object stores keep the promises of the port, also when the network does not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import anyio
import pytest
from obstore.store import MemoryStore

from tests.s3_script import HANG_UP, Answer, ScriptedS3
from tests.s3_server import BUCKET, s3_served
from walstore.archive.destination import ConflictError, Destination, DestinationError
from walstore.archive.destinations import open_destination
from walstore.archive.objects import MEETINGS_MAX, RETRIES_MAX, ObjectDestination
from walstore.testing.destination import DestinationContract

_numbers = count()


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with s3_served() as options:
        yield options


class TestObstoreMemory(DestinationContract):
    @pytest.fixture
    def destination(self) -> Destination:
        store = MemoryStore()
        return ObjectDestination(store, store, "memory://")


class TestS3(DestinationContract):
    @pytest.fixture
    def destination(self, s3: dict[str, str]) -> Destination:
        return open_destination(f"s3://{BUCKET}/test {next(_numbers)}/ä", **s3)


class TestS3AtTheRootOfABucket:
    async def test_objects_have_no_prefix(self, s3: dict[str, str]) -> None:
        destination = open_destination(f"s3://{BUCKET}", **s3)
        await destination.put("root", b"content")
        assert destination.uri("root") == f"s3://{BUCKET}/root"
        assert "root" in [each.key async for each in destination.list("")]
        await destination.delete("root")


async def test_more_objects_than_one_page_are_listed(s3: dict[str, str]) -> None:
    destination = open_destination(f"s3://{BUCKET}/many", **s3)
    keys = [f"a/{number:04}" for number in range(1050)]
    for start in range(0, len(keys), 50):
        await asyncio.gather(*(destination.put(key, b"") for key in keys[start : start + 50]))
    assert [each.key async for each in destination.list("a/")] == keys


async def test_a_bucket_that_is_missing_is_no_empty_one(s3: dict[str, str]) -> None:
    destination = open_destination("s3://no-such-bucket", **s3)
    calls: list[Callable[[], Any]] = [
        lambda: destination.get("key"),
        lambda: destination.put("key", b""),
        lambda: destination.put_if("key", b"", None),
        lambda: destination.put_if("key", b"", REVISION),
        lambda: destination.delete("key"),
        lambda: anext(destination.list("")),
    ]
    for call in calls:
        with pytest.raises(DestinationError, match="NoSuchBucket") as caught:
            await call()
        assert not isinstance(caught.value, ConflictError)


# ── what a store may answer ────────────────────────────────────────────────────────────


@pytest.fixture
def script() -> Iterator[ScriptedS3]:
    with ScriptedS3() as script:
        yield script


@pytest.fixture
def scripted(script: ScriptedS3) -> Destination:
    return open_destination("s3://bucket", call_ms_max=20_000, **script.options)


STORED = Answer(200, headers={"ETag": '"new"'})
FAILED = Answer(500, "InternalError")
REVISION = '["\\"old\\"",null]'


@pytest.mark.parametrize("answer", [Answer(412, "PreconditionFailed"), Answer(404, "NoSuchKey")])
async def test_a_replacement_that_is_refused_is_a_conflict(
    script: ScriptedS3, scripted: Destination, answer: Answer
) -> None:
    script.will("PUT", answer)
    with pytest.raises(ConflictError):
        await scripted.put_if("key", b"body", REVISION)
    assert [(each.method, each.headers["If-Match"]) for each in script.seen] == [("PUT", '"old"')]


@dataclass
class Kind:
    """How a store says what S3 says otherwise."""

    url: str
    options: Callable[[str], dict[str, Any]]
    create: tuple[str, str]
    replace: tuple[str, str]
    revision: str


KINDS = {
    "google": Kind(
        "gs://bucket",
        lambda endpoint: {"service_account_key": _google_account(endpoint)},
        ("x-goog-if-generation-match", "0"),
        ("x-goog-if-generation-match", "7"),
        '["\\"e\\"","7"]',
    ),
    "azure": Kind(
        "az://container",
        lambda endpoint: {"account_name": "a", "account_key": "a2V5", "endpoint": f"{endpoint}/a"},
        ("If-None-Match", "*"),
        ("If-Match", '"e"'),
        '["\\"e\\"",null]',
    ),
}


def _google_account(endpoint: str) -> str:
    account = {"gcs_base_url": endpoint, "disable_oauth": True, "client_email": ""}
    return json.dumps(account | {"private_key": "", "private_key_id": ""})


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
async def test_other_stores_have_conditions_of_their_own(script: ScriptedS3, kind: Kind) -> None:
    options = kind.options(script.options["endpoint"])
    destination = open_destination(kind.url, allow_http=True, **options)
    script.will("PUT", Answer(200, headers={"ETag": '"e"', "x-goog-generation": "7"}))
    script.will("GET", Answer(200, "body", {"ETag": '"e"', "x-goog-generation": "7"}))
    revision = await destination.put_if("key", b"body", None)
    assert await destination.get("key") == (b"body", revision)
    assert revision == kind.revision
    await destination.put_if("key", b"body", revision)
    created, _, replaced = script.seen
    assert created.headers[kind.create[0]] == kind.create[1]
    assert replaced.headers[kind.replace[0]] == kind.replace[1]
    for status in (412, 404):
        script.will("PUT", Answer(status, "ConditionNotMet"))
        with pytest.raises(ConflictError):
            await destination.put_if("key", b"body", revision)
    script.will("PUT", Answer(409, "BlobAlreadyExists"))
    script.will("HEAD", Answer(200, headers={"ETag": '"e"'}))
    with pytest.raises(ConflictError):
        await destination.put_if("key", b"body", None)
    script.will("PUT", Answer(404, "ContainerNotFound"))
    with pytest.raises(DestinationError, match="ContainerNotFound"):
        await destination.put_if("key", b"body", revision)


async def test_requests_that_have_met_are_sent_again(
    script: ScriptedS3, scripted: Destination
) -> None:
    met = Answer(409, "ConditionalRequestConflict")
    script.will("PUT", met, met, STORED)
    assert await scripted.put_if("key", b"body", REVISION) == '["\\"new\\"",null]'
    assert [each.body for each in script.seen] == [b"body"] * 3


async def test_a_creation_that_has_met_another_is_sent_again_unless_there_is_an_object(
    script: ScriptedS3, scripted: Destination
) -> None:
    met = Answer(409, "ConditionalRequestConflict")
    script.will("PUT", met, met, STORED)
    script.will("HEAD", Answer(404))
    assert await scripted.put_if("key", b"body", None) == '["\\"new\\"",null]'
    assert [each.method for each in script.seen] == ["PUT", "HEAD", "PUT", "HEAD", "PUT"]
    script.will("PUT", met)
    script.will("HEAD", Answer(200, headers={"ETag": '"x"'}))
    with pytest.raises(ConflictError):
        await scripted.put_if("key", b"body", None)


async def test_requests_are_not_sent_for_ever(script: ScriptedS3, scripted: Destination) -> None:
    script.will("PUT", Answer(409, "ConditionalRequestConflict"))
    with pytest.raises(DestinationError, match="too many") as caught:
        await scripted.put_if("key", b"body", REVISION)
    assert not isinstance(caught.value, ConflictError)
    assert len(script.seen) == MEETINGS_MAX


@pytest.mark.parametrize("revision", [None, REVISION])
@pytest.mark.parametrize("answer", [FAILED, Answer(503, "SlowDown"), HANG_UP])
async def test_a_condition_is_not_tried_again_when_nobody_knows_what_became_of_it(
    script: ScriptedS3, scripted: Destination, answer: Answer, revision: str | None
) -> None:
    # Sent again, it would meet what itself has stored, and be called a conflict.
    script.will("PUT", answer, Answer(412, "PreconditionFailed"))
    with pytest.raises(DestinationError) as caught:
        await scripted.put_if("key", b"body", revision)
    assert not isinstance(caught.value, ConflictError)
    assert len(script.seen) == 1


async def test_what_can_be_tried_again_is(script: ScriptedS3, scripted: Destination) -> None:
    script.will("PUT", FAILED, STORED)
    await scripted.put("key", b"body")
    script.will("GET", FAILED, Answer(200, "content", {"ETag": '"x"'}))
    found = await scripted.get("key")
    assert found is not None
    assert found.body == b"content"
    assert [each.method for each in script.seen] == ["PUT", "PUT", "GET", "GET"]


async def test_what_keeps_failing_is_an_error(script: ScriptedS3, scripted: Destination) -> None:
    script.will("GET", FAILED)
    with pytest.raises(DestinationError, match="500"):
        await scripted.get("key")
    assert len(script.seen) == RETRIES_MAX + 1


@pytest.mark.parametrize("method", ["get", "put", "put_if", "list"])
async def test_what_is_forbidden_is_an_error_and_not_an_absence(
    script: ScriptedS3, scripted: Destination, method: str
) -> None:
    script.will("GET", Answer(403, "AccessDenied"))
    script.will("PUT", Answer(403, "AccessDenied"))
    calls: dict[str, Callable[[], Any]] = {
        "get": lambda: scripted.get("key"),
        "put": lambda: scripted.put("key", b""),
        "put_if": lambda: scripted.put_if("key", b"", None),
        "list": lambda: anext(scripted.list("")),
    }
    with pytest.raises(DestinationError, match="AccessDenied") as caught:
        await calls[method]()
    assert not isinstance(caught.value, ConflictError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", ["get", "put", "put_if", "delete", "list"])
async def test_a_store_that_says_nothing_is_given_up(script: ScriptedS3, method: str) -> None:
    script.will_hang()
    destination = open_destination("s3://bucket", call_ms_max=200, **script.options)
    calls: dict[str, Callable[[], Any]] = {
        "get": lambda: destination.get("key"),
        "put": lambda: destination.put("key", b""),
        "put_if": lambda: destination.put_if("key", b"", None),
        "delete": lambda: destination.delete("key"),
        "list": lambda: anext(destination.list("")),
    }
    with pytest.raises(DestinationError, match="no answer in 200 ms"), anyio.fail_after(5):
        await calls[method]()


async def test_a_body_that_is_cut_off_is_an_error(
    script: ScriptedS3, scripted: Destination
) -> None:
    headers = {"ETag": '"x"', "Content-Length": "100"}
    script.will("GET", Answer(200, "ten bytes.", headers))
    with pytest.raises(DestinationError):
        await scripted.get("key")


async def test_a_store_that_is_not_there_is_an_error() -> None:
    with ScriptedS3() as script:
        options = script.options
    destination = open_destination("s3://bucket", call_ms_max=5_000, **options)
    with pytest.raises(DestinationError):
        await destination.put_if("key", b"", None)

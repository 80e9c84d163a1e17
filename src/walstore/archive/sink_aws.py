"""Commits told to Amazon's services: SNS, SQS, Kinesis and EventBridge.

- The message is the event's JSON text. What a service needs besides is made of the event: queues in
  order are kept in order by table, and know a repetition by the event's id.
- A call is made in a thread, once: throttling, time-outs and failures of the service are worth
  another attempt, refusals are not.
- boto3 comes with the extra `aws`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from walstore.archive.credentials import Credentials
from walstore.archive.extras import needed
from walstore.archive.one_thread import OneThread, ThreadBusyError
from walstore.archive.profiles import ProfileError
from walstore.archive.sink import CommitEvent, SinkError

EVENT_SOURCE = "walstore.archive"
DETAIL_TYPE = "Archive Commit"

# What stands for a table without a name.
_NAMELESS = "walstore"

_PARTITION_CHARS_MAX = 256
_GROUP = re.compile(r"[!-~]{1,128}")
_REGION_OF_ARN = re.compile(r"arn:[\w-]+:\w+:([\w-]+):")
_REGION_OF_QUEUE = re.compile(r"https?://sqs\.([\w-]+)\.amazonaws\.com")

# Codes of refusals that pass, whatever the status that comes with them.
_PASSING = re.compile(
    "ExpiredToken|Internal|ProvisionedThroughput|RequestLimit|Throttl|Timeout|TooMany|Unavailable"
)


class AwsSink(ABC):
    """Calls a service for each event."""

    _service: str

    def __init__(
        self,
        credentials: Credentials,
        *,
        profile: str | None = None,
        region: str | None = None,
        name: str | None = None,
    ) -> None:
        """Tell a service; nothing is called yet.

        Args:
            credentials: Where clients come from.
            profile: The profile of credentials; None for what is ambient.
            region: The region of the service; None for that of the profile.
            name: What messages and metrics call it; the service if left out.
        """
        self._credentials = credentials
        self._profile = profile
        self._region = region
        self._name = name or self._service
        self._errors = needed("botocore.exceptions", what=self._service, extra="aws")
        self._thread = OneThread()
        self._client: Any = None

    @property
    def name(self) -> str:
        """What messages and metrics call it."""
        return self._name

    async def publish(self, event: CommitEvent) -> None:
        """Call the service; raises as `EventSink.publish` does."""
        try:
            await self._thread.run(lambda: self._call(event))
        except self._errors.ClientError as error:
            raise self._refused(error) from error
        except ProfileError as error:
            raise SinkError(self._name, str(error), retryable=False) from error
        except (self._errors.BotoCoreError, ThreadBusyError) as error:
            raise SinkError(self._name, str(error), retryable=True) from error

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _call(self, event: CommitEvent) -> None:
        if self._client is None:
            self._client = self._credentials.client(self._service, self._profile, self._region)
        self._send(self._client, event, event.text.decode())

    @abstractmethod
    def _send(self, client: Any, event: CommitEvent, text: str) -> None: ...

    def _refused(self, error: Any) -> SinkError:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
        code = error.response.get("Error", {}).get("Code", "")
        is_passing = status >= 500 or status == 429 or _PASSING.search(code) is not None
        return SinkError(self._name, f"{code}: {error}", retryable=is_passing)


class SnsSink(AwsSink):
    """Publishes events to a topic of SNS."""

    _service = "sns"

    def __init__(
        self,
        topic_arn: str,
        credentials: Credentials,
        *,
        profile: str | None = None,
        region: str | None = None,
        name: str | None = None,
    ) -> None:
        """Tell a topic, in the region that it is in; for the others see `AwsSink`."""
        region = region or _found(_REGION_OF_ARN, topic_arn)
        super().__init__(credentials, profile=profile, region=region, name=name)
        self._topic_arn = topic_arn

    def _send(self, client: Any, event: CommitEvent, text: str) -> None:
        ordered = _ordered(event) if self._topic_arn.endswith(".fifo") else {}
        client.publish(TopicArn=self._topic_arn, Message=text, **ordered)


class SqsSink(AwsSink):
    """Sends events to a queue of SQS."""

    _service = "sqs"

    def __init__(
        self,
        queue_url: str,
        credentials: Credentials,
        *,
        profile: str | None = None,
        region: str | None = None,
        name: str | None = None,
    ) -> None:
        """Tell a queue, in the region that it is in; for the others see `AwsSink`."""
        region = region or _found(_REGION_OF_QUEUE, queue_url)
        super().__init__(credentials, profile=profile, region=region, name=name)
        self._queue_url = queue_url

    def _send(self, client: Any, event: CommitEvent, text: str) -> None:
        ordered = _ordered(event) if self._queue_url.endswith(".fifo") else {}
        client.send_message(QueueUrl=self._queue_url, MessageBody=text, **ordered)


class KinesisSink(AwsSink):
    """Puts events into a stream of Kinesis, those of one table in order."""

    _service = "kinesis"

    def __init__(
        self,
        stream: str,
        credentials: Credentials,
        *,
        profile: str | None = None,
        region: str | None = None,
        name: str | None = None,
    ) -> None:
        """Tell a stream, by its name or ARN; for the others see `AwsSink`."""
        region = region or _found(_REGION_OF_ARN, stream)
        super().__init__(credentials, profile=profile, region=region, name=name)
        self._stream = {"StreamARN" if stream.startswith("arn:") else "StreamName": stream}

    def _send(self, client: Any, event: CommitEvent, text: str) -> None:
        client.put_record(Data=text.encode(), PartitionKey=partition_key(event), **self._stream)


class EventBridgeSink(AwsSink):
    """Puts events on a bus of EventBridge."""

    _service = "events"

    def __init__(
        self,
        credentials: Credentials,
        *,
        bus: str = "default",
        profile: str | None = None,
        region: str | None = None,
        name: str = "eventbridge",
    ) -> None:
        """Tell a bus, by its name or ARN; for the others see `AwsSink`."""
        region = region or _found(_REGION_OF_ARN, bus)
        super().__init__(credentials, profile=profile, region=region, name=name)
        self._bus = bus

    def _send(self, client: Any, event: CommitEvent, text: str) -> None:
        entry = {
            "EventBusName": self._bus,
            "Source": EVENT_SOURCE,
            "DetailType": DETAIL_TYPE,
            "Detail": text,
            "Resources": [event.manifest_uri],
            "Time": datetime.fromtimestamp(event.created_ms / 1000, UTC),
        }
        answer = client.put_events(Entries=[entry])
        # A call that succeeds says of each event whether it was taken.
        if answer.get("FailedEntryCount"):
            failure = answer["Entries"][0]
            code = str(failure.get("ErrorCode"))
            reason = f"{code}: {failure.get('ErrorMessage')}"
            raise SinkError(self._name, reason, retryable=_PASSING.search(code) is not None)


def partition_key(event: CommitEvent) -> str:
    """What keeps the events of one table together."""
    table = event.table[:_PARTITION_CHARS_MAX].encode("utf-8", "replace").decode()
    return table or _NAMELESS


def _ordered(event: CommitEvent) -> dict[str, str]:
    """What a topic or queue in order needs; it takes printable ASCII only."""
    key = partition_key(event)
    group = key if _GROUP.fullmatch(key) else sha256(key.encode()).hexdigest()
    return {"MessageGroupId": group, "MessageDeduplicationId": event.id}


def _found(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.match(text)
    return None if match is None else match[1]

"""Destinations and sinks as settings describe them.

    [[destinations]]  url = "s3://bucket/archive", region = "eu-west-1", credentials = "there"
    [[events]]        type = "jsonl", path = "events.jsonl"
                      type = "webhook", url = "https://…", secret_file = "secret"
                      type = "sns", topic_arn = "…"       type = "sqs", queue_url = "…"
                      type = "kinesis", stream = "…"      type = "eventbridge", bus = "…"

- What is unknown is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from walstore.archive.config import ConfigError
from walstore.archive.credentials import Credentials
from walstore.archive.destination import Destination
from walstore.archive.destinations import open_destination
from walstore.archive.profiles import read_profiles
from walstore.archive.sink import EventSink
from walstore.archive.sink_aws import EventBridgeSink, KinesisSink, SnsSink, SqsSink
from walstore.archive.sink_jsonl import JsonlSink
from walstore.archive.sink_webhook import WebhookSink
from walstore.signed.keyfile import KeyfileError, read_keyfile


class Wiring:
    """Opens what settings name."""

    def __init__(self, profiles: Mapping[str, Any], *, directory: Path = Path()) -> None:
        """Know named profiles of credentials, and what paths are relative to.

        Raises:
            UsageError: A profile cannot be used.
        """
        self._profiles = read_profiles(profiles)
        self._directory = directory

    @cached_property
    def _credentials(self) -> Credentials:
        return Credentials(self._profiles)

    def destinations(self, entries: Sequence[Mapping[str, Any]]) -> list[Destination]:
        """The destinations, in their order.

        Raises:
            UsageError: One of them cannot be opened.
        """
        return [self._destination(dict(entry)) for entry in entries]

    def _destination(self, entry: dict[str, Any]) -> Destination:
        profile = entry.pop("credentials", None)
        url = entry.pop("url")
        if profile is not None:
            provider = self._credentials.provider(profile, entry.get("region"))
            entry["credential_provider"] = provider
        return open_destination(url, **entry)

    def sinks(self, entries: Sequence[Mapping[str, Any]]) -> list[EventSink]:
        """The sinks, in their order.

        Raises:
            UsageError: One of them cannot be opened.
        """
        return [self._sink(f"events[{index}]", dict(entry)) for index, entry in enumerate(entries)]

    def _sink(self, where: str, entry: dict[str, Any]) -> EventSink:
        kinds: dict[str, Callable[[str, dict[str, Any]], EventSink]] = {
            "jsonl": self._jsonl,
            "webhook": self._webhook,
            "sns": self._sns,
            "sqs": self._sqs,
            "kinesis": self._kinesis,
            "eventbridge": self._eventbridge,
        }
        kind = entry.pop("type", None)
        if kind not in kinds:
            raise ConfigError(f"{where}.type", f"is {kind!r}; known are {', '.join(kinds)}")
        made = kinds[kind](where, entry)
        for name in entry:
            raise ConfigError(f"{where}.{name}", f"is unknown in a {kind} sink")
        return made

    def _jsonl(self, where: str, entry: dict[str, Any]) -> EventSink:
        path = self._directory / _taken(where, entry, "path")
        return JsonlSink(path, name=entry.pop("name", "jsonl"))

    def _webhook(self, where: str, entry: dict[str, Any]) -> EventSink:
        path = self._directory / _taken(where, entry, "secret_file")
        try:
            secret = read_keyfile(path).strip()
        except KeyfileError as error:
            raise ConfigError(f"{where}.secret_file", f"cannot be used: {error}") from error
        return WebhookSink(
            _taken(where, entry, "url"), secret=secret, name=entry.pop("name", "webhook")
        )

    def _sns(self, where: str, entry: dict[str, Any]) -> EventSink:
        topic = _taken(where, entry, "topic_arn")
        return SnsSink(topic, self._credentials, **_aws(entry))

    def _sqs(self, where: str, entry: dict[str, Any]) -> EventSink:
        queue = _taken(where, entry, "queue_url")
        return SqsSink(queue, self._credentials, **_aws(entry))

    def _kinesis(self, where: str, entry: dict[str, Any]) -> EventSink:
        stream = _taken(where, entry, "stream")
        return KinesisSink(stream, self._credentials, **_aws(entry))

    def _eventbridge(self, where: str, entry: dict[str, Any]) -> EventSink:
        bus = entry.pop("bus", "default")
        options = {name: value for name, value in _aws(entry).items() if value is not None}
        return EventBridgeSink(self._credentials, bus=bus, **options)


def _taken(where: str, entry: dict[str, Any], name: str) -> str:
    value = entry.pop(name, None)
    if type(value) is not str or not value:
        raise ConfigError(f"{where}.{name}", "is missing")
    return value


def _aws(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "profile": entry.pop("credentials", None),
        "region": entry.pop("region", None),
        "name": entry.pop("name", None),
    }

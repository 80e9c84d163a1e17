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

# Whom the named profiles are for.
_AMAZON = ("s3://", "s3a://")


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
        return [
            self._destination(_Entry(f"destinations[{index}]", entry))
            for index, entry in enumerate(entries)
        ]

    def _destination(self, entry: _Entry) -> Destination:
        url, name, profile = entry.needed("url"), entry.text("name"), self._profile(entry)
        options = dict(entry.members)
        if profile is not None:
            if not url.startswith(_AMAZON):
                raise ConfigError(f"{entry.where}.credentials", f"are not for {url}")
            options["credential_provider"] = self._credentials.provider(
                profile, options.get("region")
            )
        return open_destination(url, name=name, **options)

    def sinks(self, entries: Sequence[Mapping[str, Any]]) -> list[EventSink]:
        """The sinks, in their order.

        Raises:
            UsageError: One of them cannot be opened.
        """
        return [
            self._sink(_Entry(f"events[{index}]", entry)) for index, entry in enumerate(entries)
        ]

    def _sink(self, entry: _Entry) -> EventSink:
        kinds: dict[str, Callable[[_Entry], EventSink]] = {
            "jsonl": self._jsonl,
            "webhook": self._webhook,
            "sns": self._sns,
            "sqs": self._sqs,
            "kinesis": self._kinesis,
            "eventbridge": self._eventbridge,
        }
        kind = entry.text("type")
        if kind is None or kind not in kinds:
            raise ConfigError(f"{entry.where}.type", f"is {kind!r}; known are {', '.join(kinds)}")
        made = kinds[kind](entry)
        for name in entry.members:
            raise ConfigError(f"{entry.where}.{name}", f"is unknown in a {kind} sink")
        return made

    def _jsonl(self, entry: _Entry) -> EventSink:
        path = self._directory / entry.needed("path")
        return JsonlSink(path, name=entry.text("name") or "jsonl")

    def _webhook(self, entry: _Entry) -> EventSink:
        path = self._directory / entry.needed("secret_file")
        try:
            secret = read_keyfile(path).strip()
        except KeyfileError as error:
            raise ConfigError(f"{entry.where}.secret_file", f"cannot be used: {error}") from error
        name = entry.text("name") or "webhook"
        return WebhookSink(entry.needed("url"), secret=secret, name=name)

    def _sns(self, entry: _Entry) -> EventSink:
        return SnsSink(entry.needed("topic_arn"), self._credentials, **self._aws(entry))

    def _sqs(self, entry: _Entry) -> EventSink:
        return SqsSink(entry.needed("queue_url"), self._credentials, **self._aws(entry))

    def _kinesis(self, entry: _Entry) -> EventSink:
        return KinesisSink(entry.needed("stream"), self._credentials, **self._aws(entry))

    def _eventbridge(self, entry: _Entry) -> EventSink:
        bus = entry.text("bus") or "default"
        return EventBridgeSink(self._credentials, bus=bus, **self._aws(entry))

    def _aws(self, entry: _Entry) -> dict[str, Any]:
        found = {
            "profile": self._profile(entry),
            "region": entry.text("region"),
            "name": entry.text("name"),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _profile(self, entry: _Entry) -> str | None:
        name = entry.text("credentials")
        if name is not None and name not in self._profiles:
            known = ", ".join(sorted(self._profiles)) or "none"
            raise ConfigError(f"{entry.where}.credentials", f"are {name!r}; known are {known}")
        return name


class _Entry:
    """An entry of a list, whose members are taken one by one; what is left is unknown."""

    def __init__(self, where: str, members: Mapping[str, Any]) -> None:
        self.where = where
        self.members = dict(members)

    def text(self, name: str) -> str | None:
        value = self.members.pop(name, None)
        if value is not None and (type(value) is not str or not value.isprintable() or not value):
            raise ConfigError(f"{self.where}.{name}", f"is {value!r}, and not a line of text")
        return value

    def needed(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise ConfigError(f"{self.where}.{name}", "is missing")
        return value

"""Watches how sinks are told of commits: counts it, and says when one stops listening."""

from __future__ import annotations

import logging

from walstore.archive.metrics import Metrics

_logger = logging.getLogger("walstore.archive")


class Telling:
    """Counts and logs what became of events."""

    def __init__(self, metrics: Metrics) -> None:
        """Count with others."""
        self._metrics = metrics
        self._failing: set[str] = set()

    def delivered(self, sink: str) -> None:
        """An event has arrived."""
        if sink in self._failing:
            self._failing.remove(sink)
            _logger.info("%s can be told again", sink)

    def failed(self, sink: str, reason: str) -> None:
        """An attempt to tell a sink has failed."""
        self._metrics.event_failed(sink)
        # Once is enough: a sink that is down stays down for many attempts.
        if sink not in self._failing:
            self._failing.add(sink)
            _logger.warning("%s cannot be told: %s", sink, reason)

    def dropped(self, sink: str, reason: str) -> None:
        """An event was let go of."""
        _logger.warning("%s was not told of a commit: %s", sink, reason)

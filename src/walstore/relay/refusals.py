"""What clients are told when something cannot be done: enough to act on, nothing of the machine."""

from __future__ import annotations

from walstore.relay.log import LogCorruptError, LogError
from walstore.wire.frames import Code, Refusal


def too_old(ref: str, floor: int) -> Refusal:
    """The elements above a checkpoint are gone."""
    reason = "checkpoint too old: start from the snapshot"
    return Refusal(ref, Code.CHECKPOINT_TOO_OLD, reason, {"floor": floor})


def replay_too_old(ref: str, min_seq: int) -> Refusal:
    """The events above a seq can no longer be replayed."""
    reason = f"checkpoint too old: min_seq is {min_seq}"
    return Refusal(ref, Code.CHECKPOINT_TOO_OLD, reason, {"min_seq": min_seq})


def revoked(ref: str) -> Refusal:
    """Somebody may no longer read."""
    return Refusal(ref, Code.RESTRICTED, "the right to read this has ended", {})


def gone(ref: str) -> Refusal:
    """A snapshot was removed while it was sent; there is a newer one."""
    return Refusal(ref, Code.UNAVAILABLE, "the snapshot was replaced meanwhile: ask again", {})


def draining(ref: str) -> Refusal:
    """The relay takes nothing new."""
    return Refusal(ref, Code.UNAVAILABLE, "the relay is shutting down", {})


def unavailable(ref: str | None, error: LogError) -> Refusal:
    """The log failed."""
    if isinstance(error, LogCorruptError):
        reason = "this part of the log is damaged; its operator has to look into it"
    else:
        reason = "the log is not available now"
    return Refusal(ref, Code.STORAGE, reason, {})

"""How much one peer may ask of a relay; every queue and buffer has its limit here."""

from __future__ import annotations

from dataclasses import dataclass

from walstore.wire.limits import FRAME_BYTES_MAX, SNAPSHOT_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one relay; the defaults suit one machine.

    Attributes:
        frame_bytes_max: One message from a client.
        snapshot_bytes_max: One snapshot, in all its pieces.
        uploads_bytes_max: Snapshots of all connections that are coming in, or wait to be stored;
            past this the largest of whichever key holds most give way.
        connections_max: Connections at once; more are turned away.
        subscriptions_max: Live subscriptions of one connection.
        keys_max: Keys that one connection may prove.
        pending_bytes_max: Unsent bytes of one connection; past this it is dropped.
        lag_bytes_max: Unsent bytes past which live elements are no longer pushed but read again
            from the log once the peer has caught up.
        stall_ms_max: How long a peer may read nothing of what it asked for.
        close_ms_max: How long a peer that is dropped has to hear why; then it is cut off.
        in_flight_max: Appends of one connection that wait for the disk; further ones are not read.
        queue_max: Appends of all connections that wait for the disk.
        queue_bytes_max: Their bytes.
        frames_per_second: Frames of one connection, in the long run; further ones are read later.
        frames_burst: Frames of one connection at once.
        faults_max: Malformed frames, failed proofs and bad signatures before a peer is dropped.
        penalty_ms: How long the keys of such a peer are turned away.
        presence_per_second: Presences of one connection, in the long run.
    """

    frame_bytes_max: int = FRAME_BYTES_MAX
    snapshot_bytes_max: int = SNAPSHOT_BYTES_MAX
    uploads_bytes_max: int = 4 * SNAPSHOT_BYTES_MAX
    connections_max: int = 10_000
    subscriptions_max: int = 1_000
    keys_max: int = 16
    pending_bytes_max: int = 8 * 2**20
    lag_bytes_max: int = 256 * 2**10
    stall_ms_max: int = 30_000
    close_ms_max: int = 5_000
    in_flight_max: int = 256
    queue_max: int = 10_000
    queue_bytes_max: int = 64 * 2**20
    frames_per_second: int = 2_000
    frames_burst: int = 4_000
    faults_max: int = 20
    penalty_ms: int = 60_000
    presence_per_second: int = 60

    def advertised(self) -> dict[str, int]:
        """What clients are told."""
        return {
            "frame_bytes_max": self.frame_bytes_max,
            "snapshot_bytes_max": self.snapshot_bytes_max,
            "subscriptions_max": self.subscriptions_max,
            "frames_per_second": self.frames_per_second,
            "in_flight_max": self.in_flight_max,
        }

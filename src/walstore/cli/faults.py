"""What commands about documents fail with that has an exit code of its own."""

from __future__ import annotations

from walstore.errors import PeerError


class NotVerifiedError(PeerError):
    """Something is not what was signed, or is not all of it; nothing of it was believed."""

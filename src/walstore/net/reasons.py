"""Why the system did not make a connection, in words that say what to look at."""

from __future__ import annotations

import errno
import socket
import ssl

_REFUSED = "nothing listens there (is the relay running?)"
_NO_HOST = "there is no host of that name"
_NOT_TLS = "nothing speaks TLS there (is it ws:// and not wss://?)"


def reason_of_system(error: OSError) -> str:
    """What to say of an error of a socket; as the system says it, where that is clear enough."""
    match error:
        case socket.gaierror():
            return _NO_HOST
        case ssl.SSLCertVerificationError():
            return f"its certificate is not to be trusted: {error.verify_message}"
        case ssl.SSLError() if error.reason == "WRONG_VERSION_NUMBER":
            return _NOT_TLS
        case ConnectionRefusedError():
            return _REFUSED
        case OSError(errno=None) if f"[Errno {errno.ECONNREFUSED}]" in str(error):
            # A name that has several addresses, and nothing at any of them.
            return _REFUSED
        case _:
            return error.strerror or str(error) or type(error).__name__

"""Why a connection could not be made, in words that say what to look at.

That a service cannot be reached is not enough to know: nothing listens there, the name is unknown, the other
side does not speak TLS or its certificate is not trusted.
"""

import os
import socket
import ssl

from fencehold.drivers.address import REFUSED


def of_attempt(error: OSError | UnicodeError, plain: str = "fencehold") -> str:
    """Why a connection could not be made. `plain` is the scheme for those who need no TLS."""
    if isinstance(error, UnicodeError):
        return f"no host can have that name ({error})"
    if isinstance(error, ConnectionRefusedError) or _all_refused(error):
        return REFUSED
    if isinstance(error, socket.gaierror):
        return f"no such host ({error.strerror or error})"
    if isinstance(error, ssl.SSLError):
        return _of_tls(error, plain)
    if isinstance(error, ConnectionResetError):
        return "it closed the connection while it was made"
    return (os.strerror(error.errno) if error.errno else "") or str(error) or type(error).__name__


def _all_refused(error: OSError) -> bool:
    """Several addresses of one name are told in one error, which only its words tell apart."""
    words = str(error)
    return words.startswith("Multiple exceptions") and words.count("[Errno 111]") == words.count("[Errno ")


def _of_tls(error: ssl.SSLError, plain: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    reason = str(getattr(error, "reason", "") or error)
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNEXPECTED_MESSAGE"):
        return f"it does not speak TLS: use {plain}://"
    return f"TLS failed: {reason.replace('_', ' ').lower()}"

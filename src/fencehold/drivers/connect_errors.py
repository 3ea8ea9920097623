"""Why a connection could not be made, in words that say what to look at.

That a service cannot be reached is not enough to know: nothing listens there, the name is unknown, the other
side does not speak TLS or its certificate is not trusted.
"""

import os
import socket
import ssl

from fencehold.drivers.address import REFUSED


def of_attempt(error: OSError | UnicodeError, plain: str = "fencehold") -> str:
    """Why a connection could not be made. `plain` is the scheme without TLS."""
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
    """Several addresses of one name come as one error, which only its words tell apart."""
    words = str(error)
    return words.startswith("Multiple exceptions") and words.count("[Errno 111]") == words.count("[Errno ")


NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNEXPECTED_MESSAGE")
"""What OpenSSL calls it when the other side does not speak TLS."""

_ALERTS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it wants a client certificate, and was shown none: name cert= and key=",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust our certificate: it knows no authority that signed it",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our client certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "our client certificate was revoked",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept our client certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept our client certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "our certificate is not for clients",
    "TLSV1_ALERT_DECRYPT_ERROR": "it does not accept our client certificate: its signature is wrong",
    # How TLS 1.2 says that there is no certificate, or that nothing both sides know is left.
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it refused the handshake: does it want a client certificate?",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it does not speak our version of TLS: 1.2 is the least",
}
"""What the peer reports about us, in words that say what to do."""


def _of_tls(error: ssl.SSLError, plain: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    reason = str(getattr(error, "reason", "") or error)
    if reason in NOT_TLS:
        return f"it does not speak TLS: use {plain}://"
    return _ALERTS.get(reason) or f"TLS failed: {reason.replace('_', ' ').lower()}"

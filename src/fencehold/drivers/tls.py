"""TLS as a URL asks for it: the files it names, made into a context.

A context is made anew for each client or connection, so that certificates can be replaced while programs run.
"""

import ssl
from pathlib import Path

from fencehold.drivers.address import TlsFiles
from fencehold.errors import UsageError


def check_readable(files: TlsFiles) -> None:
    """See that the files are there: TLS itself would not say which of them was not.

    Raises:
        UsageError: one of them cannot be read.
    """
    for name, path in (("ca", files.ca), ("cert", files.cert), ("key", files.key)):
        if path is not None:
            _check_readable(name, path)


def context_of(files: TlsFiles) -> ssl.SSLContext:
    """What a connection needs.

    Raises:
        UsageError: a file cannot be read, or holds nothing of the kind.
    """
    check_readable(files)
    try:
        context = ssl.create_default_context(cafile=files.ca)
        if files.cert is not None:
            context.load_cert_chain(files.cert, files.key)
    except ssl.SSLError as error:
        raise UsageError(
            f"TLS: ca=, cert= or key= holds no certificate or key: {error}; correct the URL"
        ) from error
    if not files.verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _check_readable(name: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise UsageError(f"{name}={path} cannot be read: {error.strerror}; correct the URL") from error

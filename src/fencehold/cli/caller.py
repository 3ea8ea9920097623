"""The caller: who runs a command, sent to the server for people to read."""

import json
import os
import pwd
import socket


def in_passing(called: str) -> str:
    """Metadata of a command that ends at once. No process: it is gone in a moment, and its script may be soon."""
    return json.dumps({"client": called, "user": _user(), "host": socket.gethostname()})


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())

"""Denials: what a server says that does not let a client in.

It has done nothing of what it says so of, does nothing that was sent after that on the same connection, and ends
the session.
"""

from kazoo.exceptions import AuthFailedError, SessionClosedRequireSaslError

DENIALS = (AuthFailedError, SessionClosedRequireSaslError)

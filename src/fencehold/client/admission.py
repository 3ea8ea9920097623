"""Admission: terms that cannot be had are refused before anything happens."""

from fencehold.errors import Unsupported
from fencehold.guarantees import Guarantees
from fencehold.locks.terms import Terms


def admit(terms: Terms, given: Guarantees) -> None:
    """Raise `Unsupported` for terms that a source cannot give."""
    lacks = []
    if len(terms.names) > 1 and not given.multi:
        lacks.append("several names in one step")
    if terms.shared and not given.shared:
        lacks.append("shared locks")
    if terms.limit and not given.semaphores:
        lacks.append("semaphores")
    if terms.is_delayed and not given.delays:
        lacks.append("a delay after an unclean end")
    if terms.at_least and not given.at_least:
        lacks.append("a name that stays taken for at_least, though the process has ended")
    if lacks:
        raise Unsupported(f"{given.backend}:// cannot give {' or '.join(lacks)}; the Fencehold service can")

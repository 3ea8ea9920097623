"""Where the names are in a command: what Redis Cluster clients ask for, and what routes their commands here.

Commands of one name have it first. Commands of several have their number, then the names.
"""

from fencehold.doors.resp.arguments import at_least, names, shown, text
from fencehold.doors.resp.usage_errors import Wrong

ONE = (b"LOCK.ACQUIRE", b"LOCK.RELEASE", b"LOCK.EXTEND", b"LOCK.INFO", b"LOCK.BREAK")
SEVERAL = (b"LOCK.MACQUIRE", b"LOCK.MRELEASE", b"LOCK.MEXTEND")


def names_in(words: list[bytes]) -> list[str]:
    """The names that a command is about.

    Raises:
        Wrong: it is about none, or is incomplete.
    """
    verb = words[0].upper() if words else b""
    if verb in SEVERAL:
        return list(names(words)[0])
    if verb not in ONE:
        raise Wrong(f"{shown(verb)} is about no names")
    at_least(words, 1)
    return [text(words[1], "a name")]


def described(verbs: list[bytes]) -> list[object]:
    """Commands as Redis' `COMMAND` describes them: name, arity, flags, and where their names are."""
    wanted = {verb.upper() for verb in verbs}
    told: list[object] = []
    for verb in ONE + SEVERAL:
        if not wanted or verb in wanted:
            is_one = verb in ONE
            flags = ["readonly" if verb == b"LOCK.INFO" else "write"] + ([] if is_one else ["movablekeys"])
            places = [1, 1, 1] if is_one else [0, 0, 0]
            told.append([verb.decode().lower(), -2 if is_one else -3, flags, *places, [], [], [], []])
    return told

"""Templates of names: a name without what changes in it, so that `order:17` and `order:18` are both `order:*`.

Spans are called by it, metrics are counted by it, and lists can be narrowed to it: one rule for all.
"""

import re

TEMPLATE_LENGTH_MAX = 120
_VARIABLE = re.compile(
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
    # Without a digit it may be a word, such as `deadbeef` or `facade`: eight letters of one are no number.
    r"|(?<![0-9a-zA-Z])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}(?![0-9a-zA-Z])"
    r"|[0-9]+"
)


def template_of(name: str) -> str:
    """UUIDs, hexadecimal numbers of 8 digits or more, and decimal numbers become `*`."""
    return _VARIABLE.sub("*", name)[:TEMPLATE_LENGTH_MAX]

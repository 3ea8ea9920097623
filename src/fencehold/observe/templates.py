"""Templates: names by their pattern, so that a million names make a page of metrics no longer than a hundred do.

1. Declared ones come first: `order:{id}` stands for every name that begins with `order:` and goes on with anything
   but a colon or a slash. The first that fits is taken.
2. For other names the parts that change are found (`locks/templates.py`).
3. There are at most `TEMPLATES_MAX`, in the order they came; all other names are `other`.
"""

import re
from collections.abc import Iterable

from fencehold.errors import UsageError
from fencehold.locks.templates import TEMPLATE_LENGTH_MAX, template_of

TEMPLATES_MAX = 200
OTHER = "other"
_KNOWN_MAX = 20_000
"""Names whose template is remembered, so that names in constant use are looked up and not matched again."""
_DIGITS = "0123456789"
_ENDS_OF_PREFIXES = frozenset(":/._")
_FIELD = re.compile(r"\{[a-zA-Z_][a-zA-Z0-9_]*\}")


class Templates:
    """The templates of one service."""

    def __init__(self, declared: Iterable[str] = ()) -> None:
        """Raises `UsageError` for a template that no name could fit."""
        self._declared = [(template, _pattern(template)) for template in declared]
        self._found: dict[str, None] = {}
        self._known: dict[str, str] = {}
        self._of_prefix: dict[str, str] = {}
        """Of a prefix with any number behind it."""

    def of(self, name: str) -> str:
        """The template of a name."""
        prefix = name.rstrip(_DIGITS)
        if prefix != name:
            numbered = self._of_prefix.get(prefix)
            if numbered is not None:
                return numbered
        known = self._known.get(name)
        if known is None:
            known = self._admitted(self._matched(name))
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[name] = known
            if prefix != name and prefix[-1:] in _ENDS_OF_PREFIXES and not self._declared:
                # What varies ends before such a sign, or begins behind it: another number is as good.
                if len(self._of_prefix) >= _KNOWN_MAX:
                    self._of_prefix.clear()
                self._of_prefix[prefix] = known
        return known

    def _matched(self, name: str) -> str:
        for template, pattern in self._declared:
            if pattern.fullmatch(name):
                return template
        return template_of(name)

    def _admitted(self, template: str) -> str:
        if template in self._found:
            return template
        if len(self._found) >= TEMPLATES_MAX:
            return OTHER
        self._found[template] = None
        return template


def _pattern(template: str) -> re.Pattern[str]:
    if not template or len(template) > TEMPLATE_LENGTH_MAX or template.count("{") != len(_FIELD.findall(template)):
        raise UsageError(
            f"{template!r} is not a template: write a name with fields in braces, such as order:{{id}}, "
            f"of at most {TEMPLATE_LENGTH_MAX} characters"
        )
    fixed = _FIELD.split(template)
    return re.compile("[^:/]+".join(map(re.escape, fixed)))

"""Paths with anything in them: a name may have slashes, and line ends, which the pattern of a `path` omits."""

import re
from typing import Any

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.routing import Mount


class Anything(PathConvertor):
    """In a route: `{name:anything}`."""

    regex = "(?s:.*)"


register_url_convertor("anything", Anything())


class AnythingMount(Mount):
    """Routes below a path, whatever follows it: the pattern of a plain `Mount` ends at a line end, too."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.path_regex = re.compile(self.path_regex.pattern, re.DOTALL)

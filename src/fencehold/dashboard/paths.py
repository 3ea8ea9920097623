"""Paths with anything in them: a name may have slashes, and line ends, which the pattern of a `path` omits."""

from starlette.convertors import PathConvertor, register_url_convertor


class Anything(PathConvertor):
    """In a route: `{name:anything}`."""

    regex = "(?s:.*)"


register_url_convertor("anything", Anything())

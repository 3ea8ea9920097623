"""URLs that are changed: what was changed is read as it was given, and all else as it was before."""

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from fencehold.drivers.address import (
    Endpoint,
    Login,
    Scheme,
    parts_of,
    text,
    with_endpoints,
    with_login,
    without_options,
    written,
)
from tests.property.test_machine_model import EXAMPLES

NAMES = ("ca", "note", "prefix", "stream")
TABLE = Scheme(
    names=("things",),
    form="things://host",
    port=7420,
    options=tuple(text(name) for name in NAMES),
    takes_tls=False,
)
WORDS = st.text(st.one_of(st.sampled_from("@/?#:%&=,[]+ "), st.characters(exclude_categories=["Cs"])), max_size=6)
LOGINS = st.builds(Login, WORDS, WORDS)
HOSTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/?@,[]"), min_size=1, max_size=6)
SERVERS = st.lists(st.builds(Endpoint, HOSTS, st.integers(1, 65_535)), min_size=1, max_size=3).map(tuple)
OPTIONS = st.dictionaries(st.sampled_from(NAMES), WORDS)


@st.composite
def urls(draw: st.DrawFn) -> str:
    """As they are made by us, or by somebody who encodes what must be, and no more."""
    login, servers, options = draw(LOGINS), draw(SERVERS), draw(OPTIONS)
    url = written("things", login, servers, f"/{draw(WORDS)}", options)
    if any(login) and draw(st.booleans()):
        # A login may have a #; and behind one, an option may have an @.
        head, mark, query = url.partition("?")
        url = head.replace("%23", "#") + mark + query.replace("%40", "@")
    return url.replace("things", draw(st.sampled_from(["things", "Things", "THINGS"])), 1)


def read(url: str) -> tuple[Login, tuple[Endpoint, ...], str, Mapping[str, str]]:
    said = TABLE.parse(url)
    return said.login, said.endpoints, said.path, said.options


@settings(max_examples=EXAMPLES, deadline=None)
@given(LOGINS, SERVERS, WORDS, OPTIONS)
def test_what_is_written_is_read_again(
    login: Login, servers: tuple[Endpoint, ...], path: str, options: dict[str, str]
) -> None:
    """All of it."""
    url = written("things", login, servers, f"/{path}", options)
    assert read(url) == (login, servers, path, dict.fromkeys(NAMES, "") | options)


@settings(max_examples=EXAMPLES, deadline=None)
@given(urls(), LOGINS, SERVERS, st.sets(st.sampled_from(NAMES)))
def test_what_is_changed_is_read_as_it_was_given(
    url: str, login: Login, servers: tuple[Endpoint, ...], names: set[str]
) -> None:
    """And nothing else changes: a login never reaches a server that was not named."""
    own, named, path, options = read(url)
    assert read(parts_of(url).url) == (own, named, path, options)
    assert read(with_login(url, login)) == (login, named, path, options)
    assert read(with_endpoints(url, servers)) == (own, servers, path, options)
    left = {name: "" if name in names else value for name, value in options.items()}
    assert read(without_options(url, names)) == (own, named, path, left)
    assert read(with_login(with_login(url, login), own)) == (own, named, path, options)

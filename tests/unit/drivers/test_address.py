"""The one language of URLs: the same for every scheme, and wrong ones are told what is wrong."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fencehold.backends.advisory.store import SCHEME as ADVISORY
from fencehold.backends.postgres.store import SCHEME as POSTGRES_LOCKS
from fencehold.backends.sqlite.file import SCHEME as SQLITE
from fencehold.drivers.address import (
    TLS,
    Endpoint,
    Login,
    Scheme,
    TlsFiles,
    endpoint,
    flag,
    identifier,
    parts_of,
    seconds,
    service_address,
    several,
    shown,
    text,
    whole,
    with_endpoints,
    with_login,
    without_options,
    word,
    written,
)
from fencehold.drivers.etcd.address import JOURNAL as ETCD_JOURNAL
from fencehold.drivers.etcd.address import LOCKS as ETCD_LOCKS
from fencehold.drivers.mysql.address import SCHEME as MYSQL
from fencehold.drivers.postgres.address import PostgresAddress
from fencehold.drivers.resp.address import REDIS, REDLOCK, SENTINEL
from fencehold.drivers.zookeeper.address import SCHEME as ZOOKEEPER
from fencehold.engines.postgres.address import SCHEME as POSTGRES_JOURNAL
from fencehold.errors import UsageError

TABLES = {
    "etcd": ETCD_LOCKS,
    "etcd journal": ETCD_JOURNAL,
    "zookeeper": ZOOKEEPER,
    "mysql": MYSQL,
    "postgresql": POSTGRES_LOCKS,
    "postgresql journal": POSTGRES_JOURNAL,
    "advisory": ADVISORY,
    "redis": REDIS,
    "sentinel": SENTINEL,
    "redlock": REDLOCK,
}
EVERY = pytest.mark.parametrize("table", [pytest.param(table, id=name) for name, table in TABLES.items()])
THINGS = Scheme(
    names=("things",),
    secure=("thingss",),
    form="things://host[:99]",
    port=99,
    options=(
        flag("fast"),
        whole("count", 3, most=9),
        whole("bytes", None, of="a number of bytes"),
        seconds("timeout", 2.0, most=60.0),
        word("mode", ("plain", "fancy")),
        several("unsafe", ("a", "b")),
        identifier("schema", "public", length_max=8),
        text("prefix"),
        text("door_password"),
    ),
)


def refused(call: Callable[[str], object], url: str) -> str:
    """What is said of a URL."""
    with pytest.raises(UsageError) as caught:
        call(url)
    return str(caught.value)


@EVERY
def test_tls_is_asked_for_in_the_same_words_everywhere(table: Scheme) -> None:
    """By `tls=yes`, with the same files; or by the scheme, where there is one that says so."""
    files = TlsFiles(Path("/ca"), Path("/cert"), Path("/key"))
    query = "ca=/ca&cert=/cert&key=/key"
    assert table.parse(f"{table.names[0]}://host?tls=yes&{query}").tls == files
    assert table.parse(f"{table.names[0]}://host").tls is None
    assert table.parse(f"{table.names[0]}://host?tls=no").tls is None
    assert table.parse(f"{table.names[0]}://host?tls=unchecked").tls == TlsFiles(verifies=False)
    for secure in table.secure:
        assert table.parse(f"{secure}://host?{query}").tls == files


@EVERY
@pytest.mark.parametrize(
    "query", ["tls=maybe", "tls=yes&ca=", "tls=yes&key=/key", "tls", "tls=no&ca=/ca"], ids=lambda query: query
)
def test_tls_that_makes_no_sense_is_refused_everywhere(table: Scheme, query: str) -> None:
    """With the URL, and what to write instead."""
    url = f"{table.names[0]}://host?{query}"
    assert refused(table.parse, url).startswith(f"{url}: ")


@EVERY
def test_an_unknown_option_is_refused_with_the_one_that_was_meant(table: Scheme) -> None:
    """And with all that there are."""
    for option in (*table.options, *TLS[1:]):
        said = refused(table.parse, f"{table.names[0]}://host?{option.name}x=1")
        assert f"unknown option {option.name}x=: did you mean {option.name}=?" in said
        assert f"{table.names[0]}:// takes " in said
        assert f"{option.name}=" in said.partition(" takes ")[2]


@EVERY
@pytest.mark.parametrize(
    "login", ["alice:hun@ter2", "alice:hun/ter2", "alice:hun?ter2", "alice:hun:ter2", "alice:hunter2", ":hunter2"]
)
def test_a_secret_is_never_shown(table: Scheme, login: str) -> None:
    """Nor half of one that was not percent-encoded, whatever is wrong with the URL."""
    for end in ("host:port", "host:0", "host?nonsense=1", "host?tls=maybe", "host/x@y", ""):
        said = refused(table.parse, f"{table.names[0]}://{login}@{end}?x=") if end else ""
        assert "hun" not in said
        assert "ter2" not in said


@EVERY
def test_a_secret_may_have_any_character(table: Scheme) -> None:
    """Written as %XX."""
    said = table.parse(f"{table.names[0]}://al%40ice:h%2Fu%3Fn%40t%3Aer@host")
    assert said.login == Login("al@ice", "h/u?n@t:er")
    assert "h/u" not in repr(said)
    assert "h%2Fu" not in repr(said)


def test_every_value_has_one_way_to_be_written() -> None:
    """What is not said has a default."""
    said = THINGS.parse(
        "THINGS://a?fast=on&count=9&bytes=10&timeout=500ms&mode=fancy&unsafe=a,b&schema=s_1&prefix=a%20b"
    )
    assert said.options == {
        "fast": True,
        "count": 9,
        "bytes": 10,
        "timeout": 0.5,
        "mode": "fancy",
        "unsafe": {"a", "b"},
        "schema": "s_1",
        "prefix": "a b",
        "door_password": "",
    }
    usual = THINGS.parse("things://a,b:1,[::1]:2,[::2]/p%20q/r")
    assert usual.endpoints == (("a", 99), ("b", 1), ("::1", 2), ("::2", 99))
    assert (usual.path, usual.login, usual.tls) == ("p q/r", Login(), None)
    assert list(usual.options.values()) == [False, 3, None, 2.0, "plain", frozenset(), "public", "", ""]
    assert all(THINGS.parse(f"things://a?fast={said}").options["fast"] for said in ("yes", "true", "on", "1"))
    assert not any(THINGS.parse(f"things://a?fast={said}").options["fast"] for said in ("no", "false", "off", "0"))


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("fast=maybe", "fast= is yes or no, not 'maybe'"),
        ("fast", "options are written [?]name=value&name=value"),
        ("count=0", "count= is a whole number from 1 to 9, not '0'"),
        ("count=10", "from 1 to 9"),
        ("count=٣", "from 1 to 9"),
        ("bytes=1GB", "bytes= is a number of bytes above 0, not '1GB'"),
        ("timeout=soon", "timeout=: 'soon' is not a duration"),
        ("timeout=61", "timeout= is at most 60 s"),
        ("mode=odd", "mode= is one of plain, fancy, not 'odd'"),
        ("unsafe=a,c", "unsafe= is some of a, b, with commas between, not 'a,c'"),
        ("schema=Big", "schema= is a name of a-z, 0-9 and _, of at most 8 characters, not 'Big'"),
        ("fats=yes", "unknown option fats=: did you mean fast=[?]"),
    ],
)
def test_a_value_that_is_none_is_refused_with_what_it_must_be(query: str, says: str) -> None:
    """And with the URL, whole."""
    url = f"things://a?{query}"
    with pytest.raises(UsageError, match=says) as caught:
        THINGS.parse(url)
    assert str(caught.value).startswith(f"{url}: ")


def test_a_secret_among_the_options_is_not_shown() -> None:
    """By its name it is known to be one."""
    said = refused(THINGS.parse, "things://a?door_password=hush&count=0")
    assert "things://a?door_password=***&count=0: count= is" in said


def test_tls_by_the_scheme_and_not_by_the_option_is_refused() -> None:
    """They contradict one another."""
    assert "leave one of them out" in refused(THINGS.parse, "thingss://a?tls=no")


def test_older_spellings_of_mysql_go_on_working() -> None:
    """To name a file is to ask for TLS there, as it always was."""
    assert MYSQL.parse("mysql://u@h/d?ssl=on").tls == TlsFiles()
    assert MYSQL.parse("mysql://u@h/d?ssl=unchecked").tls == TlsFiles(verifies=False)
    assert MYSQL.parse("mysql://u@h/d?ssl_ca=/ca").tls == TlsFiles(Path("/ca"))
    assert MYSQL.parse("mysql://u@h/d?ssl=off").tls is None


def test_postgres_is_told_of_tls_in_its_own_words() -> None:
    """`tls=yes` checks the server's certificate and its name, as everywhere; libpq's words go on working."""

    def params(query: str) -> dict[str, str]:
        given = PostgresAddress.parse(f"postgresql://db/app?{query}", POSTGRES_LOCKS).params
        return {name: value for name, value in given.items() if name.startswith("ssl")}

    assert params("tls=yes") == {"sslmode": "verify-full", "sslrootcert": "system"}
    assert params("tls=yes&ca=/ca&cert=/c&key=/k") == {
        "sslmode": "verify-full",
        "sslrootcert": "/ca",
        "sslcert": "/c",
        "sslkey": "/k",
    }
    assert params("tls=unchecked") == {"sslmode": "require"}
    assert params("sslmode=verify-ca&sslrootcert=/ca") == {"sslmode": "verify-ca", "sslrootcert": "/ca"}
    assert params("ssl=true") == {"sslmode": "require"}
    assert params("") == {}
    with pytest.raises(UsageError, match="both say how TLS is used"):
        params("tls=yes&sslmode=require")
    with pytest.raises(UsageError, match="unknown option ssmode=: did you mean sslmode="):
        params("ssmode=require")


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("postgresql://:5433/app", None, "5433"),
        ("postgresql:///app?host=%2Frun%2Fpostgresql", "/run/postgresql", None),
        ("postgresql://%2Frun%2Fpostgresql/app", "/run/postgresql", None),
        ("postgresql://me@/app?host=db&port=7", "db", "7"),
        ("postgres://h,h/app?port=1,2", "h,h", "1,2"),
    ],
)
def test_postgres_takes_hosts_as_libpq_does(url: str, host: str | None, port: str | None) -> None:
    """A port alone, a folder of sockets, one host by several ports."""
    params = PostgresAddress.parse(url, POSTGRES_LOCKS).params
    assert (params.get("host") or None, params.get("port")) == (host, port)


def test_a_file_has_no_host() -> None:
    """And no TLS."""
    assert "sqlite:// has no host" in refused(SQLITE.parse, "sqlite://host/file")
    assert "unknown option tls=" in refused(SQLITE.parse, "sqlite:///file?tls=yes")


@pytest.mark.parametrize(
    "url",
    [
        "fencehold://h?ttl=3",
        "fencehold://h?ca=/ca",
        "fenceholds://h?tls=no",
        "fenceholds://h?tls=unchecked",
        "fenceholds://h?key=/key",
        "fencehold://:1",
        "fencehold://h:",
    ],
)
def test_what_a_service_does_not_take_is_refused(url: str) -> None:
    """It has no options but those of TLS: what else a client can be told, `connect()` takes."""
    assert refused(service_address, url).startswith(url)


def test_a_service_is_verified_by_the_files_that_its_url_names() -> None:
    """The nearest that names a certificate names its key as well; who signed is looked for on its own."""
    said = service_address("fenceholds://u:hush@h?ca=/ca&cert=/cert&key=/key")
    assert said.tls == TlsFiles(Path("/ca"), Path("/cert"), Path("/key"))
    assert service_address("fencehold://h?tls=yes").tls == TlsFiles()
    assert service_address("fencehold://h").tls is None
    assert "hush" not in repr(said)
    far = TlsFiles(Path("/far/ca"), Path("/far/cert"), Path("/far/key"))
    assert TlsFiles().over(far) == far
    assert TlsFiles(cert=Path("/both")).over(far) == TlsFiles(Path("/far/ca"), Path("/both"))
    assert TlsFiles(Path("/ca")).over(far) == TlsFiles(Path("/ca"), far.cert, far.key)


def test_an_endpoint_is_written_as_it_is_read() -> None:
    """An IPv6 host in brackets."""
    for said in ("a:1", "[::1]:7", "10.0.0.1:65535"):
        assert str(endpoint(said)) == said
    assert endpoint("[::1]") == Endpoint("::1", 7420)


def test_what_is_written_is_read_again() -> None:
    """Whatever characters it has."""
    login, hosts = Login("a@b", "c/d:e?"), [Endpoint("::1", 1), Endpoint("h", 2)]
    url = written("redis+sentinel", login, hosts, "/my service/3", {"sentinel_password": "x&y=z@w"})
    said = SENTINEL.parse(url)
    assert (said.login, list(said.endpoints), said.path) == (login, hosts, "my service/3")
    assert said.options["sentinel_password"] == "x&y=z@w"
    assert "c/d" not in shown(url)
    assert "x&y" not in shown(url)
    assert written("redis", Login(), [Endpoint("h", 1)]) == "redis://h:1"


@pytest.mark.parametrize(
    ("url", "login", "changed"),
    [
        ("fenceholds://door:own@a:1,b:2/?ca=x", ("a@b", "c/d"), "fenceholds://a%40b:c%2Fd@a:1,b:2/?ca=x"),
        ("fenceholds://door:own@a:1,b:2/?ca=x", ("", ""), "fenceholds://a:1,b:2/?ca=x"),
        ("fenceholds://o:p@h?ca=/a@b/ca.pem", ("u", "s"), "fenceholds://u:s@h?ca=/a%40b/ca.pem"),
        ("fenceholds://o:p@h?ca=/a@b/ca.pem", ("", ""), "fenceholds://h?ca=/a%40b/ca.pem"),
        ("fencehold://u:p#1@h:1", ("", "t"), "fencehold://:t@h:1"),
        ("FENCEHOLD://h", ("u", ""), "fencehold://u:@h"),
    ],
)
def test_another_login_is_sent_to_the_servers_of_the_url(url: str, login: tuple[str, str], changed: str) -> None:
    """Whatever stands after them."""
    assert with_login(url, Login(*login)) == changed
    said, before = service_address(changed), service_address(url)
    assert (said.user, said.secret, said.endpoints, said.tls) == (*login, before.endpoints, before.tls)


def test_a_url_of_which_nobody_can_tell_where_its_login_ends_is_not_changed() -> None:
    """The login might be sent to what follows the @."""
    url = "fenceholds://h?ca=/a@b/ca.pem"
    for change in (partial(with_login, login=Login("u", "hush")), partial(with_endpoints, endpoints=())):
        assert "after the hosts no @" in refused(change, url)


@pytest.mark.parametrize(
    "url", ["fencehold://u:p#1@h:1", "fenceholds://u:p%231@h,i?ca=/c@d", "fencehold://u:p#1@h/x"]
)
def test_other_servers_are_shown_the_same_login(url: str) -> None:
    """Over TLS as before, if that was asked for."""
    servers = (Endpoint("a", 7420), Endpoint("::1", 2))
    said, before = service_address(with_endpoints(url, servers)), service_address(url)
    assert said == before._replace(endpoints=servers)
    assert (said.user, said.secret) == ("u", "p#1")


@pytest.mark.parametrize("host", ["x@evil", "a/b", "a?b", "a,b", "[a", "a]"])
def test_what_is_no_host_does_not_get_a_login(host: str) -> None:
    """It would end up elsewhere."""
    with pytest.raises(UsageError, match="a host is written without"):
        with_endpoints("fencehold://u:p@h", [Endpoint(host, 1)])


def test_an_option_is_left_out_however_it_is_spelled() -> None:
    """As it would be read."""
    url = "redis://u:p@h/1?stream=a&prefix=b%26&%73tream=c&maxlen=3"
    assert without_options(url, {"stream", "maxlen"}) == "redis://u:p@h/1?prefix=b%26"
    assert without_options("redis://h/1?stream=a", {"stream"}) == "redis://h/1"
    assert without_options("redis://u:p@/run/r?db=1", {"stream"}) == "redis://u:p@/run/r?db=1"


def test_the_parts_of_a_url_are_shown_without_its_secret() -> None:
    """Whatever is logged of them."""
    assert "hush" not in repr(parts_of("fencehold://u:hush@h"))


OTHER_LANGUAGES = {
    "drivers/address.py": "it is the one place",
    "drivers/etcd/survey.py": "what etcd reports of its members, and nobody writes for us",
    "doors/http/same_site.py": "the Origin of a page, as browsers send it",
}
"""Where URLs are taken apart that are none of ours, and why."""
TAKES_APART = re.compile(r"url(?:un)?(?:split|parse)\b|(?:partition|split)\(\s*[\"'](?:://|@)[\"']")


def test_urls_are_taken_apart_in_one_place() -> None:
    """Whoever does it again does it differently, and a secret goes astray."""
    source = Path(__file__).parents[3] / "src/fencehold"
    found = {
        str(path.relative_to(source)) for path in source.rglob("*.py") if TAKES_APART.search(path.read_text())
    }
    assert found == set(OTHER_LANGUAGES)


def test_the_page_of_urls_names_every_scheme_and_option() -> None:
    """In the row of its scheme."""
    page = (Path(__file__).parents[3] / "docs/reference/urls.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("|")]
    for table in (*TABLES.values(), SQLITE):
        for name in (*table.names[:1], *table.secure):
            assert f"`{name}://" in page
        options = [f"`{option.name}=`" for option in table.options] + ["TLS"] * table.takes_tls
        assert any(f"`{table.names[0]}://" in row and all(option in row for option in options) for row in rows)

"""Configuration: who wins, which journal it is, what nodes need, and what is shown."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from fencehold.cli.configuration import Configuration, Said, configured, show
from fencehold.cli.credentials import VARIABLE
from fencehold.cli.listener_processes import KINDS
from fencehold.cli.settings import File
from fencehold.core.limits import Limits
from fencehold.errors import UsageError
from fencehold.observe.feed import Observing
from fencehold.server import Config
from tests.e2e.served import start

ETCD = "etcd://10.0.0.1,10.0.0.2/locks"


@pytest.fixture(autouse=True)
def no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def made(
    options: dict[str, Any] | None = None, env: dict[str, Any] | None = None, file: File | None = None
) -> Configuration:
    given = {name: Said(value, "environment") for name, value in (env or {}).items()}
    given |= {name: Said(value, "option") for name, value in (options or {}).items()}
    return configured(given, file or File())


def test_without_a_word_it_is_the_default() -> None:
    """A server alone, its data below the directory it is started in."""
    history = Path(".fencehold/history.sqlite").absolute()
    assert made().server == Config(data=Path(".fencehold"), observing=Observing(history))


def test_a_history_is_kept_beside_the_data_unless_it_is_said_otherwise() -> None:
    """Elsewhere, or nowhere; in memory and with a shared engine only where it is named."""

    def kept(**options: Any) -> Path | None:
        observing = made(options).server.observing
        assert observing is not None
        return observing.history

    assert kept(data=Path("/x")) == Path("/x/history.sqlite")
    assert kept(data=Path("/x"), history_file="off") is None
    assert kept(data=Path("/x"), history_file="/y/h") == Path("/y/h")
    assert kept(memory=True) is None
    assert kept(engine=ETCD) is None
    assert kept(engine=ETCD, history_file="/y/h") == Path("/y/h")
    assert made({"no_observer": True}).server.observing is None
    with pytest.raises(UsageError, match="--no-observer"):
        made({"no_observer": True, "history_file": "/y/h"})


def test_several_shards_are_observed_like_one() -> None:
    """One history for all of them."""
    many, one = made({"shards": 4}).server, made({"shards": 1}).server
    assert many.shards == 4
    assert many.observing == one.observing is not None


def test_templates_are_checked_before_anything_starts() -> None:
    """A pattern that no name could fit is a mistake."""
    with pytest.raises(UsageError, match="is not a template"):
        made({}, {}, File({}, {"observe": {"templates": ("order:{",)}}))


@pytest.mark.parametrize("url", ["https://traces.example/", "traces.example/{trace}", "javascript:{trace}"])
def test_where_traces_are_is_checked_before_anything_starts(url: str) -> None:
    """A listener would end with it, and be started again and again; what is no address of the web is no link."""
    with pytest.raises(UsageError, match=r"like https://traces.example/trace/\{trace\}"):
        configured({"trace_url": Said(url, "option")}, File())
    known = configured({"trace_url": Said("https://traces.example/{trace}", "option")}, File())
    assert known.said["trace_url"].value == "https://traces.example/{trace}"


def test_an_option_wins_over_its_variable_and_that_over_the_file() -> None:
    """And the file over the default."""
    file = File({"port": 3, "host": "localhost"})
    assert made({"port": 1}, {"port": 2}, file).server.port == 1
    assert made({}, {"port": 2}, file).server.port == 2
    assert made({}, {}, file).server.port == 3
    assert made({}, {}, file).server.host == "localhost"
    assert made({}, {"memory": False}, File({"memory": True})).server.data == Path(".fencehold")


@pytest.mark.parametrize(
    ("options", "env", "file", "found"),
    [
        ({"memory": True}, {"engine": ETCD}, {"data": Path("x")}, (None, "")),
        ({"data": Path("x")}, {"memory": True}, {"engine": ETCD}, (Path("x"), "")),
        ({}, {"engine": ETCD}, {"memory": True}, (None, ETCD)),
        ({}, {}, {"engine": ETCD}, (None, ETCD)),
        ({"engine": "file:///var/x"}, {}, {}, (Path("/var/x"), "")),
        ({"engine": "var/x"}, {}, {}, (Path("var/x"), "")),
        ({"engine": "memory://"}, {}, {}, (None, "")),
    ],
)
def test_the_nearest_says_where_the_journal_is(
    options: dict[str, Any], env: dict[str, Any], file: dict[str, Any], found: tuple[Any, str]
) -> None:
    """Whichever of the three ways it uses."""
    server = made(options, env, File(file)).server
    assert (server.data, server.engine) == found


@pytest.mark.parametrize(
    ("options", "env", "file", "complaint"),
    [
        ({"engine": ETCD, "memory": True}, {}, {}, "--memory and --engine both say where the journal is"),
        ({"engine": ETCD, "data": Path("x")}, {}, {}, "--data and --engine both"),
        ({"data": Path("x"), "memory": True}, {}, {}, "--data and --memory both"),
        ({}, {"engine": ETCD, "data": Path("x")}, {}, "FENCEHOLD_DATA and FENCEHOLD_ENGINE both"),
        ({}, {}, {"engine": ETCD, "memory": True}, "memory in the file and engine in the file both"),
    ],
)
def test_two_that_are_equally_near_are_refused(
    options: dict[str, Any], env: dict[str, Any], file: dict[str, Any], complaint: str
) -> None:
    """By what somebody wrote."""
    with pytest.raises(UsageError) as refused:
        made(options, env, File(file))
    assert str(refused.value).startswith(complaint)


@pytest.mark.parametrize("name", ["node", "advertise", "leader_timeout", "engine_password_file"])
@pytest.mark.parametrize("journal", [{}, {"memory": True}, {"engine": "/var/x"}, {"engine": "memory://"}])
def test_what_is_for_several_nodes_is_refused_for_one(name: str, journal: dict[str, Any]) -> None:
    """A journal that has one owner is not shared by giving that owner a name."""
    value = {"leader_timeout": 2.0, "engine_password_file": Path("x")}.get(name, "a:1")
    with pytest.raises(UsageError, match=f"^--{name.replace('_', '-')} is for "):
        made({name: value, **journal})


def test_an_unknown_engine_is_refused_with_those_known() -> None:
    """And without its password."""
    with pytest.raises(UsageError, match="known are") as refused:
        made({"engine": "redis://app:hunter2@x"})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("engine", ["etcd", "10.0.0.1:2379", "data"])
def test_a_word_is_no_engine(engine: str) -> None:
    """Nobody gets a directory of that name who meant a server."""
    with pytest.raises(UsageError, match=f"{engine} is not an engine"):
        made({"engine": engine})


@pytest.mark.parametrize(
    ("given", "node", "address"),
    [
        ({}, f"{socket.gethostname()}:7420", "127.0.0.1:7420"),
        ({"port": 7500, "node": "a"}, "a", "127.0.0.1:7500"),
        ({"advertise": "db1.example"}, f"{socket.gethostname()}:7420", "db1.example:7420"),
        ({"advertise": "10.1.1.1:9", "port": 0, "node": "a"}, "a", "10.1.1.1:9"),
        ({"advertise": "[fd00::1]:9", "node": "a"}, "a", "[fd00::1]:9"),
        ({"host": "::1", "node": "a"}, "a", "[::1]:7420"),
        # The server tells both when the system has chosen the port.
        ({"port": 0}, "", ""),
    ],
)
def test_a_node_knows_its_name_and_where_it_is_reached(given: dict[str, Any], node: str, address: str) -> None:
    """As was said, or from where it listens."""
    server = made({"engine": ETCD, **given}).server
    assert (server.node, server.advertise) == (node, address)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"host": "0.0.0.0", "insecure": True}, "others cannot connect to 0.0.0.0: add --advertise"),
        ({"advertise": "[::]:7420"}, "others cannot connect to ::: add --advertise"),
        ({"advertise": "10.0.0.1", "port": 0}, "a port is a number from 1 to 65535"),
        ({"advertise": "10.0.0.1:x"}, "a port is a number from 1 to 65535"),
        ({"advertise": "x" * 300}, "an address has at most 256 bytes"),
        ({"node": "ü" * 65}, "the name of a node has at most 128 bytes"),
        ({"node": "a\nb"}, "the name of a node has at most 128 bytes, all printable"),
        ({"leader_timeout": 0.3}, "a leader timeout of 0.3 s is too short"),
        ({"host": "10.0.0.1"}, "10.0.0.1 can be reached from other machines"),
    ],
)
def test_what_could_not_work_among_others_is_refused(given: dict[str, Any], complaint: str) -> None:
    """Before anything is started."""
    with pytest.raises(UsageError) as refused:
        made({"engine": ETCD, **given})
    assert str(refused.value).startswith(complaint)


def test_bounds_come_from_the_file() -> None:
    """Those that it does not name have their defaults; the leader's tick bounds the leader timeout."""
    file = File({"engine": ETCD}, {"limits": {"sessions_max": 7}, "leader": {"tick_s": 0.6}, "listener": {}})
    with pytest.raises(UsageError, match=r"set 1\.2 s or more"):
        made({}, {}, file)
    server = made({"leader_timeout": 1.2}, {}, file).server
    assert server.limits == Limits(sessions_max=7)
    assert server.leader.tick_s == 0.6
    assert server.patience.leader_timeout_s == 1.2


def test_a_password_comes_from_the_nearest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An option over the variable, that over the configuration file; and it is not shown."""
    password = tmp_path / "password"
    password.write_text("of-a-file\n")
    engine = {"engine": "etcd://app@a"}
    in_file = File({"engine_password_file": password})
    assert made(engine, {}, in_file).server.engine == "etcd://app:of-a-file@a"
    monkeypatch.setenv(VARIABLE, "of-the-environment")
    assert made(engine, {}, in_file).server.engine == "etcd://app:of-the-environment@a"
    known = made({**engine, "engine_password_file": password}, {}, in_file)
    assert known.server.engine == "etcd://app:of-a-file@a"
    assert known.said["engine"].value == "etcd://app:***@a"


def test_the_effective_configuration_can_be_read_by_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    """Every setting and bound, with who said it; no secret."""
    file = File({"engine": "etcd://app:hunter2@a"}, {"listener": {"connections_max": 9}})
    show(made({"port": 1, "json": True}, {"node": "n"}, file))
    out = capsys.readouterr().out
    found = json.loads(out)
    assert "hunter2" not in out
    assert (found["engine"], found["port"], found["node"], found["data"]) == ("etcd://app:***@a", 1, "n", None)
    assert found["listener"]["connections_max"] == 9
    assert found["limits"]["sessions_max"] == Limits().sessions_max
    sources = {name: found["sources"][name] for name in ("port", "node", "engine", "host")}
    assert sources == {"port": "option", "node": "environment", "engine": "file", "host": "default"}


def test_the_effective_configuration_can_be_read_by_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    """One line each: the setting, its value, who said it."""
    show(made({"memory": True}, {}, File({}, {"limits": {"sessions_max": 7}})))
    lines = capsys.readouterr().out.splitlines()
    assert "memory\tyes\toption" in lines
    assert "data\t\tdefault" in lines
    assert "limits.sessions_max\t7\tfile" in lines
    assert "leader.tick_s\t0.2\tdefault" in lines


@pytest.mark.slow
def test_variables_and_options_reach_it(tmp_path: Path) -> None:
    """By the command itself; a variable that Kubernetes makes of a service of this name is none of ours."""
    file = tmp_path / "f.toml"
    file.write_text('node = "of-the-file"\nadvertise = "of.the.file:1"\n')
    variables = {"FENCEHOLD_ENGINE": ETCD, "FENCEHOLD_NODE": "of-a-variable", "FENCEHOLD_CONFIG": str(file)}
    process = start(
        "serve", "--check", "--json", "--leader-timeout", "2s", FENCEHOLD_PORT="tcp://10.3.2.1:7420", **variables
    )
    out, err = process.communicate(timeout=60)
    assert err == ""
    found = json.loads(out)
    assert (found["engine"], found["node"], found["leader_timeout"]) == (ETCD, "of-a-variable", 2.0)
    assert (found["advertise"], found["port"]) == ("of.the.file:1", 7420)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, {"http": 7422}),
        ({"no_http": True}, {}),
        ({"http": 8000}, {"http": 8000}),
        ({"port": 0}, {}),
        ({"host": "0.0.0.0", "insecure": True}, {}),
        ({"grpc": 7421}, {"grpc": 7421, "http": 7422}),
    ],
)
def test_http_is_on_by_default_where_only_this_machine_can_connect(
    options: dict[str, Any], found: dict[str, int]
) -> None:
    """Not for a server on any free port: who starts such a one starts many."""
    known = made({"memory": True, **options})
    assert known.listeners == found
    assert known.optional == ({"http"} if "http" in found and "http" not in options else set())


def test_http_cannot_be_on_and_off() -> None:
    """Said by the same source; otherwise the nearer one wins."""
    with pytest.raises(UsageError, match="--http and --no-http contradict each other"):
        made({"http": 1, "no_http": True})
    assert made({"no_http": True}, {"http": 1}).listeners == {}
    assert made({"http": 1}, {"no_http": True}).listeners == {"http": 1}


def test_http_that_is_not_installed_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it was asked for."""
    monkeypatch.setitem(KINDS, "http", ("no_such_module",))
    assert made().listeners == {}
    with pytest.raises(UsageError, match="fencehold\\[http\\]"):
        made({"http": 7422})

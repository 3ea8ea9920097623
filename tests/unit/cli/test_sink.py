"""Sinks of the command line: what is said of them in a file, how they are started, and how they are doing."""

import json
import os
import time
from pathlib import Path

import pytest

from fencehold.cli.sink import _check_cluster, _start, status, status_directory
from fencehold.cli.sink_processes import command_of_sink, shown_sinks, sinks_of
from fencehold.errors import UsageError
from fencehold.locks.views import WHOLE
from fencehold.server import Config

TABLE = {
    "cluster": "prod",
    "user": "sinks",
    "secret_file": "/etc/s",
    "log": "jsonl:///var/log/e.jsonl",
    "audit": {"url": "postgresql://ann:secret@db/audit", "prefix": "jobs:", "from": "now"},
}


def test_a_sink_beside_a_node_is_told_its_target_in_the_environment() -> None:
    """Others can see the words a process is started with: no password is there, nor in what is shown."""
    settings = sinks_of(TABLE)
    words, environment = command_of_sink(
        settings.sinks[1], settings, Config(engine="etcd://e"), 7420, as_json=True
    )
    assert environment["FENCEHOLD_SINK"] == TABLE["audit"]["url"]  # type: ignore[index]
    assert (environment["FENCEHOLD_USER"], environment["FENCEHOLD_SECRET_FILE"]) == ("sinks", "/etc/s")
    assert "secret" not in " ".join(words)
    assert "secret@" not in str(shown_sinks(settings))
    for name, value in {"--from": "now", "--prefix": "jobs:", "--cluster": "prod", "--name": "audit"}.items():
        assert words[words.index(name) + 1] == value
    assert words[words.index("--lock") + 1] == "fencehold:sinks:audit"
    alone, _ = command_of_sink(settings.sinks[0], settings, Config(), 7420, as_json=False)
    assert "--lock" not in alone


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"a": 5}, "sinks.a is a URL"),
        ({"a": {"url": "jsonl:///x", "form": "x"}}, "form is not known"),
        ({"a": "kafak://k/t"}, "did you mean kafka"),
        ({"a": "kafka://k"}, "it names a topic"),
        ({"a": "webhook://h/p?cursor=/x"}, "secret_file"),
        ({"a/b": "jsonl:///x"}, "letters"),
        ({"cluster": 7}, "sinks.cluster is a text"),
        ({"a": {"url": "jsonl:///x", "prefix": 5}}, "sinks.a.prefix is a text"),
    ],
)
def test_what_is_wrong_in_the_table_is_said_before_anything_starts(table: dict[str, object], said: str) -> None:
    """The message names the sink and what to write instead."""
    with pytest.raises(UsageError, match=said):
        sinks_of(table)


def test_where_a_sink_begins() -> None:
    """At the beginning, now, after a position, or after one event of it."""
    assert _start("now") is None
    assert [_start(said) for said in ("beginning", "7", "7.2")] == [(0, WHOLE), (7, WHOLE), (7, 2)]
    with pytest.raises(UsageError):
        _check_cluster("a/b")


def test_how_sinks_are_doing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line each; one that has written nothing for long is said to be silent."""
    facts = {
        "name": "kafka",
        "cursor": [1841, 2],
        "reads_from": "n1:7420",
        "delivered": 12,
        "retried": 3,
        "dropped": 0,
        "gaps": 1,
        "waiting": 4,
        "lag_s": 2.0,
        "error": None,
        "running": True,
        "written_unix": time.time(),
    }
    told = {
        "a": facts,
        "b": facts | {"name": "old", "written_unix": 5},
        "c": facts | {"name": "away", "error": "refused", "cursor": None},
        "e": facts | {"name": "lost", "reads_from": None, "service_error": "no node"},
    }
    for name, each in told.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(each))
    (tmp_path / "d.json").write_text("{")
    status(tmp_path)
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    states = [("kafka", "well"), ("old", "silent"), ("away", "retrying"), ("lost", "looking for a node")]
    assert [(row[0], row[1]) for row in rows[-4:]] == states
    assert rows[-4][2:7] == ["12", "3", "0", "1", "4"]
    assert rows[-4][8] == "1841.2"
    assert [row[9] for row in rows[-2:]] == ["refused", "no node"]
    status(tmp_path, as_json=True)
    assert [each["state"] for each in json.loads(capsys.readouterr().out)["sinks"]] == [
        "well",
        "silent",
        "retrying",
        "looking for a node",
    ]


def test_the_usual_directory_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody else can look into it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = status_directory(None, make=True)
    assert path.name == f"fencehold-sinks-{os.getuid()}"
    assert path.stat().st_mode & 0o077 == 0

"""Files of settings: what they may say, and what is said of what they may not."""

from enum import Enum
from pathlib import Path

import pytest

from fencehold.cli.settings import SETTINGS, TABLES, File, bounds_of, read
from fencehold.errors import UsageError


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "fencehold.toml"
    file.write_text(text)
    return file


def test_settings_and_bounds_are_read(tmp_path: Path) -> None:
    """By their names; paths are paths, and durations are seconds."""
    text = """
    engine = "etcd://a,b/locks"
    port = 0
    data = "/var/lib/x"
    insecure = true
    leader_timeout = "1500ms"

    [limits]
    sessions_max = 7
    lock_delay_ms_max = 0

    [listener]
    frame_seconds_max = 3
    """
    said = read(written(tmp_path, text))
    assert said.settings == {
        "engine": "etcd://a,b/locks",
        "port": 0,
        "data": Path("/var/lib/x"),
        "insecure": True,
        "leader_timeout": 1.5,
    }
    assert said.tables == {
        "limits": {"sessions_max": 7, "lock_delay_ms_max": 0},
        "listener": {"frame_seconds_max": 3.0},
    }
    assert read(written(tmp_path, "leader_timeout = 2\n")).settings == {"leader_timeout": 2.0}
    assert read(written(tmp_path, "")) == File({}, {})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('nod = "a"', "nod is not known; did you mean node?"),
        ('port-file = "x"', "port-file is not known; did you mean port_file?"),
        ("zzz = 1", "zzz is not known; known are engine, "),
        ("node = 3", "node is a text, not 3"),
        ('node = ""', "node is a text, not an empty text"),
        ("port = 65536", "port is a whole number from 0 to 65535, not 65536"),
        ("port = true", "port is a whole number from 0 to 65535, not true"),
        ('port = "7420"', "port is a whole number from 0 to 65535, not a text"),
        ("memory = 1", "memory is true or false, not 1"),
        ('leader_timeout = "soon"', 'leader_timeout is seconds, or a text such as "500ms" or "3s", not a text'),
        ("leader_timeout = 0", 'leader_timeout is seconds, or a text such as "500ms" or "3s", not 0'),
        ("leader_timeout = true", 'leader_timeout is seconds, or a text such as "500ms" or "3s", not true'),
        ("leader_timeout = nan", 'leader_timeout is seconds, or a text such as "500ms" or "3s", not nan'),
        ("engine = [1]", "engine is a text, not a list"),
        ("engine = 2026-01-01", "engine is a text, not a date or time"),
        ("[engine]", "engine is a text, not a table"),
        ("limits = 3", "limits is a table: write [limits], and its fields below"),
        ("[limits]\nsession_max = 3", "[limits]: session_max is not known; did you mean sessions_max?"),
        ("[limits]\nsessions_max = 0", "limits.sessions_max is a whole number, 1 or more, not 0"),
        ("[limits]\nsessions_max = true", "limits.sessions_max is a whole number, 1 or more, not true"),
        ("[limits]\nsessions_max = 1.5", "limits.sessions_max is a whole number, 1 or more, not 1.5"),
        ("[leader]\ntick_s = 0", "leader.tick_s is a number of seconds above 0, not 0"),
        ("[leader]\ntick_s = inf", "leader.tick_s is a number of seconds above 0, not inf"),
        (
            '[listener]\nconnections_max = "many"',
            "listener.connections_max is a whole number, 1 or more, not a text",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(tmp_path: Path, text: str, complaint: str) -> None:
    """With what is allowed."""
    file = written(tmp_path, text + "\n")
    with pytest.raises(UsageError) as refused:
        read(file)
    assert str(refused.value).startswith(f"{file}: {complaint}")


def test_the_earlier_spelling_of_the_listener_table_works(tmp_path: Path) -> None:
    """`[door]` sets the same bounds as `[listener]`; both in one file are refused, since one would be ignored."""
    table = "connections_max = 9\n"
    new = read(written(tmp_path, f"[listener]\n{table}"))
    assert new.tables == {"listener": {"connections_max": 9}}
    assert read(written(tmp_path, f"[door]\n{table}")) == new
    with pytest.raises(UsageError, match=r"\[door\] is the earlier spelling of \[listener\]: keep only"):
        read(written(tmp_path, f"[door]\n{table}[listener]\n{table}"))
    with pytest.raises(UsageError, match=r"listener\.connections_max is a whole number, 1 or more, not 0"):
        read(written(tmp_path, "[door]\nconnections_max = 0\n"))


def test_a_value_in_the_wrong_place_is_not_repeated(tmp_path: Path) -> None:
    """It may be a password."""
    with pytest.raises(UsageError) as refused:
        read(written(tmp_path, 'port = "hunter2"\n'))
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("content", [b"node = a", b"node = 'a'\nnode = 'b'", b"\xff\xfe", b"#" * (2 << 20)])
def test_what_is_no_file_of_settings_is_refused(tmp_path: Path, content: bytes) -> None:
    """Whatever is in it."""
    file = tmp_path / "x.toml"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"x\.toml"):
        read(file)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """By its name, with the system's reason."""
    with pytest.raises(UsageError, match=r"cannot read .*nowhere: No such file"):
        read(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"cannot read .*: Is a directory"):
        read(tmp_path)


def test_every_default_is_one_that_a_file_could_say() -> None:
    """No kind and default are at odds."""
    for setting in SETTINGS.values():
        if setting.default not in (None, ""):
            said = setting.default.value if isinstance(setting.default, Enum) else setting.default
            said = str(said) if isinstance(said, Path) else said
            assert setting.read(said) == setting.default
    for table in TABLES:
        assert {type(default) for default in bounds_of(table).values()} <= {int, float, tuple}

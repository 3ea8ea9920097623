"""Durations: what may be written for a length of time, and what is said to anything else."""

from datetime import timedelta
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from fencehold.backends.sqlite.file import SqliteAddress
from fencehold.cli.options import duration
from fencehold.client.config import configured, read
from fencehold.client.connect import plan_of
from fencehold.drivers.mysql.address import MysqlAddress
from fencehold.drivers.resp.address import RedlockAddress
from fencehold.durations import Duration, parsed, seconds_of, shown_limit
from fencehold.errors import UsageError
from fencehold.locks.terms import Terms, ttl_of, wait_of
from fencehold.types import Tier

_MS = timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (30, 30),
        (0.25, 0.25),
        (timedelta(minutes=2, milliseconds=5), 120.005),
        ("30", 30),
        ("30s", 30),
        ("500ms", 0.5),
        ("2m", 120),
        ("1h30m", 5_400),
        ("1d", 86_400),
        ("1d2h3m4s5ms", 93_784.005),
        ("1h 30m", 5_400),
        (" 1.5 H ", 5_400),
        (".5s", 0.5),
        ("0.1s200ms", 0.3),
        (0, 0),
    ],
)
def test_a_duration_is_a_number_a_timedelta_or_a_text(written: Duration, seconds: float) -> None:
    """All of them are the same seconds."""
    assert seconds_of("ttl", written) == seconds
    assert type(seconds_of("ttl", written)) is float


@pytest.mark.parametrize(
    "written", ["", " ", "soon", "s", "-5s", "30m1h", "1h1h", "1m30", "1e3", "nan", "inf", "٣s", "5 5s", "1,5s"]
)
def test_a_text_that_says_no_duration_is_refused(written: str) -> None:
    """The message says which option, what was given, and what to write."""
    with pytest.raises(UsageError) as refused:
        seconds_of("ttl", written)
    assert str(refused.value) == (
        f'ttl: {written!r} is not a duration: write "30s", "500ms", "2m", "1h30m" or "1d", or seconds as a number'
    )


@pytest.mark.parametrize("given", [True, False, None, [1], b"30s", nan])
def test_what_is_no_duration_at_all_is_refused(given: Any) -> None:
    """A truth value is not taken for a number, and nan for no time."""
    with pytest.raises(UsageError) as refused:
        seconds_of("ttl", given)
    assert str(refused.value) == (
        f'ttl is seconds, a timedelta or a text such as "30s", "500ms", "2m", "1h30m" or "1d", not {given!r}'
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (30_000_000, "ttl is at most 86400 s (1 day), not 30000000 s"),
        ("2d", "ttl is at most 86400 s (1 day), not 172800 s"),
        (inf, "ttl is at most 86400 s (1 day), not inf s"),
        (10**400, "ttl is at most 86400 s (1 day), not inf s"),
        (-(10**400), "ttl is at least 0.001 s, not -inf s"),
        (-5, "ttl is at least 0.001 s, not -5 s"),
        (timedelta(seconds=-1), "ttl is at least 0.001 s, not -1 s"),
        ("0s", "ttl is at least 0.001 s, not 0 s"),
    ],
)
def test_a_duration_out_of_range_is_told_the_range(given: Duration, message: str) -> None:
    """In seconds, whatever it was written in."""
    with pytest.raises(UsageError) as refused:
        seconds_of("ttl", given, least=0.001, most=86_400)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (86_400, "86400 s (1 day)"),
        (7_200, "7200 s (2 hours)"),
        (60, "60 s (1 minute)"),
        (90, "90 s"),
        (0.5, "0.5 s"),
    ],
)
def test_a_limit_is_shown_in_words_too(seconds: float, text: str) -> None:
    """Where they are whole ones."""
    assert shown_limit(seconds) == text


@given(st.timedeltas(timedelta(0), timedelta(days=3_000)).map(lambda each: timedelta(milliseconds=each // _MS)))
def test_a_text_of_all_units_is_read_as_it_was_written(time: timedelta) -> None:
    """Days, hours, minutes, seconds and milliseconds add up to what they are."""
    minutes, seconds = divmod(time.seconds, 60)
    text = f"{time.days}d{minutes // 60}h{minutes % 60}m{seconds}s{time.microseconds // 1000}ms"
    assert parsed(text) == pytest.approx(time.total_seconds(), abs=1e-6)


@given(st.text())
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    """Nothing else comes of it."""
    seconds = parsed(text)
    assert seconds is None or seconds >= 0


# Who takes them.


def test_locks_take_durations() -> None:
    """A ttl, a timeout and a delay, converted once: the terms have seconds."""
    terms = Terms(("a",), ttl="1m", timeout=timedelta(seconds=5), delay="500ms")
    assert (terms.ttl, terms.timeout, terms.is_delayed) == (60, 5, True)
    assert terms.prefix == Terms(("a",), ttl=60, timeout=5, delay=0.5).prefix
    assert terms.waiting("250ms").timeout == 0.25
    assert wait_of("2m") == 120
    assert ttl_of("1d") == 86_400


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ttl": 0}, "ttl is at least 0.001 s, or None (as long as its session), not 0 s"),
        ({"timeout": -3}, "timeout is at least 0 s, or None (without limit), not -3 s"),
        ({"timeout": inf}, "timeout is at most 315360000 s (3650 days), or None (without limit), not inf s"),
        ({"delay": "later"}, "delay: 'later' is not a duration: write"),
    ],
)
def test_locks_say_which_option_is_wrong(wrong: dict[str, Any], message: str) -> None:
    """And what None would mean, where it may be None."""
    with pytest.raises(UsageError) as refused:
        Terms(("a",), **wrong)
    assert str(refused.value).startswith(message)


def test_connect_takes_durations(tmp_path: Path) -> None:
    """In the call, and in the file."""
    config = configured("fencehold://h", ttl="1m", grace=timedelta(seconds=2), connect_timeout="500ms")
    assert plan_of(config).source(Tier.CORRECTNESS).config is config
    assert (config.ttl, config.grace, config.connect_timeout) == (60, 2, 0.5)
    file = tmp_path / "fencehold.toml"
    file.write_text('[client]\nttl = "1m"\ngrace = 2\n')
    assert read(file)["ttl"] == 60


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ttl": 0.01}, "ttl is at least 0.1 s, not 0.01 s"),
        ({"grace": 31}, "grace is at most the ttl, 30 s, not 31 s"),
        ({"grace": -1}, "grace is at least 0 s, not -1 s"),
        ({"connect_timeout": 0}, "connect_timeout is at least 0.001 s, not 0 s"),
        ({"ttl": "x"}, "ttl: 'x' is not a duration"),
    ],
)
@pytest.mark.parametrize("url", ["fencehold://h", "memory://", "redis://h"])
def test_connect_says_which_option_is_wrong(url: str, wrong: dict[str, Any], message: str) -> None:
    """Before anything is connected to, whatever the backend."""
    with pytest.raises(UsageError) as refused:
        plan_of(configured(url, **wrong))
    assert str(refused.value).startswith(message)


def test_options_of_urls_take_durations() -> None:
    """As texts, with or without a unit."""
    assert SqliteAddress.parse("sqlite:///a.db?timeout=500ms").timeout == 0.5
    assert SqliteAddress.parse("sqlite:///a.db?timeout=2").timeout == 2
    assert MysqlAddress.parse("mysql://u@h/d?timeout=1s500ms").timeout == 1.5
    assert RedlockAddress.parse("redlock://a,b,c?node_timeout=50ms").node_s == 0.05


@pytest.mark.parametrize("url", ["sqlite:///a.db?timeout=", "mysql://u@h/d?timeout="])
@pytest.mark.parametrize("text", ["61s", "0", "-1", "never", "nan"])
def test_options_of_urls_say_what_is_taken(url: str, text: str) -> None:
    """Each has a bound of its own."""
    with pytest.raises(UsageError, match=r": timeout=(:| is at (most 60|least 0.001) s)"):
        (SqliteAddress if url.startswith("sqlite") else MysqlAddress).parse(url + text)


def test_the_command_line_reads_the_same() -> None:
    """`--timeout 1h30m` is what `timeout="1h30m"` is."""
    for text in ("30", "1.5", "500ms", "1h30m", "1d"):
        assert duration(text) == seconds_of("timeout", text)
    with pytest.raises(typer.BadParameter, match=r"^'soon' is not a duration: write 30, "):
        duration("soon")
    with pytest.raises(typer.BadParameter, match=r"at most 315360000 s \(3650 days\)"):
        duration("4000d")

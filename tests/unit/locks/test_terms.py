"""Terms, settings and words: what is refused before anything is sent, and how the rest is encoded."""

from typing import Any

import pytest
from hiredis import Reader

from fencehold.client.config import Config
from fencehold.client.protocol.connection import Settings
from fencehold.drivers.resp.wire import command, error
from fencehold.errors import Refused, UsageError
from fencehold.locks.identity import OWNER_BYTES_MAX, encode, session_meta
from fencehold.locks.terms import Terms, one, several, text_of, wait_of


@pytest.mark.parametrize(
    "wrong",
    [{"ttl": 0}, {"ttl": -1}, {"timeout": -3}, {"delay": -1}],
)
def test_terms_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    """A usage error comes before anything is sent."""
    with pytest.raises(UsageError):
        Terms(("a",), **wrong)


@pytest.mark.parametrize("name", ["", None, b"bytes", 3])
def test_a_name_is_text(name: Any) -> None:
    """Anything else is refused."""
    with pytest.raises(UsageError):
        one(name)


def test_several_names_are_sorted_and_had_once() -> None:
    """Every client asks for the same names in the same order."""
    assert several(["b", "a", "b"]) == ("a", "b")


def test_terms_made_of_others_lack_nothing() -> None:
    """With other metadata, another wait or fewer names, they still say all that was asked for."""
    terms = Terms(("a", "b"), timeout=3, across_shards=True)
    for other in (terms.saying("m"), terms.waiting(1), terms.part(("a",), 1)):
        assert [slot for slot in Terms.__slots__ if not hasattr(other, slot)] == []
        assert other.spans


def test_how_long_to_wait() -> None:
    """None and -1 are for ever, 0 and not blocking are not at all."""
    assert wait_of(None) is None
    assert wait_of(-1) is None
    assert wait_of(3) == 3
    assert wait_of(None, blocking=False) == 0
    with pytest.raises(UsageError):
        wait_of(2, blocking=False)


def test_metadata_is_text_or_json() -> None:
    """Text goes as it is, anything else as JSON, and what JSON cannot say as its text."""
    assert text_of(None) == ""
    assert text_of("plain") == "plain"
    assert text_of({"k": {1}}) == '{"k":"{1}"}'


def test_commands_are_what_a_server_reads() -> None:
    """Words, bytes and numbers are arguments of one command; names may be any text."""
    reader = Reader()
    reader.feed(command("WORD", b"\x00\r\n", 17, "grün"))
    assert reader.gets() == [b"WORD", b"\x00\r\n", b"17", "grün".encode()]
    reader.feed(Terms(("grün", "b"), timeout=0, limit=3).prefix + command("x")[4:] * 6)
    words = reader.gets()
    assert words[:4] == [b"LOCK.MACQUIRE", b"2", "grün".encode(), b"b"]
    assert words[4:9] == [b"ASYNC", b"WAIT", b"0", b"LIMIT", b"3"]


@pytest.mark.parametrize("wrong", [{"ttl": 0.01}, {"ttl": 1, "grace": 2}, {"grace": -1}, {"connect_timeout": 0}])
def test_times_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    """A session that could not live, or calls that could not wait, are usage errors."""
    with pytest.raises(UsageError):
        Config(**wrong)  # type: ignore[arg-type]


def test_a_client_introduces_itself() -> None:
    """The greeting carries name and credentials, the session what is said of the process."""
    settings = Settings(name="n", user="u", secret="s", meta=session_meta("n", {"zone": 1}, "9"))
    assert b"AUTH" in settings.hello()
    assert b"SETNAME" in settings.hello()
    assert b'"zone":1' in settings.opening()
    assert b'"version":"9"' in settings.opening()


def test_a_long_owner_is_cut_but_stays_unique() -> None:
    """An owner fits the server's limit, whatever the task is called, and keeps its number."""
    owner = encode("#12", "ü" * 200).split(b"\r\n")[3]
    assert len(owner) <= OWNER_BYTES_MAX
    assert owner.endswith(b"#12")


def test_an_error_nobody_knows_is_a_refusal() -> None:
    """A code of a later version is a refusal; a deadlock that cannot be read is one all the same."""
    assert type(error("NEWCODE", "later")) is Refused
    assert "not json" in str(error("DEADLOCK", "not json"))

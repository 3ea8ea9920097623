"""The configuration of a client: the program over the environment over the file over the default."""

from pathlib import Path
from typing import Any

import pytest

import fencehold
from fencehold import CORRECTNESS, EFFICIENCY, UsageError, aio
from fencehold.cli.settings import read as read_by_the_server
from fencehold.client.config import CONFIG_VARIABLE, DEFAULT_URL, URL_VARIABLE, Config, configured, read
from fencehold.client.connect import plan_of
from fencehold.types import Tier


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says nothing."""
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fencehold.toml"


def url_of(config: Config, tier: Tier) -> str:
    return plan_of(config).source(tier).url


def test_a_file_says_what_a_program_can_say(file: Path) -> None:
    """Every key, by the name it has in the program."""
    file.write_text(
        """
        [client]
        correctness = "fencehold://10.0.0.1"
        efficiency = "fencehold://10.0.0.2"
        on_unavailable = "proceed"
        ttl = 10
        grace = 0.5
        name = "billing"
        connect_timeout = 2.5

        [client.meta]
        release = "2.4"

        [client.rules]
        "wallet:*" = "correctness"
        "cache:*" = "EFFICIENCY"
        """
    )
    config = configured(config=file)
    plan = plan_of(config)
    first, other = plan.source(CORRECTNESS), plan.source(EFFICIENCY)
    assert (first.url, other.url) == ("fencehold://10.0.0.1", "fencehold://10.0.0.2")
    assert first.config is other.config is config
    assert (config.ttl, config.grace, config.connect_timeout) == (10.0, 0.5, 2.5)
    assert (config.name, config.meta) == ("billing", {"release": "2.4"})
    assert other.proceeds
    assert plan.rules.tier("wallet:7") is CORRECTNESS
    assert plan.rules.tier("cache:7") is EFFICIENCY


def test_without_any_word_there_are_defaults() -> None:
    """A service on this machine, and times that need no thought."""
    made = configured()
    assert made.url == DEFAULT_URL == "fencehold://127.0.0.1:7420"
    assert (made.ttl, made.grace, made.connect_timeout, made.name, made.meta) == (30.0, 1.0, 5.0, "", None)


def test_the_nearest_word_on_where_counts(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's over the environment's over the file's."""
    file.write_text('[client]\nurl = "fencehold://of-the-file"\nttl = 10')
    assert configured(config=file).url == "fencehold://of-the-file"
    monkeypatch.setenv(URL_VARIABLE, "fencehold://of-the-environment")
    assert configured(config=file).url == "fencehold://of-the-environment"
    said = configured("fencehold://of-the-program", config=file)
    assert (said.url, said.ttl) == ("fencehold://of-the-program", 10.0)


def test_where_is_said_as_a_whole(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One URL near by is not mixed with the two of a file."""
    file.write_text('[client]\ncorrectness = "fencehold://a"\nefficiency = "fencehold://b"')
    monkeypatch.setenv(URL_VARIABLE, "fencehold://c")
    config = configured(config=file)
    assert [url_of(config, tier) for tier in (CORRECTNESS, EFFICIENCY)] == ["fencehold://c"] * 2
    config = configured(correctness="fencehold://d", config=file)
    assert [url_of(config, tier) for tier in (CORRECTNESS, EFFICIENCY)] == ["fencehold://d"] * 2


def test_what_a_program_says_wins_even_if_it_is_the_default(file: Path) -> None:
    """Saying it is not the same as saying nothing."""
    file.write_text('[client]\nttl = 10\nconnect_timeout = 1\non_unavailable = "proceed"')
    config = configured(ttl=30, connect_timeout=5, on_unavailable="raise", config=file)
    assert (config.ttl, config.connect_timeout) == (30, 5)
    assert not plan_of(config).source(EFFICIENCY).proceeds


def test_rules_add_up(file: Path) -> None:
    """A file protects names that the program does not know of; for the same names, the program's word counts."""
    file.write_text('[client.rules]\n"wallet:*" = "correctness"\n"cache:*" = "correctness"')
    rules = configured(rules={"cache:*": EFFICIENCY, "till:*": CORRECTNESS}, config=file).rules
    tiers = {name: rules.tier(name) for name in ("wallet:1", "cache:1", "till:1")}
    assert tiers == {"wallet:1": CORRECTNESS, "cache:1": EFFICIENCY, "till:1": CORRECTNESS}


def test_the_file_is_the_one_given_or_the_one_of_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program's word counts here, too; an empty variable says nothing."""
    other = file.with_name("other.toml")
    file.write_text("[client]\nttl = 10")
    other.write_text("[client]\nttl = 20")
    monkeypatch.setenv(CONFIG_VARIABLE, str(file))
    assert configured().ttl == 10
    assert configured(config=str(other)).ttl == 20
    monkeypatch.setenv(CONFIG_VARIABLE, "")
    assert configured().ttl == 30


def test_one_file_serves_the_server_and_its_clients(file: Path) -> None:
    """Each reads what is its own."""
    file.write_text('port = 7421\n[limits]\nsessions_max = 5\n[client]\nurl = "fencehold://a:7421"')
    assert read(file) == {"url": "fencehold://a:7421"}
    assert read_by_the_server(file).settings == {"port": 7421}
    file.write_text("port = 7421")
    assert read(file) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[client]\nconect_timeout = 1",
            r"\[client\]: conect_timeout is not known; did you mean connect_timeout\?",
        ),
        ("[client]\non-unavailable = 'raise'", r"on-unavailable is not known; did you mean on_unavailable\?"),
        ("[client]\nxyz = 1", "xyz is not known; known are url, correctness"),
        ("[client]\ntls = 'yes'", "tls is not known"),
        ("[client]\nttl = 'soon'", r"\[client\]: ttl is a number of seconds, or a text such as \"30s\""),
        ("[client]\nttl = -1", "ttl is a number of seconds"),
        ("[client]\nttl = nan", "ttl is a number of seconds"),
        ("[client]\nttl = true", "ttl is a number of seconds"),
        ("[client]\nurl = ''", "url is a text"),
        ("[client]\nefficiency = 7", "efficiency is a text"),
        ("[client]\non_unavailable = 'ignore'", 'on_unavailable is "raise" or "proceed"'),
        ("[client]\nrules = 'all'", "rules is a table"),
        ("[client.rules]\n'wallet:*' = 'safe'", "rules is names and tiers: the rule for 'wallet:\\*' says"),
        ("[client.rules]\n'a*b' = 'correctness'", "rules is names and tiers: a rule is for a name"),
        ("client = 'all'", r"client is a table: write \[client\]"),
        ("[client", "is no TOML"),
        ("[client]\n# \udcff", "is no TOML"),
    ],
)
def test_what_a_file_cannot_say_is_refused(file: Path, text: str, words: str) -> None:
    """By its name and the file's, with what is allowed."""
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=words) as refused:
        read(file)
    assert str(file) in str(refused.value)


def test_no_value_is_shown_in_a_refusal(file: Path) -> None:
    """It may be a password in the wrong place."""
    file.write_text("[client]\nttl = 'redis://:s3cret@host'")
    with pytest.raises(UsageError) as refused:
        read(file)
    assert "s3cret" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(file: Path) -> None:
    """It was named: going on without it would be going on without its rules."""
    with pytest.raises(UsageError, match=r"cannot read .*No such file"):
        read(file)


def test_a_file_has_a_bound(file: Path) -> None:
    """What is larger is no configuration."""
    file.write_text("#" * ((1 << 20) + 1))
    with pytest.raises(UsageError, match="that is not a configuration file"):
        read(file)


def test_two_words_on_where_in_one_file_are_refused(file: Path) -> None:
    """As they are in a program."""
    file.write_text('[client]\nurl = "fencehold://a"\nefficiency = "fencehold://b"')
    with pytest.raises(UsageError, match="either one URL"):
        configured(config=file)


async def test_both_clients_read_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `config=`, and by the environment."""
    file.write_text('[client]\nurl = "memory://configured"\n[client.rules]\n"wallet:*" = "correctness"')

    def refused(client: Any) -> None:
        with pytest.raises(UsageError, match="by the rules of this client"):
            client.lock("wallet:7", tier=EFFICIENCY)

    with fencehold.connect(config=file) as client:
        refused(client)
    monkeypatch.setenv(CONFIG_VARIABLE, str(file))
    with fencehold.connect() as client:
        refused(client)

    async with aio.connect(config=file) as one, aio.connect() as other:
        refused(one)
        refused(other)

"""The greeting of a client: what it says of itself, and nothing that it was not told."""

from fencehold import CORRECTNESS, EFFICIENCY
from fencehold.client.config import Config
from fencehold.client.connect import plan_of, session_protocol
from fencehold.client.protocol.connection import Settings
from fencehold.drivers.resp.wire import command


def test_no_tier_is_said_unless_one_was_given() -> None:
    """An older server would not know the word."""
    assert Settings().hello() == command("HELLO", 3)
    assert Settings(name="me").hello() == command("HELLO", 3, "SETNAME", "me")


def test_a_tier_is_asked_for_in_the_greeting() -> None:
    """Together with the rest, so that no session is opened before it."""
    greeting = Settings(name="me", user="u", secret="s", tier="EFFICIENCY").hello()
    assert greeting == command("HELLO", 3, "AUTH", "u", "s", "SETNAME", "me", "TIER", "EFFICIENCY")


def test_a_client_is_made_with_its_tier() -> None:
    """What it is made of goes into its settings."""
    for tier, word in ((CORRECTNESS, ""), (EFFICIENCY, "EFFICIENCY")):
        source = plan_of(Config(url="fencehold://127.0.0.1")).source(tier)
        assert session_protocol(source.config, source.url, source.machine).settings.tier == word

"""What can be said of advisory locks without a server."""

import pytest

from fencehold import CORRECTNESS, UsageError
from fencehold.backends.advisory import backend
from fencehold.backends.advisory.session import patience
from fencehold.backends.advisory.store import SCHEME, key_of
from fencehold.backends.port import Settings
from fencehold.drivers.postgres.address import PostgresAddress


def test_a_name_has_one_number_for_ever() -> None:
    """Programs of other versions and languages that take part must find the same."""
    assert key_of("orders") == -3_049_803_464_231_846_067
    assert key_of("ä") == key_of("\u00e4")
    keys = {key_of(f"name {number}") for number in range(10_000)}
    assert len(keys) == 10_000
    assert all(-(2**63) <= key < 2**63 for key in keys)


@pytest.mark.parametrize("ttl", [1.0, 3.0, 10.0, 30.0, 600.0])
def test_the_client_gives_up_before_the_server_does(ttl: float) -> None:
    """A sign of life is asked for after a third of the ttl and awaited for so long; the server waits longer."""
    waits = patience(ttl, connect_timeout=5.0)
    assert ttl / 3 + waits.answer_s < waits.idle_s
    assert waits.idle_s >= ttl
    assert waits.frees_s <= 2 * ttl + 5


def test_the_server_is_told_as_declared() -> None:
    """How soon it frees what a machine held that is gone."""
    waits = patience(30.0, connect_timeout=5.0)
    assert backend("postgresql+advisory://db/app", Settings(ttl=30.0)).guarantees.frees_on_crash == waits.frees_s
    assert waits.settings["tcp_user_timeout"] == str(round(waits.frees_s * 1_000))


def test_it_never_protects_state() -> None:
    """There is no fence."""
    assert not backend("postgresql+advisory://db/app", Settings()).guarantees.gives(CORRECTNESS)


def test_a_url_says_where_the_notes_are() -> None:
    """The rest of it is libpq's."""
    address = PostgresAddress.parse(
        "postgresql+advisory://db/app?schema=s&table=t&pooler=session&sslmode=require", SCHEME
    )
    assert address.options == {"schema": "s", "table": "t", "pooler": "session"}
    assert address.params["dbname"] == "app"


@pytest.mark.parametrize("query", ["schema=No", "table=" + "a" * 21, "pooler=transaction", "nonsense=1"])
def test_a_url_that_makes_no_sense_says_so(query: str) -> None:
    """Before anything is connected to."""
    with pytest.raises(UsageError):
        backend(f"postgresql+advisory://db/app?{query}", Settings())

"""Who a client of a gateway says it is, and how that is passed on."""

import base64

import pytest

from fencehold.errors import UsageError
from fencehold.gateway.credentials import ANONYMOUS, Credentials, forget_own_logins, read_authorization


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def test_a_user_and_a_secret_or_a_token_are_taken() -> None:
    """A token is passed on as the secret of the user `token`."""
    assert read_authorization(basic("ann:s:e")) == Credentials("ann", "s:e")
    assert read_authorization("bearer abc") == Credentials("token", "abc")
    assert read_authorization("") is ANONYMOUS


@pytest.mark.parametrize("value", ["Basic !", basic("nobody"), "Digest x", "Bearer ", "Basic " + "x" * 5000])
def test_what_is_neither_is_refused_and_not_shown(value: str) -> None:
    """It may be a secret in the wrong place."""
    with pytest.raises(UsageError) as refused:
        read_authorization(value)
    assert value.partition(" ")[2] == "" or value not in str(refused.value)


def test_logins_in_the_environment_are_not_lent_either() -> None:
    """The SDK would take them for every client that says nothing of itself."""
    environment = {"FENCEHOLD_TOKEN": "a", "FENCEHOLD_SECRET_FILE": "b", "FENCEHOLD_USER": "c", "HOME": "d"}
    forget_own_logins(environment)
    assert environment == {"HOME": "d"}


def test_secrets_are_in_no_repr() -> None:
    """Whatever is logged of it."""
    assert "hush" not in repr(Credentials("ann", "hush"))

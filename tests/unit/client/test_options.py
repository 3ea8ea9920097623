"""What a caller says: options that are not there, or out of place, are refused with what was probably meant."""

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

import fencehold
from fencehold import UsageError, aio
from fencehold.client.options import ConnectOptions, LockOptions, MultiOptions, Options


@pytest.fixture(params=[fencehold.connect, aio.connect], ids=["threads", "tasks"])
def client(request: pytest.FixtureRequest) -> Any:
    """A client of either kind that is never connected."""
    return request.param("fencehold://127.0.0.1:1", lazy=True)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda client: client.lock("a", 5),
            r"^Client\.lock\(\): options go by name; ttl= is the lease, timeout=",
        ),
        (lambda client: client.lock("a", tll=5), r"lock\(\) has no option 'tll': did you mean ttl\?"),
        (lambda client: client.lock("a", xyz=5), r"lock\(\) has no option 'xyz': there are timeout, tier"),
        (lambda client: client.lock(), r"lock\(\): missing a required argument: 'name'"),
        (lambda client: client.lock("a", limit=2), "has no option 'limit'"),
        (lambda client: client.lock("a", at_least=2), "has no option 'at_least'"),
        (lambda client: client.multi(["a"], delay=2), "has no option 'delay'"),
        (lambda client: client.semaphore("a", 2, shared=True), "has no option 'shared'"),
        (lambda client: client.rwlock("a", shared=True), "has no option 'shared'"),
        (lambda client: client.rlock("a", delay=1), "has no option 'delay'"),
        (lambda client: client.once("a", at_most=1, ttl=1), "has no option 'ttl'"),
    ],
)
def test_what_cannot_be_said_of_a_lock_is_refused(client: Any, call: Callable[[Any], object], words: str) -> None:
    """Also where a lock of another kind has such an option, or what it is made of."""
    with pytest.raises(UsageError, match=words):
        call(client)


@pytest.mark.parametrize("connect", [fencehold.connect, aio.connect])
def test_what_cannot_be_said_to_connect_is_refused(connect: Any) -> None:
    """By either client, in the same words."""
    with pytest.raises(UsageError, match="has no option 'conect_timeout': did you mean connect_timeout"):
        connect(conect_timeout=1)
    with pytest.raises(UsageError, match=r"connect\(\): options go by name; they are lazy, correctness"):
        connect("fencehold://h", "efficiency")


def test_only_an_async_lock_is_told_what_to_do_on_a_loss() -> None:
    """A thread cannot be cancelled."""
    aio.connect("fencehold://h", lazy=True).lock("a", on_lost="raise")
    with pytest.raises(UsageError, match="on_lost is 'cancel' or 'raise', not 'ignore'"):
        aio.connect("fencehold://h", lazy=True).lock("a", on_lost="ignore")  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="has no option 'on_lost'"):
        fencehold.connect("fencehold://h", lazy=True).lock("a", on_lost="raise")  # type: ignore[call-overload]


def test_a_signature_has_all_options_one_by_one(client: Any) -> None:
    """For `help`, and for editors that ask at run time."""
    verbs = {"lock": LockOptions, "multi": MultiOptions, "rwlock": Options, "semaphore": Options, "rlock": Options}
    for verb, declared in verbs.items():
        shown = inspect.signature(getattr(client, verb)).parameters
        assert set(get_type_hints(declared)) <= set(shown)
        assert all(each.kind is not each.VAR_KEYWORD for each in shown.values())
    assert set(get_type_hints(ConnectOptions)) <= set(inspect.signature(fencehold.connect).parameters)

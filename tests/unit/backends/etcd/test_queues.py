"""Locks on etcd: where keys are, and who is next by what is seen of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencehold.backends.etcd import backend, queues
from fencehold.backends.etcd.queues import LockKeys, QueueSight, awaited, entry_key, is_granted, limit_in, token_in
from fencehold.backends.port import Settings
from fencehold.errors import UsageError

KEYS = LockKeys("/app/")
QUEUE = KEYS.queue("name")
NAMES = st.text(st.characters(codec="utf-8"), min_size=1)


def key(number: int, limit: int = 0) -> bytes:
    return entry_key(QUEUE, 7, f"token{number}", limit)


@given(NAMES, NAMES)
def test_the_range_of_a_name_has_the_keys_of_that_name_only(one: str, other: str) -> None:
    """Whatever is in the names: slashes, per cent signs, what sorts before and after them."""
    start, end = KEYS.queue(one)
    assert start <= entry_key(KEYS.queue(one), 1, "token", 0) < end
    assert (start <= entry_key(KEYS.queue(other), 1, "token", 0) < end) == (one == other)


@pytest.mark.parametrize("names", [("a", "a/b"), ("a", "a%2Fb"), ("a/b", "a%2Fb"), ("a", "a0"), ("a", "a/")])
def test_names_that_look_alike_have_ranges_apart(names: tuple[str, str]) -> None:
    """Those that other recipes mix up, among them."""
    (start, end), (other_start, other_end) = (KEYS.queue(name) for name in names)
    assert end <= other_start or other_end <= start


def test_a_key_says_which_ask_and_how_many_permits() -> None:
    """What is not ours says nothing, and breaks nothing."""
    assert (token_in(key(3)), limit_in(key(3))) == ("token3", 0)
    assert limit_in(key(3, limit=12)) == 12
    assert token_in(KEYS.notice(7, "token3")) == "token3"
    assert limit_in(b"/app/locks/name/by hand") == 0


def test_a_plain_lock_is_had_by_the_first() -> None:
    """The others wait for the one before them, and for nobody else."""
    assert is_granted(QueueSight(9, (), 9), 0)
    seen = QueueSight(9, (key(2), key(1)), 9)
    assert not is_granted(seen, 0)
    assert awaited(QUEUE, seen, 0) == ((key(2), b""), frozenset(), False)


def test_permits_are_had_by_so_many() -> None:
    """The first who waits hears of any that is given back; the one behind it, of it alone."""
    one, two, three = key(1, 2), key(2, 2), key(3, 2)
    assert is_granted(QueueSight(9, (one,), 9), 2)
    first, second = QueueSight(9, (two, one), 9), QueueSight(9, (three, two, one), 9)
    assert not is_granted(first, 2)
    assert awaited(QUEUE, first, 2) == (QUEUE, frozenset({one, two}), False)
    assert awaited(QUEUE, second, 2) == ((three, b""), frozenset(), True)


def test_a_permit_is_not_had_beside_a_plain_lock() -> None:
    """However many permits there are."""
    seen = QueueSight(9, (key(1),), 9)
    assert not is_granted(seen, 5)
    assert awaited(QUEUE, seen, 5) == ((key(1), b""), frozenset(), False)


def test_what_is_shown_of_an_ask_is_read_again() -> None:
    """And what somebody else wrote there is nobody's."""
    record = queues.decode_entry(queues.encode_entry("stamp", 5.0))
    assert record.stamp == "stamp"
    assert record.ends == pytest.approx(record.since + 5)
    assert queues.decode_entry(queues.encode_entry("stamp", None)).ends is None
    assert queues.decode_entry(b"by hand").stamp == ""


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("etcd://", "no host"),
        ("etcd://host?compact=false", "unknown option compact="),
        ("etcd://host?ca=/ca.pem", "etcds://"),
        ("etcd://user@host", "user:password"),
    ],
)
def test_a_wrong_url_is_told_what_is_wrong(url: str, says: str) -> None:
    """Before anything is connected to."""
    with pytest.raises(UsageError, match=says):
        backend(url, Settings())


@pytest.mark.parametrize(("ttl", "frees_s"), [(0.5, 2), (2, 2), (2.1, 3), (30, 30)])
def test_a_crash_frees_after_whole_seconds(ttl: float, frees_s: float) -> None:
    """etcd counts those, and not fewer than two."""
    assert backend("etcd://a,b:1/app", Settings(ttl=ttl)).guarantees.frees_on_crash == frees_s

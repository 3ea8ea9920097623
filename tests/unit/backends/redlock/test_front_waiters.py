"""Who asks for all that wait in one client."""

from fencehold.backends.port import Ask
from fencehold.backends.redlock.store import FrontWaiters
from fencehold.locks.terms import Terms


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def ask(token: str, name: str = "n") -> Ask:
    return Ask(Terms((name,)), token, "owner")


def test_the_first_asks_until_it_leaves() -> None:
    """Then another may; and names have nothing to do with one another."""
    firsts = FrontWaiters(1.0, Time())
    assert [firsts.may_ask(ask(token)) for token in ("a", "b", "a")] == [True, False, True]
    assert firsts.may_ask(ask("c", "other"))
    assert firsts.leave(ask("a"))
    assert firsts.may_ask(ask("b"))


def test_of_one_that_never_asked_nothing_has_to_be_taken_back() -> None:
    """But of every other, also of one that is not known here."""
    firsts = FrontWaiters(1.0, Time())
    firsts.may_ask(ask("a"))
    firsts.may_ask(ask("b"))
    assert [firsts.leave(ask(token)) for token in ("b", "a", "stranger")] == [False, True, True]
    firsts.may_ask(ask("c"))
    firsts.may_ask(ask("d"))
    firsts.leave(ask("c"))
    firsts.may_ask(ask("d"))
    assert firsts.leave(ask("d"))


def test_one_that_is_not_heard_of_is_passed_over() -> None:
    """Whoever asks next is the first."""
    time = Time()
    firsts = FrontWaiters(1.0, time)
    firsts.may_ask(ask("a"))
    assert firsts.asks(ask("a"))
    time.now = 0.9
    assert not firsts.may_ask(ask("b"))
    time.now = 1.1
    assert firsts.may_ask(ask("b"))
    assert not firsts.may_ask(ask("a"))
    # It has asked, all the same.
    assert not firsts.asks(ask("a"))
    assert firsts.leave(ask("a"))

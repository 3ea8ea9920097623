"""What is done with locks, and what comes of it: to be played with redis-py's locks and with ours."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from redis import exceptions

PATIENCE_S = 60.0


class Step(NamedTuple):
    """A call on one of the locks. Besides their methods: `enter`, `exit`, `left` and `until_free`."""

    lock: str
    verb: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012 - nobody writes to it


class Scenario(NamedTuple):
    title: str
    locks: dict[str, dict[str, Any]]
    """What each lock is made with. All are on one name."""
    steps: list[Step]


def do(lock: str, verb: str, *args: Any, **kwargs: Any) -> Step:
    return Step(lock, verb, args, kwargs)


class Stage(NamedTuple):
    """Where a scenario is played."""

    make: Callable[..., Any]
    """Makes a lock from the arguments of a scenario."""
    left: Callable[[], Any]
    """Seconds the name is locked for; None: it has no end. To be awaited, perhaps."""


SHORT = {"timeout": 0.15}
LONG = {"timeout": 10}

SCENARIOS = [
    Scenario(
        "taken and given back",
        {"a": {}},
        [
            do("a", "locked"),
            do("a", "owned"),
            do("a", "acquire"),
            do("a", "locked"),
            do("a", "owned"),
            do("a", "left"),
            do("a", "release"),
            do("a", "locked"),
            do("a", "owned"),
        ],
    ),
    Scenario(
        "the other one is refused, and does not own it",
        {"a": LONG, "b": LONG},
        [
            do("a", "acquire", blocking=False),
            do("b", "acquire", blocking=False),
            do("b", "locked"),
            do("b", "owned"),
            do("b", "release"),
            do("a", "release"),
            do("b", "acquire", blocking=False),
            do("b", "owned"),
            do("a", "owned"),
            do("b", "release"),
        ],
    ),
    Scenario(
        "waiting ends with the blocking timeout, of the lock or of the call",
        {"a": LONG, "b": {"blocking_timeout": 0.12}, "c": {"blocking": False}, "d": {}},
        [
            do("a", "acquire"),
            do("b", "acquire"),
            do("c", "acquire"),
            do("d", "acquire", blocking_timeout=0.11),
            do("d", "acquire", blocking_timeout=0),
            do("c", "acquire", blocking=True, blocking_timeout=0.1),
            do("b", "acquire", blocking=False),
            do("a", "release"),
            do("b", "acquire"),
            do("b", "release"),
        ],
    ),
    Scenario(
        "asking again waits for oneself",
        {"a": LONG},
        [
            do("a", "acquire"),
            do("a", "acquire", blocking=False),
            do("a", "acquire", blocking_timeout=0.11),
            do("a", "owned"),
            do("a", "release"),
        ],
    ),
    Scenario("released twice", {"a": {}}, [do("a", "acquire"), do("a", "release"), do("a", "release")]),
    Scenario("never acquired", {"a": LONG}, [do("a", "release"), do("a", "extend", 1), do("a", "reacquire")]),
    Scenario(
        "what has no timeout is not extended",
        {"a": {}},
        [do("a", "acquire"), do("a", "extend", 10), do("a", "reacquire"), do("a", "owned"), do("a", "release")],
    ),
    Scenario(
        "extended, shortened, made whole again",
        {"a": LONG},
        [
            do("a", "acquire"),
            do("a", "left"),
            do("a", "extend", 10),
            do("a", "left"),
            do("a", "extend", 2.0),
            do("a", "left"),
            do("a", "extend", 5, replace_ttl=True),
            do("a", "left"),
            do("a", "extend", 3, True),
            do("a", "left"),
            do("a", "reacquire"),
            do("a", "left"),
            do("a", "release"),
        ],
    ),
    Scenario(
        "expired, then released",
        {"a": SHORT},
        [do("a", "acquire"), do("a", "until_free"), do("a", "owned"), do("a", "release"), do("a", "release")],
    ),
    Scenario(
        "expired, then extended",
        {"a": SHORT},
        [
            do("a", "acquire"),
            do("a", "until_free"),
            do("a", "extend", 10),
            do("a", "reacquire"),
            do("a", "release"),
        ],
    ),
    Scenario(
        "expired, and taken by another, who keeps it",
        {"a": SHORT, "b": LONG},
        [
            do("a", "acquire"),
            do("b", "acquire"),
            do("a", "owned"),
            do("b", "owned"),
            do("a", "release"),
            do("b", "owned"),
            do("a", "locked"),
            do("b", "release"),
            do("a", "locked"),
        ],
    ),
    Scenario(
        "expired, and taken again by the same",
        {"a": {"timeout": 0.3}},
        [do("a", "acquire"), do("a", "acquire"), do("a", "owned"), do("a", "release"), do("a", "locked")],
    ),
    Scenario(
        "a body",
        {"a": LONG},
        [do("a", "enter"), do("a", "owned"), do("a", "exit"), do("a", "locked")],
    ),
    Scenario(
        "a body that is not entered",
        {"a": LONG, "b": {"blocking_timeout": 0.11}, "c": {"blocking": False}},
        [do("a", "acquire"), do("b", "enter"), do("c", "enter"), do("b", "locked"), do("a", "release")],
    ),
    Scenario(
        "a body that lasts too long",
        {"a": SHORT},
        [do("a", "enter"), do("a", "until_free"), do("a", "exit"), do("a", "locked")],
    ),
    Scenario(
        "a body that lasts too long, for whoever does not want to know",
        {"a": SHORT | {"raise_on_release_error": False}},
        [do("a", "enter"), do("a", "until_free"), do("a", "exit"), do("a", "release")],
    ),
    Scenario(
        "a body that released it itself",
        {"a": LONG, "b": {"raise_on_release_error": False}},
        [
            do("a", "enter"),
            do("a", "release"),
            do("a", "exit"),
            do("b", "enter"),
            do("b", "release"),
            do("b", "exit"),
        ],
    ),
]


async def play(scenario: Scenario, stage: Stage) -> list[Any]:
    """What comes of each step. Calls of blocking locks block."""
    locks = {key: stage.make(**made) for key, made in scenario.locks.items()}
    return [await _outcome(locks[step.lock], step, stage) for step in scenario.steps]


async def _outcome(lock: Any, step: Step, stage: Stage) -> Any:
    try:
        said = await _did(lock, step, stage)
    except exceptions.RedisError as error:
        return _theirs(error), str(error)
    return "itself" if said is lock else said


async def _did(lock: Any, step: Step, stage: Stage) -> Any:
    match step.verb:
        case "enter":
            return await _awaited((getattr(lock, "__enter__", None) or lock.__aenter__)())
        case "exit":
            return await _awaited((getattr(lock, "__exit__", None) or lock.__aexit__)(None, None, None))
        case "left":
            left_s = await _awaited(stage.left())
            return None if left_s is None else round(left_s)
        case "until_free":
            until = time.monotonic() + PATIENCE_S
            while await _awaited(lock.locked()):
                assert time.monotonic() < until
                await asyncio.sleep(0.005)
            return None
        case verb:
            return await _awaited(getattr(lock, verb)(*step.args, **step.kwargs))


async def _awaited(said: Awaitable[Any] | Any) -> Any:
    return await said if inspect.isawaitable(said) else said


def _theirs(error: exceptions.RedisError) -> str:
    """The name of the class of redis-py that a handler would catch it by."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "redis.exceptions")

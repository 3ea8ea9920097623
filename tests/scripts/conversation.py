"""The language of scripted conversations: lines in, commands to the machine, what it did, in words.

A script is blocks separated by blank lines. A block has lines of input, each one an entry (comments begin with
``#``), then ``----``, then all that the machine said. Options are ``key=value``; times have a unit (``5s``,
``200ms``). What the machine says is derived from outcomes, notices and events, so a script reads as documentation.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256

from msgspec.structs import asdict, replace

from fencehold.core.commands import (
    FOREVER,
    Acquire,
    AcquireAtLeast,
    Announce,
    ApplyCells,
    Break,
    BreakAs,
    Cancel,
    ChangeMap,
    ChangePolicy,
    CloseHome,
    CloseSession,
    Command,
    Entry,
    Extend,
    FollowMap,
    ForceSlots,
    FoundShard,
    LapseHomes,
    Mode,
    OpenHome,
    OpenSession,
    OpenSessionAs,
    OpenSessionBy,
    OpenSlots,
    RaiseFence,
    RefuseWait,
    Release,
    Renew,
    ResumeHomes,
    SealHome,
    SealSlots,
    SetLimits,
    Settle,
    Suspend,
)
from fencehold.core.events import NOBODY, Who, events_of
from fencehold.core.limits import Limits
from fencehold.core.machine import Machine
from fencehold.core.outcomes import DeadlockAcross, SessionEnded, ShardLink
from fencehold.core.policy import PolicyChange, Quota, QuotaMode, Role, Rule, Token, User, Verb, token_id
from fencehold.placement.cells import Cell, CellMap, PrefixHome, Reach, in_order
from fencehold.placement.map import ShardMap, even_map
from tests.scripts.words import DAY, say_event, say_name, say_notice, say_outcome

_MODES = {"exclusive": Mode.EXCLUSIVE, "shared": Mode.SHARED, "permit": Mode.PERMIT}


class Conversation:
    """A machine and what is said to it."""

    def __init__(self) -> None:
        self.machine = Machine()
        self._events = False

    def say(self, line: str) -> Iterator[str]:
        """Give the machine one line of input; what comes back, line by line."""
        verb, *words = line.split()
        match verb:
            case "tick":
                yield from self._tick(words)
            case "show":
                yield from (say_name(self.machine, name) for name in words)
            case "tables":
                yield _tables(self.machine)
            case "restart":
                yield self._restart()
            case "clock":
                # An entry that also says which time of day it is.
                yield from self._apply(0, unix_ms=_time_of_day(words[0]))
            case "events":
                self._events = words == ["on"]
            case "together":
                # Several commands in one entry, separated by a bar.
                yield from self._apply(0, *(_command(*part.split()) for part in line[len(verb) :].split("|")))
            case _:
                yield from self._apply(0, _command(verb, *words))

    def _apply(self, elapsed_ms: int, *commands: Command, unix_ms: int = 0) -> Iterator[str]:
        entry = Entry(elapsed_ms, commands, unix_ms)
        applied = self.machine.apply(self.machine.position + 1, entry)
        if self._events:
            yield from map(say_event, events_of(entry, applied, self._who_of))
            return
        yield from (say_notice(notice) for cause, notice in applied.notices if cause < 0)
        for index, (command, outcome) in enumerate(zip(commands, applied.outcomes, strict=True)):
            yield say_outcome(command, outcome)
            yield from (say_notice(notice) for cause, notice in applied.notices if cause == index)

    def _who_of(self, session: int) -> Who:
        """As a node knows it: of those who are there, and of those whose end is told."""
        known = self.machine.state.sessions.get(session)
        ends = (notice for _, notice in self.machine.state.notices if isinstance(notice, SessionEnded))
        gone = next((ended for ended in ends if ended.session == session), None)
        return Who(known.meta, known.principal) if known else Who(gone.meta, gone.principal) if gone else NOBODY

    def _tick(self, words: list[str]) -> Iterator[str]:
        """Let time pass, in steps that the machine's cap allows; `tick 60s at once` is one entry."""
        left_ms = _ms(words[0])
        step_ms = left_ms if words[1:] == ["at", "once"] else self.machine.state.limits.elapsed_ms_max
        while left_ms > 0:
            yield from self._apply(min(left_ms, step_ms))
            left_ms -= step_ms

    def _restart(self) -> str:
        data = b"".join(self.machine.snapshot())
        restored = Machine.restore(data)
        same = b"".join(restored.snapshot()) == data
        self.machine = restored
        return f"restarted from a snapshot at position {restored.position}, " + (
            "the same to the byte" if same else "and it DIFFERS"
        )


def _tables(machine: Machine) -> str:
    state = machine.state
    deadlines = len(state.sessions_due) + len(state.holds_due) + len(state.waiters_due)
    deadlines += len(state.delays_due) + len(state.kept_due)
    kept = f"kept={len(state.kept)} " if state.kept else ""
    return (
        f"sessions={len(state.sessions)} held={len(state.held)} crowds={len(state.crowds)} "
        f"queues={len(state.queues)} delays={len(state.delays)} {kept}deadlines={deadlines}"
    )


def _command(verb: str, *words: str) -> Command:
    options = dict(word.split("=", 1) for word in words if "=" in word)
    plain = [word for word in words if "=" not in word]
    command = _COMMANDS[verb](options, plain)
    if options:
        raise ValueError(f"{verb} does not know {', '.join(options)}")
    return command


def _open(options: dict[str, str], _: list[str]) -> Command:
    ttl_ms = _ms(options.pop("ttl", "30s"))
    terms = (ttl_ms, _ms(options.pop("grace", "0")), "", options.pop("meta", ""))
    principal, token = options.pop("as", ""), options.pop("by", "")
    if token:
        return OpenSessionBy(*terms, principal, token_id(_token(token).digest))
    return OpenSessionAs(*terms, principal) if principal else OpenSession(*terms)


def _break(options: dict[str, str], _: list[str]) -> Command:
    terms = (options.pop("name"), int(options.pop("fence", "0")), _stretched(options.pop("by", "")))
    principal = options.pop("as", "")
    return BreakAs(*terms, principal) if principal else Break(*terms)


def _policy(options: dict[str, str], _: list[str]) -> Command:
    """`role:dba=acquire,observe@db:*;none@db:root user:ann=dba user:bob=disabled,dba user:eve=gone`.

    A token is called here by what it is made of: `token:ann=t1 token:bob=t2,gone`.
    """
    revision, principal = int(options.pop("revision")), options.pop("as", "")
    change = PolicyChange()
    for key, value in options.items():
        table, name = key.split(":", 1)
        if table == "token":
            word = value.removesuffix(",gone")
            kept = _token(word)
            tokens = change.tokens.setdefault(name, {})
            tokens[token_id(kept.digest)] = None if value != word else kept
            continue
        made = None if value == "gone" else _POLICY[table](value)
        getattr(change, f"{table}s")[name] = made
    options.clear()
    return ChangePolicy(revision, change, principal)


def _token(word: str) -> Token:
    return Token(sha256(word.encode()).hexdigest())


def _role(text: str) -> Role:
    return Role(tuple(_rule(part) for part in text.split(";")))


def _rule(text: str) -> Rule:
    verbs, name = text.split("@", 1)
    allow = tuple(Verb(verb) for verb in verbs.split(",") if verb != "none")
    return Rule(allow, prefix=name[:-1]) if name.endswith("*") else Rule(allow, name)


def _user(text: str) -> User:
    words = text.split(",")
    return User(tuple(word for word in words if word not in ("disabled", "none")), "disabled" in words)


def _quota(text: str) -> Quota:
    words = dict(part.split(":", 1) for part in text.split(","))
    mode = QuotaMode(words.pop("mode", "enforce"))
    of = {key: words.pop(key).replace("+", ":") for key in ("principal", "prefix") if key in words}
    return Quota(**of, **{key: _ms(value) for key, value in words.items()}, mode=mode)  # type: ignore[arg-type]


_POLICY: dict[str, Callable[[str], Role | User | Quota]] = {"role": _role, "user": _user, "quota": _quota}


def _acquire(options: dict[str, str], flags: list[str]) -> Command:
    limit = int(options.pop("limit", "0"))
    mode = options.pop("mode", "permit" if limit else "exclusive")
    wait = "0" if "try" in flags else options.pop("wait", "")
    at_least = options.pop("at_least", "")
    ask = Acquire(
        int(options.pop("session")),
        _names(options),
        int(options.pop("request", "0")),
        int(options.pop("answered", "0")),
        options.pop("owner", ""),
        _MODES[mode],
        limit,
        _ms(wait) if wait else FOREVER,
        _ms(options.pop("ttl", "0")),
        _ms(options.pop("delay", "0")),
        options.pop("meta", ""),
    )
    return AcquireAtLeast(**asdict(ask), at_least_ms=_ms(at_least)) if at_least else ask


def _release(options: dict[str, str], _: list[str]) -> Command:
    session, fence = int(options.pop("session")), int(options.pop("fence"))
    return Release(session, _names(options), fence, *_numbers(options))


def _extend(options: dict[str, str], _: list[str]) -> Command:
    session, fence, ttl_ms = int(options.pop("session")), int(options.pop("fence")), _ms(options.pop("ttl"))
    return Extend(session, _names(options), fence, ttl_ms, *_numbers(options))


def _limits(options: dict[str, str], _: list[str]) -> Command:
    limits = Limits(**{key: int(value) for key, value in options.items()})
    options.clear()
    return SetLimits(limits)


def _numbers(options: dict[str, str]) -> tuple[int, int]:
    return int(options.pop("request", "0")), int(options.pop("answered", "0"))


def _names(options: dict[str, str]) -> tuple[str, ...]:
    """`name=a` is one, `names=a,b` are several; a name in quotes repeated ``x*300`` is a long one."""
    name = options.pop("name", "")
    names = name.split() if name else [part for part in options.pop("names", "").split(",") if part]
    return tuple(_stretched(part) for part in names)


def _stretched(name: str) -> str:
    stem, star, times = name.partition("*")
    return stem * int(times) if star else stem


def _map(options: dict[str, str]) -> ShardMap:
    """The map that a service is made with, but for these slots: `slots=7,8 to=3`."""
    slots = map(int, options.pop("slots").split(","))
    placed = even_map(int(options.pop("of"))).moved(slots, int(options.pop("to")))
    return replace(placed, version=int(options.pop("version")))


def _ints(words: list[str]) -> tuple[int, ...]:
    return tuple(map(int, words))


_COMMANDS: dict[str, Callable[[dict[str, str], list[str]], Command]] = {
    "open": _open,
    "close": lambda options, _: CloseSession(int(options.pop("session"))),
    "renew": lambda _, words: Renew(_ints(words)),
    "suspend": lambda options, _: Suspend(int(options.pop("session"))),
    "settle": lambda options, words: Settle(int(options.pop("session")), _ints(words)),
    "acquire": _acquire,
    "cancel": lambda options, _: Cancel(int(options.pop("session")), int(options.pop("request"))),
    "release": _release,
    "extend": _extend,
    "break": _break,
    "policy": _policy,
    "limits": _limits,
    "raise": lambda options, _: RaiseFence(int(options.pop("fence"))),
    "shard": lambda options, _: FoundShard(int(options.pop("number")), int(options.pop("of"))),
    "cells": lambda options, _: _cells(options),
    "close_home": lambda options, _: CloseHome(
        options.pop("prefix"), options.pop("to"), int(options.pop("version"))
    ),
    "seal_home": lambda options, plain: SealHome(
        options.pop("prefix"), int(options.pop("version")), plain == ["force"]
    ),
    "open_home": lambda options, _: OpenHome(
        options.pop("prefix"), *(int(options.pop(key)) for key in ("fence", "version", "map"))
    ),
    "lapse_homes": lambda _, plain: LapseHomes(tuple(plain)),
    "resume_homes": lambda options, _: ResumeHomes(
        tuple((prefix, int(version)) for prefix, version in _taken(options).items())
    ),
    "map": lambda options, _: ChangeMap(_map(options)),
    "follow_map": lambda options, _: FollowMap(_map(options)),
    "seal": lambda _options, _: SealSlots(),
    "open_slots": lambda options, words: OpenSlots(
        _ints(words), int(options.pop("fence")), int(options.pop("version"))
    ),
    "force": lambda options, _: ForceSlots(options.pop("by", "")),
    "refuse_wait": lambda options, words: RefuseWait(
        int(options.pop("ticket")), DeadlockAcross(tuple(map(_shard_link, words)))
    ),
    "announce": lambda options, _: Announce(options.pop("node"), options.pop("address")),
}


def _shard_link(word: str) -> ShardLink:
    """`2/t1/a/5@0`: session 2's t1 waits in shard 0 for a, which is held with fence 5."""
    said, _, shard = word.rpartition("@")
    session, owner, name, fence = said.split("/")
    return ShardLink(int(session), owner, name, int(fence), 0, int(shard))


def _taken(options: dict[str, str]) -> dict[str, str]:
    taken = dict(options)
    options.clear()
    return taken


def _cells(options: dict[str, str]) -> ApplyCells:
    """`homes=*:eu,us.*:us`: what begins with `us.` is at home in us, all else in eu. `region=us.`: its goal."""
    goals = dict.fromkeys(options.pop("region", "-").split(","), Reach.REGION)
    homes = [each.split("*:") for each in options.pop("homes").split(",")]
    names = options.pop("of").split(",")
    lease_ms = _ms(options.pop("lease", "0s"))
    placed = CellMap(
        int(options.pop("version")),
        tuple(Cell(name, (f"{name}.example:7420",)) for name in names),
        in_order(PrefixHome(prefix, cell, goals.get(prefix, Reach.NONE)) for prefix, cell in homes),
        lease_ms,
        lease_ms,
    )
    return ApplyCells(placed, options.pop("here"))


def _time_of_day(text: str) -> int:
    hours, minutes, seconds = map(int, text.split(":"))
    return DAY + ((hours * 60 + minutes) * 60 + seconds) * 1_000


def _ms(text: str) -> int:
    for unit, factor in (("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)):
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * factor
    return int(text)

"""What the machine did, in words: the output side of scripted conversations."""

from fencehold.core.anchors import granted_unix_ms, queued_unix_ms
from fencehold.core.commands import Acquire, Command, Extend, Mode, Release
from fencehold.core.events import Event
from fencehold.core.machine import Machine
from fencehold.core.outcomes import (
    Announced,
    Broken,
    Busy,
    Cancelled,
    CellsApplied,
    Closed,
    Deadlock,
    Extended,
    FenceRaised,
    Granted,
    HoldEnded,
    HomeClosed,
    HomeClosing,
    HomeOpened,
    HomesLapsed,
    HomesResumed,
    LimitsSet,
    Link,
    MapTaken,
    NoSession,
    Notice,
    Opened,
    Outcome,
    PolicyChanged,
    Queued,
    Refused,
    Released,
    Renewed,
    SessionEnded,
    Settled,
    ShardFounded,
    ShardLink,
    SlotsForced,
    SlotsOpened,
    SlotsSealed,
    Suspended,
    TimedOut,
    WaitEnded,
    WaitRefused,
)
from fencehold.core.state import Hold, Waiter
from fencehold.core.views import view_name

DAY = 1_767_225_600_000
"""The day on which scripts play, in Unix milliseconds: 2026-01-01 00:00 UTC."""


def say_outcome(command: Command, outcome: Outcome) -> str:  # noqa: PLR0912 - a case for each kind
    """An outcome as a line."""
    match outcome:
        case Opened():
            return f"opened session={outcome.session} ttl={_time(outcome.ttl_ms)} grace={_time(outcome.grace_ms)}"
        case Closed():
            return f"closed session={outcome.session}"
        case NoSession():
            return f"no session {outcome.session}: {'it has ended' if outcome.ended else 'it never was'}"
        case Renewed():
            gone = f", but ended already: {_list(outcome.ended)}" if outcome.ended else ""
            return f"renewed at {_time(outcome.at_ms)}{gone}"
        case Suspended():
            return f"suspended session={outcome.session} until {_time(outcome.until_at)}"
        case Settled():
            return f"settled session={outcome.session}"
        case Queued():
            assert isinstance(command, Acquire)
            return f"queued {_named(command.names)} ticket={outcome.ticket} ahead={outcome.ahead}"
        case Broken():
            return f"broken name={outcome.name} ended={_list(outcome.ended)}; the fence is now {outcome.fence}"
        case LimitsSet():
            return "limits set"
        case FenceRaised():
            return f"raised; the fence is now {outcome.fence}"
        case CellsApplied() | HomeClosing() | HomeClosed() | HomeOpened() | HomesLapsed() | HomesResumed():
            return _say_home(outcome)
        case Announced() | ShardFounded() | MapTaken() | SlotsSealed() | SlotsOpened() | SlotsForced():
            return _say_place(outcome)
        case _:
            return _say_answer(command, outcome)


def _say_place(outcome: Announced | ShardFounded | MapTaken | SlotsSealed | SlotsOpened | SlotsForced) -> str:
    match outcome:
        case Announced():
            return "announced"
        case ShardFounded():
            return f"this is shard {outcome.shard} of {outcome.shards}"
        case MapTaken():
            return f"the map has version {outcome.version}: closing={outcome.closing} arriving={outcome.arriving}"
        case SlotsSealed():
            return f"slots closed={outcome.closed} closing={outcome.closing}"
        case SlotsOpened():
            return f"slots opened={outcome.slots} above fence {outcome.fence}"
        case SlotsForced():
            return f"forced: broken={outcome.holds} sent on={outcome.waiters}"


def _say_home(
    outcome: CellsApplied | HomeClosing | HomeClosed | HomeOpened | HomesLapsed | HomesResumed,
) -> str:
    match outcome:
        case CellsApplied():
            return f"the map of cells has version {outcome.version}"
        case HomeClosing():
            return f"{outcome.prefix}* is closing, on its way to {outcome.to}: names left: {outcome.names}"
        case HomeClosed():
            return (
                f"{outcome.prefix}* is closed above fence {outcome.fence}, and goes to {outcome.to}; "
                f"map {outcome.map_version}"
            )
        case HomeOpened():
            return f"{outcome.prefix}* is open above fence {outcome.fence}"
        case HomesLapsed():
            return f"homes lapsed: sessions ended: {outcome.sessions}"
        case HomesResumed():
            return f"homes resumed: {outcome.homes}"


def _say_answer(command: Command, outcome: Outcome) -> str:
    match outcome:
        case Granted():
            return _granted(outcome)
        case Busy():
            return f"busy name={outcome.name}"
        case TimedOut():
            return f"timed out {_named(outcome.names)} after {_time(outcome.waited_ms)}"
        case Cancelled():
            return f"cancelled request={outcome.request}"
        case Released():
            assert isinstance(command, Release)
            refused = f" refused={_list(outcome.refused)}" if len(command.names) > 1 and outcome.refused else ""
            return f"released {_named(command.names)}: {outcome.reason.value}{refused}"
        case Extended():
            assert isinstance(command, Extend)
            until = f" until {_time(outcome.until_at)}" if outcome.until_at else ""
            return f"extended {_named(command.names)}: {outcome.reason.value}{until}"
        case Refused():
            return f"refused ({outcome.code.value}): {outcome.detail}"
        case PolicyChanged():
            ended = f"sessions ended={outcome.sessions}, waiters refused={outcome.waiters}"
            return f"policy revision={outcome.revision}: {ended}"
        case Deadlock():
            return "\n".join(["deadlock:", *map(_say_link, outcome.circle)])
        case WaitRefused():
            return f"wait refused ticket={outcome.ticket}" if outcome.waited else f"no wait {outcome.ticket}"
        case _:
            raise AssertionError(f"no words for {outcome}")


def _say_link(link: Link) -> str:
    why = f"held with fence {link.fence}" if link.fence else "queued before it"
    where = f" in shard {link.shard}" if isinstance(link, ShardLink) else ""
    since = _time(link.since_at)
    return f"  session {link.session} {link.owner} waits{where} for {link.name}, {why} since {since}, by"


def say_notice(notice: Notice) -> str:
    """A notice as a line."""
    match notice:
        case WaitEnded(answer=Granted() as granted):
            return f"{_granted(granted)} ticket={notice.ticket}"
        case WaitEnded(answer=TimedOut() as over):
            waited = _time(over.waited_ms)
            return f"timed out session={notice.session} {_named(over.names)} ticket={notice.ticket} after {waited}"
        case WaitEnded(answer=Refused() as refused):
            return (
                f"refused session={notice.session} ticket={notice.ticket} ({refused.code.value}): {refused.detail}"
            )
        case WaitEnded(answer=Deadlock() as deadlock):
            circle = _say_answer(Acquire(notice.session, notice.names), deadlock)
            return f"refused session={notice.session} ticket={notice.ticket}: {circle}"
        case WaitEnded():
            return f"withdrawn session={notice.session} ticket={notice.ticket}"
        case HoldEnded():
            hold = f"session={notice.session} name={notice.name} fence={notice.fence}"
            return f"hold ended {hold}: {notice.ending.value}" + (f" by {notice.by}" if notice.by else "")
        case SessionEnded():
            freed = _list(f"{name}/{fence}" for name, fence in notice.holds)
            gone = f" withdrawn={_list(notice.tickets)}" if notice.tickets else ""
            return f"session {notice.session} ended: {notice.ending.value}, freed={freed}{gone}"


def say_event(event: Event) -> str:
    """An event as a line."""
    parts = [f"{event.position} {_time(event.at_ms)}{_time_of_day(event.unix_ms)} {event.kind.value}"]
    parts += [f"session={event.session}"] if event.session else []
    parts += [f"client={event.session_meta}"] if event.session_meta else []
    parts += [f"owner={event.owner}"] if event.owner else []
    parts += [_named(event.names)] if event.names else []
    parts += [f"fence={event.fence}"] if event.fence else []
    parts += [f"by={event.by}"] if event.by else []
    parts += [f"principal={event.principal}"] if event.principal else []
    return " ".join(parts + ([f"({event.detail})"] if event.detail else []))


def say_name(machine: Machine, name: str) -> str:
    """All there is to know of a name, as lines."""
    state = machine.state
    view = view_name(state, name)
    holds = [_say_hold(hold) + _since(granted_unix_ms(state, hold)) for hold in view.holds]
    lines = [f"{name}: {'; '.join(holds) or ('not held' if view.kept else 'free')}"]
    if view.delayed_until_at:
        lines.append(f"  delayed until {_time(view.delayed_until_at)}")
    if view.kept:
        by = f"session={view.kept.session} fence={view.kept.fence}"
        lines.append(f"  kept until {_time(view.kept.until_at)} for {by} since {_time(view.kept.since_at)}")
    waiters = [_say_waiter(waiter) + _since(queued_unix_ms(state, waiter)) for waiter in view.waiters]
    return "\n".join(lines + [f"  waits: {waiter}" for waiter in waiters])


def _say_hold(hold: Hold) -> str:
    until = f" until {_time(hold.until_at)}" if hold.until_at else ""
    limit = f" of {hold.limit}" if hold.limit else ""
    return f"{hold.mode.name.lower()}{limit} session={hold.session} fence={hold.fence}{until}"


def _say_waiter(waiter: Waiter) -> str:
    mode = "" if waiter.ask.mode is Mode.EXCLUSIVE else f" {waiter.ask.mode.name.lower()}"
    return f"session={waiter.ask.session} ticket={waiter.ticket}{mode} for {_list(waiter.ask.names)}"


def _granted(granted: Granted) -> str:
    until = f" ttl={_time(granted.ttl_ms)}" if granted.ttl_ms else ""
    return f"granted session={granted.session} {_named(granted.names)} fence={granted.fence}{until}"


def _named(names: tuple[str, ...]) -> str:
    return f"name={names[0]}" if len(names) == 1 else f"names={_list(names)}"


def _list(items: object) -> str:
    return ",".join(map(str, items)) or "none"  # type: ignore[call-overload]


def _time(ms: int) -> str:
    return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"


def _since(unix_ms: int | None) -> str:
    return f" since{_time_of_day(unix_ms)}" if unix_ms is not None else ""


def _time_of_day(unix_ms: int | None) -> str:
    if unix_ms is None:
        return ""
    minutes, ms = divmod(unix_ms - DAY, 60_000)
    seconds = f"{ms // 1000:02}" + (f".{ms % 1000:03}" if ms % 1000 else "")
    return f" {minutes // 60:02}:{minutes % 60:02}:{seconds}"

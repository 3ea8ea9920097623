"""The reader of a picture: asks the service, with the credentials of one login, and feeds what it is told.

1. It costs the node that leads little. Names are listed in small pages with pauses; then events keep the picture
   up to date. Names are looked up so many times a second, and figures asked for once a second.
2. Where more happens than anybody could read, `BUSY_GRANTS_PER_S`, events would cost the leader more than they are
   worth: the list is read again and again instead, with pauses, and the picture says of when it is. The same is
   done for a login that may not be told events.
3. A gap in the events, or another policy, makes it read the list again. While the service is away, the last
   picture stays, and says so.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import Any

from fencehold.dashboard.figures import levels_in
from fencehold.dashboard.picture import Picture
from fencehold.dashboard.rates import Rates
from fencehold.errors import FenceholdError, PermissionDenied
from fencehold.gateway.credentials import Credentials
from fencehold.gateway.problems import Unauthenticated
from fencehold.gateway.questions import Questions
from fencehold.locks.views import Explanation, explanation
from fencehold.observe.sink_status import figures_of_sinks, usual_folder
from fencehold.types import Tier

BUSY_GRANTS_PER_S = 1_000
BUSY_EVENTS_PER_S = 3_000
_FLOOD_S = 0.2
SAMPLED_NAMES_MAX, SAMPLED_AT_LEAST_S = 10_000, 300
"""Of a busy service, more names than these are read only so often."""
CALM_GRANTS_PER_S = 500
"""Below which events are told again."""
LOOKS_PER_S = 100
LOOKS_AGAIN_PER_S = 10
QUEUE_SHOWN = 100
SESSIONS_MAX = 20_000
_TICK_S = 1.0
_NODES_S, _HEALTH_S, _SESSIONS_S = 2.0, 10.0, 4.0
_NAMES_PAGE, _SESSIONS_PAGE = 100, 50
_PAUSE_S = 0.004
"""After a page, whose making takes the leader a quarter of a millisecond."""
_SAMPLES_S, _SAMPLES_REST = 5.0, 10.0
_SAMPLE_PAUSE_S = 0.02
"""The same, where it is done all the time."""
_PAST_POSITIONS = 2_000
"""How far back events are read at first: for the charts, and to show what happened lately."""
_AGAIN_S = 1.0


class Reader:
    """Made for a login and a tier; `run` reads until it is cancelled, or the login is refused."""

    def __init__(
        self,
        questions: Questions,
        credentials: Credentials,
        tier: Tier,
        *,
        past: Rates | None = None,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        self._questions, self._credentials, self.tier = questions, credentials, tier
        self._time_of_day = time_of_day
        self.picture = Picture(time.monotonic)
        self._past = past
        self._is_flood = Flood().has
        self._turn = asyncio.Lock()
        self._may_hear = True
        self._must_list = True
        self._revision = ""
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def ready(self) -> Picture:
        """The picture, when there is something to see.

        Raises:
            FenceholdError: there will not be.
        """
        await asyncio.shield(self._ready)
        if self.picture.refused is not None:
            raise self.picture.refused
        return self.picture

    async def look(self, name: str, count: int = QUEUE_SHOWN) -> Explanation:
        """Ask who holds a name and who waits for it, and take note of it.

        Raises:
            FenceholdError: what the service said.
        """
        seen = explanation(await self.ask("LOCK.INFO", name, "COUNT", count))
        self.picture.take_look(seen, self._now_ms())
        return seen

    async def complete(self, names: list[str]) -> None:
        """Find out what events did not tell of these names."""
        for name in names[:LOOKS_PER_S]:
            with contextlib.suppress(FenceholdError):
                await self.look(name)

    async def ask(self, *words: str | int) -> Any:
        """The reply to a question of this login.

        One at a time: should the login have ended, a single failed one is paid for, and nobody asks again. What
        failed logins cost is paid by all who use this listener.
        """
        async with self._turn:
            if self.picture.refused is not None:
                raise self.picture.refused
            try:
                return await self._questions.ask(self._credentials, self.tier, *words)
            except Unauthenticated as gone:
                self.picture.refuse(gone)
                raise

    async def is_known(self) -> bool:
        """Whether the login is still one: every user may ask for figures."""
        try:
            await self._read_facts()
        except Unauthenticated as gone:
            # Known from here on: who asks next who is signed in must not be told that nothing happened.
            self.picture.refuse(gone)
            return False
        return True

    async def run(self) -> None:
        """Read, until it is cancelled."""
        try:
            await self._begin()
        except FenceholdError as failed:
            self.picture.refuse(failed)
            return
        finally:
            if not self._ready.done():
                self._ready.set_result(None)
        async with asyncio.TaskGroup() as tasks:
            for work in (self._tick, self._list_names, self._list_sessions):
                tasks.create_task(self._again_and_again(work))
            tasks.create_task(self._follow())

    async def _begin(self) -> None:
        await self._read_facts()
        if self._past is not None:
            # It may ask for such figures itself, as it just has.
            self.picture.rates.seed(self._past)
        who = await self.ask("WHOAMI")
        self.picture.principal = who[b"principal"].decode()
        self.picture.roles = [role.decode() for role in who[b"roles"]]
        await self._read_nodes()

    async def _again_and_again(self, work: Callable[[], Awaitable[float]]) -> None:
        """Do some work, then again after as many seconds as it says."""
        while self.picture.refused is None:
            try:
                pause_s = await work()
            except Unauthenticated as gone:
                # The user is gone, or its secret is another now.
                self.picture.refuse(gone)
                return
            except FenceholdError as away:
                self.picture.trouble = str(away)
                pause_s = _AGAIN_S
                self.picture.change()
            await asyncio.sleep(pause_s)

    def _now_ms(self) -> int:
        return round(self._time_of_day() * 1000)

    # Figures, nodes, and names to be looked up.

    async def _tick(self) -> float:
        started = time.monotonic()
        await self._read_facts()
        if started - self._nodes_at >= _NODES_S:
            await self._read_nodes()
        # Who may not see all that happens is not told how each wait ends: the oldest looks are taken again.
        self.picture.soil(*islice(self.picture.looks, LOOKS_AGAIN_PER_S))
        for name in list(self.picture.dirty)[:LOOKS_PER_S]:
            await self._look_up(name)
        self.picture.change()
        return max(0.05, _TICK_S - (time.monotonic() - started))

    async def _look_up(self, name: str) -> None:
        try:
            await self.look(name)
        except PermissionDenied:
            self.picture.dirty.pop(name, None)

    async def _read_facts(self) -> None:
        picture = self.picture
        try:
            info = (await self.ask("INFO")).decode()
        except PermissionDenied as denied:
            # Every user may ask this: it is none any more.
            raise Unauthenticated(str(denied)) from denied
        picture.facts = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
        picture.heard()
        picture.position = max(picture.position, int(picture.facts.get("position", "0") or 0))
        second = int(self._time_of_day())
        picture.rates.level(second, *levels_in(info))
        if picture.is_sampled:
            picture.rates.sampled(second)
        busy_from = CALM_GRANTS_PER_S if picture.is_sampled else BUSY_GRANTS_PER_S
        picture.is_sampled = not self._may_hear or picture.rates.grants_per_s > busy_from
        revision = picture.facts.get("policy_revision", "")
        if self._revision not in ("", revision):
            self._must_list = True
            picture.looks.clear()
        self._revision = revision

    _nodes_at = _health_at = float("-inf")

    async def _read_nodes(self) -> None:
        self._nodes_at = time.monotonic()
        try:
            self.picture.nodes = plain(await self.ask("NODE.LIST"))
            if self.picture.is_loaded and self._nodes_at - self._health_at >= _HEALTH_S:
                self._health_at = self._nodes_at
                self.picture.health = plain(await self.ask("NODE.HEALTH"))
            self.picture.sinks = sinks_in(await asyncio.to_thread(figures_of_sinks, usual_folder()))
        except PermissionDenied:
            self.picture.nodes, self.picture.health, self.picture.sinks = None, None, []

    # Lists.

    async def _list_names(self) -> float:
        """At first, after a gap, and again and again where events are not told."""
        picture = self.picture
        if not self._must_list and not picture.is_sampled:
            return _TICK_S / 4
        if picture.is_sampled and picture.is_loaded and self._is_too_much():
            return _TICK_S
        self._must_list = False
        roll, cursor, began_ms = picture.begin_list(), "", self._now_ms()
        pause_s, started = _SAMPLE_PAUSE_S if picture.is_loaded else _PAUSE_S, time.monotonic()
        try:
            while True:
                more = ("CURSOR", cursor) if cursor else ()
                picture.begin_page()
                found, items = await self.ask("LOCK.LIST", "COUNT", _NAMES_PAGE, "BRIEF", *more)
                picture.take_page(roll, items, self._now_ms())
                cursor = found.decode()
                if not cursor or roll.is_cut:
                    break
                await asyncio.sleep(pause_s)
        except BaseException:
            self._must_list = True
            picture.loading = None
            raise
        picture.end_list(roll, began_ms)
        # Where it is read again and again, most of the time it is not.
        return max(_SAMPLES_S, _SAMPLES_REST * (time.monotonic() - started)) if picture.is_sampled else _TICK_S

    def _is_too_much(self) -> bool:
        """Whether to read the list again costs a busy leader too much; now and then it is done all the same."""
        many = int(self.picture.facts.get("names_held", "0") or 0) > SAMPLED_NAMES_MAX
        return many and self._now_ms() - self.picture.listed_ms < 1000 * SAMPLED_AT_LEAST_S

    async def _list_sessions(self) -> float:
        picture = self.picture
        found: dict[int, dict[str, Any]] = {}
        cursor = 0
        while len(found) < SESSIONS_MAX:
            cursor, rows = await self.ask("SESSION.LIST", "CURSOR", cursor, "COUNT", _SESSIONS_PAGE)
            now_ms = self._now_ms()
            for row in rows:
                found[row[b"session"]] = self._session(row, now_ms)
            if not picture.sessions:
                picture.sessions = found
            if not cursor:
                break
            await asyncio.sleep(_SAMPLE_PAUSE_S)
        picture.sessions = found
        picture.change()
        return _SESSIONS_S

    def _session(self, row: dict[bytes, Any], now_ms: int) -> dict[str, Any]:
        known = self.picture.meet(row[b"session"], row[b"meta"])
        details = known.details
        runs = [("fencehold", details.get("version")), ("Python", details.get("python"))]
        library = details.get("library") or ", ".join(f"{name} {version}" for name, version in runs if version)
        before = self.picture.sessions.get(row[b"session"], {})
        left_ms = row[b"expires_in_ms"]
        ttl_ms = row.get(b"ttl_ms") or max(left_ms, before.get("ttl_ms", 0))
        return {
            "session": row[b"session"],
            "client": known.client,
            "host": known.host,
            "pid": known.pid,
            "user": known.user,
            "peer": str(details.get("peer", "")),
            "library": str(library),
            "via": str(details.get("via", "")),
            "principal": row[b"principal"].decode(),
            "connected": bool(row[b"connected"]),
            "since_ms": row.get(b"since_unix_ms") or now_ms - row[b"opened_ms_ago"],
            "expires_ms": now_ms + left_ms,
            "ttl_ms": ttl_ms,
            "kept_alive_ms": now_ms - (ttl_ms - left_ms),
            "holds": row[b"holds"],
            "waits": row[b"waits"],
        }

    # Events.

    async def _follow(self) -> None:
        """Take over events as they come, while they are told."""
        picture = self.picture
        since, index = max(1, picture.position - _PAST_POSITIONS), None
        while picture.refused is None:
            if picture.is_sampled:
                since, index = 0, None
                await asyncio.sleep(_TICK_S / 4)
                continue
            try:
                since, index = await self._follow_on(since, index)
            except Unauthenticated:
                # The figures are asked for every second: they find that out, too.
                return
            except PermissionDenied:
                self._may_hear, picture.is_sampled = False, True
                return
            except FenceholdError:
                await asyncio.sleep(_AGAIN_S)

    async def _follow_on(self, since: int, index: int | None) -> tuple[int, int | None]:
        """Until events are not told any more; where to go on."""
        picture = self.picture
        listed_from = picture.position
        if not since:
            self._must_list = True
        told = self._questions.events(self._credentials, self.tier, "", since, index)
        async with contextlib.aclosing(told):
            async for at, seen in told:
                if seen is None:
                    continue
                is_past = seen.position <= listed_from and since < listed_from
                since, index = seen.position, None if seen.kind == "gap" else at
                picture.hear(at, seen, self._time_of_day(), is_past=is_past)
                if not is_past and self._is_flood(time.monotonic()):
                    picture.is_sampled = True
                if seen.kind == "gap" and not is_past:
                    self._must_list = True
                if picture.is_sampled:
                    break
        return since, index


class Flood:
    """Whether more is told than anybody could read, seen at once and not at the next look at figures."""

    def __init__(self) -> None:
        self._since, self._count = 0.0, 0

    def has(self, now: float) -> bool:
        """One more was told. True: too many were, in too short a time."""
        if now - self._since > _FLOOD_S:
            self._since, self._count = now, 0
        self._count += 1
        return self._count > _FLOOD_S * BUSY_EVENTS_PER_S


def sinks_in(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How each sink is doing, by the metrics of sinks."""
    found: dict[str, dict[str, Any]] = {}
    for metric, values in figures.items():
        for labels, value in values:
            found.setdefault(labels[0], {"name": labels[0]})[metric.removeprefix("fencehold_sink_")] = value
    return [found[name] for name in sorted(found)]


def plain(told: Any) -> Any:
    """A reply of the service as JSON has it."""
    match told:
        case dict():
            return {plain(key): plain(value) for key, value in told.items()}
        case list():
            return [plain(value) for value in told]
        case bytes():
            return told.decode("utf-8", "replace")
        case _:
            return told

"""The reader of a picture: asks the service, with the credentials of one login, and feeds the replies.

1. It costs the leader little. Names are listed in small pages with pauses, longer ones where the node is slow to
   answer; then events keep the picture up to date. Names are looked up at a bounded rate, and figures read once a
   second.
2. Where more happens than a user could read, `BUSY_GRANTS_PER_S`, events would cost the leader more than they are
   worth: the list is read repeatedly instead, with pauses, and the picture shows its time. The same is done for a
   login that may not follow events.
3. A gap in the events, or another policy, makes it read the list again. While the service is away, the last
   picture stays, marked so.
4. Of several shards each is asked where it is led. One that is away delays no other: what was known of it stays,
   and is read again when it is back.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import Any

from fencehold.dashboard.clients import session_row
from fencehold.dashboard.figures import levels_in
from fencehold.dashboard.news import News
from fencehold.dashboard.picture import Picture
from fencehold.dashboard.rates import Rates
from fencehold.dashboard.roll import Roll
from fencehold.dashboard.shard_facts import explanation_in, facts_in, together
from fencehold.drivers.resp.wire import Moved
from fencehold.errors import FenceholdError, PermissionDenied, Unavailable
from fencehold.gateway.credentials import Credentials
from fencehold.gateway.lists import wide
from fencehold.gateway.problems import Unauthenticated
from fencehold.gateway.questions import Questions
from fencehold.gateway.shard_sight import shards_seen
from fencehold.locks.views import Explanation, explanation
from fencehold.observe.sink_status import figures_of_sinks, usual_folder
from fencehold.types import Tier

BUSY_GRANTS_PER_S = 1_000
SAMPLED_NAMES_MAX, SAMPLED_AT_LEAST_S = 10_000, 300
"""On a busy service, more names than these are read less often."""
CALM_GRANTS_PER_S = 500
"""Below this, events are followed again."""
LOOKS_PER_S = 100
LOOKS_AGAIN_PER_S = 10
QUEUE_SHOWN = 100
SESSIONS_MAX = 20_000
_TICK_S = 1.0
_NODES_S, _HEALTH_S, _SESSIONS_S = 2.0, 10.0, 4.0
_NAMES_PAGE, _SESSIONS_PAGE = 100, 50
_PAUSE_S, _PAUSE_S_MAX = 0.004, 0.1
"""After a page, or as long as that took, within bounds: a node that is slow to answer is busy. A page takes the
leader a fifth of a millisecond, and no entry of its own while there are others. Larger ones make other clients
wait, and many smaller ones cost it more."""
_SAMPLES_S, _SAMPLES_REST = 5.0, 10.0
_SAMPLE_PAUSE_S = 0.05
"""The same, where it is done continuously."""
_AGAIN_S = 1.0
_AWAY_S = 1.0
"""For how long a shard that is away is asked again."""


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
        self._turns: defaultdict[int | None, asyncio.Lock] = defaultdict(asyncio.Lock)
        """One for each shard that is asked."""
        self._greeting = asyncio.Lock()
        self._must_list: set[int] = {0}
        """Shards whose names are to be read."""
        self._news = News(questions, credentials, tier, self.picture, self._must_list, time_of_day)
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
        """Ask who holds a name and who waits for it, and add that to the picture.

        Raises:
            FenceholdError: the error of the service.
        """
        shard, reply = await self._ask_about(name, "LOCK.INFO", name, "COUNT", count)
        seen = explanation_in(shard, explanation(reply))
        self.picture.take_look(seen, self._now_ms(), shard)
        return seen

    def home_of(self, name: str) -> int:
        """The shard of a name."""
        return self._questions.home_of(name)

    async def complete(self, names: list[str]) -> None:
        """Look up what events did not contain of these names."""
        for name in names[:LOOKS_PER_S]:
            with contextlib.suppress(FenceholdError):
                await self.look(name)

    async def ask(self, *words: str | int, shard: int | None = None) -> Any:
        """The reply to a question of this login; of several shards, by the leader of one, or by any node.

        One at a time: should the login have ended, there is a single failed one, and no retry. The delay of failed
        logins hits all users of this listener. So shards are asked concurrently, but greeted one after the other.
        """
        questions, within_s = self._questions, _AWAY_S if shard in self.picture.away else None
        async with self._turns[shard]:
            is_greeted = shard is None or questions.has_line(self._credentials, self.tier, shard)
            async with contextlib.nullcontext() if is_greeted else self._greeting:
                if self.picture.refused is not None:
                    raise self.picture.refused
                try:
                    return await questions.ask(
                        self._credentials, self.tier, *words, shard=shard, within_s=within_s
                    )
                except Unauthenticated as gone:
                    self.picture.refuse(gone)
                    raise

    async def _ask_about(self, name: str, *words: str | int) -> tuple[int, Any]:
        """The reply to a question about a name, and its shard."""
        if self.picture.shards == 1:
            return 0, await self.ask(*words)
        shard = self._questions.home_of(name)
        try:
            return shard, await self.ask(*words, shard=shard)
        except Moved:
            # Its slot has moved, or is moving.
            return await self._questions.ask_about(self._credentials, self.tier, name, *words)

    async def is_known(self) -> bool:
        """Whether the login is still valid: every user may ask for figures."""
        try:
            await self._read_facts()
        except Unauthenticated as gone:
            # Known from here on: the next request must not be answered as if the login were still valid.
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
            tasks.create_task(self._news.follow())

    async def _begin(self) -> None:
        self.picture.shards = await self._questions.shards(self._credentials)
        self._must_list.update(range(self.picture.shards))
        await self._read_facts()
        if self._past is not None:
            # It may read such figures itself, as it just did.
            self.picture.rates.seed(self._past)
        who = await self.ask("WHOAMI")
        self.picture.principal = who[b"principal"].decode()
        self.picture.roles = [role.decode() for role in who[b"roles"]]
        await self._read_nodes()

    async def _again_and_again(self, work: Callable[[], Awaitable[float]]) -> None:
        """Do some work, then again after as many seconds as it returns."""
        while self.picture.refused is None:
            try:
                pause_s = await work()
            except Unauthenticated as gone:
                # The user is gone, or its secret was changed.
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
        # A login that may not see all events does not learn how each wait ends: the oldest looks are taken again.
        self.picture.soil(*islice(self.picture.looks, LOOKS_AGAIN_PER_S))
        for name in self._to_look_up():
            await self._look_up(name)
        self.picture.change()
        return max(0.05, _TICK_S - (time.monotonic() - started))

    def _to_look_up(self) -> list[str]:
        """Names that are incomplete, and whose shard is reachable."""
        picture = self.picture
        if not picture.away:
            return list(islice(picture.dirty, LOOKS_PER_S))
        there = (name for name in picture.dirty if self._questions.home_of(name) not in picture.away)
        return list(islice(there, LOOKS_PER_S))

    async def _look_up(self, name: str) -> None:
        try:
            await self.look(name)
        except PermissionDenied:
            self.picture.dirty.pop(name, None)
        except Unavailable as away:
            if self.picture.shards == 1:
                raise
            self.picture.miss(self._questions.home_of(name), str(away))

    async def _read_facts(self) -> None:
        picture = self.picture
        if picture.shards == 1:
            await self._read_facts_of(None)
        else:
            await self._read_facts_of_all()
        picture.facts = together(picture.shard_facts[shard] for shard in sorted(picture.shard_facts))
        picture.heard()
        second = int(self._time_of_day())
        picture.rates.level(second, *levels_in(picture.facts))
        if picture.is_sampled:
            picture.rates.sampled(second)
        busy_from = CALM_GRANTS_PER_S if picture.is_sampled else BUSY_GRANTS_PER_S
        picture.is_sampled = not self._news.may_hear or picture.rates.grants_per_s > busy_from
        revision = picture.facts.get("policy_revision", "")
        if self._revision not in ("", revision):
            self._must_list.update(range(picture.shards))
            picture.looks.clear()
        self._revision = revision

    async def _read_facts_of(self, shard: int | None) -> None:
        picture = self.picture
        try:
            facts = facts_in((await self.ask("INFO", shard=shard)).decode())
        except PermissionDenied as denied:
            # Every user may ask this: it is no longer a user.
            raise Unauthenticated(str(denied)) from denied
        number = shard or 0
        if number not in picture.shard_facts:
            picture.rates.begin_grants()
        picture.shard_facts[number] = facts
        picture.reach(number, int(facts.get("position", "0") or 0))
        picture.miss(number, "")

    async def _read_facts_of_all(self) -> None:
        """Of all reachable shards.

        Raises:
            Unavailable: none is.
        """
        shards = range(self.picture.shards)
        told = await asyncio.gather(*map(self._read_facts_of, shards), return_exceptions=True)
        for shard, wrong in zip(shards, told, strict=True):
            if isinstance(wrong, Unavailable):
                self.picture.miss(shard, str(wrong))
            elif isinstance(wrong, BaseException):
                raise wrong
        if len(self.picture.away) == len(shards):
            raise Unavailable("no shard of the service is reached")

    _nodes_at = _health_at = float("-inf")

    async def _read_nodes(self) -> None:
        self._nodes_at = time.monotonic()
        try:
            self.picture.nodes = plain(await self.ask("NODE.LIST"))
            if self.picture.shards > 1:
                self.picture.by_shard = await shards_seen(self._questions, self._credentials)
            if self.picture.is_loaded and self._nodes_at - self._health_at >= _HEALTH_S:
                self._health_at = self._nodes_at
                self.picture.health = plain(await self.ask("NODE.HEALTH"))
            self.picture.sinks = sinks_in(await asyncio.to_thread(figures_of_sinks, usual_folder()))
        except PermissionDenied:
            self.picture.nodes, self.picture.health, self.picture.sinks = None, None, []
            self.picture.by_shard = None

    # Lists.

    async def _list_names(self) -> float:
        """At first, after a gap, and repeatedly where events are not followed."""
        picture = self.picture
        if not self._must_list and not picture.is_sampled:
            return _TICK_S / 4
        if picture.is_sampled and picture.is_loaded and (self._is_too_soon() or self._is_too_much()):
            return _TICK_S
        wanted = set(range(picture.shards)) if picture.is_sampled else set(self._must_list)
        wanted.difference_update(picture.away)
        if not wanted:
            return _TICK_S / 4
        self._must_list -= wanted
        roll, began_ms, started = picture.begin_list(), self._now_ms(), time.monotonic()
        read: set[int] = set()
        try:
            for shard in sorted(wanted):
                if await self._list_names_of(shard, roll):
                    read.add(shard)
        except BaseException:
            self._must_list |= wanted
            picture.loading = None
            raise
        picture.end_list(roll, began_ms, set(range(picture.shards)) - read)
        # Where it is read repeatedly, most of the time is a pause.
        return max(_SAMPLES_S, _SAMPLES_REST * (time.monotonic() - started)) if picture.is_sampled else _TICK_S

    async def _list_names_of(self, shard: int, roll: Roll) -> bool:
        """Whether all names of a shard were read. If it goes away meanwhile, it is read again later."""
        picture, cursor = self.picture, ""
        least_s = _SAMPLE_PAUSE_S if picture.is_loaded else _PAUSE_S
        try:
            while True:
                more, asked_at = ("CURSOR", cursor) if cursor else (), time.monotonic()
                picture.begin_page()
                asked = shard if picture.shards > 1 else None
                found, items = await self.ask("LOCK.LIST", "COUNT", _NAMES_PAGE, "BRIEF", *more, shard=asked)
                took_s = time.monotonic() - asked_at
                picture.take_page(roll, items, self._now_ms(), shard)
                cursor = found.decode()
                if not cursor or roll.is_cut:
                    return True
                await asyncio.sleep(pause_after(took_s, least_s))
        except Unavailable as away:
            if picture.shards == 1:
                raise
            picture.miss(shard, str(away))
            self._must_list.add(shard)
            return False

    def _is_too_soon(self) -> bool:
        """Whether the list was read just now. When a flood begins, the number of names is not known yet."""
        return self._now_ms() - self.picture.listed_ms < 1000 * _SAMPLES_S

    def _is_too_much(self) -> bool:
        """Whether reading the list again costs a busy leader too much; at intervals it is done all the same."""
        many = int(self.picture.facts.get("names_held", "0") or 0) > SAMPLED_NAMES_MAX
        return many and self._now_ms() - self.picture.listed_ms < 1000 * SAMPLED_AT_LEAST_S

    async def _list_sessions(self) -> float:
        picture = self.picture
        found: dict[int, dict[str, Any]] = {}
        for shard in range(picture.shards):
            if shard not in picture.away and await self._list_sessions_of(shard, found):
                continue
            # As they were when it was there.
            found |= {number: row for number, row in picture.sessions.items() if row["shard"] == shard}
        picture.take_sessions(found)
        return _SESSIONS_S

    async def _list_sessions_of(self, shard: int, found: dict[int, dict[str, Any]]) -> bool:
        """Whether all sessions of a shard were read."""
        picture, cursor = self.picture, 0
        asked = shard if picture.shards > 1 else None
        try:
            while len(found) < SESSIONS_MAX:
                more = ("CURSOR", cursor, "COUNT", _SESSIONS_PAGE)
                cursor, rows = await self.ask("SESSION.LIST", *more, shard=asked)
                now_ms = self._now_ms()
                for row in rows:
                    number = wide(row[b"session"], shard)
                    known, before = picture.meet(number, row[b"meta"]), picture.sessions.get(number, {})
                    found[number] = session_row(row, number, shard, known, before, now_ms)
                if not picture.sessions:
                    picture.sessions = found
                if not cursor:
                    break
                await asyncio.sleep(_SAMPLE_PAUSE_S)
        except Unavailable as away:
            if picture.shards == 1:
                raise
            picture.miss(shard, str(away))
            return False
        return True


def pause_after(took_s: float, at_least_s: float) -> float:
    """How long to pause after a page: a slow node is asked at most half of the time."""
    return max(at_least_s, min(took_s, _PAUSE_S_MAX))


def sinks_in(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The status of each sink, by the metrics of sinks."""
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

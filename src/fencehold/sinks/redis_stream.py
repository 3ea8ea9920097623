"""Events in a stream of Redis, under ids of our own: `position-index`. So each is there exactly once.

A batch is one script: it skips what the stream has already, by its last id, and adds the rest. It is idempotent,
so a lost reply does no harm. The stream's last id is the cursor; it survives trimming. Ids of a stream grow, and
each shard has positions of its own: so each but the first has its own stream, named like the first one with the
number of the shard appended, as in `fencehold:events:3`.
"""

from collections.abc import Sequence
from functools import partial

from fencehold.drivers.address import Scheme, scheme_in, text, whole, without_options
from fencehold.drivers.resp.address import REDIS, SENTINEL, RedisAddress
from fencehold.drivers.resp.client import RespClient, Script
from fencehold.drivers.resp.connection import Connect, SentinelConnect, connect, pack
from fencehold.errors import Unavailable
from fencehold.sinks.port import Cursor, Cursors, Declared, Delivery, Record, cursors_of

_OPTIONS = (text("stream", "fencehold:events"), whole("maxlen", None))
_CONNECT_S, _ANSWER_S = 5.0, 10.0

_ADD = Script("""
local last = {0, 0}
if redis.call('EXISTS', KEYS[1]) == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  for at = 1, #info, 2 do
    if info[at] == 'last-generated-id' then
      local position, index = string.match(info[at + 1], '^(%d+)-(%d+)$')
      last = {tonumber(position), tonumber(index)}
    end
  end
end
for at = 2, #ARGV, 5 do
  local position, index = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  if position > last[1] or (position == last[1] and index > last[2]) then
    local id = ARGV[at] .. '-' .. ARGV[at + 1]
    if ARGV[1] == '0' then
      redis.call('XADD', KEYS[1], id, 'id', ARGV[at + 2], 'type', ARGV[at + 3], 'event', ARGV[at + 4])
    else
      redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], id, 'id', ARGV[at + 2], 'type', ARGV[at + 3],
        'event', ARGV[at + 4])
    end
  end
end
return 1
""")


class RedisStream:
    """A stream."""

    declared = Declared("redis", Delivery.EXACTLY_ONCE, "the last id of the stream")

    def __init__(self, address: RedisAddress, stream: str, maxlen: int | None) -> None:
        self._address = address
        self._stream = stream
        self._maxlen = maxlen or 0
        self._client: RespClient | None = None

    @classmethod
    def of(cls, url: str) -> "RedisStream":
        """Raises UsageError: the URL is none."""
        is_sentinels = scheme_in(url).endswith("+sentinel")
        table = SENTINEL if is_sentinels else REDIS
        said = Scheme(
            names=table.names,
            secure=table.secure,
            form=f"{table.form}?stream=fencehold:events",
            port=table.port,
            options=(*_OPTIONS, *(each for each in table.options if each.name not in ("prefix", "fence"))),
            hosts_min=table.hosts_min,
        ).parse(url)
        ours = {option.name for option in _OPTIONS}
        address = RedisAddress.parse(without_options(url, ours))
        return cls(address, said.options["stream"], said.options["maxlen"])

    async def open(self, shards: int = 1) -> Cursors:
        if self._client is None:
            self._client = RespClient(self._connector(), str(self._address))
            self._client.start()
        found = {shard: await self._last_of(self._client, shard) for shard in range(shards)}
        return {shard: cursor for shard, cursor in found.items() if cursor is not None}

    async def _last_of(self, client: RespClient, shard: int) -> Cursor | None:
        try:
            found = await client.call(pack(("XINFO", "STREAM", self._stream_of(shard))))
        except Unavailable as refused:
            # A missing stream is an error in Redis.
            if "no such key" in str(refused):
                return None
            raise
        facts = found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))
        position, _, index = facts[b"last-generated-id"].partition(b"-")
        return (int(position), int(index)) if int(position) else None

    async def deliver(self, batch: Sequence[Record]) -> None:
        assert self._client is not None
        for shard in cursors_of(batch):
            words: list[str | bytes | int] = [self._maxlen]
            for record in batch:
                if record.shard == shard:
                    words += [record.position, record.index, record.id, record.type, record.body]
            await self._client.run(_ADD, (self._stream_of(shard),), words)

    def _stream_of(self, shard: int) -> str:
        return f"{self._stream}:{shard}" if shard else self._stream

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _connector(self) -> Connect:
        if self._address.sentinels:
            known = (self._address.sentinels, self._address.service, self._address.server)
            return SentinelConnect(*known, _CONNECT_S, _ANSWER_S)
        return partial(connect, self._address.server, _CONNECT_S, _ANSWER_S)

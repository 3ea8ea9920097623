"""Events in a stream of NATS JetStream, each under its id (`Nats-Msg-Id`), and only after the one before it.

1. A message has the id of the one that must be the last in the stream (`Nats-Expected-Last-Msg-Id`): so there is
   no hole and no duplicate, however late a retry arrives. The stream is for these messages alone.
2. The last message is the cursor; of several shards, the last one of each.
3. Subjects are `SUBJECT.KIND`, such as `fencehold.events.acquired`; with several shards `SUBJECT.SHARD.KIND`. The
   stream is made if it is not there.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from fencehold.drivers.address import ParsedUrl, Scheme, text
from fencehold.drivers.tls import client_context
from fencehold.errors import FenceholdError, OutcomeUnknown, PermissionDenied, Unavailable, UsageError
from fencehold.sinks.json_lines import cursor_of
from fencehold.sinks.port import Cursors, Declared, Delivery, Record, Rejected

SCHEME = Scheme(
    names=("nats",),
    secure=("natss",),
    form="nats://[user:password@]host[:4222][,host…]/STREAM",
    port=4222,
    options=(text("subject", "fencehold.events"), text("token")),
)
_CONNECT_S = 5
_ANSWER_S = 10.0
_LOOK_S = 0.25
_HEADER_BYTES = 512
"""The part of the largest message of a server that headers may take."""


class NatsJetStream:
    """A stream."""

    declared = Declared("nats", Delivery.EXACTLY_ONCE, "the last message of the stream")

    def __init__(self, said: ParsedUrl) -> None:
        self._said = said
        self._stream = said.path
        self._subject = said.options["subject"]
        self._where = f"nats://{','.join(map(str, said.endpoints))}/{said.path}"
        self._nats: Any = None
        self._last_id = ""
        self._shards = 1

    @classmethod
    def of(cls, url: str) -> "NatsJetStream":
        """Raises UsageError: the URL is none, or names no stream."""
        said = SCHEME.parse(url)
        if not said.path or any(each in said.path for each in " .*>/"):
            raise said.refusal(f"it names a stream, without dots and spaces: write {SCHEME.form}")
        return cls(said)

    async def open(self, shards: int = 1) -> Cursors:
        import nats.errors  # noqa: PLC0415
        import nats.js.errors as js  # noqa: PLC0415

        self._shards = shards
        try:
            async with asyncio.timeout(2 * _ANSWER_S + shards):
                return await self._opened()
        except (nats.errors.AuthorizationError, nats.js.errors.ServiceUnavailableError) as error:
            await self.close()
            if isinstance(error, nats.errors.AuthorizationError):
                raise PermissionDenied(f"{self._where} does not let us in: check user and password") from error
            raise Unavailable(f"{self._where}: {error}; is JetStream on (nats-server -js)?") from error
        except js.APIError as error:
            await self.close()
            raise self._of_api(error) from error
        except (nats.errors.Error, OSError, TimeoutError) as error:
            await self.close()
            raise Unavailable(f"{self._where}: {str(error) or type(error).__name__}") from error

    async def _opened(self) -> Cursors:
        import nats.js.errors as js  # noqa: PLC0415

        if self._nats is None or not self._nats.is_connected:
            await self.close()
            self._nats = await self._connected()
        stream = self._nats.jetstream(timeout=_ANSWER_S)
        try:
            await stream.stream_info(self._stream)
        except js.NotFoundError:
            await stream.add_stream(name=self._stream, subjects=[f"{self._subject}.>"])
        last = await self._last_of(stream, f"{self._subject}.>")
        self._last_id = "" if last is None else last["id"]
        if last is None or self._shards == 1:
            return {} if last is None else {0: cursor_of(last)}
        found: Cursors = {}
        for shard in range(self._shards):
            last = await self._last_of(stream, f"{self._subject}.{shard}.>")
            if last is not None:
                found[shard] = cursor_of(last)
        return found

    async def _last_of(self, stream: Any, subject: str) -> dict[str, Any] | None:
        import nats.js.errors as js  # noqa: PLC0415

        try:
            found: dict[str, Any] = json.loads((await stream.get_last_msg(self._stream, subject)).data)
        except js.NotFoundError:
            return None
        return found

    async def _connected(self) -> Any:
        try:
            import nats  # noqa: PLC0415
        except ModuleNotFoundError:
            raise UsageError("nats:// needs nats-py: pip install 'fencehold[nats]'") from None
        login, tls = self._said.login, self._said.tls
        more = {"user": login.user, "password": login.password} if any(login) else {}
        if self._said.options["token"]:
            more = {"token": self._said.options["token"]}
        return await nats.connect(
            [f"nats://{each}" for each in self._said.endpoints],
            allow_reconnect=False,
            connect_timeout=_CONNECT_S,
            error_cb=_ignore,
            tls=None if tls is None else client_context(tls),
            name="fencehold-sink",
            **more,
        )

    async def deliver(self, batch: Sequence[Record]) -> None:
        import nats.errors  # noqa: PLC0415
        import nats.js.errors as js  # noqa: PLC0415

        if self._nats is None or not self._nats.is_connected:
            raise Unavailable(f"{self._where} is not connected")
        bytes_max = self._nats.max_payload - _HEADER_BYTES
        if wrong := [record.place for record in batch if len(record.body) > bytes_max]:
            raise Rejected(f"{self._where} takes messages of at most {bytes_max} bytes", wrong)
        stream = self._nats.jetstream(timeout=_ANSWER_S)
        last_id, answers = self._last_id, []
        try:
            for record in batch:
                headers = {"Nats-Msg-Id": record.id, "Content-Type": "application/cloudevents+json"}
                if last_id:
                    headers["Nats-Expected-Last-Msg-Id"] = last_id
                of_shard = f".{record.shard}" if self._shards > 1 else ""
                subject = f"{self._subject}{of_shard}.{record.kind}"
                answers.append(await stream.publish_async(subject, record.body, headers=headers))
                last_id = record.id
            await self._acknowledged(answers)
        except js.APIError as error:
            raise OutcomeUnknown(f"{self._where}: {error.description}") from error
        except (nats.errors.Error, OSError, TimeoutError) as error:
            # What the connection has not sent yet must not arrive later.
            await self.close()
            raise OutcomeUnknown(f"{self._where}: {str(error) or type(error).__name__}") from error
        finally:
            for answer in answers:
                # What became of it is found out when the stream is opened again.
                answer.cancel()
                answer.add_done_callback(_forget)
        self._last_id = last_id

    async def _acknowledged(self, answers: "list[asyncio.Future[Any]]") -> None:
        """Wait for all answers; a connection that is lost brings none."""
        until = asyncio.get_running_loop().time() + _ANSWER_S
        waiting = set(answers)
        while waiting:
            _, waiting = await asyncio.wait(waiting, timeout=_LOOK_S)
            if waiting and not self._nats.is_connected:
                raise ConnectionResetError("the connection was lost")
            if waiting and asyncio.get_running_loop().time() > until:
                raise TimeoutError("it does not acknowledge")
        for answer in answers:
            answer.result()

    async def close(self) -> None:
        connection, self._nats = self._nats, None
        if connection is not None and not connection.is_closed:
            try:
                async with asyncio.timeout(_CONNECT_S):
                    await connection.close()
            except (Exception, TimeoutError):
                return

    def _of_api(self, error: Any) -> FenceholdError:
        said = f"{self._where}: {error.description}"
        return UsageError(said) if error.code and 400 <= error.code < 500 else Unavailable(said)


def _forget(answer: "asyncio.Future[Any]") -> None:
    """No caller waits for it any more."""
    if not answer.cancelled():
        answer.exception()


async def _ignore(_error: Exception) -> None:
    """The caller gets the error."""

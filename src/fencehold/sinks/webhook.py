"""Events posted to a URL, signed, in batches of CloudEvents; retried until they are accepted.

1. A batch is one POST of `application/cloudevents-batch+json`. Any status of 200 to 299 means that all of it was
   accepted. It comes at least once: the receiver drops duplicates, by the ids.
2. `Fencehold-Signature: t=SECONDS,v1=HEX` is HMAC-SHA256 over the seconds, a dot and the body, with the secret:
   the receiver checks that, and that the time is recent.
3. 400, 413 and 422 mean that the content is wrong: the batch is halved until the bad event is found, which is
   dropped. Everything else is retried, also what a deployment may answer for a while, such as 404.
4. The cursors are kept in a local file, written after each batch: a URL cannot be asked for them.
"""

import hashlib
import hmac
import http.client
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from fencehold import __version__
from fencehold.client.login import read_secret
from fencehold.drivers.address import ParsedUrl, Scheme, scheme_in, seconds, text
from fencehold.drivers.connect_errors import of_attempt
from fencehold.drivers.tls import client_context
from fencehold.errors import OutcomeUnknown, Unavailable, UsageError
from fencehold.sinks.port import Cursors, Declared, Delivery, Place, Record, Rejected, cursors_of
from fencehold.sinks.worker import Worker

SCHEME = Scheme(
    names=("webhook",),
    secure=("webhooks",),
    form="webhooks://example.org/events?secret_file=/etc/fencehold/webhook.secret&cursor=/var/lib/fencehold/webhook.json",
    port=0,
    options=(text("secret_file"), text("cursor"), seconds("timeout", 10.0, most=300.0)),
    hosts_max=1,
)
SIGNATURE = "Fencehold-Signature"
_WRONG = (400, 413, 422)


class Webhook:
    """A URL that receives events."""

    declared = Declared("webhook", Delivery.AT_LEAST_ONCE, "a file beside the sink")

    def __init__(self, said: ParsedUrl, secret: bytes, cursor: Path) -> None:
        self._said = said
        self._secret = secret
        self._cursor = cursor
        self._endpoint = said.endpoints[0]
        self._path = "/" + quote(said.path, safe="/:@!$&'()*+,;=-._~")
        self._timeout_s: float = said.options["timeout"]
        self._where = f"http{'s' if said.tls else ''}://{self._endpoint.host}{self._path}"
        self._connection: http.client.HTTPConnection | None = None
        self._cursors: Cursors = {}
        self._worker = Worker()

    @classmethod
    def of(cls, url: str) -> "Webhook":
        """Raises UsageError: the URL is invalid, or incomplete."""
        said = _parsed(url)
        if not said.options["cursor"]:
            raise said.refusal("it needs a file for its cursor: add cursor=FILE")
        if not said.options["secret_file"]:
            raise said.refusal("events are signed: add secret_file=FILE, of a secret that the receiver knows, too")
        secret = read_secret(Path(said.options["secret_file"]).expanduser()).encode()
        return cls(said, secret, Path(said.options["cursor"]).expanduser())

    async def open(self, shards: int = 1) -> Cursors:
        self._cursors = self._kept()
        return dict(self._cursors)

    def _kept(self) -> Cursors:
        try:
            kept = json.loads(self._cursor.read_bytes())
            of_all = kept.get("shards") or {"0": kept}
            return {int(shard): (int(each["position"]), int(each["index"])) for shard, each in of_all.items()}
        except FileNotFoundError:
            if not self._cursor.parent.is_dir():
                raise UsageError(
                    f"{self._cursor.parent} is not a directory: make it, or name another cursor="
                ) from None
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{self._cursor} is not a cursor file: {error}") from None

    async def deliver(self, batch: Sequence[Record]) -> None:
        wrong = await self._taken(list(batch))
        if wrong:
            raise Rejected(f"{self._where} rejects the content", wrong)

    async def _taken(self, batch: list[Record]) -> list[Place]:
        """Post a batch, in halves if need be; returns the permanently wrong records. Those before them are
        accepted."""
        status = await self._worker.do(self._post, batch)
        if 200 <= status < 300:
            self._keep(self._cursors | cursors_of(batch))
            return []
        if status not in _WRONG:
            raise Unavailable(f"{self._where} answered {status}")
        if len(batch) == 1:
            return [batch[0].place]
        half = len(batch) // 2
        wrong = await self._taken(batch[:half])
        # A receiver that drops duplicates does not mind that those before a wrong one come again.
        return wrong or await self._taken(batch[half:])

    def _post(self, batch: list[Record]) -> int:
        body = b"[" + b",".join(record.body for record in batch) + b"]"
        now = str(int(time.time()))
        headers = {
            "Content-Type": "application/cloudevents-batch+json; charset=utf-8",
            "User-Agent": f"fencehold-sink/{__version__}",
            SIGNATURE: f"t={now},v1={signature(self._secret, now, body)}",
        }
        connection = self._connected()
        try:
            connection.request("POST", self._path, body, headers)
            answer = connection.getresponse()
            answer.read(1 << 16)
            if answer.will_close:
                self._drop()
            return answer.status
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            raise OutcomeUnknown(f"{self._where} did not answer: {error}") from error

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            host, port, timeout_s = self._endpoint.host, self._endpoint.port, self._timeout_s
            tls = self._said.tls
            connection = (
                http.client.HTTPConnection(host, port, timeout=timeout_s)
                if tls is None
                else http.client.HTTPSConnection(host, port, timeout=timeout_s, context=client_context(tls))
            )
            try:
                connection.connect()
            except (OSError, UnicodeError) as error:
                raise Unavailable(f"{self._where}: {of_attempt(error, 'webhook')}") from error
            self._connection = connection
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _keep(self, cursors: Cursors) -> None:
        beside = self._cursor.with_name(f"{self._cursor.name}.{os.getpid()}")
        try:
            places = {shard: {"position": each[0], "index": each[1]} for shard, each in cursors.items()}
            # For one shard in the format of before there were several.
            beside.write_text(json.dumps(places[0] if set(places) == {0} else {"shards": places}))
            beside.replace(self._cursor)
            self._cursors = cursors
        except OSError as error:
            raise OutcomeUnknown(f"{self._cursor} cannot be written: {error.strerror}") from error

    async def close(self) -> None:
        await self._worker.end(self._drop)


def signature(secret: bytes, seconds_: str, body: bytes) -> str:
    """The signature of a request: for sender and receiver."""
    return hmac.new(secret, seconds_.encode() + b"." + body, hashlib.sha256).hexdigest()


def _parsed(url: str) -> ParsedUrl:
    """The usual port is that of HTTP, with or without TLS."""
    is_tls = scheme_in(url) in SCHEME.secure
    table = Scheme(
        SCHEME.names, SCHEME.form, SCHEME.secure, 443 if is_tls else 80, SCHEME.options, hosts_max=SCHEME.hosts_max
    )
    return table.parse(url)

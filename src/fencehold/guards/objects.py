"""A guard for objects of an S3-compatible store, by conditional writes.

::

    guard = Guard(boto3.client("s3"))
    with client.lock("manifest") as hold:
        manifest = guard.get("bucket", "manifest.json", hold)      # raises the mark, then reads
        guard.put("bucket", "manifest.json", changed(manifest), hold)

1. *The mark is in the object itself*, in its metadata. Beside it, in another object, check and write would be two
   requests. So the one that writes carries the check: PUT, if the ETag is still that of what was checked
   (`If-Match`), or if there is still none (`If-None-Match: *`).
2. *The bytes carry a stamp* (see `objects_forms`). An ETag is made of the bytes and of nothing else: were the mark
   in the metadata alone, `enter` would raise it and leave the ETag as it was; a stale PUT on its way would find
   its condition true, write, and take the mark back. So `enter` is no CopyObject, which changes metadata only: it
   rewrites the object, from the bytes that came together with the ETag.
3. *After a conflict, a writer reads again*: a bounded number of times, and is refused as soon as the mark is
   greater.
4. *A write whose condition failed may be one's own*, if botocore has repeated it: its stamp tells.
5. *A deleted object has no mark.* Do not delete what is guarded, nor have a rule do it: put something empty.

Readers without a guard take `unwrap(bytes)`; with `form="gzip"` HTTP does that for them. `enter` rewrites the
whole object if it raises the mark, and keeps neither tags nor ACLs: guard something small, a manifest
that names the large ones. Needs boto3, whose client stays the caller's.
"""

import random
import secrets
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from fencehold.errors import LimitExceeded, OutcomeUnknown, StaleFence, Unavailable, Unsupported, UsageError
from fencehold.guards.objects_forms import FORMS, Form, Stamp, unwrap, wrap
from fencehold.guards.objects_store import (
    DRAW,
    EMPTY,
    FENCE,
    NAME,
    OWN,
    ConditionFailed,
    Missing,
    Seen,
    reading,
    seen_of,
    writing,
)
from fencehold.guards.offer import Offer, Offered, offer_of
from fencehold.locks.traces import noted

__all__ = ["Guard", "unwrap"]

ATTEMPTS = 10
SIZE_MAX = 64 * 1024 * 1024
_PAUSE_S, _PAUSE_MAX_S = 0.01, 0.5


class Guard:
    """Refuses stale fences in front of an object store; for threads."""

    def __init__(
        self,
        client: Any,
        *,
        strict: bool = False,
        form: Form = "line",
        attempts: int = ATTEMPTS,
        size_max: int = SIZE_MAX,
    ) -> None:
        """`strict`: an object without a mark is an error; `register` those there are.

        `attempts`: how often an overtaken write is tried; `size_max`: bytes of an object.
        """
        if form not in FORMS:
            raise UsageError(f"the form of an object is one of {', '.join(FORMS)}, not {form!r}")
        self._client = client
        self._strict = strict
        self._form: Form = form
        self._attempts = attempts
        self._size_max = size_max

    def register(self, bucket: str, key: str, name: str) -> None:
        """Register an object, guarded by the fences of that name, with none seen yet. Raises as `enter`."""
        Offer(name, 1).checked()
        for _ in self._turns():
            seen = self._look(bucket, key, whole=True)
            if seen.mark is not None:
                _refuse_name(seen, name, f"{bucket}/{key}")
                return
            if self._again(bucket, key, Offer(name, 0), seen):
                return
        raise self._overtaken(bucket, key)

    def enter(self, bucket: str, key: str, hold: Offered, name: str | None = None) -> None:
        """Raise the mark. Call it before anything is read; `get` does both.

        Raises:
            StaleFence: another has held the name since; stop.
            UsageError: no fence of the name that guards the object; or strict, and it has no mark.
            Unavailable: others wrote all the time, or the store was not read. Nothing happened.
            OutcomeUnknown: the store did not answer; the mark may be raised. Calling again is safe.
            PermissionDenied, Unsupported: not allowed; or the store has no conditional writes.
            Damaged: there is something in the place of the mark that is none. Nothing happened.
        """
        self.get(bucket, key, hold, name)

    def get(self, bucket: str, key: str, hold: Offered, name: str | None = None) -> bytes | None:
        """Raise the mark, then read; None if nothing was put yet. Raises as `enter`.

        Raises:
            LimitExceeded: the object is larger than `size_max`.
        """
        offer = offer_of(hold, name)
        for _ in self._turns():
            seen = self._look(bucket, key, whole=True)
            self._admit(seen, offer, f"{bucket}/{key}")
            if seen.mark == offer.fence or self._again(bucket, key, offer, seen):
                return _body(seen)
        raise self._overtaken(bucket, key)

    def check(self, bucket: str, key: str, hold: Offered, name: str | None = None) -> None:
        """Raise if the fence is stale: to stop work early. It reads only, and protects nothing by itself."""
        self._admit(self._look(bucket, key), offer_of(hold, name), f"{bucket}/{key}")

    def put(
        self, bucket: str, key: str, body: bytes, hold: Offered, name: str | None = None, **extra: Any
    ) -> None:
        """Replace the object by these bytes; `extra` as `put_object` takes it: `ContentType="text/csv"`. As
        `enter`.

        Raises:
            OutcomeUnknown: the store did not answer, or its write was overtaken; read before continuing.
        """
        offer = offer_of(hold, name)
        self._fits(len(body))
        if {"IfMatch", "IfNoneMatch", "Body"} & extra.keys() or OWN & extra.get("Metadata", {}).keys():
            raise UsageError("conditions, and metadata that begins with 'fence', are the guard's own")
        for _ in self._turns():
            seen = self._look(bucket, key)
            self._admit(seen, offer, f"{bucket}/{key}")
            if self._write(bucket, key, offer, seen, body, extra):
                return
        raise self._overtaken(bucket, key)

    def probe(self, bucket: str, key: str = "fencehold-probe") -> None:
        """Test whether the store obeys conditions, on an object of its own, which is deleted afterwards.

        Raises:
            Unsupported: it ignores them: a guard in front of it would guard nothing.
        """
        key = f"{key}-{secrets.token_hex(8)}"
        try:
            self._client.put_object(Bucket=bucket, Key=key, Body=b"1", IfNoneMatch="*")
            for condition in ({"IfNoneMatch": "*"}, {"IfMatch": '"00000000000000000000000000000000"'}):
                try:
                    with writing(key):
                        self._client.put_object(Bucket=bucket, Key=key, Body=b"2", **condition)
                except ConditionFailed:
                    continue
                raise Unsupported(f"the store ignores {next(iter(condition))}, so it cannot be guarded")
        finally:
            self._client.delete_object(Bucket=bucket, Key=key)

    def _look(self, bucket: str, key: str, *, whole: bool = False) -> Seen:
        place = f"{bucket}/{key}"
        try:
            with reading(place):
                if not whole:
                    return seen_of(self._client.head_object(Bucket=bucket, Key=key), place)
                answer = self._client.get_object(Bucket=bucket, Key=key)
                with answer["Body"] as stream:
                    # With room for the stamp; what is far too large is not read.
                    self._fits(int(answer["ContentLength"]) - 256)
                    return seen_of(answer, place, stream.read())
        except Missing:
            return Seen()

    def _admit(self, seen: Seen, offer: Offer, place: str) -> None:
        if seen.mark is None:
            if self._strict:
                raise UsageError(f"{place!r} has no mark: this guard is strict, register the object first")
            return
        _refuse_name(seen, offer.name, place)
        if offer.fence < seen.mark:
            raise noted(StaleFence(name=offer.name, fence=offer.fence, mark=seen.mark))

    def _again(self, bucket: str, key: str, offer: Offer, seen: Seen) -> bool:
        """Write the same object with another mark."""
        return self._write(bucket, key, offer, seen, _body(seen), dict(seen.headers))

    def _write(
        self, bucket: str, key: str, offer: Offer, seen: Seen, body: bytes | None, extra: dict[str, Any]
    ) -> bool:
        """Write unless the object has changed since; returns whether it was written."""
        stamp = Stamp(offer.fence, secrets.token_hex(16))
        condition = {"IfMatch": seen.etag} if seen.etag else {"IfNoneMatch": "*"}
        own = {FENCE: str(offer.fence), NAME: quote(offer.name), DRAW: stamp.draw}
        if body is None:
            own[EMPTY] = "yes"
        said = {**extra, "Metadata": {**extra.get("Metadata", {}), **own}}
        if extra.get("ContentEncoding"):
            raise UsageError("a guarded object has no ContentEncoding of its own: it is of more than the body")
        if self._form == "gzip":
            said["ContentEncoding"] = "gzip"
        try:
            with writing(f"{bucket}/{key}"):
                data = wrap(self._form, body or b"", stamp)
                self._client.put_object(Bucket=bucket, Key=key, Body=data, **condition, **said)
        except ConditionFailed as failed:
            return self._is_mine(bucket, key, stamp, failed)
        return True

    def _is_mine(self, bucket: str, key: str, stamp: Stamp, failed: ConditionFailed) -> bool:
        unknown = OutcomeUnknown(f"{bucket}/{key} may have been written, and written over since")
        try:
            if self._look(bucket, key).draw == stamp.draw:
                return True
        except Unavailable as error:
            raise (unknown if failed.is_repeated else error) from failed
        if failed.is_repeated:
            raise unknown from failed
        return False

    def _turns(self) -> Iterator[int]:
        for turn in range(self._attempts):
            if turn:
                time.sleep(random.uniform(0, min(_PAUSE_MAX_S, _PAUSE_S * 2**turn)))
            yield turn

    def _fits(self, size: int) -> None:
        if size > self._size_max:
            raise LimitExceeded(f"a guarded object has {self._size_max} bytes at the most, not {size}")

    def _overtaken(self, bucket: str, key: str) -> Unavailable:
        return Unavailable(f"{bucket}/{key}: others wrote {self._attempts} times meanwhile; nothing happened")


def _body(seen: Seen) -> bytes | None:
    if seen.is_empty:
        return None
    return seen.data if seen.mark is None else unwrap(seen.data)


def _refuse_name(seen: Seen, name: str, place: str) -> None:
    if seen.name != name:
        raise UsageError(f"{place!r} is guarded by the fences of {seen.name!r}, not of {name!r}")

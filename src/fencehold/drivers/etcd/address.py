"""The address of something in etcd: the members, and the prefix of all its keys.

``etcd://[user:password@]host[:2379][,host…][/prefix]``, and ``etcds://`` for TLS. The URL of a journal also takes
``compact=no``, and ``room_bytes=NUMBER``: no more than so many bytes of etcd's database are to be in use,
whatever its quota. `drivers.address` has the rules of all URLs.
"""

from dataclasses import replace
from typing import NamedTuple, Self

from fencehold.drivers.address import Scheme, TlsFiles, flag, whole

PREFIX = "/fencehold/"
LOCKS = Scheme(
    names=("etcd",),
    secure=("etcds",),
    form="etcd://[user:password@]host[:2379][,host…][/prefix]",
    port=2379,
    needs_both=True,
    names_each_once=True,
)
JOURNAL = replace(
    LOCKS,
    options=(flag("compact", default=True), whole("room_bytes", None, of="a number of bytes")),
)


class EtcdAddress(NamedTuple):
    """What a URL says."""

    endpoints: tuple[str, ...]
    """`host:port`, in the order they are named."""
    prefix: str = PREFIX
    """What all keys begin with. It begins and ends with a slash."""
    user: str = ""
    password: str = ""
    tls: TlsFiles | None = None
    compact: bool = True
    """Have etcd compact old revisions, all of them, when trimming. Not where others read or watch those."""
    room_bytes: int | None = None
    """So much of the database may be in use, by all its users; None: as much as its quota allows."""

    @classmethod
    def parse(cls, url: str, table: Scheme = JOURNAL) -> Self:
        """Read a URL by one of the tables.

        Raises:
            UsageError: it is none; the message says what to write instead.
        """
        said = table.parse(url)
        segments = [segment for segment in said.path.split("/") if segment]
        return cls(
            tuple(map(str, said.endpoints)),
            f"/{'/'.join(segments)}/" if segments else PREFIX,
            *said.login,
            said.tls,
            **said.options,
        )

    def __repr__(self) -> str:
        return f"EtcdAddress({self})"

    def __str__(self) -> str:
        return f"{'etcd' if self.tls is None else 'etcds'}://{','.join(self.endpoints)}{self.prefix.rstrip('/')}"

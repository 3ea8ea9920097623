"""Logins on the grounds whose servers have users: one that can be taken away, and one that never works."""

from collections.abc import Callable
from typing import Any, NamedTuple

from rig.mariadb import DATABASE
from rig.redis import Redis
from tests.behaviour.ground import Ground

WHO = "changing"


class Login(NamedTuple):
    """Somebody who is known there."""

    url: str
    revoke: Callable[[], object]
    """Refuse who logs in so from now on, and end the connections there are."""
    restore: Callable[[], object]


def wrong_url(ground: Ground) -> str:
    """The URL of a ground with a password that is not taken there."""
    for right, wrong in _WRONG:
        if right in ground.url:
            return ground.url.replace(right, wrong)
    # Everybody is let in who shows nothing, and nobody by a password.
    return ground.url.replace("://", "://nobody:wrong@")


def login_on(ground: Ground) -> Login:
    """A login of its own."""
    return _LOGINS[ground.expected.backend](ground)


_WRONG = ((":fencehold@", ":wrong@"), ("fencehold@", "guarded:wrong@"))
"""Of MariaDB; and of Postgres, where one user alone is asked for a password."""


def _on_redises(url: str, servers: list[Redis]) -> Login:
    def set_user(*rules: str) -> None:
        for server in servers:
            server.ask("ACL", "SETUSER", WHO, *rules)

    def revoke() -> None:
        set_user("resetpass", ">another")
        for server in servers:
            server.ask("CLIENT", "KILL", "USER", WHO)

    set_user("on", ">right", "~*", "&*", "+@all")
    return Login(url.replace("://", f"://{WHO}:right@"), revoke, lambda: set_user("resetpass", ">right"))


def _on_postgres(ground: Any) -> Login:
    server = ground.server

    def revoke() -> None:
        server.sql(f"ALTER ROLE {WHO} NOLOGIN")
        server.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{WHO}'")

    server.sql(f"CREATE ROLE {WHO} LOGIN; GRANT CREATE ON DATABASE postgres TO {WHO}")
    url = ground.url.replace("fencehold@", f"{WHO}@").replace("schema=locking", f"schema={WHO}")
    return Login(url, revoke, lambda: server.sql(f"ALTER ROLE {WHO} LOGIN"))


def _on_mysql(ground: Any) -> Login:
    server, user = ground.server, f"{WHO}@'127.0.0.1'"

    def revoke() -> None:
        server.sql(f"ALTER USER {user} IDENTIFIED BY 'another'")
        server.kill_connections(WHO)

    server.sql(f"CREATE USER {user} IDENTIFIED BY '{WHO}'")
    server.sql(f"GRANT ALL ON {DATABASE}.* TO {user}")
    return Login(server.url(user=WHO), revoke, lambda: server.sql(f"ALTER USER {user} IDENTIFIED BY '{WHO}'"))


_LOGINS: dict[str, Callable[[Any], Login]] = {
    "redis": lambda ground: _on_redises(ground.url, [ground.server]),
    "redlock": lambda ground: _on_redises(ground.url, ground.nodes.servers),
    "postgresql": _on_postgres,
    "postgresql+advisory": _on_postgres,
    "mysql": _on_mysql,
}

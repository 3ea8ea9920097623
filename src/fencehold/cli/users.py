"""`fencehold user`: users. Secrets come from a prompt, a file or the environment, never a command line."""

import os
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from fencehold.cli import policy_wire
from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.options import URL, Json, Url
from fencehold.cli.output import clean, say, say_json
from fencehold.cli.policy import say_users
from fencehold.cli.policy_wire import Current, Listed
from fencehold.cli.wire import Wire, wired
from fencehold.core.policy import PolicyChange, Role, Rule, User, Verb
from fencehold.errors import UsageError
from fencehold.security.secrets import SECRET_BYTES_MAX, hashed

VARIABLE = "FENCEHOLD_USER_SECRET"
ADMIN = "admin"
"""The role that `--admin` gives, and makes if there is none."""

UserName = Annotated[str, typer.Argument(metavar="USER", help="Its name, or the principal of its certificate.")]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        "--secret-file",
        metavar="FILE",
        help=f"A file with its secret in the first line; otherwise {VARIABLE} is read, or you are asked.",
        show_default=False,
    ),
]


def add(
    name: UserName,
    role: Annotated[
        list[str] | None, typer.Option("--role", metavar="ROLE", help="A role; more than once.")
    ] = None,
    admin: Annotated[bool, typer.Option("--admin", help="May do everything, and change the policy.")] = False,
    no_secret: Annotated[
        bool, typer.Option("--no-secret", help="It authenticates with a certificate or a token.")
    ] = False,
    secret_file: SecretFile = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Add a user. The first one of a server needs --admin: from then on every client must authenticate."""
    with wired(url) as wire:
        now = policy_wire.current(wire)
        if name in now.users:
            raise fail(Exit.NO, f"user {clean(name)} exists already", "fencehold user secret changes its secret")
        roles, change = list(role or []), PolicyChange()
        if admin:
            roles.append(ADMIN)
            if ADMIN not in now.roles:
                change.roles[ADMIN] = Role((Rule(tuple(Verb), prefix=""),))
        secrets = () if no_secret or name.endswith("*") else (hashed(_secret(name, secret_file)),)
        change.users[name] = User(tuple(dict.fromkeys(roles)), secrets=secrets)
        _done(wire, now, change, f"added {clean(name)}", as_json)


def secret(name: UserName, secret_file: SecretFile = None, url: Url = URL, as_json: Json = False) -> None:
    """Give a user another secret. The old one is no longer valid; its sessions continue."""
    with wired(url) as wire:
        now, user = _known(wire, name)
        new = User(user.roles, user.disabled, (hashed(_secret(name, secret_file)),))
        _done(wire, now, PolicyChange({name: new}), f"changed the secret of {clean(name)}", as_json)


def disable(name: UserName, url: Url = URL, as_json: Json = False) -> None:
    """Disable a user: its sessions end at once, and it gets no more."""
    _set(name, url, True, f"disabled {clean(name)}", as_json)


def enable(name: UserName, url: Url = URL, as_json: Json = False) -> None:
    """Enable a user that was disabled."""
    _set(name, url, False, f"enabled {clean(name)}", as_json)


def remove(name: UserName, url: Url = URL, as_json: Json = False) -> None:
    """Remove a user: its sessions end at once."""
    with wired(url) as wire:
        now, _ = _known(wire, name)
        _done(wire, now, PolicyChange({name: None}), f"removed {clean(name)}", as_json)


def list_(url: Url = URL, as_json: Json = False) -> None:
    """List the users: their roles, and what they have."""
    with wired(url) as wire:
        now = policy_wire.current(wire)
    if as_json:
        rows = [
            {"user": name, **msgspec.to_builtins(user), **_used(now, name)} for name, user in now.users.items()
        ]
        say_json(rows)
    else:
        say_users(now)


def _used(now: Current, name: str) -> dict[str, int]:
    return {what: now.used.get(name, {}).get(what, 0) for what in ("sessions", "holds", "waiters")}


def _set(name: str, url: str, disabled: bool, words: str, as_json: bool) -> None:
    with wired(url) as wire:
        now, user = _known(wire, name)
        _done(wire, now, PolicyChange({name: User(user.roles, disabled)}), words, as_json)


def _known(wire: Wire, name: str) -> tuple[Current, Listed]:
    now = policy_wire.current(wire)
    if name not in now.users:
        raise fail(Exit.NO, f"there is no user {clean(name)}")
    return now, now.users[name]


def _done(wire: Wire, now: Current, change: PolicyChange, words: str, as_json: bool) -> None:
    told = policy_wire.apply(wire, now.revision, change)
    if as_json:
        say_json({"user": next(iter(change.users)), **told})
    else:
        ended = f"; {told['sessions_ended']} sessions ended" if told["sessions_ended"] else ""
        say(f"{words}: revision {told['revision']}{ended}")


def _secret(name: str, file: Path | None) -> str:
    """From the file, the environment or a person; nothing else sees it."""
    if file is not None:
        found = _first_line(file)
    elif VARIABLE in os.environ:
        found = os.environ[VARIABLE]
    elif sys.stdin.isatty():
        found = typer.prompt(f"Secret of {clean(name)}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        raise UsageError(f"no secret: give --secret-file or {VARIABLE}, or run this on a terminal")
    if not 0 < len(found.encode()) <= SECRET_BYTES_MAX:
        raise UsageError(f"a secret has 1 to {SECRET_BYTES_MAX} bytes")
    return found


def _first_line(file: Path) -> str:
    try:
        with file.open("rb") as source:
            return source.read(2 * SECRET_BYTES_MAX).decode().partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"cannot read a secret from {file}: {reason}") from None


USER = {"add": add, "secret": secret, "disable": disable, "enable": enable, "remove": remove, "list": list_}

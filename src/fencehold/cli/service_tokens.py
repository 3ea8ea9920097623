"""`fencehold token`: tokens of services, as part of the policy: made, listed, revoked.

A token is made where the command runs, and shown once; the server gets its hash. Expiry is checked by the clock of
the node that a client logs in to; a revocation is in the journal, and applies at once.
"""

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from fencehold.cli import policy_wire
from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.options import URL, Expires, Json, Url
from fencehold.cli.output import clean, note, say, say_json, say_rows, tell
from fencehold.cli.policy_wire import Current, ListedToken
from fencehold.cli.wire import wired
from fencehold.core.policy import TOKEN_ID_LENGTH, PolicyChange, Token, token_id
from fencehold.errors import UsageError
from fencehold.security.tokens import PREFIX, digest_of, new_token

UserName = Annotated[str, typer.Argument(metavar="USER", help="The owner of the token: a user of the policy.")]
TokenId = Annotated[str, typer.Argument(metavar="ID", help="Its id in `token list`, or the beginning of that.")]


def create(
    user: UserName,
    expires: Expires = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Write it there, for its owner alone, and do not show it."),
    ] = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Make a token for a user. It is shown once; every node knows it at once."""
    with wired(url) as wire:
        now = policy_wire.current(wire)
        if user not in now.users:
            hint = f"fencehold user add {clean(user)} --no-secret --role ROLE makes one"
            raise fail(Exit.NO, f"a token belongs to a user of the policy, and {clean(user)} is none", hint)
        made = new_token()
        made_s = int(time.time())
        kept = Token(digest_of(made), made_s, 0 if expires is None else made_s + max(1, round(expires)))
        key = token_id(kept.digest)
        if file is not None:
            _write(file, made)
        policy_wire.apply(wire, now.revision, PolicyChange(tokens={user: {key: kept}}))
    if as_json:
        shown = {} if file is not None else {"token": made}
        say_json({"user": user, "id": key, **shown, "expires": _iso(kept.expires_s)})
        return
    until = f", valid until {_day(kept.expires_s)}" if kept.expires_s else ""
    if file is not None:
        say(f"made token {key} of {clean(user)}, in {file}{until}")
        return
    note(
        f"fencehold: token {key} of {clean(user)}, which is shown only now{until}; $FENCEHOLD_TOKEN_FILE names it"
    )
    tell(made)


def _write(file: Path, token: str) -> None:
    """Before the server gets it: a token that no user has would only be in the way."""
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as target:
            target.write(f"{token}\n")
    except OSError as error:
        raise UsageError(f"cannot write a token to {file}: {error.strerror}") from None


def list_(
    user: Annotated[str, typer.Argument(metavar="[USER]", help="The owner.", show_default="all users")] = "",
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """List the tokens: their ids, owners, and until when they are valid; never the tokens themselves."""
    with wired(url) as wire:
        now = policy_wire.current(wire)
    found = [(key, name, token) for key, name, token in _all(now) if user in ("", name)]
    if as_json:
        say_json([_shape(*each) for each in found])
        return
    rows = [(key, clean(name), _day(token.made_s), _until(token)) for key, name, token in found]
    say_rows(("TOKEN", "USER…", "MADE", "EXPIRES"), rows, empty="no tokens")


def revoke(token: TokenId, url: Url = URL, as_json: Json = False) -> None:
    """Revoke a token: the sessions that were opened with it end at once, and its connections.

    Of a token that leaked, the id is the beginning of its SHA-256: printf %s "$TOKEN" | sha256sum
    """
    if token.startswith(PREFIX):
        raise UsageError("that is a token itself, which is now in the history of your shell: give its id")
    with wired(url) as wire:
        now = policy_wire.current(wire)
        # A whole hash is accepted, too: that is what `sha256sum` prints.
        wanted = token.lower()[:TOKEN_ID_LENGTH]
        found = [(key, name) for key, name, _ in _all(now) if wanted and key.startswith(wanted)]
        if len(found) != 1:
            what = "there is no token" if not found else f"{len(found)} tokens begin with"
            raise fail(Exit.NO, f"{what} {clean(token)}", "`fencehold token list` shows their ids")
        ((key, name),) = found
        told = policy_wire.apply(wire, now.revision, PolicyChange(tokens={name: {key: None}}))
    if as_json:
        say_json({"user": name, "id": key, **told})
    else:
        ended = told["sessions_ended"]
        say(f"revoked {key} of {clean(name)}: revision {told['revision']}; {ended} sessions ended")


def _all(now: Current) -> list[tuple[str, str, ListedToken]]:
    return [(key, name, token) for name, user in now.users.items() for key, token in user.tokens.items()]


def _shape(key: str, name: str, token: ListedToken) -> dict[str, Any]:
    return {"id": key, "user": name, "made": _iso(token.made_s), "expires": _iso(token.expires_s)}


def _until(token: ListedToken) -> str:
    if not token.expires_s:
        return "never"
    return _day(token.expires_s) if time.time() < token.expires_s else f"expired {_day(token.expires_s)}"


def _iso(seconds: int) -> str | None:
    return datetime.fromtimestamp(seconds, UTC).isoformat() if seconds else None


def _day(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC" if seconds else "-"


TOKEN = {"create": create, "list": list_, "revoke": revoke}

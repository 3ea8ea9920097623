"""`fencehold policy`: a policy in a file, what it would change, and the change, in one step; `whoami`, `can`."""

import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import typer
from msgspec import Struct

from fencehold.cli import policy_wire
from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.options import URL, Json, Name, Tier, Url
from fencehold.cli.output import clean, note, say, say_facts, say_json, say_rows
from fencehold.cli.policy_wire import Current, Listed, is_admin
from fencehold.cli.wire import wired
from fencehold.core.policy import PolicyChange, Quota, Role, Rule, User, Verb
from fencehold.errors import UsageError

_FILE_BYTES_MAX = 4 << 20

PolicyPath = Annotated[Path, typer.Argument(metavar="FILE", help="A policy in TOML; it is the whole policy.")]
Principal = Annotated[str, typer.Argument(metavar="PRINCIPAL", help="A user, or the principal of a certificate.")]
VerbWord = Annotated[str, typer.Argument(metavar="VERB", help="acquire, observe, break, events or admin.")]


class FileUser(Struct, frozen=True, forbid_unknown_fields=True):
    """A user in a file: secrets are only at the server."""

    roles: tuple[str, ...] = ()
    disabled: bool = False


class PolicyFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file."""

    users: dict[str, FileUser] = {}
    roles: dict[str, Role] = {}
    quotas: dict[str, Quota] = {}


class Step(NamedTuple):
    """One thing that a file changes."""

    what: Literal["user", "role", "quota"]
    name: str
    change: Literal["add", "change", "remove"]
    before: Any
    after: Any


def read(path: Path) -> PolicyFile:
    """The policy in a file.

    Raises:
        UsageError: it cannot be read, or is not a policy.
    """
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            raise UsageError(f"{path} has more than {_FILE_BYTES_MAX} bytes: that is not a policy")
        return msgspec.convert(tomllib.loads(path.read_text()), PolicyFile)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path} is not a policy: {error}") from None


def steps(now: Current, wanted: PolicyFile) -> list[Step]:
    """What is to change for a server to have the policy of a file."""
    users = {name: FileUser(user.roles, user.disabled) for name, user in now.users.items()}
    found: list[Step] = []
    tables: tuple[tuple[Literal["user", "role", "quota"], dict[str, Any], dict[str, Any]], ...] = (
        ("role", now.roles, wanted.roles),
        ("user", users, wanted.users),
        ("quota", now.quotas, wanted.quotas),
    )
    for what, before, after in tables:
        for name in sorted(before.keys() | after.keys()):
            old, new = before.get(name), after.get(name)
            if old != new:
                change: Literal["add", "change", "remove"]
                change = "add" if old is None else "remove" if new is None else "change"
                found.append(Step(what, name, change, old, new))
    return found


def change_of(found: list[Step]) -> PolicyChange:
    """The change that takes these steps."""
    change = PolicyChange()
    for step in found:
        if step.what == "user":
            user = step.after
            change.users[step.name] = None if user is None else User(user.roles, user.disabled)
        elif step.what == "role":
            change.roles[step.name] = step.after
        else:
            change.quotas[step.name] = step.after
    return change


def plan(file: PolicyPath, url: Url = URL, as_json: Json = False) -> None:
    """Show what applying a policy would change; nothing is changed."""
    wanted = read(file)
    with wired(url) as wire:
        now = policy_wire.current(wire)
    _show(now, steps(now, wanted), as_json)


def apply(
    file: PolicyPath,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    certificates: Annotated[
        bool,
        typer.Option("--certificates", help="Administrators authenticate with certificates: none needs a secret."),
    ] = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Apply the policy of a file to a server, in one step.

    In it, sessions of users that are removed or disabled end, and waiters that may no longer acquire their names
    are refused. What is held stays held. If the policy was changed meanwhile, nothing happens.
    """
    wanted = read(file)
    with wired(url) as wire:
        now = policy_wire.current(wire)
        found = steps(now, wanted)
        if not found:
            _show(now, found, as_json)
            return
        if not certificates:
            _check_door(now, wanted)
        if not yes:
            _ask(now, found, as_json)
        told = policy_wire.apply(wire, now.revision, change_of(found))
    if as_json:
        say_json({**told, "changes": [_plain(step) for step in found]})
    else:
        ended = f"{told['sessions_ended']} sessions ended, {told['waiters_refused']} waiters refused"
        say(f"applied: revision {told['revision']}; {ended}")


def _check_door(now: Current, wanted: PolicyFile) -> None:
    """Check that an administrator is left who can log in."""
    for name, user in wanted.users.items():
        known = now.users.get(name, Listed())
        if (known.secrets or known.tokens) and is_admin(wanted.roles, Listed(user.roles, user.disabled)):
            return
    raise fail(
        Exit.USAGE,
        "no administrator of this policy has a secret: no one could log in to change it again",
        "create one (fencehold user add NAME --admin), or add --certificates if one has a certificate",
    )


def _ask(now: Current, found: list[Step], as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise fail(
            Exit.USAGE,
            "cannot ask: stdin is not a terminal, or --json was given",
            "add --yes to apply it without asking",
        )
    _show(now, found, False)
    if not typer.confirm("Apply this?", err=True):
        raise fail(Exit.NO, "nothing was changed")


def show(url: Url = URL, as_json: Json = False) -> None:
    """Show the policy of a server: users, roles, quotas, and how often a quota was exceeded."""
    with wired(url) as wire:
        now = policy_wire.current(wire)
    if as_json:
        say_json(msgspec.to_builtins(now))
        return
    if not now.revision:
        say("no policy: every client may do everything")
        return
    say(f"revision {now.revision}\n")
    say_users(now)
    say("")
    rows = [(clean(name), rule_text(rule)) for name, role in now.roles.items() for rule in role.rules]
    say_rows(("ROLE…", "RULE "), rows, empty="no roles")
    if now.quotas:
        say("")
        quotas = [(clean(name), _quota_text(each), _met(now, name)) for name, each in now.quotas.items()]
        say_rows(("QUOTA…", "BOUNDS ", "MET"), quotas, empty="no quotas")


def say_users(now: Current) -> None:
    """A line for each user."""
    rows = [
        (
            clean(name),
            clean(", ".join(user.roles)),
            "disabled" if user.disabled else "",
            user.secrets,
            len(user.tokens),
            now.used.get(name, {}).get("sessions", 0),
            now.used.get(name, {}).get("holds", 0),
        )
        for name, user in now.users.items()
    ]
    say_rows(("USER…", "ROLES ", "STATE", "SECRETS:", "TOKENS:", "SESSIONS:", "HOLDS:"), rows, empty="no users")


def rule_text(rule: Rule) -> str:
    """A rule in words."""
    verbs = ", ".join(verb.value for verb in rule.allow) or "nothing"
    where = (
        f"name {rule.name}" if rule.name is not None else f"prefix {rule.prefix}" if rule.prefix else "every name"
    )
    tier = "" if rule.tier == "any" else f" of the {rule.tier} tier"
    return clean(f"{verbs} on {where}{tier}")


def _quota_text(quota: Quota) -> str:
    plain: dict[str, Any] = msgspec.to_builtins(quota)
    return clean(" ".join(f"{key}={value}" for key, value in plain.items()))


def _met(now: Current, name: str) -> str:
    return ", ".join(f"{what} {count}" for what, count in now.exceeded.get(name, {}).items()) or "-"


def _plain(step: Step) -> dict[str, Any]:
    return msgspec.to_builtins(step._asdict())  # type: ignore[no-any-return]


_SIGNS = {"add": "+", "change": "~", "remove": "-"}


def _show(now: Current, found: list[Step], as_json: bool) -> None:
    if as_json:
        say_json({"revision": now.revision, "changes": [_plain(step) for step in found]})
        return
    for step in found:
        say(f"{_SIGNS[step.change]} {step.what} {clean(step.name)}")
        for sign, thing in (("-", step.before), ("+", step.after)):
            for line in _lines(thing):
                say(f"    {sign} {line}")
    count = len(found)
    note(f"{count} change{'s' if count != 1 else ''} to revision {now.revision}" if count else "nothing to change")


def _lines(thing: Any) -> list[str]:
    match thing:
        case Role():
            return [rule_text(rule) for rule in thing.rules]
        case FileUser():
            return [("disabled, " if thing.disabled else "") + f"roles: {clean(', '.join(thing.roles)) or 'none'}"]
        case Quota():
            return [_quota_text(thing)]
        case _:
            return []


POLICY = {"plan": plan, "apply": apply, "show": show}


def roles(url: Url = URL, as_json: Json = False) -> None:
    """List the roles, and the users that have them."""
    with wired(url) as wire:
        now = policy_wire.current(wire)
    rows = [(name, [user for user, each in now.users.items() if name in each.roles]) for name in now.roles]
    if as_json:
        say_json([{"role": name, "rules": len(now.roles[name].rules), "users": users} for name, users in rows])
    else:
        told = [(clean(name), len(now.roles[name].rules), clean(", ".join(users))) for name, users in rows]
        say_rows(("ROLE…", "RULES:", "USERS "), told, empty="no roles")


def role(
    name: Annotated[str, typer.Argument(metavar="ROLE", help="Which one.")], url: Url = URL, as_json: Json = False
) -> None:
    """Show the rules of a role."""
    with wired(url) as wire:
        now = policy_wire.current(wire)
    if name not in now.roles:
        raise fail(Exit.NO, f"there is no role {clean(name)}")
    if as_json:
        say_json({"role": name, "rules": msgspec.to_builtins(now.roles[name].rules)})
    else:
        for rule in now.roles[name].rules:
            say(rule_text(rule))


ROLE = {"list": roles, "show": role}


def whoami(url: Url = URL, as_json: Json = False) -> None:
    """Show your principal at the server, and what it is in the policy."""
    with wired(url) as wire:
        told = wire.call("WHOAMI")
    told = {**told, "known": bool(told["known"]), "admin": bool(told["admin"])}
    if as_json:
        say_json(told)
    elif not told["revision"]:
        who = clean(told["principal"])
        say(f"{f'you are {who}; ' if who else ''}the server has no policy: every client may do everything")
    else:
        say_facts(
            {
                "principal": clean(told["principal"]) or "anonymous",
                "known": "yes" if told["known"] else "no, or disabled",
                "roles": clean(", ".join(told["roles"])) or "none",
                "administrator": "yes" if told["admin"] else "no",
            }
        )


def can(
    principal: Principal, verb: VerbWord, name: Name, tier: Tier = "", url: Url = URL, as_json: Json = False
) -> None:
    """Ask whether a principal may do something to a name, and by which rule; exits with 1 if not."""
    if verb.lower() not in [each.value for each in Verb]:
        raise typer.BadParameter(f"{verb!r} is not a verb: it is acquire, observe, break, events or admin")
    with wired(url, tier=tier) as wire:
        told = wire.call("CAN", principal, verb, name)
    rule = msgspec.json.decode(told["rule"], type=Rule) if told["rule"] else None
    is_allowed = bool(told["allowed"])
    if as_json:
        plain = None if rule is None else msgspec.to_builtins(rule)
        known = bool(told["known"])
        say_json({"allowed": is_allowed, "known": known, "role": told["role"] or None, "rule": plain})
    else:
        why = f"role {clean(told['role'])}: {rule_text(rule)}" if rule else "no rule matches it"
        if not told["revision"]:
            why = "the server has no policy"
        elif not told["known"]:
            why = f"{clean(principal)} is not a user, or is disabled"
        say(f"{'yes' if is_allowed else 'no'}: {why}")
    if not is_allowed:
        raise typer.Exit(Exit.NO)

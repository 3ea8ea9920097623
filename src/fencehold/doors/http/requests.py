"""Requests: the path, the query and the body, parsed and bounded.

An unknown parameter is refused by its name: a `ttl` that was meant to be `ttl_ms` must not be a hold without an
end.
"""

from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request

from fencehold.doors.http.table import WHOLE, Operation, Parameter
from fencehold.errors import UsageError
from fencehold.gateway.bodies import json_object
from fencehold.gateway.credentials import ANONYMOUS, Credentials, read_authorization, shown_in
from fencehold.types import CORRECTNESS, EFFICIENCY, Tier

BODY_BYTES_MAX = 65_536


def credentials_of(request: Request) -> Credentials:
    """The caller, by the header `Authorization`; or else by the certificate of its connection."""
    said = read_authorization(request.headers.get("authorization", ""))
    return shown_in(request.scope) if said is ANONYMOUS else said


def tier_of(said: dict[str, Any]) -> Tier:
    """The tier of the request."""
    word = said.get("tier") or "correctness"
    if word not in ("correctness", "efficiency"):
        raise UsageError(f"tier is correctness or efficiency, not {word!r}")
    return EFFICIENCY if word == "efficiency" else CORRECTNESS


def instant_ms(said: str, what: str) -> int:
    """A time, given as in RFC 3339 or in seconds since 1970, in Unix milliseconds.

    Raises:
        UsageError: it is neither.
    """
    try:
        if said.replace(".", "", 1).isdecimal():
            return round(float(said) * 1000)
        moment = datetime.fromisoformat(said)
    except (ValueError, OverflowError):
        raise UsageError(f"{what} is a time such as 2026-11-18T02:41:00Z, got {said[:40]!r}") from None
    return round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)


async def said_in(request: Request, operation: Operation) -> dict[str, Any]:
    """All parameters of a request, by name.

    Raises:
        UsageError: a parameter is unknown, or of another kind.
    """
    query = {name: _number(name, value, operation.query) for name, value in request.query_params.items()}
    said = _checked(query, operation.query)
    if operation.body:
        said |= _checked(await json_object(request.stream(), BODY_BYTES_MAX), operation.body)
    return said


def _checked(said: dict[str, Any], known: tuple[Parameter, ...]) -> dict[str, Any]:
    by_name = {parameter.name: parameter for parameter in known}
    for name, value in said.items():
        if name not in by_name:
            raise UsageError(f"{name} is not known here; known are: {', '.join(by_name) or 'none'}")
        _check(by_name[name], value)
    for parameter in known:
        if parameter.is_required and parameter.name not in said:
            raise UsageError(f"{parameter.name} is missing: {parameter.words}")
    return said


def _check(parameter: Parameter, value: Any) -> None:
    values = value if parameter.is_list and isinstance(value, list) else [value]
    is_right = isinstance(value, list) == parameter.is_list and all(_is(parameter.kind, each) for each in values)
    if not is_right:
        kind = f"a list of {parameter.kind}s" if parameter.is_list else f"of kind {parameter.kind}"
        raise UsageError(f"{parameter.name} is {kind}")


def _is(kind: str, value: Any) -> bool:
    if kind == WHOLE:
        return type(value) is int and 0 <= value < 2**63
    if kind == "object":
        return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    return isinstance(value, str)


def _number(name: str, value: str, known: tuple[Parameter, ...]) -> Any:
    is_whole = any(parameter.name == name and parameter.kind == WHOLE for parameter in known)
    return int(value) if is_whole and value.isdecimal() and len(value) < 20 else value

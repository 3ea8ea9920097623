"""Options that several commands share, and how durations are written."""

from typing import Annotated

import typer

from fencehold import types as tiers
from fencehold.cli import completion
from fencehold.drivers.address import SERVICE_PORT
from fencehold.durations import parsed, seconds_of
from fencehold.errors import UsageError

URL = f"fencehold://127.0.0.1:{SERVICE_PORT}"
URL_VARIABLE = "FENCEHOLD_URL"
CLIENT_NAME_BYTES_MAX = 128
"""As much as fits into the metadata of a session beside the rest, and onto a line."""


def duration(text: str | float) -> float:
    """Seconds, written as in the SDK: 30, 1.5, 500ms, 30s, 5m, 1h30m or 1d."""
    if isinstance(text, str) and parsed(text) is None:
        raise typer.BadParameter(f"{text!r} is not a duration: write 30, 1.5, 500ms, 30s, 5m, 1h30m or 1d")
    try:
        return seconds_of("a duration", text)
    except UsageError as error:
        raise typer.BadParameter(str(error)) from None


def lasting(text: str | float) -> float:
    """A duration above zero."""
    seconds = duration(text)
    if seconds < 0.001:
        raise typer.BadParameter("at least one millisecond")
    return seconds


def tier_word(text: str) -> str:
    """A tier, as the protocol spells it; empty: the default tier of a connection."""
    word = text.strip().upper()
    if word not in ("", "CORRECTNESS", "EFFICIENCY"):
        raise typer.BadParameter(f"{text!r} is not a tier: it is correctness or efficiency")
    return word


def tier_of(word: str) -> tiers.Tier:
    """The tier for a word that `tier_word` has parsed."""
    return tiers.EFFICIENCY if word == "EFFICIENCY" else tiers.CORRECTNESS


def port_number(text: str | int) -> int | None:
    """A port. A Kubernetes Service called `fencehold` sets FENCEHOLD_PORT to tcp://…, which is not our setting."""
    if str(text).startswith("tcp://"):
        return None
    if not str(text).isdecimal() or int(text) > 65_535:
        raise typer.BadParameter(f"{text!r} is not a port: write a number from 0 to 65535")
    return int(text)


def client_name(text: str) -> str:
    """The name of a client."""
    if not text.strip() or len(text.encode()) > CLIENT_NAME_BYTES_MAX:
        raise typer.BadParameter(f"a name has 1 to {CLIENT_NAME_BYTES_MAX} bytes")
    return text


Url = Annotated[
    str,
    typer.Option("--url", envvar=URL_VARIABLE, metavar="URL", help="Where the server is: fencehold://host:port."),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON, for scripts.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="What is locked.", autocompletion=completion.names)]
Prefix = Annotated[
    str,
    typer.Argument(
        metavar="PREFIX",
        help="Only names with this prefix.",
        show_default=False,
        autocompletion=completion.names,
    ),
]
Tier = Annotated[
    str,
    typer.Option(
        "--tier",
        parser=tier_word,
        metavar="TIER",
        help="The tier: correctness or efficiency.",
        show_default="correctness",
    ),
]
ClientName = Annotated[
    str,
    typer.Option("--name", metavar="TEXT", parser=client_name, help="What others see as the holder."),
]
Expires = Annotated[
    float | None,
    typer.Option(
        "--expires", parser=lasting, metavar="DURATION", help="For how long it is valid.", show_default="for good"
    ),
]
Try = Annotated[bool, typer.Option("--try", help="Do not wait at all.")]
Shared = Annotated[bool, typer.Option("--shared", help="A shared lock: several can hold it at once.")]
Limit = Annotated[
    int,
    typer.Option(
        "--limit", metavar="N", min=0, help="Acquire a permit of a semaphore with N permits.", show_default=False
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        parser=duration,
        metavar="DURATION",
        help="How long to wait for it.",
        show_default="without limit",
    ),
]


def wait_of(attempt: bool, timeout: float | None) -> float | None:
    """How long to wait, from `--try` and `--timeout`; None is without limit."""
    if attempt and timeout:
        raise typer.BadParameter("--try and --timeout exclude each other")
    return 0.0 if attempt else timeout

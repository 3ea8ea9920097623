"""`fencehold security`: a certificate authority, certificates signed by it, service tokens.

No secret is given on the command line. Keys are written to files readable by their owner alone, and a token is
shown once, when it is made.
"""

import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from fencehold.cli.options import Expires, Json
from fencehold.cli.output import note, say, say_json, tell
from fencehold.security.certificates import check_principal
from fencehold.security.issuer import DAYS, Issuer, Pair
from fencehold.security.tls import expiry_of
from fencehold.security.tokens import Line, add, digest_of, new_token

Folder = Annotated[
    Path, typer.Argument(metavar="DIRECTORY", help="Where the authority and what it signs is kept.")
]
Days = Annotated[int, typer.Option("--days", metavar="N", min=1, help="For how long certificates are valid.")]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="NAME",
        help="A host name or address of the server; may be given more than once.",
        show_default="127.0.0.1, ::1 and localhost",
    ),
]

_LOOPBACK = ["127.0.0.1", "::1", "localhost"]


def init(
    directory: Folder,
    host: Hosts = None,
    admin: Annotated[str, typer.Option(metavar="NAME", help="The first administrator.")] = "admin",
    days: Days = DAYS,
    as_json: Json = False,
) -> None:
    """Make an authority, a certificate for the nodes and one for an administrator, and print what to type next.

    For a first cluster. If you have an authority already, you need none of this: `fencehold serve --tls-cert …`.
    """
    directory = directory.expanduser().absolute()
    issuer = Issuer.make(directory)
    hosts = [*_LOOPBACK, *(host or [])]
    server, mine = issuer.for_node("server", hosts, days), issuer.for_client("admin", admin, days)
    # Empty, and there from the start: a server that was started with it needs no restart to refuse a client.
    crl = issuer.revoke()
    if as_json:
        say_json(
            {
                "ca": str(issuer.ca.cert),
                "crl": str(crl),
                "server": _shape(server),
                "admin": {**_shape(mine), "principal": admin},
                "hosts": hosts,
            }
        )
        return
    where = f"fenceholds://{(host or _LOOPBACK)[0]}:7420"
    listens = " --host 0.0.0.0" if host else ""
    tell(f"made {issuer.ca.cert}, {server.cert} and {mine.cert}, valid until {_until(mine)}")
    tell(f"keep {issuer.ca.key} away from the servers: it can sign a certificate for any name")
    say("\nstart a server:\n")
    say(
        f"  fencehold serve{listens} --tls-cert {_quoted(server.cert)} --tls-key {_quoted(server.key)} \\\n"
        f"    --tls-ca {_quoted(issuer.ca.cert)} --tls-clients required --tls-crl {_quoted(crl)}"
    )
    say(f"\nand ask it, as {admin}:\n")
    say(f"  export FENCEHOLD_URL={where} FENCEHOLD_CA={_quoted(issuer.ca.cert)}")
    say(f"  export FENCEHOLD_CERT={_quoted(mine.cert)} FENCEHOLD_KEY={_quoted(mine.key)}")
    say("  fencehold status")
    say(f"\na certificate for each client:\n\n  fencehold security cert {_quoted(directory)} NAME")


def cert(
    directory: Folder,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The principal: a name, or a SPIFFE ID; for a node, its name."),
    ],
    host: Hosts = None,
    file: Annotated[
        str, typer.Option("--file", metavar="NAME", help="The name of its files.", show_default="NAME")
    ] = "",
    days: Days = DAYS,
    as_json: Json = False,
) -> None:
    """Sign a certificate: for a client, or with --host for one more node."""
    issuer = Issuer(directory)
    called = file or name.rpartition("/")[2]
    pair = issuer.for_node(called, host, days) if host else issuer.for_client(called, name, days)
    if as_json:
        say_json({**_shape(pair), "principal": None if host else name})
    else:
        tell(f"made {pair.cert} and {pair.key}, valid until {_until(pair)}")


def renew(
    directory: Folder,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="Which certificates.", show_default="all that expire within 30 days"
        ),
    ] = None,
    days: Days = DAYS,
    as_json: Json = False,
) -> None:
    """Renew certificates: the same names, a new key. A server reloads the files by itself.

    The files are replaced in their place; copy them to where servers and clients read them.
    """
    issuer = Issuer(directory)
    soon = datetime.now(UTC) + timedelta(days=30)
    due = names or [name for name in issuer.names() if expiry_of(directory / f"{name}.pem") < soon]
    renewed = [issuer.renew(name, days) for name in due]
    if as_json:
        say_json([_shape(pair) for pair in renewed])
        return
    for pair in renewed:
        tell(f"renewed {pair.cert} and {pair.key}, valid until {_until(pair)}")
    if not renewed:
        tell("no certificate expires within 30 days")


def revoke(
    directory: Folder,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Which certificates.")],
    as_json: Json = False,
) -> None:
    """Revoke certificates: servers that read the list (`serve --tls-crl`) refuse clients that show one.

    Open connections with one are ended, too. The list is a file; copy it to where servers read it.
    """
    path = Issuer(directory).revoke(*names)
    if as_json:
        say_json({"crl": str(path), "revoked": names})
        return
    tell(f"revoked {', '.join(names)} in {path}: copy it to where servers read it (--tls-crl)")


def token(
    principal: Annotated[str, typer.Argument(metavar="PRINCIPAL", help="The owner of the token.")],
    tokens: Annotated[
        Path,
        typer.Option(
            "--tokens", envvar="FENCEHOLD_TOKENS", metavar="FILE", help="The file that `serve --tokens` reads."
        ),
    ],
    expires: Expires = None,
    as_json: Json = False,
) -> None:
    """Make a token for a service. It is shown once; its hash goes to a file that servers read by themselves."""
    check_principal(principal)
    made = new_token()
    until = None if expires is None else (datetime.now(UTC) + timedelta(seconds=expires)).replace(microsecond=0)
    add(tokens, Line(principal, digest_of(made), until))
    if as_json:
        say_json({"principal": principal, "token": made, "expires": until.isoformat() if until else None})
        return
    note(
        f"fencehold: the token of {principal}, which is shown only now; clients read it from $FENCEHOLD_TOKEN_FILE"
    )
    tell(made)


def _shape(pair: Pair) -> dict[str, str]:
    return {"cert": str(pair.cert), "key": str(pair.key), "expires": expiry_of(pair.cert).isoformat()}


def _until(pair: Pair) -> str:
    return f"{expiry_of(pair.cert):%Y-%m-%d}"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


SECURITY = {"init": init, "cert": cert, "renew": renew, "revoke": revoke, "token": token}
"""The commands of the group."""

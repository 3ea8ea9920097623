"""The table of HTTP operations: the listener's routes, the OpenAPI document and its page are made of it."""

from typing import Any, NamedTuple

TEXT, WHOLE = "string", "integer"


class Parameter(NamedTuple):
    """A parameter of a query, or a field of a body."""

    name: str
    kind: str
    words: str
    is_required: bool = False
    is_list: bool = False


class Operation(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    handler: str
    summary: str
    query: tuple[Parameter, ...] = ()
    body: tuple[Parameter, ...] = ()
    media: str = "application/json"


TIER = Parameter("tier", TEXT, "`correctness`, or `efficiency`; the first is the default")
_ACQUIRE = (
    Parameter("ttl_ms", WHOLE, "it expires this long after the grant unless it is extended", is_required=True),
    Parameter("wait_ms", WHOLE, "how long to wait; 0, the default, does not wait; at most 300000"),
    TIER,
    Parameter("mode", TEXT, "`exclusive`, the default, or `shared`"),
    Parameter("request_id", TEXT, "makes a retry idempotent: the same id acts once, and gets the same answer"),
    Parameter("owner", TEXT, "the owner inside the client, such as a thread, to detect deadlocks"),
    Parameter("meta", "object", "texts by name, shown with the hold"),
)
_WHICH = (
    Parameter("fence", WHOLE, "the fence of the hold"),
    Parameter("hold_id", TEXT, "its id, where there is no fence: in the tier `efficiency`"),
)

OPERATIONS = (
    Operation(
        "GET",
        "/v1/locks",
        "list_locks",
        "Names that are held or waited for, a page of them, by name.",
        (
            Parameter("prefix", TEXT, "only names that begin with this"),
            Parameter("page_size", WHOLE, "how many: 100 by default, at most 1000"),
            Parameter("page_token", TEXT, "`next_page_token` of the previous page"),
            TIER,
        ),
    ),
    Operation(
        "GET",
        "/v1/locks/{name}",
        "explain",
        "Who holds a name, since when, and who waits for it.",
        (Parameter("limit", WHOLE, "how many holders and waiters are listed: 100 by default"), TIER),
    ),
    Operation(
        "POST",
        "/v1/locks/{name}",
        "acquire",
        "Acquire a name. 409 with the reason NOT_ACQUIRED if it was not acquired in time.",
        body=(*_ACQUIRE, Parameter("permits", WHOLE, "ask for one of this many permits")),
    ),
    Operation(
        "PATCH",
        "/v1/locks/{name}",
        "extend",
        "Move the end of a hold.",
        body=(*_WHICH, Parameter("ttl_ms", WHOLE, "it expires this long from now", is_required=True)),
    ),
    Operation("DELETE", "/v1/locks/{name}", "release", "Release a hold.", _WHICH),
    Operation(
        "POST",
        "/v1/multi",
        "acquire_several",
        "Acquire several names in one step: all or none, with one fence. Release them by one of them.",
        body=(Parameter("names", TEXT, "the names", is_required=True, is_list=True), *_ACQUIRE),
    ),
    Operation(
        "POST",
        "/v1/break/{name}",
        "break_hold",
        "For operators: take a name from its holders.",
        body=(Parameter("fence", WHOLE, "only from holders up to this fence; 0: from all"), TIER),
    ),
    Operation(
        "GET",
        "/v1/sessions",
        "list_sessions",
        "Sessions of the service, a page of them.",
        (
            Parameter("page_size", WHOLE, "at most how many"),
            Parameter("page_token", WHOLE, "`next_page_token` of the previous page"),
            TIER,
        ),
    ),
    Operation("GET", "/v1/cluster", "cluster", "The nodes, as the leader sees them."),
    Operation("GET", "/v1/shards", "shards", "The shards: the slots and the leader of each."),
    Operation(
        "GET",
        "/v1/events",
        "events",
        "Events of names, as server-sent events; `Last-Event-ID` resumes after that event.",
        (Parameter("prefix", TEXT, "names that begin with this"), TIER),
        media="text/event-stream",
    ),
    Operation(
        "GET",
        "/v1/history/{name}",
        "history",
        "Who held a name, when, with which fence and how it ended; who waited; and what deserves a look.",
        (
            Parameter("at", TEXT, "at this instant only: RFC 3339, or seconds since 1970"),
            Parameter("since", TEXT, "what had not ended by then"),
            Parameter("until", TEXT, "what had begun by then"),
            Parameter("limit", WHOLE, "how many holds, and waits: 100 by default, at most 1000"),
        ),
    ),
    Operation(
        "GET",
        "/metrics",
        "metrics",
        "Figures of the node beside this listener, in Prometheus' text format.",
        media="text/plain",
    ),
    Operation("GET", "/healthz", "healthz", "Whether the listener runs."),
    Operation("GET", "/readyz", "readyz", "Whether a node is there, and whether it leads; 503 if none is."),
    Operation("GET", "/openapi.json", "openapi", "This interface, described by OpenAPI 3.1."),
    Operation("GET", "/", "page", "This interface, described for people.", media="text/html"),
)


def described(version: str) -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Fencehold", "version": version, "description": "Locks with fences, for scripts."},
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM},
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def page(version: str) -> str:
    """The page that shows the table, without external resources."""
    rows = "".join(_rows(operation) for operation in OPERATIONS)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Fencehold over HTTP</title>'
        "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "code{background:#8882;padding:.1em .3em}dt{margin-top:1.2rem;font-weight:600}</style>"
        f"<h1>Fencehold {version} over HTTP</h1>"
        "<p>The same for programs: <a href='/openapi.json'>openapi.json</a>. "
        "For people: <a href='/dashboard/'>the dashboard</a>.</p>"
        f"<dl>{rows}</dl></html>"
    )


def _rows(operation: Operation) -> str:
    where = [("in the query", operation.query), ("in the body, as JSON", operation.body)]
    lists = "".join(
        f"<p>{words}:</p><ul>" + "".join(_item(parameter) for parameter in parameters) + "</ul>"
        for words, parameters in where
        if parameters
    )
    return f"<dt><code>{operation.method} {operation.path}</code></dt><dd>{_code(operation.summary)}{lists}</dd>"


def _item(parameter: Parameter) -> str:
    needed = ", needed" if parameter.is_required else ""
    return f"<li><code>{parameter.name}</code> ({parameter.kind}{needed}): {_code(parameter.words)}</li>"


def _code(words: str) -> str:
    parts = words.split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


def _operation(operation: Operation) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": each.name, "in": "query", "description": each.words, "schema": _schema(each)}
        for each in operation.query
    ]
    if "{name}" in operation.path:
        parameters.insert(0, {"name": "name", "in": "path", "required": True, "schema": {"type": TEXT}})
    told: dict[str, Any] = {
        "operationId": operation.handler,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "done", "content": {operation.media: {}}},
            "default": {
                "description": "what went wrong",
                "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
            },
        },
    }
    if operation.body:
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {each.name: {**_schema(each), "description": each.words} for each in operation.body},
            "required": [each.name for each in operation.body if each.is_required],
            "additionalProperties": False,
        }
        told["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return told


def _schema(parameter: Parameter) -> dict[str, Any]:
    return {"type": "array", "items": {"type": parameter.kind}} if parameter.is_list else {"type": parameter.kind}


_PROBLEM = {
    "type": "object",
    "properties": {
        "type": {"type": TEXT},
        "title": {"type": TEXT, "description": "what the reason means"},
        "status": {"type": WHOLE},
        "detail": {"type": TEXT, "description": "what happened"},
        "reason": {"type": TEXT, "description": "the stable word that programs decide by"},
    },
}

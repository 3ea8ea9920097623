"""The catalogue: every metric there is, with its labels and what it means. Pages, docs and checks are made of it.

Names and units are as Prometheus wants them: seconds and bytes, the unit last, `_total` for what only grows. Every
label has few values: names of locks appear by their template (`templates`).
"""

from typing import NamedTuple

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3600)
"""Upper bounds of buckets, two for a factor of ten: from 100 µs to an hour."""
SYNC_SECONDS = SECONDS[:11]
"""Those by which an engine counts how long syncs took (`journal.sync_times`)."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class Metric(NamedTuple):
    """One metric."""

    name: str
    kind: str
    labels: tuple[str, ...]
    words: str
    buckets: tuple[float, ...] = ()


_BY_NAME = ("tier", "template")
_BY_SHARD = ("tier", "shard")
"""`shard` is `0` where there is only one."""

COUNTED = (
    Metric(
        "fencehold_operations_total",
        COUNTER,
        ("op", "outcome", "tier", "listener", "template"),
        "What clients asked for, counted once each, when it ended: `acquire` is `granted`, `busy` (a try), "
        "`timed_out`, `cancelled`, `deadlock`, `denied`, `turned_away` (its name moves elsewhere), `limit`, "
        "`queue_full` or `usage`; `release` and `extend` are `ok` or say why not; `break`, `open` and `close` "
        "likewise. `listener` is `resp`, `grpc` or `http`.",
    ),
    Metric("fencehold_acquires_queued_total", COUNTER, _BY_NAME, "Acquires that had to wait."),
    Metric(
        "fencehold_acquire_wait_seconds",
        HISTOGRAM,
        _BY_NAME,
        "How long acquires that were granted had waited; 0 for those granted at once.",
        SECONDS,
    ),
    Metric("fencehold_hold_seconds", HISTOGRAM, _BY_NAME, "How long holds lasted that have ended.", SECONDS),
    Metric(
        "fencehold_hold_losses_total",
        COUNTER,
        ("reason", *_BY_NAME),
        "Holds that ended other than by their holder: `expired`, `broken` or `revoked`.",
    ),
    Metric(
        "fencehold_fences_late_total",
        COUNTER,
        _BY_NAME,
        "Releases and extensions of a hold that had been lost: its holder had gone on without it.",
    ),
    Metric(
        "fencehold_deadlocks_total",
        COUNTER,
        _BY_NAME,
        "Acquires refused because waiting would complete a cycle (deadlock).",
    ),
    Metric(
        "fencehold_refusals_total",
        COUNTER,
        ("op", "code", "tier"),
        "What the state refused: `denied` by the policy, over a `limit` or `quota`, `queue_full`, `conflict` or "
        "`usage`.",
    ),
    Metric("fencehold_sessions_opened_total", COUNTER, ("tier", "listener"), "Sessions that were opened."),
    Metric(
        "fencehold_sessions_ended_total",
        COUNTER,
        ("reason", "tier"),
        "Sessions that ended: `released` (closed by their client), `expired`, `revoked`.",
    ),
    Metric(
        "fencehold_sessions_suspended_total",
        COUNTER,
        ("tier",),
        "Sessions whose client closed its connection without ending them: what they hold is in jeopardy until the "
        "client is back.",
    ),
    Metric("fencehold_leader_changes_total", COUNTER, ("shard",), "Announcements of a leader, seen by this node."),
    Metric(
        "fencehold_append_seconds",
        HISTOGRAM,
        _BY_SHARD,
        "How long appends took, sync included.",
        SECONDS,
    ),
    Metric("fencehold_batch_commands", HISTOGRAM, _BY_SHARD, "Commands in one entry of the journal.", SIZES),
    Metric(
        "fencehold_observer_gaps_total",
        COUNTER,
        (),
        "How often entries were missed by what counts and keeps the history, because it could not keep up or was "
        "not running.",
    ),
    Metric("fencehold_spans_total", COUNTER, (), "Server spans made of traced acquires."),
    Metric(
        "fencehold_spans_dropped_total",
        COUNTER,
        (),
        "Server spans that were not made, as there were more than `spans_per_s_max`.",
    ),
    Metric("fencehold_history_rows", GAUGE, (), "Holds and waits kept in the history."),
    Metric("fencehold_history_bytes", GAUGE, (), "Size of the file of the history."),
)
"""Counted by the observer, from durable entries."""

LOOKED_UP = (
    Metric("fencehold_build_info", GAUGE, ("version", "engine", "node"), "Always 1: what runs here."),
    Metric("fencehold_leader", GAUGE, ("shard",), "1 if this node leads the shard, 0 if not."),
    Metric("fencehold_standby", GAUGE, ("shard",), "1 if this node follows the leader of the shard, 0 if not."),
    Metric("fencehold_epoch", GAUGE, ("shard",), "The newest epoch this node has led under."),
    Metric("fencehold_position", GAUGE, ("shard",), "The last position of the journal known to be durable here."),
    Metric("fencehold_fence", GAUGE, ("shard",), "The greatest fence given away so far."),
    Metric(
        "fencehold_standby_lag_positions",
        GAUGE,
        ("standby", "shard"),
        "How far each standby that follows this node is behind it; on a leader.",
    ),
    Metric("fencehold_standbys", GAUGE, ("shard",), "Standbys that follow this node."),
    Metric(
        "fencehold_followed_seconds",
        GAUGE,
        ("shard",),
        "On a standby: seconds since an entry came from the journal. A leader writes one about every second.",
    ),
    Metric("fencehold_sessions", GAUGE, _BY_SHARD, "Sessions that live."),
    Metric("fencehold_names_held", GAUGE, _BY_SHARD, "Names that are held."),
    Metric("fencehold_names_with_waiters", GAUGE, _BY_SHARD, "Names with waiters."),
    Metric("fencehold_waiters", GAUGE, _BY_SHARD, "Requests that wait."),
    Metric(
        "fencehold_longest_hold_seconds",
        GAUGE,
        _BY_SHARD,
        "How long the oldest exclusive hold has lasted, of the 10 000 names that were taken first.",
    ),
    Metric(
        "fencehold_longest_wait_seconds", GAUGE, _BY_SHARD, "How long the oldest request has waited, of 10 000."
    ),
    Metric("fencehold_longest_queue", GAUGE, _BY_SHARD, "Requests in the longest of 10 000 queues."),
    Metric("fencehold_appends_total", COUNTER, _BY_SHARD, "Entries that this node has appended."),
    Metric(
        "fencehold_sync_seconds",
        HISTOGRAM,
        ("shard",),
        "How long the disk took to sync an entry, where the server keeps the journal itself (`--data`). What "
        "other engines sync, their servers tell.",
        SYNC_SECONDS,
    ),
    Metric("fencehold_pending_commands", GAUGE, _BY_SHARD, "Commands that wait for their entry."),
    Metric("fencehold_connections", GAUGE, (), "Connections to the RESP listener."),
    Metric(
        "fencehold_throttled_clients",
        GAUGE,
        (),
        "Clients that send more than their share, and wait for themselves.",
    ),
    Metric(
        "fencehold_commands_unknown_total",
        COUNTER,
        (),
        "Commands and scripts that this server does not know.",
    ),
    Metric("fencehold_denials_total", COUNTER, (), "What was denied before it came to the journal."),
    Metric(
        "fencehold_quota_exceeded_total",
        COUNTER,
        ("quota", "bound"),
        "How often a bound of a quota was met, whether it refuses or only counts.",
    ),
    Metric("fencehold_ring_bytes", GAUGE, _BY_SHARD, "Memory that events take which can be told again."),
    Metric(
        "fencehold_journal_room_used_bytes", GAUGE, ("shard",), "What the journal takes, where it has a bound."
    ),
    Metric(
        "fencehold_journal_room_allowed_bytes", GAUGE, ("shard",), "What it may take; 0 where it has no bound."
    ),
    Metric(
        "fencehold_held_back", GAUGE, ("shard",), "1 while new work is refused because the journal is nearly full."
    ),
    Metric("fencehold_observer_up", GAUGE, (), "1 if what counts operations and keeps the history runs."),
    Metric("fencehold_observer_backlog_bytes", GAUGE, (), "What waits to be taken by it."),
    Metric(
        "fencehold_observer_dropped_total", COUNTER, (), "Entries that it was not told of, as it did not keep up."
    ),
)
"""Looked up by the node when it is asked."""

LISTENER = (
    Metric("fencehold_up", GAUGE, (), "1 if the node answered when this page was made."),
    Metric("fencehold_http_requests_total", COUNTER, ("operation", "status"), "Requests to the HTTP listener."),
)
"""Of the HTTP listener itself, which shows the page."""

SINKS = (
    Metric(
        "fencehold_sink_up",
        GAUGE,
        ("sink",),
        "1 if the sink runs, reads the service, and its target takes what it delivers.",
    ),
    Metric("fencehold_sink_delivered_total", COUNTER, ("sink",), "Events that are in the target."),
    Metric("fencehold_sink_retried_total", COUNTER, ("sink",), "Events that had to be delivered again."),
    Metric("fencehold_sink_dropped_total", COUNTER, ("sink",), "Events that the target will never take."),
    Metric("fencehold_sink_gaps_total", COUNTER, ("sink",), "Gaps: events were gone before they were read."),
    Metric("fencehold_sink_waiting", GAUGE, ("sink",), "Events that were read and are not delivered yet."),
    Metric("fencehold_sink_lag_positions", GAUGE, ("sink",), "How far the target is behind the journal."),
    Metric("fencehold_sink_lag_seconds", GAUGE, ("sink",), "The age of the oldest event that is not delivered."),
)
"""Of sinks that run on the machine of the listener, as they say themselves."""

CLIENT = (
    Metric(
        "fencehold_client_acquires_total",
        COUNTER,
        ("outcome", "template"),
        "Acquires by this process: `acquired`, `not_acquired`, or `failed`.",
    ),
    Metric(
        "fencehold_client_acquire_seconds",
        HISTOGRAM,
        ("template",),
        "How long callers waited for an acquire that was granted, the network included.",
        SECONDS,
    ),
    Metric("fencehold_client_holds", GAUGE, (), "Holds and claims that this process has."),
    Metric(
        "fencehold_client_hold_seconds",
        HISTOGRAM,
        ("template",),
        "How long holds lasted that were released.",
        SECONDS,
    ),
    Metric(
        "fencehold_client_losses_total",
        COUNTER,
        ("reason", "template"),
        "Holds that were lost before they were released: `expired`, `broken`, `unanswered` (no keep-alive was "
        "answered in time), `session`, `closed` or `other`.",
    ),
    Metric(
        "fencehold_client_fences_refused_total",
        COUNTER,
        (),
        "Writes that a guard refused because their fence was stale.",
    ),
    Metric("fencehold_client_disconnects_total", COUNTER, (), "Connections to the service that were lost."),
)
"""Of the SDK, in an application that wants them."""

SERVER = (*COUNTED, *LOOKED_UP, *LISTENER, *SINKS)
BY_NAME = {metric.name: metric for metric in (*SERVER, *CLIENT)}

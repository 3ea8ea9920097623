# Made of proto/fencehold/v1/fencehold.proto by `make stubs`: do not edit.
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

from google.protobuf.descriptor_pool import DescriptorPool
pool: DescriptorPool

class Tier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIER_UNSPECIFIED: _ClassVar[Tier]
    TIER_CORRECTNESS: _ClassVar[Tier]
    TIER_EFFICIENCY: _ClassVar[Tier]

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_UNSPECIFIED: _ClassVar[Mode]
    MODE_EXCLUSIVE: _ClassVar[Mode]
    MODE_SHARED: _ClassVar[Mode]
    MODE_PERMIT: _ClassVar[Mode]

class EventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVENT_KIND_UNSPECIFIED: _ClassVar[EventKind]
    EVENT_KIND_OPENED: _ClassVar[EventKind]
    EVENT_KIND_ACQUIRED: _ClassVar[EventKind]
    EVENT_KIND_QUEUED: _ClassVar[EventKind]
    EVENT_KIND_EXTENDED: _ClassVar[EventKind]
    EVENT_KIND_RELEASED: _ClassVar[EventKind]
    EVENT_KIND_EXPIRED: _ClassVar[EventKind]
    EVENT_KIND_BROKEN: _ClassVar[EventKind]
    EVENT_KIND_TIMED_OUT: _ClassVar[EventKind]
    EVENT_KIND_CANCELLED: _ClassVar[EventKind]
    EVENT_KIND_DEADLOCK: _ClassVar[EventKind]
    EVENT_KIND_SESSION_ENDED: _ClassVar[EventKind]
    EVENT_KIND_BUSY: _ClassVar[EventKind]
    EVENT_KIND_REFUSED: _ClassVar[EventKind]
    EVENT_KIND_FENCE_RAISED: _ClassVar[EventKind]
    EVENT_KIND_DENIED: _ClassVar[EventKind]
    EVENT_KIND_REVOKED: _ClassVar[EventKind]
    EVENT_KIND_SUSPENDED: _ClassVar[EventKind]
    EVENT_KIND_POLICY_CHANGED: _ClassVar[EventKind]
    EVENT_KIND_LIMITS_SET: _ClassVar[EventKind]
    EVENT_KIND_ANNOUNCED: _ClassVar[EventKind]
    EVENT_KIND_TURNED_AWAY: _ClassVar[EventKind]
    EVENT_KIND_MAP_CHANGED: _ClassVar[EventKind]
    EVENT_KIND_SLOTS_CLOSED: _ClassVar[EventKind]
    EVENT_KIND_SLOTS_OPENED: _ClassVar[EventKind]
    EVENT_KIND_SLOTS_FORCED: _ClassVar[EventKind]
    EVENT_KIND_HOME_CLOSING: _ClassVar[EventKind]
    EVENT_KIND_HOME_CLOSED: _ClassVar[EventKind]
    EVENT_KIND_HOME_OPENED: _ClassVar[EventKind]
    EVENT_KIND_HOMES_LAPSED: _ClassVar[EventKind]
    EVENT_KIND_HOMES_RESUMED: _ClassVar[EventKind]

class EndReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    END_REASON_UNSPECIFIED: _ClassVar[EndReason]
    END_REASON_EXPIRED: _ClassVar[EndReason]
    END_REASON_BROKEN: _ClassVar[EndReason]
    END_REASON_UNREACHABLE: _ClassVar[EndReason]
    END_REASON_CLOSED: _ClassVar[EndReason]
TIER_UNSPECIFIED: Tier
TIER_CORRECTNESS: Tier
TIER_EFFICIENCY: Tier
MODE_UNSPECIFIED: Mode
MODE_EXCLUSIVE: Mode
MODE_SHARED: Mode
MODE_PERMIT: Mode
EVENT_KIND_UNSPECIFIED: EventKind
EVENT_KIND_OPENED: EventKind
EVENT_KIND_ACQUIRED: EventKind
EVENT_KIND_QUEUED: EventKind
EVENT_KIND_EXTENDED: EventKind
EVENT_KIND_RELEASED: EventKind
EVENT_KIND_EXPIRED: EventKind
EVENT_KIND_BROKEN: EventKind
EVENT_KIND_TIMED_OUT: EventKind
EVENT_KIND_CANCELLED: EventKind
EVENT_KIND_DEADLOCK: EventKind
EVENT_KIND_SESSION_ENDED: EventKind
EVENT_KIND_BUSY: EventKind
EVENT_KIND_REFUSED: EventKind
EVENT_KIND_FENCE_RAISED: EventKind
EVENT_KIND_DENIED: EventKind
EVENT_KIND_REVOKED: EventKind
EVENT_KIND_SUSPENDED: EventKind
EVENT_KIND_POLICY_CHANGED: EventKind
EVENT_KIND_LIMITS_SET: EventKind
EVENT_KIND_ANNOUNCED: EventKind
EVENT_KIND_TURNED_AWAY: EventKind
EVENT_KIND_MAP_CHANGED: EventKind
EVENT_KIND_SLOTS_CLOSED: EventKind
EVENT_KIND_SLOTS_OPENED: EventKind
EVENT_KIND_SLOTS_FORCED: EventKind
EVENT_KIND_HOME_CLOSING: EventKind
EVENT_KIND_HOME_CLOSED: EventKind
EVENT_KIND_HOME_OPENED: EventKind
EVENT_KIND_HOMES_LAPSED: EventKind
EVENT_KIND_HOMES_RESUMED: EventKind
END_REASON_UNSPECIFIED: EndReason
END_REASON_EXPIRED: EndReason
END_REASON_BROKEN: EndReason
END_REASON_UNREACHABLE: EndReason
END_REASON_CLOSED: EndReason

class Hold(_message.Message):
    __slots__ = ("hold_id", "names", "fence", "tier", "mode", "safe_for_ms", "ttl_ms", "request_id")
    HOLD_ID_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SAFE_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    hold_id: str
    names: _containers.RepeatedScalarFieldContainer[str]
    fence: int
    tier: Tier
    mode: Mode
    safe_for_ms: int
    ttl_ms: int
    request_id: str
    def __init__(self, hold_id: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., fence: _Optional[int] = ..., tier: _Optional[_Union[Tier, str]] = ..., mode: _Optional[_Union[Mode, str]] = ..., safe_for_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class NotAcquired(_message.Message):
    __slots__ = ("explanation",)
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    explanation: Explanation
    def __init__(self, explanation: _Optional[_Union[Explanation, _Mapping[str, object]]] = ...) -> None: ...

class Party(_message.Message):
    __slots__ = ("session", "owner", "client", "host", "pid")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    session: int
    owner: str
    client: str
    host: str
    pid: int
    def __init__(self, session: _Optional[int] = ..., owner: _Optional[str] = ..., client: _Optional[str] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ...) -> None: ...

class Holder(_message.Message):
    __slots__ = ("party", "fence", "mode", "permits", "held_for_ms", "left_ms", "meta_json", "since_unix_ms")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    HELD_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    META_JSON_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    party: Party
    fence: int
    mode: Mode
    permits: int
    held_for_ms: int
    left_ms: int
    meta_json: str
    since_unix_ms: int
    def __init__(self, party: _Optional[_Union[Party, _Mapping[str, object]]] = ..., fence: _Optional[int] = ..., mode: _Optional[_Union[Mode, str]] = ..., permits: _Optional[int] = ..., held_for_ms: _Optional[int] = ..., left_ms: _Optional[int] = ..., meta_json: _Optional[str] = ..., since_unix_ms: _Optional[int] = ...) -> None: ...

class Waiter(_message.Message):
    __slots__ = ("position", "party", "mode", "names", "waited_for_ms", "left_ms")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    WAITED_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    position: int
    party: Party
    mode: Mode
    names: _containers.RepeatedScalarFieldContainer[str]
    waited_for_ms: int
    left_ms: int
    def __init__(self, position: _Optional[int] = ..., party: _Optional[_Union[Party, _Mapping[str, object]]] = ..., mode: _Optional[_Union[Mode, str]] = ..., names: _Optional[_Iterable[str]] = ..., waited_for_ms: _Optional[int] = ..., left_ms: _Optional[int] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("name", "holders", "waiters", "holder_count", "waiter_count", "delayed_ms", "sentence")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    WAITERS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_COUNT_FIELD_NUMBER: _ClassVar[int]
    WAITER_COUNT_FIELD_NUMBER: _ClassVar[int]
    DELAYED_MS_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    holders: _containers.RepeatedCompositeFieldContainer[Holder]
    waiters: _containers.RepeatedCompositeFieldContainer[Waiter]
    holder_count: int
    waiter_count: int
    delayed_ms: int
    sentence: str
    def __init__(self, name: _Optional[str] = ..., holders: _Optional[_Iterable[_Union[Holder, _Mapping[str, object]]]] = ..., waiters: _Optional[_Iterable[_Union[Waiter, _Mapping[str, object]]]] = ..., holder_count: _Optional[int] = ..., waiter_count: _Optional[int] = ..., delayed_ms: _Optional[int] = ..., sentence: _Optional[str] = ...) -> None: ...

class LockRequest(_message.Message):
    __slots__ = ("session", "name", "tier", "mode", "permits", "wait_ms", "ttl_ms", "delay_ms", "request_id", "owner", "meta", "explain")
    class MetaEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PERMITS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    session: str
    name: str
    tier: Tier
    mode: Mode
    permits: int
    wait_ms: int
    ttl_ms: int
    delay_ms: int
    request_id: str
    owner: str
    meta: _containers.ScalarMap[str, str]
    explain: bool
    def __init__(self, session: _Optional[str] = ..., name: _Optional[str] = ..., tier: _Optional[_Union[Tier, str]] = ..., mode: _Optional[_Union[Mode, str]] = ..., permits: _Optional[int] = ..., wait_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., request_id: _Optional[str] = ..., owner: _Optional[str] = ..., meta: _Optional[_Mapping[str, str]] = ..., explain: _Optional[bool] = ...) -> None: ...

class LockResponse(_message.Message):
    __slots__ = ("hold", "not_acquired")
    HOLD_FIELD_NUMBER: _ClassVar[int]
    NOT_ACQUIRED_FIELD_NUMBER: _ClassVar[int]
    hold: Hold
    not_acquired: NotAcquired
    def __init__(self, hold: _Optional[_Union[Hold, _Mapping[str, object]]] = ..., not_acquired: _Optional[_Union[NotAcquired, _Mapping[str, object]]] = ...) -> None: ...

class MultiLockRequest(_message.Message):
    __slots__ = ("session", "names", "tier", "mode", "wait_ms", "ttl_ms", "request_id", "owner", "meta", "explain")
    class MetaEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    session: str
    names: _containers.RepeatedScalarFieldContainer[str]
    tier: Tier
    mode: Mode
    wait_ms: int
    ttl_ms: int
    request_id: str
    owner: str
    meta: _containers.ScalarMap[str, str]
    explain: bool
    def __init__(self, session: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., tier: _Optional[_Union[Tier, str]] = ..., mode: _Optional[_Union[Mode, str]] = ..., wait_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., request_id: _Optional[str] = ..., owner: _Optional[str] = ..., meta: _Optional[_Mapping[str, str]] = ..., explain: _Optional[bool] = ...) -> None: ...

class MultiLockResponse(_message.Message):
    __slots__ = ("hold", "not_acquired")
    HOLD_FIELD_NUMBER: _ClassVar[int]
    NOT_ACQUIRED_FIELD_NUMBER: _ClassVar[int]
    hold: Hold
    not_acquired: NotAcquired
    def __init__(self, hold: _Optional[_Union[Hold, _Mapping[str, object]]] = ..., not_acquired: _Optional[_Union[NotAcquired, _Mapping[str, object]]] = ...) -> None: ...

class UnlockRequest(_message.Message):
    __slots__ = ("session", "hold_id", "name", "fence")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HOLD_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    session: str
    hold_id: str
    name: str
    fence: int
    def __init__(self, session: _Optional[str] = ..., hold_id: _Optional[str] = ..., name: _Optional[str] = ..., fence: _Optional[int] = ...) -> None: ...

class UnlockResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("session", "hold_id", "name", "fence", "ttl_ms")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HOLD_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    session: str
    hold_id: str
    name: str
    fence: int
    ttl_ms: int
    def __init__(self, session: _Optional[str] = ..., hold_id: _Optional[str] = ..., name: _Optional[str] = ..., fence: _Optional[int] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class ExtendResponse(_message.Message):
    __slots__ = ("hold",)
    HOLD_FIELD_NUMBER: _ClassVar[int]
    hold: Hold
    def __init__(self, hold: _Optional[_Union[Hold, _Mapping[str, object]]] = ...) -> None: ...

class WithdrawRequest(_message.Message):
    __slots__ = ("session", "request_id")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    session: str
    request_id: str
    def __init__(self, session: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class WithdrawResponse(_message.Message):
    __slots__ = ("was_held",)
    WAS_HELD_FIELD_NUMBER: _ClassVar[int]
    was_held: bool
    def __init__(self, was_held: _Optional[bool] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("name", "tier", "limit")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    name: str
    tier: Tier
    limit: int
    def __init__(self, name: _Optional[str] = ..., tier: _Optional[_Union[Tier, str]] = ..., limit: _Optional[int] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("explanation",)
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    explanation: Explanation
    def __init__(self, explanation: _Optional[_Union[Explanation, _Mapping[str, object]]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("prefix", "tier", "page_size", "page_token")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    tier: Tier
    page_size: int
    page_token: str
    def __init__(self, prefix: _Optional[str] = ..., tier: _Optional[_Union[Tier, str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("locks", "next_page_token", "stale_shards")
    LOCKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STALE_SHARDS_FIELD_NUMBER: _ClassVar[int]
    locks: _containers.RepeatedCompositeFieldContainer[LockSummary]
    next_page_token: str
    stale_shards: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, locks: _Optional[_Iterable[_Union[LockSummary, _Mapping[str, object]]]] = ..., next_page_token: _Optional[str] = ..., stale_shards: _Optional[_Iterable[int]] = ...) -> None: ...

class LockSummary(_message.Message):
    __slots__ = ("name", "mode", "holder_count", "waiter_count", "fence")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    HOLDER_COUNT_FIELD_NUMBER: _ClassVar[int]
    WAITER_COUNT_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    mode: Mode
    holder_count: int
    waiter_count: int
    fence: int
    def __init__(self, name: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ..., holder_count: _Optional[int] = ..., waiter_count: _Optional[int] = ..., fence: _Optional[int] = ...) -> None: ...

class BreakRequest(_message.Message):
    __slots__ = ("name", "fence", "tier")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    name: str
    fence: int
    tier: Tier
    def __init__(self, name: _Optional[str] = ..., fence: _Optional[int] = ..., tier: _Optional[_Union[Tier, str]] = ...) -> None: ...

class BreakResponse(_message.Message):
    __slots__ = ("fence",)
    FENCE_FIELD_NUMBER: _ClassVar[int]
    fence: int
    def __init__(self, fence: _Optional[int] = ...) -> None: ...

class OpenRequest(_message.Message):
    __slots__ = ("ttl_ms", "grace_ms", "client", "meta")
    class MetaEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    ttl_ms: int
    grace_ms: int
    client: str
    meta: _containers.ScalarMap[str, str]
    def __init__(self, ttl_ms: _Optional[int] = ..., grace_ms: _Optional[int] = ..., client: _Optional[str] = ..., meta: _Optional[_Mapping[str, str]] = ...) -> None: ...

class OpenResponse(_message.Message):
    __slots__ = ("session", "ttl_ms", "grace_ms")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    session: str
    ttl_ms: int
    grace_ms: int
    def __init__(self, session: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., grace_ms: _Optional[int] = ...) -> None: ...

class SessionRequest(_message.Message):
    __slots__ = ("session", "sequence", "without_grants")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_GRANTS_FIELD_NUMBER: _ClassVar[int]
    session: str
    sequence: int
    without_grants: bool
    def __init__(self, session: _Optional[str] = ..., sequence: _Optional[int] = ..., without_grants: _Optional[bool] = ...) -> None: ...

class SessionResponse(_message.Message):
    __slots__ = ("attached", "kept_alive", "granted", "jeopardy", "recovered", "lost", "ended")
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    KEPT_ALIVE_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    JEOPARDY_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    attached: Attached
    kept_alive: KeptAlive
    granted: Granted
    jeopardy: Jeopardy
    recovered: Recovered
    lost: Lost
    ended: Ended
    def __init__(self, attached: _Optional[_Union[Attached, _Mapping[str, object]]] = ..., kept_alive: _Optional[_Union[KeptAlive, _Mapping[str, object]]] = ..., granted: _Optional[_Union[Granted, _Mapping[str, object]]] = ..., jeopardy: _Optional[_Union[Jeopardy, _Mapping[str, object]]] = ..., recovered: _Optional[_Union[Recovered, _Mapping[str, object]]] = ..., lost: _Optional[_Union[Lost, _Mapping[str, object]]] = ..., ended: _Optional[_Union[Ended, _Mapping[str, object]]] = ...) -> None: ...

class Attached(_message.Message):
    __slots__ = ("sequence", "ttl_ms", "holds")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    ttl_ms: int
    holds: _containers.RepeatedCompositeFieldContainer[Hold]
    def __init__(self, sequence: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., holds: _Optional[_Iterable[_Union[Hold, _Mapping[str, object]]]] = ...) -> None: ...

class KeptAlive(_message.Message):
    __slots__ = ("sequence", "safe_for_ms")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SAFE_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    safe_for_ms: int
    def __init__(self, sequence: _Optional[int] = ..., safe_for_ms: _Optional[int] = ...) -> None: ...

class Granted(_message.Message):
    __slots__ = ("hold",)
    HOLD_FIELD_NUMBER: _ClassVar[int]
    hold: Hold
    def __init__(self, hold: _Optional[_Union[Hold, _Mapping[str, object]]] = ...) -> None: ...

class Jeopardy(_message.Message):
    __slots__ = ("safe_for_ms",)
    SAFE_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    safe_for_ms: int
    def __init__(self, safe_for_ms: _Optional[int] = ...) -> None: ...

class Recovered(_message.Message):
    __slots__ = ("safe_for_ms",)
    SAFE_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    safe_for_ms: int
    def __init__(self, safe_for_ms: _Optional[int] = ...) -> None: ...

class Lost(_message.Message):
    __slots__ = ("hold", "reason", "detail")
    HOLD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    hold: Hold
    reason: EndReason
    detail: str
    def __init__(self, hold: _Optional[_Union[Hold, _Mapping[str, object]]] = ..., reason: _Optional[_Union[EndReason, str]] = ..., detail: _Optional[str] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("reason", "detail")
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    reason: EndReason
    detail: str
    def __init__(self, reason: _Optional[_Union[EndReason, str]] = ..., detail: _Optional[str] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: str
    def __init__(self, session: _Optional[str] = ...) -> None: ...

class ResumeResponse(_message.Message):
    __slots__ = ("ttl_ms", "grace_ms", "holds")
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    ttl_ms: int
    grace_ms: int
    holds: _containers.RepeatedCompositeFieldContainer[Hold]
    def __init__(self, ttl_ms: _Optional[int] = ..., grace_ms: _Optional[int] = ..., holds: _Optional[_Iterable[_Union[Hold, _Mapping[str, object]]]] = ...) -> None: ...

class CloseRequest(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: str
    def __init__(self, session: _Optional[str] = ...) -> None: ...

class CloseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("prefix", "tier", "from_position", "from_index", "from_places")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    FROM_POSITION_FIELD_NUMBER: _ClassVar[int]
    FROM_INDEX_FIELD_NUMBER: _ClassVar[int]
    FROM_PLACES_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    tier: Tier
    from_position: int
    from_index: int
    from_places: _containers.RepeatedCompositeFieldContainer[ShardPlace]
    def __init__(self, prefix: _Optional[str] = ..., tier: _Optional[_Union[Tier, str]] = ..., from_position: _Optional[int] = ..., from_index: _Optional[int] = ..., from_places: _Optional[_Iterable[_Union[ShardPlace, _Mapping[str, object]]]] = ...) -> None: ...

class ShardPlace(_message.Message):
    __slots__ = ("shard", "position", "index")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    shard: int
    position: int
    index: int
    def __init__(self, shard: _Optional[int] = ..., position: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("watching", "event", "gap", "shard_away")
    WATCHING_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    SHARD_AWAY_FIELD_NUMBER: _ClassVar[int]
    watching: Watching
    event: Event
    gap: Gap
    shard_away: ShardAway
    def __init__(self, watching: _Optional[_Union[Watching, _Mapping[str, object]]] = ..., event: _Optional[_Union[Event, _Mapping[str, object]]] = ..., gap: _Optional[_Union[Gap, _Mapping[str, object]]] = ..., shard_away: _Optional[_Union[ShardAway, _Mapping[str, object]]] = ...) -> None: ...

class Watching(_message.Message):
    __slots__ = ("position", "places")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    position: int
    places: _containers.RepeatedCompositeFieldContainer[ShardPlace]
    def __init__(self, position: _Optional[int] = ..., places: _Optional[_Iterable[_Union[ShardPlace, _Mapping[str, object]]]] = ...) -> None: ...

class ShardAway(_message.Message):
    __slots__ = ("shard", "is_away", "detail", "place")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    IS_AWAY_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    shard: int
    is_away: bool
    detail: str
    place: ShardPlace
    def __init__(self, shard: _Optional[int] = ..., is_away: _Optional[bool] = ..., detail: _Optional[str] = ..., place: _Optional[_Union[ShardPlace, _Mapping[str, object]]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("kind", "kind_text", "position", "names", "fence", "party", "detail", "unix_ms", "index", "shard", "principal", "by")
    KIND_FIELD_NUMBER: _ClassVar[int]
    KIND_TEXT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    kind: EventKind
    kind_text: str
    position: int
    names: _containers.RepeatedScalarFieldContainer[str]
    fence: int
    party: Party
    detail: str
    unix_ms: int
    index: int
    shard: int
    principal: str
    by: Party
    def __init__(self, kind: _Optional[_Union[EventKind, str]] = ..., kind_text: _Optional[str] = ..., position: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ..., fence: _Optional[int] = ..., party: _Optional[_Union[Party, _Mapping[str, object]]] = ..., detail: _Optional[str] = ..., unix_ms: _Optional[int] = ..., index: _Optional[int] = ..., shard: _Optional[int] = ..., principal: _Optional[str] = ..., by: _Optional[_Union[Party, _Mapping[str, object]]] = ...) -> None: ...

class Gap(_message.Message):
    __slots__ = ("position", "detail", "from_position", "from_index", "shard")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FROM_POSITION_FIELD_NUMBER: _ClassVar[int]
    FROM_INDEX_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    position: int
    detail: str
    from_position: int
    from_index: int
    shard: int
    def __init__(self, position: _Optional[int] = ..., detail: _Optional[str] = ..., from_position: _Optional[int] = ..., from_index: _Optional[int] = ..., shard: _Optional[int] = ...) -> None: ...

class ShardMapRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ShardMapResponse(_message.Message):
    __slots__ = ("version", "shards", "ranges", "leaders")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    version: int
    shards: int
    ranges: _containers.RepeatedCompositeFieldContainer[SlotRange]
    leaders: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[int] = ..., shards: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[SlotRange, _Mapping[str, object]]]] = ..., leaders: _Optional[_Iterable[str]] = ...) -> None: ...

class SlotRange(_message.Message):
    __slots__ = ("first", "last", "shard")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    shard: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ..., shard: _Optional[int] = ...) -> None: ...

class HistoryRequest(_message.Message):
    __slots__ = ("name", "at_unix_ms", "since_unix_ms", "until_unix_ms", "limit")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    name: str
    at_unix_ms: int
    since_unix_ms: int
    until_unix_ms: int
    limit: int
    def __init__(self, name: _Optional[str] = ..., at_unix_ms: _Optional[int] = ..., since_unix_ms: _Optional[int] = ..., until_unix_ms: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class HistoryResponse(_message.Message):
    __slots__ = ("holds", "waits", "remarks", "known_since_unix_ms")
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    REMARKS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_SINCE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    holds: _containers.RepeatedCompositeFieldContainer[PastHold]
    waits: _containers.RepeatedCompositeFieldContainer[PastWait]
    remarks: _containers.RepeatedCompositeFieldContainer[Remark]
    known_since_unix_ms: int
    def __init__(self, holds: _Optional[_Iterable[_Union[PastHold, _Mapping[str, object]]]] = ..., waits: _Optional[_Iterable[_Union[PastWait, _Mapping[str, object]]]] = ..., remarks: _Optional[_Iterable[_Union[Remark, _Mapping[str, object]]]] = ..., known_since_unix_ms: _Optional[int] = ...) -> None: ...

class PastHold(_message.Message):
    __slots__ = ("fence", "mode", "party", "principal", "since_unix_ms", "until_unix_ms", "waited_ms", "ended", "by", "shard", "position")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    WAITED_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    fence: int
    mode: Mode
    party: Party
    principal: str
    since_unix_ms: int
    until_unix_ms: int
    waited_ms: int
    ended: str
    by: str
    shard: int
    position: int
    def __init__(self, fence: _Optional[int] = ..., mode: _Optional[_Union[Mode, str]] = ..., party: _Optional[_Union[Party, _Mapping[str, object]]] = ..., principal: _Optional[str] = ..., since_unix_ms: _Optional[int] = ..., until_unix_ms: _Optional[int] = ..., waited_ms: _Optional[int] = ..., ended: _Optional[str] = ..., by: _Optional[str] = ..., shard: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class PastWait(_message.Message):
    __slots__ = ("party", "principal", "since_unix_ms", "until_unix_ms", "ended")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    party: Party
    principal: str
    since_unix_ms: int
    until_unix_ms: int
    ended: str
    def __init__(self, party: _Optional[_Union[Party, _Mapping[str, object]]] = ..., principal: _Optional[str] = ..., since_unix_ms: _Optional[int] = ..., until_unix_ms: _Optional[int] = ..., ended: _Optional[str] = ...) -> None: ...

class Remark(_message.Message):
    __slots__ = ("kind", "at_unix_ms", "text")
    KIND_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    at_unix_ms: int
    text: str
    def __init__(self, kind: _Optional[str] = ..., at_unix_ms: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

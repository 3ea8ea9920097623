# Made of proto/fencehold/v1/fencehold.proto by `make stubs`: do not edit.
"""Messages and enums of the gRPC interface, in a pool of their own.

In the pool that is shared, another part of the same process may have described them already, in another version.
"""

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

pool = DescriptorPool()
pool.AddSerializedFile(
    b'\n\x1cfencehold/v1/fencehold.proto\x12\x0cfencehold.v1"\xb2\x01\n\x04Hold\x12\x0f\n\x07hol'
    b'd_id\x18\x01 \x01(\t\x12\r\n\x05names\x18\x02 \x03(\t\x12\r\n\x05fence\x18\x03 \x01(\x04\x12 \n\x04tier\x18\x04 \x01(\x0e2\x12.fen'
    b'cehold.v1.Tier\x12 \n\x04mode\x18\x05 \x01(\x0e2\x12.fencehold.v1.Mode\x12\x13\n\x0bsafe_for'
    b'_ms\x18\x06 \x01(\r\x12\x0e\n\x06ttl_ms\x18\x07 \x01(\r\x12\x12\n\nrequest_id\x18\x08 \x01(\t"=\n\x0bNotAcquired'
    b'\x12.\n\x0bexplanation\x18\x01 \x01(\x0b2\x19.fencehold.v1.Explanation"R\n\x05Party\x12\x0f\n'
    b'\x07session\x18\x01 \x01(\x04\x12\r\n\x05owner\x18\x02 \x01(\t\x12\x0e\n\x06client\x18\x03 \x01(\t\x12\x0c\n\x04host\x18\x04 \x01(\t\x12'
    b'\x0b\n\x03pid\x18\x05 \x01(\r"\xcf\x01\n\x06Holder\x12"\n\x05party\x18\x01 \x01(\x0b2\x13.fencehold.v1.Party\x12'
    b'\r\n\x05fence\x18\x02 \x01(\x04\x12 \n\x04mode\x18\x03 \x01(\x0e2\x12.fencehold.v1.Mode\x12\x0f\n\x07permits\x18'
    b'\x04 \x01(\r\x12\x13\n\x0bheld_for_ms\x18\x05 \x01(\x04\x12\x14\n\x07left_ms\x18\x06 \x01(\x04H\x00\x88\x01\x01\x12\x11\n\tmeta_jso'
    b'n\x18\x07 \x01(\t\x12\x15\n\rsince_unix_ms\x18\x08 \x01(\x04B\n\n\x08_left_ms"\xa8\x01\n\x06Waiter\x12\x10\n\x08pos'
    b'ition\x18\x01 \x01(\r\x12"\n\x05party\x18\x02 \x01(\x0b2\x13.fencehold.v1.Party\x12 \n\x04mode\x18\x03 \x01('
    b'\x0e2\x12.fencehold.v1.Mode\x12\r\n\x05names\x18\x04 \x03(\t\x12\x15\n\rwaited_for_ms\x18\x05 \x01(\x04\x12'
    b'\x14\n\x07left_ms\x18\x06 \x01(\x04H\x00\x88\x01\x01B\n\n\x08_left_ms"\xbb\x01\n\x0bExplanation\x12\x0c\n\x04name\x18\x01 '
    b'\x01(\t\x12%\n\x07holders\x18\x02 \x03(\x0b2\x14.fencehold.v1.Holder\x12%\n\x07waiters\x18\x03 \x03(\x0b2'
    b'\x14.fencehold.v1.Waiter\x12\x14\n\x0cholder_count\x18\x04 \x01(\r\x12\x14\n\x0cwaiter_count\x18'
    b'\x05 \x01(\r\x12\x12\n\ndelayed_ms\x18\x06 \x01(\r\x12\x10\n\x08sentence\x18\x07 \x01(\t"\xd9\x02\n\x0bLockRequest\x12'
    b'\x0f\n\x07session\x18\x01 \x01(\t\x12\x0c\n\x04name\x18\x02 \x01(\t\x12 \n\x04tier\x18\x03 \x01(\x0e2\x12.fencehold.v1.'
    b'Tier\x12 \n\x04mode\x18\x04 \x01(\x0e2\x12.fencehold.v1.Mode\x12\x0f\n\x07permits\x18\x05 \x01(\r\x12\x14\n\x07w'
    b'ait_ms\x18\x06 \x01(\rH\x00\x88\x01\x01\x12\x0e\n\x06ttl_ms\x18\x07 \x01(\r\x12\x10\n\x08delay_ms\x18\x08 \x01(\r\x12\x12\n\nreque'
    b'st_id\x18\t \x01(\t\x12\r\n\x05owner\x18\n \x01(\t\x121\n\x04meta\x18\x0b \x03(\x0b2#.fencehold.v1.Lock'
    b'Request.MetaEntry\x12\x0f\n\x07explain\x18\x0c \x01(\x08\x1a+\n\tMetaEntry\x12\x0b\n\x03key\x18\x01 \x01(\t'
    b'\x12\r\n\x05value\x18\x02 \x01(\t:\x028\x01B\n\n\x08_wait_ms"p\n\x0cLockResponse\x12"\n\x04hold\x18\x01 \x01('
    b'\x0b2\x12.fencehold.v1.HoldH\x00\x121\n\x0cnot_acquired\x18\x02 \x01(\x0b2\x19.fencehold.v1'
    b'.NotAcquiredH\x00B\t\n\x07outcome"\xc1\x02\n\x10MultiLockRequest\x12\x0f\n\x07session\x18\x01 '
    b'\x01(\t\x12\r\n\x05names\x18\x02 \x03(\t\x12 \n\x04tier\x18\x03 \x01(\x0e2\x12.fencehold.v1.Tier\x12 \n\x04mode'
    b'\x18\x04 \x01(\x0e2\x12.fencehold.v1.Mode\x12\x14\n\x07wait_ms\x18\x05 \x01(\rH\x00\x88\x01\x01\x12\x0e\n\x06ttl_ms\x18\x06'
    b' \x01(\r\x12\x12\n\nrequest_id\x18\x07 \x01(\t\x12\r\n\x05owner\x18\x08 \x01(\t\x126\n\x04meta\x18\t \x03(\x0b2(.fenc'
    b'ehold.v1.MultiLockRequest.MetaEntry\x12\x0f\n\x07explain\x18\n \x01(\x08\x1a+\n\tMeta'
    b'Entry\x12\x0b\n\x03key\x18\x01 \x01(\t\x12\r\n\x05value\x18\x02 \x01(\t:\x028\x01B\n\n\x08_wait_ms"u\n\x11MultiLo'
    b'ckResponse\x12"\n\x04hold\x18\x01 \x01(\x0b2\x12.fencehold.v1.HoldH\x00\x121\n\x0cnot_acquir'
    b'ed\x18\x02 \x01(\x0b2\x19.fencehold.v1.NotAcquiredH\x00B\t\n\x07outcome"N\n\rUnlockRe'
    b'quest\x12\x0f\n\x07session\x18\x01 \x01(\t\x12\x0f\n\x07hold_id\x18\x02 \x01(\t\x12\x0c\n\x04name\x18\x03 \x01(\t\x12\r\n\x05fen'
    b'ce\x18\x04 \x01(\x04"\x10\n\x0eUnlockResponse"^\n\rExtendRequest\x12\x0f\n\x07session\x18\x01 \x01(\t'
    b'\x12\x0f\n\x07hold_id\x18\x02 \x01(\t\x12\x0c\n\x04name\x18\x03 \x01(\t\x12\r\n\x05fence\x18\x04 \x01(\x04\x12\x0e\n\x06ttl_ms\x18\x05 \x01'
    b'(\r"2\n\x0eExtendResponse\x12 \n\x04hold\x18\x01 \x01(\x0b2\x12.fencehold.v1.Hold"6\n\x0fWi'
    b'thdrawRequest\x12\x0f\n\x07session\x18\x01 \x01(\t\x12\x12\n\nrequest_id\x18\x02 \x01(\t"$\n\x10Withdr'
    b'awResponse\x12\x10\n\x08was_held\x18\x01 \x01(\x08"O\n\x0eExplainRequest\x12\x0c\n\x04name\x18\x01 \x01(\t'
    b'\x12 \n\x04tier\x18\x02 \x01(\x0e2\x12.fencehold.v1.Tier\x12\r\n\x05limit\x18\x03 \x01(\r"A\n\x0fExplain'
    b'Response\x12.\n\x0bexplanation\x18\x01 \x01(\x0b2\x19.fencehold.v1.Explanation"f\n\x0b'
    b'ListRequest\x12\x0e\n\x06prefix\x18\x01 \x01(\t\x12 \n\x04tier\x18\x02 \x01(\x0e2\x12.fencehold.v1.Tie'
    b'r\x12\x11\n\tpage_size\x18\x03 \x01(\r\x12\x12\n\npage_token\x18\x04 \x01(\t"g\n\x0cListResponse\x12(\n\x05'
    b'locks\x18\x01 \x03(\x0b2\x19.fencehold.v1.LockSummary\x12\x17\n\x0fnext_page_token\x18\x02 '
    b'\x01(\t\x12\x14\n\x0cstale_shards\x18\x03 \x03(\r"x\n\x0bLockSummary\x12\x0c\n\x04name\x18\x01 \x01(\t\x12 \n\x04mo'
    b'de\x18\x02 \x01(\x0e2\x12.fencehold.v1.Mode\x12\x14\n\x0cholder_count\x18\x03 \x01(\r\x12\x14\n\x0cwaiter'
    b'_count\x18\x04 \x01(\r\x12\r\n\x05fence\x18\x05 \x01(\x04"M\n\x0cBreakRequest\x12\x0c\n\x04name\x18\x01 \x01(\t\x12\r\n'
    b'\x05fence\x18\x02 \x01(\x04\x12 \n\x04tier\x18\x03 \x01(\x0e2\x12.fencehold.v1.Tier"\x1e\n\rBreakRespo'
    b'nse\x12\r\n\x05fence\x18\x01 \x01(\x04"\xb1\x01\n\x0bOpenRequest\x12\x0e\n\x06ttl_ms\x18\x01 \x01(\r\x12\x15\n\x08grace_'
    b'ms\x18\x02 \x01(\rH\x00\x88\x01\x01\x12\x0e\n\x06client\x18\x03 \x01(\t\x121\n\x04meta\x18\x04 \x03(\x0b2#.fencehold.v1.O'
    b'penRequest.MetaEntry\x1a+\n\tMetaEntry\x12\x0b\n\x03key\x18\x01 \x01(\t\x12\r\n\x05value\x18\x02 \x01('
    b'\t:\x028\x01B\x0b\n\t_grace_ms"A\n\x0cOpenResponse\x12\x0f\n\x07session\x18\x01 \x01(\t\x12\x0e\n\x06ttl_m'
    b's\x18\x02 \x01(\r\x12\x10\n\x08grace_ms\x18\x03 \x01(\r"K\n\x0eSessionRequest\x12\x0f\n\x07session\x18\x01 \x01(\t'
    b'\x12\x10\n\x08sequence\x18\x02 \x01(\x04\x12\x16\n\x0ewithout_grants\x18\x03 \x01(\x08"\xc5\x02\n\x0fSessionRespon'
    b'se\x12*\n\x08attached\x18\x01 \x01(\x0b2\x16.fencehold.v1.AttachedH\x00\x12-\n\nkept_alive'
    b'\x18\x02 \x01(\x0b2\x17.fencehold.v1.KeptAliveH\x00\x12(\n\x07granted\x18\x03 \x01(\x0b2\x15.fenceho'
    b'ld.v1.GrantedH\x00\x12*\n\x08jeopardy\x18\x04 \x01(\x0b2\x16.fencehold.v1.JeopardyH\x00\x12'
    b',\n\trecovered\x18\x05 \x01(\x0b2\x17.fencehold.v1.RecoveredH\x00\x12"\n\x04lost\x18\x06 \x01(\x0b2'
    b'\x12.fencehold.v1.LostH\x00\x12$\n\x05ended\x18\x07 \x01(\x0b2\x13.fencehold.v1.EndedH\x00B'
    b'\t\n\x07message"O\n\x08Attached\x12\x10\n\x08sequence\x18\x01 \x01(\x04\x12\x0e\n\x06ttl_ms\x18\x02 \x01(\r\x12!\n\x05'
    b'holds\x18\x03 \x03(\x0b2\x12.fencehold.v1.Hold"2\n\tKeptAlive\x12\x10\n\x08sequence\x18\x01 \x01'
    b'(\x04\x12\x13\n\x0bsafe_for_ms\x18\x02 \x01(\r"+\n\x07Granted\x12 \n\x04hold\x18\x01 \x01(\x0b2\x12.fencehold'
    b'.v1.Hold"\x1f\n\x08Jeopardy\x12\x13\n\x0bsafe_for_ms\x18\x01 \x01(\r" \n\tRecovered\x12\x13\n\x0bsa'
    b'fe_for_ms\x18\x01 \x01(\r"a\n\x04Lost\x12 \n\x04hold\x18\x01 \x01(\x0b2\x12.fencehold.v1.Hold\x12\'\n'
    b'\x06reason\x18\x02 \x01(\x0e2\x17.fencehold.v1.EndReason\x12\x0e\n\x06detail\x18\x03 \x01(\t"@\n\x05En'
    b"ded\x12'\n\x06reason\x18\x01 \x01(\x0e2\x17.fencehold.v1.EndReason\x12\x0e\n\x06detail\x18\x02 \x01(\t"
    b'" \n\rResumeRequest\x12\x0f\n\x07session\x18\x01 \x01(\t"U\n\x0eResumeResponse\x12\x0e\n\x06ttl_'
    b'ms\x18\x01 \x01(\r\x12\x10\n\x08grace_ms\x18\x02 \x01(\r\x12!\n\x05holds\x18\x03 \x03(\x0b2\x12.fencehold.v1.Hol'
    b'd"\x1f\n\x0cCloseRequest\x12\x0f\n\x07session\x18\x01 \x01(\t"\x0f\n\rCloseResponse"\xae\x01\n\x0cWatc'
    b'hRequest\x12\x0e\n\x06prefix\x18\x01 \x01(\t\x12 \n\x04tier\x18\x02 \x01(\x0e2\x12.fencehold.v1.Tier\x12\x15'
    b'\n\rfrom_position\x18\x03 \x01(\x04\x12\x17\n\nfrom_index\x18\x04 \x01(\rH\x00\x88\x01\x01\x12-\n\x0bfrom_place'
    b's\x18\x05 \x03(\x0b2\x18.fencehold.v1.ShardPlaceB\r\n\x0b_from_index"K\n\nShardPla'
    b'ce\x12\r\n\x05shard\x18\x01 \x01(\r\x12\x10\n\x08position\x18\x02 \x01(\x04\x12\x12\n\x05index\x18\x03 \x01(\rH\x00\x88\x01\x01B\x08\n\x06_'
    b'index"\xbd\x01\n\rWatchResponse\x12*\n\x08watching\x18\x01 \x01(\x0b2\x16.fencehold.v1.Wat'
    b'chingH\x00\x12$\n\x05event\x18\x02 \x01(\x0b2\x13.fencehold.v1.EventH\x00\x12 \n\x03gap\x18\x03 \x01(\x0b2\x11'
    b'.fencehold.v1.GapH\x00\x12-\n\nshard_away\x18\x04 \x01(\x0b2\x17.fencehold.v1.Shard'
    b'AwayH\x00B\t\n\x07message"F\n\x08Watching\x12\x10\n\x08position\x18\x01 \x01(\x04\x12(\n\x06places\x18\x02 '
    b'\x03(\x0b2\x18.fencehold.v1.ShardPlace"d\n\tShardAway\x12\r\n\x05shard\x18\x01 \x01(\r\x12\x0f\n'
    b"\x07is_away\x18\x02 \x01(\x08\x12\x0e\n\x06detail\x18\x03 \x01(\t\x12'\n\x05place\x18\x04 \x01(\x0b2\x18.fencehold.v1"
    b'.ShardPlace"\x88\x02\n\x05Event\x12%\n\x04kind\x18\x01 \x01(\x0e2\x17.fencehold.v1.EventKind'
    b'\x12\x11\n\tkind_text\x18\x02 \x01(\t\x12\x10\n\x08position\x18\x03 \x01(\x04\x12\r\n\x05names\x18\x04 \x03(\t\x12\r\n\x05fenc'
    b'e\x18\x05 \x01(\x04\x12"\n\x05party\x18\x06 \x01(\x0b2\x13.fencehold.v1.Party\x12\x0e\n\x06detail\x18\x07 \x01(\t\x12'
    b'\x0f\n\x07unix_ms\x18\x08 \x01(\x04\x12\r\n\x05index\x18\t \x01(\r\x12\r\n\x05shard\x18\n \x01(\r\x12\x11\n\tprincipal\x18'
    b'\x0b \x01(\t\x12\x1f\n\x02by\x18\x0c \x01(\x0b2\x13.fencehold.v1.Party"a\n\x03Gap\x12\x10\n\x08position\x18\x01 '
    b'\x01(\x04\x12\x0e\n\x06detail\x18\x02 \x01(\t\x12\x15\n\rfrom_position\x18\x03 \x01(\x04\x12\x12\n\nfrom_index\x18\x04 \x01'
    b'(\r\x12\r\n\x05shard\x18\x05 \x01(\r"\x11\n\x0fShardMapRequest"m\n\x10ShardMapResponse\x12\x0f\n\x07'
    b"version\x18\x01 \x01(\x04\x12\x0e\n\x06shards\x18\x02 \x01(\r\x12'\n\x06ranges\x18\x03 \x03(\x0b2\x17.fencehold.v1"
    b'.SlotRange\x12\x0f\n\x07leaders\x18\x04 \x03(\t"7\n\tSlotRange\x12\r\n\x05first\x18\x01 \x01(\r\x12\x0c\n\x04l'
    b'ast\x18\x02 \x01(\r\x12\r\n\x05shard\x18\x03 \x01(\r"\xb1\x01\n\x0eHistoryRequest\x12\x0c\n\x04name\x18\x01 \x01(\t\x12\x17\n'
    b'\nat_unix_ms\x18\x02 \x01(\x04H\x00\x88\x01\x01\x12\x1a\n\rsince_unix_ms\x18\x03 \x01(\x04H\x01\x88\x01\x01\x12\x1a\n\runtil_'
    b'unix_ms\x18\x04 \x01(\x04H\x02\x88\x01\x01\x12\r\n\x05limit\x18\x05 \x01(\rB\r\n\x0b_at_unix_msB\x10\n\x0e_since_u'
    b'nix_msB\x10\n\x0e_until_unix_ms"\xa3\x01\n\x0fHistoryResponse\x12%\n\x05holds\x18\x01 \x03(\x0b2'
    b'\x16.fencehold.v1.PastHold\x12%\n\x05waits\x18\x02 \x03(\x0b2\x16.fencehold.v1.PastWa'
    b'it\x12%\n\x07remarks\x18\x03 \x03(\x0b2\x14.fencehold.v1.Remark\x12\x1b\n\x13known_since_uni'
    b'x_ms\x18\x04 \x01(\x04"\x99\x02\n\x08PastHold\x12\r\n\x05fence\x18\x01 \x01(\x04\x12 \n\x04mode\x18\x02 \x01(\x0e2\x12.fence'
    b'hold.v1.Mode\x12"\n\x05party\x18\x03 \x01(\x0b2\x13.fencehold.v1.Party\x12\x11\n\tprincipa'
    b'l\x18\x04 \x01(\t\x12\x15\n\rsince_unix_ms\x18\x05 \x01(\x04\x12\x1a\n\runtil_unix_ms\x18\x06 \x01(\x04H\x00\x88\x01\x01\x12\x16'
    b'\n\twaited_ms\x18\x07 \x01(\x04H\x01\x88\x01\x01\x12\r\n\x05ended\x18\x08 \x01(\t\x12\n\n\x02by\x18\t \x01(\t\x12\r\n\x05shard\x18\n'
    b' \x01(\r\x12\x10\n\x08position\x18\x0b \x01(\x04B\x10\n\x0e_until_unix_msB\x0c\n\n_waited_ms"\x95\x01\n\x08P'
    b'astWait\x12"\n\x05party\x18\x01 \x01(\x0b2\x13.fencehold.v1.Party\x12\x11\n\tprincipal\x18\x02 \x01'
    b'(\t\x12\x15\n\rsince_unix_ms\x18\x03 \x01(\x04\x12\x1a\n\runtil_unix_ms\x18\x04 \x01(\x04H\x00\x88\x01\x01\x12\r\n\x05end'
    b'ed\x18\x05 \x01(\tB\x10\n\x0e_until_unix_ms"8\n\x06Remark\x12\x0c\n\x04kind\x18\x01 \x01(\t\x12\x12\n\nat_uni'
    b'x_ms\x18\x02 \x01(\x04\x12\x0c\n\x04text\x18\x03 \x01(\t*G\n\x04Tier\x12\x14\n\x10TIER_UNSPECIFIED\x10\x00\x12\x14\n\x10TI'
    b'ER_CORRECTNESS\x10\x01\x12\x13\n\x0fTIER_EFFICIENCY\x10\x02*R\n\x04Mode\x12\x14\n\x10MODE_UNSPEC'
    b'IFIED\x10\x00\x12\x12\n\x0eMODE_EXCLUSIVE\x10\x01\x12\x0f\n\x0bMODE_SHARED\x10\x02\x12\x0f\n\x0bMODE_PERMIT\x10'
    b'\x03*\xc0\x06\n\tEventKind\x12\x1a\n\x16EVENT_KIND_UNSPECIFIED\x10\x00\x12\x15\n\x11EVENT_KIND_OP'
    b'ENED\x10\x01\x12\x17\n\x13EVENT_KIND_ACQUIRED\x10\x02\x12\x15\n\x11EVENT_KIND_QUEUED\x10\x03\x12\x17\n\x13EV'
    b'ENT_KIND_EXTENDED\x10\x04\x12\x17\n\x13EVENT_KIND_RELEASED\x10\x05\x12\x16\n\x12EVENT_KIND_E'
    b'XPIRED\x10\x06\x12\x15\n\x11EVENT_KIND_BROKEN\x10\x07\x12\x18\n\x14EVENT_KIND_TIMED_OUT\x10\x08\x12\x18\n'
    b'\x14EVENT_KIND_CANCELLED\x10\t\x12\x17\n\x13EVENT_KIND_DEADLOCK\x10\n\x12\x1c\n\x18EVENT_KI'
    b'ND_SESSION_ENDED\x10\x0b\x12\x13\n\x0fEVENT_KIND_BUSY\x10\x0c\x12\x16\n\x12EVENT_KIND_REFUSE'
    b'D\x10\r\x12\x1b\n\x17EVENT_KIND_FENCE_RAISED\x10\x0e\x12\x15\n\x11EVENT_KIND_DENIED\x10\x0f\x12\x16\n\x12E'
    b'VENT_KIND_REVOKED\x10\x10\x12\x18\n\x14EVENT_KIND_SUSPENDED\x10\x11\x12\x1d\n\x19EVENT_KIND_'
    b'POLICY_CHANGED\x10\x12\x12\x19\n\x15EVENT_KIND_LIMITS_SET\x10\x13\x12\x18\n\x14EVENT_KIND_AN'
    b'NOUNCED\x10\x14\x12\x1a\n\x16EVENT_KIND_TURNED_AWAY\x10\x15\x12\x1a\n\x16EVENT_KIND_MAP_CHAN'
    b'GED\x10\x16\x12\x1b\n\x17EVENT_KIND_SLOTS_CLOSED\x10\x17\x12\x1b\n\x17EVENT_KIND_SLOTS_OPENE'
    b'D\x10\x18\x12\x1b\n\x17EVENT_KIND_SLOTS_FORCED\x10\x19\x12\x1b\n\x17EVENT_KIND_HOME_CLOSING\x10'
    b'\x1a\x12\x1a\n\x16EVENT_KIND_HOME_CLOSED\x10\x1b\x12\x1a\n\x16EVENT_KIND_HOME_OPENED\x10\x1c\x12\x1b\n'
    b'\x17EVENT_KIND_HOMES_LAPSED\x10\x1d\x12\x1c\n\x18EVENT_KIND_HOMES_RESUMED\x10\x1e*\x89\x01\n'
    b'\tEndReason\x12\x1a\n\x16END_REASON_UNSPECIFIED\x10\x00\x12\x16\n\x12END_REASON_EXPIRED'
    b'\x10\x01\x12\x15\n\x11END_REASON_BROKEN\x10\x02\x12\x1a\n\x16END_REASON_UNREACHABLE\x10\x03\x12\x15\n\x11END'
    b'_REASON_CLOSED\x10\x042\xb8\x04\n\x0bLockService\x12=\n\x04Lock\x12\x19.fencehold.v1.Lock'
    b'Request\x1a\x1a.fencehold.v1.LockResponse\x12L\n\tMultiLock\x12\x1e.fencehold'
    b'.v1.MultiLockRequest\x1a\x1f.fencehold.v1.MultiLockResponse\x12C\n\x06Unl'
    b'ock\x12\x1b.fencehold.v1.UnlockRequest\x1a\x1c.fencehold.v1.UnlockRespon'
    b'se\x12C\n\x06Extend\x12\x1b.fencehold.v1.ExtendRequest\x1a\x1c.fencehold.v1.Ext'
    b'endResponse\x12I\n\x08Withdraw\x12\x1d.fencehold.v1.WithdrawRequest\x1a\x1e.fen'
    b'cehold.v1.WithdrawResponse\x12F\n\x07Explain\x12\x1c.fencehold.v1.Explain'
    b'Request\x1a\x1d.fencehold.v1.ExplainResponse\x12=\n\x04List\x12\x19.fencehold.v'
    b'1.ListRequest\x1a\x1a.fencehold.v1.ListResponse\x12@\n\x05Break\x12\x1a.fenceho'
    b'ld.v1.BreakRequest\x1a\x1b.fencehold.v1.BreakResponse2\xa2\x02\n\x0eSessionS'
    b'ervice\x12=\n\x04Open\x12\x19.fencehold.v1.OpenRequest\x1a\x1a.fencehold.v1.Ope'
    b'nResponse\x12J\n\x07Session\x12\x1c.fencehold.v1.SessionRequest\x1a\x1d.fenceho'
    b'ld.v1.SessionResponse(\x010\x01\x12C\n\x06Resume\x12\x1b.fencehold.v1.ResumeReq'
    b'uest\x1a\x1c.fencehold.v1.ResumeResponse\x12@\n\x05Close\x12\x1a.fencehold.v1.C'
    b'loseRequest\x1a\x1b.fencehold.v1.CloseResponse2\xe5\x01\n\x0cWatchService\x12B\n'
    b'\x05Watch\x12\x1a.fencehold.v1.WatchRequest\x1a\x1b.fencehold.v1.WatchRespo'
    b'nse0\x01\x12F\n\x07History\x12\x1c.fencehold.v1.HistoryRequest\x1a\x1d.fencehold.v'
    b'1.HistoryResponse\x12I\n\x08ShardMap\x12\x1d.fencehold.v1.ShardMapRequest'
    b'\x1a\x1e.fencehold.v1.ShardMapResponseB*\n\x0cfencehold.v1P\x01Z\x18fencehol'
    b'd/v1;fenceholdv1b\x06proto3'
)


def _message(name):
    return GetMessageClass(pool.FindMessageTypeByName("fencehold.v1." + name))


def _enum(name):
    return EnumTypeWrapper(pool.FindEnumTypeByName("fencehold.v1." + name))


Hold = _message("Hold")
NotAcquired = _message("NotAcquired")
Party = _message("Party")
Holder = _message("Holder")
Waiter = _message("Waiter")
Explanation = _message("Explanation")
LockRequest = _message("LockRequest")
LockResponse = _message("LockResponse")
MultiLockRequest = _message("MultiLockRequest")
MultiLockResponse = _message("MultiLockResponse")
UnlockRequest = _message("UnlockRequest")
UnlockResponse = _message("UnlockResponse")
ExtendRequest = _message("ExtendRequest")
ExtendResponse = _message("ExtendResponse")
WithdrawRequest = _message("WithdrawRequest")
WithdrawResponse = _message("WithdrawResponse")
ExplainRequest = _message("ExplainRequest")
ExplainResponse = _message("ExplainResponse")
ListRequest = _message("ListRequest")
ListResponse = _message("ListResponse")
LockSummary = _message("LockSummary")
BreakRequest = _message("BreakRequest")
BreakResponse = _message("BreakResponse")
OpenRequest = _message("OpenRequest")
OpenResponse = _message("OpenResponse")
SessionRequest = _message("SessionRequest")
SessionResponse = _message("SessionResponse")
Attached = _message("Attached")
KeptAlive = _message("KeptAlive")
Granted = _message("Granted")
Jeopardy = _message("Jeopardy")
Recovered = _message("Recovered")
Lost = _message("Lost")
Ended = _message("Ended")
ResumeRequest = _message("ResumeRequest")
ResumeResponse = _message("ResumeResponse")
CloseRequest = _message("CloseRequest")
CloseResponse = _message("CloseResponse")
WatchRequest = _message("WatchRequest")
ShardPlace = _message("ShardPlace")
WatchResponse = _message("WatchResponse")
Watching = _message("Watching")
ShardAway = _message("ShardAway")
Event = _message("Event")
Gap = _message("Gap")
ShardMapRequest = _message("ShardMapRequest")
ShardMapResponse = _message("ShardMapResponse")
SlotRange = _message("SlotRange")
HistoryRequest = _message("HistoryRequest")
HistoryResponse = _message("HistoryResponse")
PastHold = _message("PastHold")
PastWait = _message("PastWait")
Remark = _message("Remark")
Tier = _enum("Tier")
TIER_UNSPECIFIED = 0
TIER_CORRECTNESS = 1
TIER_EFFICIENCY = 2
Mode = _enum("Mode")
MODE_UNSPECIFIED = 0
MODE_EXCLUSIVE = 1
MODE_SHARED = 2
MODE_PERMIT = 3
EventKind = _enum("EventKind")
EVENT_KIND_UNSPECIFIED = 0
EVENT_KIND_OPENED = 1
EVENT_KIND_ACQUIRED = 2
EVENT_KIND_QUEUED = 3
EVENT_KIND_EXTENDED = 4
EVENT_KIND_RELEASED = 5
EVENT_KIND_EXPIRED = 6
EVENT_KIND_BROKEN = 7
EVENT_KIND_TIMED_OUT = 8
EVENT_KIND_CANCELLED = 9
EVENT_KIND_DEADLOCK = 10
EVENT_KIND_SESSION_ENDED = 11
EVENT_KIND_BUSY = 12
EVENT_KIND_REFUSED = 13
EVENT_KIND_FENCE_RAISED = 14
EVENT_KIND_DENIED = 15
EVENT_KIND_REVOKED = 16
EVENT_KIND_SUSPENDED = 17
EVENT_KIND_POLICY_CHANGED = 18
EVENT_KIND_LIMITS_SET = 19
EVENT_KIND_ANNOUNCED = 20
EVENT_KIND_TURNED_AWAY = 21
EVENT_KIND_MAP_CHANGED = 22
EVENT_KIND_SLOTS_CLOSED = 23
EVENT_KIND_SLOTS_OPENED = 24
EVENT_KIND_SLOTS_FORCED = 25
EVENT_KIND_HOME_CLOSING = 26
EVENT_KIND_HOME_CLOSED = 27
EVENT_KIND_HOME_OPENED = 28
EVENT_KIND_HOMES_LAPSED = 29
EVENT_KIND_HOMES_RESUMED = 30
EndReason = _enum("EndReason")
END_REASON_UNSPECIFIED = 0
END_REASON_EXPIRED = 1
END_REASON_BROKEN = 2
END_REASON_UNREACHABLE = 3
END_REASON_CLOSED = 4

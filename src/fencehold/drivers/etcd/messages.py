# Made of messages.proto by `make messages`: do not edit.
"""Messages of etcd's protocol.

They have a pool of their own: in the one that is shared, another client of etcd in the same process may have
described them already, and protobuf takes no second description. They are made by protobuf's public functions
alone, and so by any version of it, where what its compiler writes is bound to the version that wrote it.
"""

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_pool = DescriptorPool()
_pool.AddSerializedFile(
    b'\n\x0emessages.proto\x12\x0cetcdserverpb"\\\n\x0eResponseHeader\x12\x12\n\ncluster_'
    b'id\x18\x01 \x01(\x04\x12\x11\n\tmember_id\x18\x02 \x01(\x04\x12\x10\n\x08revision\x18\x03 \x01(\x03\x12\x11\n\traft_term\x18\x04'
    b' \x01(\x04"u\n\x08KeyValue\x12\x0b\n\x03key\x18\x01 \x01(\x0c\x12\x17\n\x0fcreate_revision\x18\x02 \x01(\x03\x12\x14\n\x0cmo'
    b'd_revision\x18\x03 \x01(\x03\x12\x0f\n\x07version\x18\x04 \x01(\x03\x12\r\n\x05value\x18\x05 \x01(\x0c\x12\r\n\x05lease\x18\x06 '
    b'\x01(\x03"\xfd\x02\n\x0cRangeRequest\x12\x0b\n\x03key\x18\x01 \x01(\x0c\x12\x11\n\trange_end\x18\x02 \x01(\x0c\x12\r\n\x05limi'
    b't\x18\x03 \x01(\x03\x12\x10\n\x08revision\x18\x04 \x01(\x03\x128\n\nsort_order\x18\x05 \x01(\x0e2$.etcdserverpb'
    b'.RangeRequest.SortOrder\x12:\n\x0bsort_target\x18\x06 \x01(\x0e2%.etcdserverpb.'
    b'RangeRequest.SortTarget\x12\x11\n\tkeys_only\x18\x08 \x01(\x08\x12\x12\n\ncount_only\x18\t \x01'
    b'(\x08\x12\x1b\n\x13max_create_revision\x18\r \x01(\x03".\n\tSortOrder\x12\x08\n\x04NONE\x10\x00\x12\n\n\x06AS'
    b'CEND\x10\x01\x12\x0b\n\x07DESCEND\x10\x02"B\n\nSortTarget\x12\x07\n\x03KEY\x10\x00\x12\x0b\n\x07VERSION\x10\x01\x12\n\n\x06C'
    b'REATE\x10\x02\x12\x07\n\x03MOD\x10\x03\x12\t\n\x05VALUE\x10\x04"\x7f\n\rRangeResponse\x12,\n\x06header\x18\x01 \x01(\x0b'
    b'2\x1c.etcdserverpb.ResponseHeader\x12#\n\x03kvs\x18\x02 \x03(\x0b2\x16.etcdserverpb.K'
    b'eyValue\x12\x0c\n\x04more\x18\x03 \x01(\x08\x12\r\n\x05count\x18\x04 \x01(\x03"7\n\nPutRequest\x12\x0b\n\x03key\x18\x01 '
    b'\x01(\x0c\x12\r\n\x05value\x18\x02 \x01(\x0c\x12\r\n\x05lease\x18\x03 \x01(\x03";\n\x0bPutResponse\x12,\n\x06header\x18\x01'
    b' \x01(\x0b2\x1c.etcdserverpb.ResponseHeader"4\n\x12DeleteRangeRequest\x12\x0b\n\x03'
    b'key\x18\x01 \x01(\x0c\x12\x11\n\trange_end\x18\x02 \x01(\x0c"T\n\x13DeleteRangeResponse\x12,\n\x06heade'
    b'r\x18\x01 \x01(\x0b2\x1c.etcdserverpb.ResponseHeader\x12\x0f\n\x07deleted\x18\x02 \x01(\x03"%\n\x11Co'
    b'mpactionRequest\x12\x10\n\x08revision\x18\x01 \x01(\x03"B\n\x12CompactionResponse\x12,\n\x06h'
    b'eader\x18\x01 \x01(\x0b2\x1c.etcdserverpb.ResponseHeader"\x96\x03\n\x07Compare\x123\n\x06res'
    b'ult\x18\x01 \x01(\x0e2#.etcdserverpb.Compare.CompareResult\x123\n\x06target\x18\x02 \x01'
    b'(\x0e2#.etcdserverpb.Compare.CompareTarget\x12\x0b\n\x03key\x18\x03 \x01(\x0c\x12\x11\n\x07vers'
    b'ion\x18\x04 \x01(\x03H\x00\x12\x19\n\x0fcreate_revision\x18\x05 \x01(\x03H\x00\x12\x16\n\x0cmod_revision\x18\x06 \x01(\x03'
    b'H\x00\x12\x0f\n\x05value\x18\x07 \x01(\x0cH\x00\x12\x0f\n\x05lease\x18\x08 \x01(\x03H\x00\x12\x11\n\trange_end\x18@ \x01(\x0c"@\n\rC'
    b'ompareResult\x12\t\n\x05EQUAL\x10\x00\x12\x0b\n\x07GREATER\x10\x01\x12\x08\n\x04LESS\x10\x02\x12\r\n\tNOT_EQUAL\x10'
    b'\x03"G\n\rCompareTarget\x12\x0b\n\x07VERSION\x10\x00\x12\n\n\x06CREATE\x10\x01\x12\x07\n\x03MOD\x10\x02\x12\t\n\x05VALU'
    b'E\x10\x03\x12\t\n\x05LEASE\x10\x04B\x0e\n\x0ctarget_union"\xef\x01\n\tRequestOp\x123\n\rrequest_rang'
    b'e\x18\x01 \x01(\x0b2\x1a.etcdserverpb.RangeRequestH\x00\x12/\n\x0brequest_put\x18\x02 \x01(\x0b2\x18'
    b'.etcdserverpb.PutRequestH\x00\x12@\n\x14request_delete_range\x18\x03 \x01(\x0b2 .e'
    b'tcdserverpb.DeleteRangeRequestH\x00\x12/\n\x0brequest_txn\x18\x04 \x01(\x0b2\x18.etcd'
    b'serverpb.TxnRequestH\x00B\t\n\x07request"\xf9\x01\n\nResponseOp\x125\n\x0eresponse_'
    b'range\x18\x01 \x01(\x0b2\x1b.etcdserverpb.RangeResponseH\x00\x121\n\x0cresponse_put\x18\x02'
    b' \x01(\x0b2\x19.etcdserverpb.PutResponseH\x00\x12B\n\x15response_delete_range\x18\x03'
    b' \x01(\x0b2!.etcdserverpb.DeleteRangeResponseH\x00\x121\n\x0cresponse_txn\x18\x04 '
    b'\x01(\x0b2\x19.etcdserverpb.TxnResponseH\x00B\n\n\x08response"\x88\x01\n\nTxnRequest\x12'
    b'&\n\x07compare\x18\x01 \x03(\x0b2\x15.etcdserverpb.Compare\x12(\n\x07success\x18\x02 \x03(\x0b2\x17.e'
    b'tcdserverpb.RequestOp\x12(\n\x07failure\x18\x03 \x03(\x0b2\x17.etcdserverpb.Reques'
    b'tOp"{\n\x0bTxnResponse\x12,\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdserverpb.ResponseHe'
    b'ader\x12\x11\n\tsucceeded\x18\x02 \x01(\x08\x12+\n\tresponses\x18\x03 \x03(\x0b2\x18.etcdserverpb.Re'
    b'sponseOp"z\n\x05Event\x12+\n\x04type\x18\x01 \x01(\x0e2\x1d.etcdserverpb.Event.EventTy'
    b'pe\x12"\n\x02kv\x18\x02 \x01(\x0b2\x16.etcdserverpb.KeyValue" \n\tEventType\x12\x07\n\x03PUT\x10\x00'
    b'\x12\n\n\x06DELETE\x10\x01"\xd7\x01\n\x0cWatchRequest\x12:\n\x0ecreate_request\x18\x01 \x01(\x0b2 .etcd'
    b'serverpb.WatchCreateRequestH\x00\x12:\n\x0ecancel_request\x18\x02 \x01(\x0b2 .etcd'
    b'serverpb.WatchCancelRequestH\x00\x12>\n\x10progress_request\x18\x03 \x01(\x0b2".et'
    b'cdserverpb.WatchProgressRequestH\x00B\x0f\n\rrequest_union"\xd5\x01\n\x12Watch'
    b'CreateRequest\x12\x0b\n\x03key\x18\x01 \x01(\x0c\x12\x11\n\trange_end\x18\x02 \x01(\x0c\x12\x16\n\x0estart_revis'
    b'ion\x18\x03 \x01(\x03\x12<\n\x07filters\x18\x05 \x03(\x0e2+.etcdserverpb.WatchCreateRequest'
    b'.FilterType\x12\x10\n\x08watch_id\x18\x07 \x01(\x03\x12\x10\n\x08fragment\x18\x08 \x01(\x08"%\n\nFilterTyp'
    b'e\x12\t\n\x05NOPUT\x10\x00\x12\x0c\n\x08NODELETE\x10\x01"&\n\x12WatchCancelRequest\x12\x10\n\x08watch_id'
    b'\x18\x01 \x01(\x03"\x16\n\x14WatchProgressRequest"\xda\x01\n\rWatchResponse\x12,\n\x06header\x18\x01'
    b' \x01(\x0b2\x1c.etcdserverpb.ResponseHeader\x12\x10\n\x08watch_id\x18\x02 \x01(\x03\x12\x0f\n\x07crea'
    b'ted\x18\x03 \x01(\x08\x12\x10\n\x08canceled\x18\x04 \x01(\x08\x12\x18\n\x10compact_revision\x18\x05 \x01(\x03\x12\x15\n\rcan'
    b'cel_reason\x18\x06 \x01(\t\x12\x10\n\x08fragment\x18\x07 \x01(\x08\x12#\n\x06events\x18\x0b \x03(\x0b2\x13.etcdser'
    b'verpb.Event",\n\x11LeaseGrantRequest\x12\x0b\n\x03TTL\x18\x01 \x01(\x03\x12\n\n\x02ID\x18\x02 \x01(\x03"j\n'
    b'\x12LeaseGrantResponse\x12,\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdserverpb.ResponseH'
    b'eader\x12\n\n\x02ID\x18\x02 \x01(\x03\x12\x0b\n\x03TTL\x18\x03 \x01(\x03\x12\r\n\x05error\x18\x04 \x01(\t" \n\x12LeaseRevoke'
    b'Request\x12\n\n\x02ID\x18\x01 \x01(\x03"C\n\x13LeaseRevokeResponse\x12,\n\x06header\x18\x01 \x01(\x0b2\x1c'
    b'.etcdserverpb.ResponseHeader"#\n\x15LeaseKeepAliveRequest\x12\n\n\x02ID\x18'
    b'\x01 \x01(\x03"_\n\x16LeaseKeepAliveResponse\x12,\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdserver'
    b'pb.ResponseHeader\x12\n\n\x02ID\x18\x02 \x01(\x03\x12\x0b\n\x03TTL\x18\x03 \x01(\x03"2\n\x16LeaseTimeToLiv'
    b'eRequest\x12\n\n\x02ID\x18\x01 \x01(\x03\x12\x0c\n\x04keys\x18\x02 \x01(\x08"\x82\x01\n\x17LeaseTimeToLiveRespon'
    b'se\x12,\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdserverpb.ResponseHeader\x12\n\n\x02ID\x18\x02 \x01(\x03'
    b'\x12\x0b\n\x03TTL\x18\x03 \x01(\x03\x12\x12\n\ngrantedTTL\x18\x04 \x01(\x03\x12\x0c\n\x04keys\x18\x05 \x03(\x0c"\x0f\n\rStatusReq'
    b'uest"\x98\x01\n\x0eStatusResponse\x12,\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdserverpb.Respo'
    b'nseHeader\x12\x0e\n\x06dbSize\x18\x03 \x01(\x03\x12\x0e\n\x06leader\x18\x04 \x01(\x04\x12\x0e\n\x06errors\x18\x08 \x03(\t\x12\x13\n'
    b'\x0bdbSizeInUse\x18\t \x01(\x03\x12\x13\n\x0bdbSizeQuota\x18\x0c \x01(\x03"[\n\x06Member\x12\n\n\x02ID\x18\x01 \x01('
    b'\x04\x12\x0c\n\x04name\x18\x02 \x01(\t\x12\x10\n\x08peerURLs\x18\x03 \x03(\t\x12\x12\n\nclientURLs\x18\x04 \x03(\t\x12\x11\n\tisL'
    b'earner\x18\x05 \x01(\x08"\x13\n\x11MemberListRequest"i\n\x12MemberListResponse\x12,\n\x06h'
    b'eader\x18\x01 \x01(\x0b2\x1c.etcdserverpb.ResponseHeader\x12%\n\x07members\x18\x02 \x03(\x0b2\x14'
    b'.etcdserverpb.Member"5\n\x13AuthenticateRequest\x12\x0c\n\x04name\x18\x01 \x01(\t\x12\x10\n'
    b'\x08password\x18\x02 \x01(\t"S\n\x14AuthenticateResponse\x12,\n\x06header\x18\x01 \x01(\x0b2\x1c.et'
    b'cdserverpb.ResponseHeader\x12\r\n\x05token\x18\x02 \x01(\tb\x06proto3'
)


def _message(name):
    return GetMessageClass(_pool.FindMessageTypeByName("etcdserverpb." + name))


ResponseHeader = _message("ResponseHeader")
KeyValue = _message("KeyValue")
RangeRequest = _message("RangeRequest")
RangeResponse = _message("RangeResponse")
PutRequest = _message("PutRequest")
PutResponse = _message("PutResponse")
DeleteRangeRequest = _message("DeleteRangeRequest")
DeleteRangeResponse = _message("DeleteRangeResponse")
CompactionRequest = _message("CompactionRequest")
CompactionResponse = _message("CompactionResponse")
Compare = _message("Compare")
RequestOp = _message("RequestOp")
ResponseOp = _message("ResponseOp")
TxnRequest = _message("TxnRequest")
TxnResponse = _message("TxnResponse")
Event = _message("Event")
WatchRequest = _message("WatchRequest")
WatchCreateRequest = _message("WatchCreateRequest")
WatchCancelRequest = _message("WatchCancelRequest")
WatchProgressRequest = _message("WatchProgressRequest")
WatchResponse = _message("WatchResponse")
LeaseGrantRequest = _message("LeaseGrantRequest")
LeaseGrantResponse = _message("LeaseGrantResponse")
LeaseRevokeRequest = _message("LeaseRevokeRequest")
LeaseRevokeResponse = _message("LeaseRevokeResponse")
LeaseKeepAliveRequest = _message("LeaseKeepAliveRequest")
LeaseKeepAliveResponse = _message("LeaseKeepAliveResponse")
LeaseTimeToLiveRequest = _message("LeaseTimeToLiveRequest")
LeaseTimeToLiveResponse = _message("LeaseTimeToLiveResponse")
StatusRequest = _message("StatusRequest")
StatusResponse = _message("StatusResponse")
Member = _message("Member")
MemberListRequest = _message("MemberListRequest")
MemberListResponse = _message("MemberListResponse")
AuthenticateRequest = _message("AuthenticateRequest")
AuthenticateResponse = _message("AuthenticateResponse")

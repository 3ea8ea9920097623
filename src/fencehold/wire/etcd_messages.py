# Made of src/fencehold/wire/etcd/*.proto by `make stubs`: do not edit.
"""The part of etcd's interface that its lock clients use, in a pool of its own: theirs may be in the shared one."""

from typing import Any

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

pool = DescriptorPool()
pool.AddSerializedFile(
    b'\n\x0blease.proto\x12\x0cetcdserverpb"\\\n\x0eResponseHeader\x12\x12\n\ncluster_id\x18'
    b'\x01 \x01(\x04\x12\x11\n\tmember_id\x18\x02 \x01(\x04\x12\x10\n\x08revision\x18\x03 \x01(\x03\x12\x11\n\traft_term\x18\x04 \x01('
    b'\x04",\n\x11LeaseGrantRequest\x12\x0b\n\x03TTL\x18\x01 \x01(\x03\x12\n\n\x02ID\x18\x02 \x01(\x03"j\n\x12LeaseGran'
    b'tResponse\x12,\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdserverpb.ResponseHeader\x12\n\n\x02I'
    b'D\x18\x02 \x01(\x03\x12\x0b\n\x03TTL\x18\x03 \x01(\x03\x12\r\n\x05error\x18\x04 \x01(\t" \n\x12LeaseRevokeRequest\x12\n\n'
    b'\x02ID\x18\x01 \x01(\x03"C\n\x13LeaseRevokeResponse\x12,\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdserve'
    b'rpb.ResponseHeader"#\n\x15LeaseKeepAliveRequest\x12\n\n\x02ID\x18\x01 \x01(\x03"_\n\x16L'
    b'easeKeepAliveResponse\x12,\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdserverpb.Respons'
    b'eHeader\x12\n\n\x02ID\x18\x02 \x01(\x03\x12\x0b\n\x03TTL\x18\x03 \x01(\x03"2\n\x16LeaseTimeToLiveRequest\x12\n'
    b'\n\x02ID\x18\x01 \x01(\x03\x12\x0c\n\x04keys\x18\x02 \x01(\x08"\x82\x01\n\x17LeaseTimeToLiveResponse\x12,\n\x06head'
    b'er\x18\x01 \x01(\x0b2\x1c.etcdserverpb.ResponseHeader\x12\n\n\x02ID\x18\x02 \x01(\x03\x12\x0b\n\x03TTL\x18\x03 '
    b'\x01(\x03\x12\x12\n\ngrantedTTL\x18\x04 \x01(\x03\x12\x0c\n\x04keys\x18\x05 \x03(\x0c"\x14\n\x12LeaseLeasesRequest"'
    b'\x19\n\x0bLeaseStatus\x12\n\n\x02ID\x18\x01 \x01(\x03"n\n\x13LeaseLeasesResponse\x12,\n\x06header\x18'
    b'\x01 \x01(\x0b2\x1c.etcdserverpb.ResponseHeader\x12)\n\x06leases\x18\x02 \x03(\x0b2\x19.etcdse'
    b'rverpb.LeaseStatus2\xc1\x03\n\x05Lease\x12O\n\nLeaseGrant\x12\x1f.etcdserverpb.Le'
    b'aseGrantRequest\x1a .etcdserverpb.LeaseGrantResponse\x12R\n\x0bLeaseRe'
    b'voke\x12 .etcdserverpb.LeaseRevokeRequest\x1a!.etcdserverpb.LeaseR'
    b'evokeResponse\x12_\n\x0eLeaseKeepAlive\x12#.etcdserverpb.LeaseKeepAliv'
    b'eRequest\x1a$.etcdserverpb.LeaseKeepAliveResponse(\x010\x01\x12^\n\x0fLeaseT'
    b'imeToLive\x12$.etcdserverpb.LeaseTimeToLiveRequest\x1a%.etcdserver'
    b'pb.LeaseTimeToLiveResponse\x12R\n\x0bLeaseLeases\x12 .etcdserverpb.Lea'
    b'seLeasesRequest\x1a!.etcdserverpb.LeaseLeasesResponseb\x06proto3'
)
pool.AddSerializedFile(
    b'\n\nlock.proto\x12\x08v3lockpb\x1a\x0blease.proto"*\n\x0bLockRequest\x12\x0c\n\x04name\x18\x01'
    b' \x01(\x0c\x12\r\n\x05lease\x18\x02 \x01(\x03"I\n\x0cLockResponse\x12,\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdse'
    b'rverpb.ResponseHeader\x12\x0b\n\x03key\x18\x02 \x01(\x0c"\x1c\n\rUnlockRequest\x12\x0b\n\x03key\x18\x01'
    b' \x01(\x0c">\n\x0eUnlockResponse\x12,\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdserverpb.Respon'
    b'seHeader2z\n\x04Lock\x125\n\x04Lock\x12\x15.v3lockpb.LockRequest\x1a\x16.v3lockpb.L'
    b'ockResponse\x12;\n\x06Unlock\x12\x17.v3lockpb.UnlockRequest\x1a\x18.v3lockpb.Un'
    b'lockResponseb\x06proto3'
)
pool.AddSerializedFile(
    b'\n\x08kv.proto\x12\x06mvccpb"u\n\x08KeyValue\x12\x0b\n\x03key\x18\x01 \x01(\x0c\x12\x17\n\x0fcreate_revisi'
    b'on\x18\x02 \x01(\x03\x12\x14\n\x0cmod_revision\x18\x03 \x01(\x03\x12\x0f\n\x07version\x18\x04 \x01(\x03\x12\r\n\x05value\x18\x05 \x01'
    b'(\x0c\x12\r\n\x05lease\x18\x06 \x01(\x03b\x06proto3'
)
pool.AddSerializedFile(
    b'\n\x0eelection.proto\x12\x0cv3electionpb\x1a\x08kv.proto\x1a\x0blease.proto"B\n\tLea'
    b'derKey\x12\x0c\n\x04name\x18\x01 \x01(\x0c\x12\x0b\n\x03key\x18\x02 \x01(\x0c\x12\x0b\n\x03rev\x18\x03 \x01(\x03\x12\r\n\x05lease\x18\x04 \x01('
    b'\x03"=\n\x0fCampaignRequest\x12\x0c\n\x04name\x18\x01 \x01(\x0c\x12\r\n\x05lease\x18\x02 \x01(\x03\x12\r\n\x05value\x18\x03'
    b' \x01(\x0c"i\n\x10CampaignResponse\x12,\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdserverpb.Resp'
    b'onseHeader\x12\'\n\x06leader\x18\x02 \x01(\x0b2\x17.v3electionpb.LeaderKey"\x1d\n\rLeade'
    b'rRequest\x12\x0c\n\x04name\x18\x01 \x01(\x0c"\\\n\x0eLeaderResponse\x12,\n\x06header\x18\x01 \x01(\x0b2\x1c.e'
    b'tcdserverpb.ResponseHeader\x12\x1c\n\x02kv\x18\x02 \x01(\x0b2\x10.mvccpb.KeyValue"8\n\r'
    b'ResignRequest\x12\'\n\x06leader\x18\x01 \x01(\x0b2\x17.v3electionpb.LeaderKey">\n\x0eRe'
    b'signResponse\x12,\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdserverpb.ResponseHeader"I'
    b"\n\x0fProclaimRequest\x12'\n\x06leader\x18\x01 \x01(\x0b2\x17.v3electionpb.LeaderKey\x12\r"
    b'\n\x05value\x18\x02 \x01(\x0c"@\n\x10ProclaimResponse\x12,\n\x06header\x18\x01 \x01(\x0b2\x1c.etcdserv'
    b'erpb.ResponseHeader2\xf2\x02\n\x08Election\x12I\n\x08Campaign\x12\x1d.v3electionpb.'
    b'CampaignRequest\x1a\x1e.v3electionpb.CampaignResponse\x12I\n\x08Proclaim\x12'
    b'\x1d.v3electionpb.ProclaimRequest\x1a\x1e.v3electionpb.ProclaimRespon'
    b'se\x12C\n\x06Leader\x12\x1b.v3electionpb.LeaderRequest\x1a\x1c.v3electionpb.Lea'
    b'derResponse\x12F\n\x07Observe\x12\x1b.v3electionpb.LeaderRequest\x1a\x1c.v3elec'
    b'tionpb.LeaderResponse0\x01\x12C\n\x06Resign\x12\x1b.v3electionpb.ResignReque'
    b'st\x1a\x1c.v3electionpb.ResignResponseb\x06proto3'
)


def _message(name: str) -> Any:
    return GetMessageClass(pool.FindMessageTypeByName(name))


ResponseHeader = _message("etcdserverpb.ResponseHeader")
LeaseGrantRequest = _message("etcdserverpb.LeaseGrantRequest")
LeaseGrantResponse = _message("etcdserverpb.LeaseGrantResponse")
LeaseRevokeRequest = _message("etcdserverpb.LeaseRevokeRequest")
LeaseRevokeResponse = _message("etcdserverpb.LeaseRevokeResponse")
LeaseKeepAliveRequest = _message("etcdserverpb.LeaseKeepAliveRequest")
LeaseKeepAliveResponse = _message("etcdserverpb.LeaseKeepAliveResponse")
LeaseTimeToLiveRequest = _message("etcdserverpb.LeaseTimeToLiveRequest")
LeaseTimeToLiveResponse = _message("etcdserverpb.LeaseTimeToLiveResponse")
LeaseLeasesRequest = _message("etcdserverpb.LeaseLeasesRequest")
LeaseStatus = _message("etcdserverpb.LeaseStatus")
LeaseLeasesResponse = _message("etcdserverpb.LeaseLeasesResponse")
LockRequest = _message("v3lockpb.LockRequest")
LockResponse = _message("v3lockpb.LockResponse")
UnlockRequest = _message("v3lockpb.UnlockRequest")
UnlockResponse = _message("v3lockpb.UnlockResponse")
KeyValue = _message("mvccpb.KeyValue")
LeaderKey = _message("v3electionpb.LeaderKey")
CampaignRequest = _message("v3electionpb.CampaignRequest")
CampaignResponse = _message("v3electionpb.CampaignResponse")
LeaderRequest = _message("v3electionpb.LeaderRequest")
LeaderResponse = _message("v3electionpb.LeaderResponse")
ResignRequest = _message("v3electionpb.ResignRequest")
ResignResponse = _message("v3electionpb.ResignResponse")
ProclaimRequest = _message("v3electionpb.ProclaimRequest")
ProclaimResponse = _message("v3electionpb.ProclaimResponse")

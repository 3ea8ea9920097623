# Made of src/fencehold/wire/grpc/*.proto by `make stubs`: do not edit.
"""gRPC's own interfaces that every server should have: health and reflection, in a pool of their own."""

from typing import Any

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

pool = DescriptorPool()
pool.AddSerializedFile(
    b'\n\x0chealth.proto\x12\x0egrpc.health.v1"%\n\x12HealthCheckRequest\x12\x0f\n\x07serv'
    b'ice\x18\x01 \x01(\t"\xa9\x01\n\x13HealthCheckResponse\x12A\n\x06status\x18\x01 \x01(\x0e21.grpc.hea'
    b'lth.v1.HealthCheckResponse.ServingStatus"O\n\rServingStatus\x12\x0b\n'
    b'\x07UNKNOWN\x10\x00\x12\x0b\n\x07SERVING\x10\x01\x12\x0f\n\x0bNOT_SERVING\x10\x02\x12\x13\n\x0fSERVICE_UNKNOWN\x10'
    b'\x03"\x13\n\x11HealthListRequest"\xba\x01\n\x12HealthListResponse\x12B\n\x08statuses\x18\x01 '
    b'\x03(\x0b20.grpc.health.v1.HealthListResponse.StatusesEntry\x1a`\n\rSta'
    b'tusesEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x129\n\x05value\x18\x02 \x01(\x0b2#.grpc.health.v1'
    b'.HealthCheckResponseR\x05value:\x028\x012\xfd\x01\n\x06Health\x12P\n\x05Check\x12".grpc.h'
    b'ealth.v1.HealthCheckRequest\x1a#.grpc.health.v1.HealthCheckResp'
    b'onse\x12M\n\x04List\x12!.grpc.health.v1.HealthListRequest\x1a".grpc.healt'
    b'h.v1.HealthListResponse\x12R\n\x05Watch\x12".grpc.health.v1.HealthChec'
    b'kRequest\x1a#.grpc.health.v1.HealthCheckResponse0\x01b\x06proto3'
)
pool.AddSerializedFile(
    b'\n\x13reflection_v1.proto\x12\x12grpc.reflection.v1"\x85\x02\n\x17ServerReflecti'
    b'onRequest\x12\x0c\n\x04host\x18\x01 \x01(\t\x12\x1a\n\x10file_by_filename\x18\x03 \x01(\tH\x00\x12 \n\x16file_'
    b'containing_symbol\x18\x04 \x01(\tH\x00\x12I\n\x19file_containing_extension\x18\x05 \x01(\x0b'
    b"2$.grpc.reflection.v1.ExtensionRequestH\x00\x12'\n\x1dall_extension_nu"
    b'mbers_of_type\x18\x06 \x01(\tH\x00\x12\x17\n\rlist_services\x18\x07 \x01(\tH\x00B\x11\n\x0fmessage_re'
    b'quest"E\n\x10ExtensionRequest\x12\x17\n\x0fcontaining_type\x18\x01 \x01(\t\x12\x18\n\x10extens'
    b'ion_number\x18\x02 \x01(\x05"\xb8\x03\n\x18ServerReflectionResponse\x12\x12\n\nvalid_host\x18'
    b'\x01 \x01(\t\x12E\n\x10original_request\x18\x02 \x01(\x0b2+.grpc.reflection.v1.ServerR'
    b'eflectionRequest\x12N\n\x18file_descriptor_response\x18\x04 \x01(\x0b2*.grpc.re'
    b'flection.v1.FileDescriptorResponseH\x00\x12U\n\x1eall_extension_number'
    b's_response\x18\x05 \x01(\x0b2+.grpc.reflection.v1.ExtensionNumberRespons'
    b"eH\x00\x12I\n\x16list_services_response\x18\x06 \x01(\x0b2'.grpc.reflection.v1.Lis"
    b'tServiceResponseH\x00\x12;\n\x0eerror_response\x18\x07 \x01(\x0b2!.grpc.reflection'
    b'.v1.ErrorResponseH\x00B\x12\n\x10message_response"7\n\x16FileDescriptorRes'
    b'ponse\x12\x1d\n\x15file_descriptor_proto\x18\x01 \x03(\x0c"K\n\x17ExtensionNumberRespo'
    b'nse\x12\x16\n\x0ebase_type_name\x18\x01 \x01(\t\x12\x18\n\x10extension_number\x18\x02 \x03(\x05"K\n\x13Lis'
    b'tServiceResponse\x124\n\x07service\x18\x01 \x03(\x0b2#.grpc.reflection.v1.Servi'
    b'ceResponse"\x1f\n\x0fServiceResponse\x12\x0c\n\x04name\x18\x01 \x01(\t":\n\rErrorResponse'
    b'\x12\x12\n\nerror_code\x18\x01 \x01(\x05\x12\x15\n\rerror_message\x18\x02 \x01(\t2\x89\x01\n\x10ServerReflec'
    b'tion\x12u\n\x14ServerReflectionInfo\x12+.grpc.reflection.v1.ServerRefl'
    b'ectionRequest\x1a,.grpc.reflection.v1.ServerReflectionResponse('
    b'\x010\x01b\x06proto3'
)
pool.AddSerializedFile(
    b'\n\x18reflection_v1alpha.proto\x12\x17grpc.reflection.v1alpha"\x8a\x02\n\x17Serv'
    b'erReflectionRequest\x12\x0c\n\x04host\x18\x01 \x01(\t\x12\x1a\n\x10file_by_filename\x18\x03 \x01(\tH'
    b'\x00\x12 \n\x16file_containing_symbol\x18\x04 \x01(\tH\x00\x12N\n\x19file_containing_exten'
    b"sion\x18\x05 \x01(\x0b2).grpc.reflection.v1alpha.ExtensionRequestH\x00\x12'\n\x1da"
    b'll_extension_numbers_of_type\x18\x06 \x01(\tH\x00\x12\x17\n\rlist_services\x18\x07 \x01(\tH'
    b'\x00B\x11\n\x0fmessage_request"E\n\x10ExtensionRequest\x12\x17\n\x0fcontaining_type\x18'
    b'\x01 \x01(\t\x12\x18\n\x10extension_number\x18\x02 \x01(\x05"\xd1\x03\n\x18ServerReflectionResponse'
    b'\x12\x12\n\nvalid_host\x18\x01 \x01(\t\x12J\n\x10original_request\x18\x02 \x01(\x0b20.grpc.reflec'
    b'tion.v1alpha.ServerReflectionRequest\x12S\n\x18file_descriptor_resp'
    b'onse\x18\x04 \x01(\x0b2/.grpc.reflection.v1alpha.FileDescriptorResponseH'
    b'\x00\x12Z\n\x1eall_extension_numbers_response\x18\x05 \x01(\x0b20.grpc.reflection.'
    b'v1alpha.ExtensionNumberResponseH\x00\x12N\n\x16list_services_response\x18'
    b'\x06 \x01(\x0b2,.grpc.reflection.v1alpha.ListServiceResponseH\x00\x12@\n\x0eerr'
    b'or_response\x18\x07 \x01(\x0b2&.grpc.reflection.v1alpha.ErrorResponseH\x00B'
    b'\x12\n\x10message_response"7\n\x16FileDescriptorResponse\x12\x1d\n\x15file_descri'
    b'ptor_proto\x18\x01 \x03(\x0c"K\n\x17ExtensionNumberResponse\x12\x16\n\x0ebase_type_nam'
    b'e\x18\x01 \x01(\t\x12\x18\n\x10extension_number\x18\x02 \x03(\x05"P\n\x13ListServiceResponse\x129\n\x07'
    b'service\x18\x01 \x03(\x0b2(.grpc.reflection.v1alpha.ServiceResponse"\x1f\n\x0fS'
    b'erviceResponse\x12\x0c\n\x04name\x18\x01 \x01(\t":\n\rErrorResponse\x12\x12\n\nerror_code\x18'
    b'\x01 \x01(\x05\x12\x15\n\rerror_message\x18\x02 \x01(\t2\x93\x01\n\x10ServerReflection\x12\x7f\n\x14ServerR'
    b'eflectionInfo\x120.grpc.reflection.v1alpha.ServerReflectionRequ'
    b'est\x1a1.grpc.reflection.v1alpha.ServerReflectionResponse(\x010\x01b\x06'
    b'proto3'
)


def _message(name: str) -> Any:
    return GetMessageClass(pool.FindMessageTypeByName(name))


HealthCheckRequest = _message("grpc.health.v1.HealthCheckRequest")
HealthCheckResponse = _message("grpc.health.v1.HealthCheckResponse")
HealthListRequest = _message("grpc.health.v1.HealthListRequest")
HealthListResponse = _message("grpc.health.v1.HealthListResponse")
ServerReflectionRequest = _message("grpc.reflection.v1.ServerReflectionRequest")
ExtensionRequest = _message("grpc.reflection.v1.ExtensionRequest")
ServerReflectionResponse = _message("grpc.reflection.v1.ServerReflectionResponse")
FileDescriptorResponse = _message("grpc.reflection.v1.FileDescriptorResponse")
ExtensionNumberResponse = _message("grpc.reflection.v1.ExtensionNumberResponse")
ListServiceResponse = _message("grpc.reflection.v1.ListServiceResponse")
ServiceResponse = _message("grpc.reflection.v1.ServiceResponse")
ErrorResponse = _message("grpc.reflection.v1.ErrorResponse")

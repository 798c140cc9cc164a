/* Our declarations of XLA's interface beside jaxlib's own header. */
#include "../../runtime/xla/abi.h"

#include <stdbool.h>
#include <xla/ffi/api/c_api.h>

#define SAME(ours, field, theirs, name) \
  _Static_assert(offsetof(ours, field) == offsetof(theirs, name) && \
                     sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->name), \
                 #theirs "." #name)
#define SIZE(ours, theirs) _Static_assert(sizeof(ours) == theirs##_STRUCT_SIZE, #theirs)

SAME(xla_extension, type, XLA_FFI_Extension_Base, type);
SAME(xla_extension, next, XLA_FFI_Extension_Base, next);
SAME(xla_version, minor, XLA_FFI_Api_Version, minor_version);
SAME(xla_metadata, version, XLA_FFI_Metadata, api_version);
SAME(xla_metadata, traits, XLA_FFI_Metadata, traits);
SAME(xla_metadata_extension, metadata, XLA_FFI_Metadata_Extension, metadata);
SIZE(xla_buffer, XLA_FFI_Buffer);
SAME(xla_buffer, dtype, XLA_FFI_Buffer, dtype);
SAME(xla_buffer, data, XLA_FFI_Buffer, data);
SAME(xla_buffer, dims, XLA_FFI_Buffer, dims);
SAME(xla_text, size, XLA_FFI_ByteSpan, len);
SAME(xla_scalar, value, XLA_FFI_Scalar, value);
SAME(xla_array, size, XLA_FFI_Array, size);
SAME(xla_array, data, XLA_FFI_Array, data);
SIZE(xla_buffers, XLA_FFI_Args);
SIZE(xla_buffers, XLA_FFI_Rets);
SAME(xla_buffers, types, XLA_FFI_Args, types);
SAME(xla_buffers, buffers, XLA_FFI_Rets, rets);
SIZE(xla_attributes, XLA_FFI_Attrs);
SAME(xla_attributes, names, XLA_FFI_Attrs, names);
SAME(xla_attributes, values, XLA_FFI_Attrs, attrs);
SAME(xla_error_request, message, XLA_FFI_Error_Create_Args, message);
SAME(xla_error_request, code, XLA_FFI_Error_Create_Args, errc);
SAME(xla_destroy_request, error, XLA_FFI_Error_Destroy_Args, error);
SAME(xla_stream_request, stream, XLA_FFI_Stream_Get_Args, stream);
SAME(xla_schedule_request, task, XLA_FFI_ThreadPool_Schedule_Args, task);
SAME(xla_schedule_request, data, XLA_FFI_ThreadPool_Schedule_Args, data);
SAME(xla_threads_request, threads, XLA_FFI_ThreadPool_NumThreads_Args, num_threads);
SAME(xla_ordinal_request, ordinal, XLA_FFI_DeviceOrdinal_Get_Args, device_ordinal);
SAME(xla_frame, api, XLA_FFI_CallFrame, api);
SAME(xla_frame, context, XLA_FFI_CallFrame, ctx);
SAME(xla_frame, stage, XLA_FFI_CallFrame, stage);
SAME(xla_frame, arguments, XLA_FFI_CallFrame, args);
SAME(xla_frame, results, XLA_FFI_CallFrame, rets);
SAME(xla_frame, attributes, XLA_FFI_CallFrame, attrs);
SAME(xla_api, create_error, XLA_FFI_Api, XLA_FFI_Error_Create);
SAME(xla_api, destroy_error, XLA_FFI_Api, XLA_FFI_Error_Destroy);
SAME(xla_api, get_stream, XLA_FFI_Api, XLA_FFI_Stream_Get);
SAME(xla_api, schedule, XLA_FFI_Api, XLA_FFI_ThreadPool_Schedule);
SAME(xla_api, count_threads, XLA_FFI_Api, XLA_FFI_ThreadPool_NumThreads);
SAME(xla_api, get_ordinal, XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get);

#define SAME_NUMBER(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME_NUMBER(XLA_API_MAJOR, XLA_FFI_API_MAJOR);
SAME_NUMBER(XLA_EXTENSION_METADATA, XLA_FFI_Extension_Metadata);
SAME_NUMBER(XLA_STAGE_EXECUTE, XLA_FFI_ExecutionStage_EXECUTE);
SAME_NUMBER(XLA_BUFFER, XLA_FFI_ArgType_BUFFER);
SAME_NUMBER(XLA_BUFFER, XLA_FFI_RetType_BUFFER);
SAME_NUMBER(XLA_ATTRIBUTE_ARRAY, XLA_FFI_AttrType_ARRAY);
SAME_NUMBER(XLA_ATTRIBUTE_SCALAR, XLA_FFI_AttrType_SCALAR);
SAME_NUMBER(XLA_INVALID_ARGUMENT, XLA_FFI_Error_Code_INVALID_ARGUMENT);
SAME_NUMBER(XLA_FAILED_PRECONDITION, XLA_FFI_Error_Code_FAILED_PRECONDITION);
SAME_NUMBER(XLA_S32, XLA_FFI_DataType_S32);
SAME_NUMBER(XLA_S64, XLA_FFI_DataType_S64);
SAME_NUMBER(XLA_U8, XLA_FFI_DataType_U8);
SAME_NUMBER(XLA_F16, XLA_FFI_DataType_F16);
SAME_NUMBER(XLA_F32, XLA_FFI_DataType_F32);
SAME_NUMBER(XLA_F64, XLA_FFI_DataType_F64);
SAME_NUMBER(XLA_BF16, XLA_FFI_DataType_BF16);
SAME_NUMBER(XLA_F8E5M2, XLA_FFI_DataType_F8E5M2);
SAME_NUMBER(XLA_F8E4M3FN, XLA_FFI_DataType_F8E4M3FN);

/* abi.h: XLA's foreign function interface as its handlers see it: the structs of version 0.1 and later that are used
 * here, which grow at their ends and begin with their sizes. tests/xla compares them with jaxlib's own header. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { XLA_API_MAJOR = 0, XLA_API_MINOR = 1 }; /* the first that has all of this */

enum { XLA_EXTENSION_METADATA = 1, XLA_STAGE_EXECUTE = 3, XLA_BUFFER = 1 };
enum { XLA_ATTRIBUTE_ARRAY = 1, XLA_ATTRIBUTE_SCALAR = 3 };
enum { XLA_INVALID_ARGUMENT = 3, XLA_FAILED_PRECONDITION = 9 };

/* Number types. */
enum {
  XLA_S32 = 4,
  XLA_S64 = 5,
  XLA_U8 = 6,
  XLA_F16 = 10,
  XLA_F32 = 11,
  XLA_F64 = 12,
  XLA_BF16 = 16,
  XLA_F8E5M2 = 19,
  XLA_F8E4M3FN = 20
};

typedef struct xla_extension {
  size_t struct_size;
  int type;
  struct xla_extension *next;
} xla_extension;

typedef struct xla_version {
  size_t struct_size;
  xla_extension *extension_start;
  int major, minor;
} xla_version;

typedef struct xla_metadata {
  size_t struct_size;
  xla_version version;
  uint32_t traits;
} xla_metadata;

typedef struct xla_metadata_extension {
  xla_extension base;
  xla_metadata *metadata;
} xla_metadata_extension;

typedef struct xla_buffer {
  size_t struct_size;
  xla_extension *extension_start;
  int dtype;
  void *data;
  int64_t rank;
  int64_t *dims;
} xla_buffer;

typedef struct xla_text {
  const char *data;
  size_t size;
} xla_text;

typedef struct xla_scalar {
  int dtype;
  void *value;
} xla_scalar;

typedef struct xla_array {
  int dtype;
  size_t size;
  void *data;
} xla_array;

/* Arguments, and results. */
typedef struct xla_buffers {
  size_t struct_size;
  xla_extension *extension_start;
  int64_t size;
  int *types;
  void **buffers;
} xla_buffers;

/* Sorted by name. */
typedef struct xla_attributes {
  size_t struct_size;
  xla_extension *extension_start;
  int64_t size;
  int *types;
  xla_text **names;
  void **values;
} xla_attributes;

typedef struct xla_error_request {
  size_t struct_size;
  xla_extension *extension_start;
  const char *message;
  int code;
} xla_error_request;

typedef struct xla_destroy_request {
  size_t struct_size;
  xla_extension *extension_start;
  void *error;
} xla_destroy_request;

typedef struct xla_stream_request {
  size_t struct_size;
  xla_extension *extension_start;
  void *context;
  void *stream; /* out */
} xla_stream_request;

typedef struct xla_schedule_request {
  size_t struct_size;
  xla_extension *extension_start;
  void *context;
  void (*task)(void *data);
  void *data;
} xla_schedule_request;

typedef struct xla_threads_request {
  size_t struct_size;
  xla_extension *extension_start;
  void *context;
  int64_t *threads; /* out */
} xla_threads_request;

typedef struct xla_ordinal_request {
  size_t struct_size;
  xla_extension *extension_start;
  void *context;
  int32_t ordinal; /* out */
} xla_ordinal_request;

typedef void xla_unused(void);

typedef struct xla_api {
  size_t struct_size;
  xla_extension *extension_start;
  xla_version version;
  const void *internal;
  void *(*create_error)(xla_error_request *);
  xla_unused *error_message;
  void (*destroy_error)(xla_destroy_request *);
  xla_unused *register_handler;
  void *(*get_stream)(xla_stream_request *);
  xla_unused *register_type, *get_context, *set_state, *get_state, *allocate, *free;
  void *(*schedule)(xla_schedule_request *);
  void *(*count_threads)(xla_threads_request *);
  xla_unused *create_future, *set_available, *set_error, *get_run;
  void *(*get_ordinal)(xla_ordinal_request *);
} xla_api;

typedef struct xla_frame {
  size_t struct_size;
  xla_extension *extension_start;
  const xla_api *api;
  void *context;
  int stage;
  xla_buffers arguments, results;
  xla_attributes attributes;
} xla_frame;

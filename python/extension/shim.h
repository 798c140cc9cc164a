/* shim.h: what libpegen_torch calls of PyTorch: functions of its stable C interface (torch/csrc/stable/c/shim.h and
 * torch/csrc/inductor/aoti_torch/c/shim.h), declared here and looked up in the libtorch that the process has loaded.
 *
 * Nothing of PyTorch is there when this is built, and nothing is linked: the library is the same for every PyTorch from
 * 2.10 on, whose interface that is, and loads where there is none.
 */
#ifndef PEGEN_TORCH_SHIM_H
#define PEGEN_TORCH_SHIM_H

#include "pegen/pegen.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct torch_tensor torch_tensor; /* AtenTensorHandle, a reference that its holder deletes */
typedef struct torch_list torch_list;
typedef struct torch_string torch_string;
typedef struct torch_library torch_library;
typedef uint64_t torch_value; /* StableIValue: an argument or a result, or a pointer to it */
typedef void torch_kernel(torch_value *stack, uint64_t n_arguments, uint64_t n_results);

#define TORCH_INTERFACE ((uint64_t)2 << 56 | (uint64_t)10 << 48) /* 2.10: whose values are meant on the stack */

/* name, symbol, what it returns (int: 0 or a failure), what it takes */
#define TORCH_FUNCTIONS(X) \
  X(check, aoti_torch_check, void, (bool, const char *, const char *, uint32_t, const char *)) \
  X(device_type_cpu, aoti_torch_device_type_cpu, int32_t, (void)) \
  X(device_type_cuda, aoti_torch_device_type_cuda, int32_t, (void)) \
  X(contiguous_format, aoti_torch_memory_format_contiguous_format, int32_t, (void)) \
  X(get_data_ptr, aoti_torch_get_data_ptr, int, (torch_tensor *, void **)) \
  X(get_dim, aoti_torch_get_dim, int, (torch_tensor *, int64_t *)) \
  X(get_sizes, aoti_torch_get_sizes, int, (torch_tensor *, int64_t **)) \
  X(get_strides, aoti_torch_get_strides, int, (torch_tensor *, int64_t **)) \
  X(get_dtype, aoti_torch_get_dtype, int, (torch_tensor *, int32_t *)) \
  X(get_device_type, aoti_torch_get_device_type, int, (torch_tensor *, int32_t *)) \
  X(get_device_index, aoti_torch_get_device_index, int, (torch_tensor *, int32_t *)) \
  X(empty_strided, aoti_torch_empty_strided, int, \
    (int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, torch_tensor **)) \
  X(new_tensor, aoti_torch_new_tensor_handle, int, (torch_tensor *, torch_tensor **)) \
  X(delete_tensor, aoti_torch_delete_tensor_object, int, (torch_tensor *)) \
  X(new_list, torch_new_list_reserve_size, int, (size_t, torch_list **)) \
  X(list_size, torch_list_size, int, (torch_list *, size_t *)) \
  X(list_get, torch_list_get_item, int, (torch_list *, size_t, torch_value *)) \
  X(list_push, torch_list_push_back, int, (torch_list *, torch_value)) \
  X(delete_list, torch_delete_list, int, (torch_list *)) \
  X(string_length, torch_string_length, int, (torch_string *, size_t *)) \
  X(string_text, torch_string_c_str, int, (torch_string *, const char **)) \
  X(delete_string, torch_delete_string, int, (torch_string *)) \
  X(call, torch_call_dispatcher, int, (const char *, const char *, torch_value *, uint64_t)) \
  X(parallel_for, torch_parallel_for, int, \
    (int64_t, int64_t, int64_t, void (*)(int64_t begin, int64_t end, void *context), void *)) \
  X(num_threads, torch_get_num_threads, int, (uint32_t *)) \
  X(library_init_impl, aoti_torch_library_init_impl, int, \
    (const char *, const char *, const char *, uint32_t, torch_library **)) \
  X(library_impl, torch_library_impl, int, (torch_library *, const char *, torch_kernel *, uint64_t))

/* Number types: the symbol that says which PyTorch's is, and DLPack's code and bits. The first six are those that
 * kernels take; the others are here to be named where they are refused. */
#define TORCH_NUMBER_TYPES(X) \
  X(float32, kDLFloat, 32) \
  X(float64, kDLFloat, 64) \
  X(float16, kDLFloat, 16) \
  X(bfloat16, kDLBfloat, 16) \
  X(int32, kDLInt, 32) \
  X(int64, kDLInt, 64) \
  X(int8, kDLInt, 8) \
  X(int16, kDLInt, 16) \
  X(uint8, kDLUInt, 8) \
  X(bool, 6, 8) \
  X(complex64, kDLComplex, 64) \
  X(complex128, kDLComplex, 128)

struct torch_number_type {
  int32_t number; /* PyTorch's */
  DLDataType type;
};

struct torch_shim {
#define TORCH_MEMBER(name, symbol, result, parameters) result(*name) parameters;
  TORCH_FUNCTIONS(TORCH_MEMBER)
#undef TORCH_MEMBER
  struct torch_number_type number_types[12];
  void (*delete_optional)(void *); /* what is around an argument that may be left out */
  int (*current_cuda_stream)(int32_t device, void **stream); /* NULL: this PyTorch has no CUDA */
};

extern struct torch_shim torch;

/* Looks all of them up. NULL, or the name of the first that this PyTorch does not have. */
const char *torch_find_shim(void);

#endif

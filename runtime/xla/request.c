/* request.c: attributes of a call, and the kernels that this process has registered by number. */
#include "call.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- kernels by number ---- */

typedef struct known {
  const pegen_kernel *kernel;
  int64_t number;
  struct known *next;
} known;

enum { BUCKETS = 256 };
static _Atomic(known *) buckets[BUCKETS]; /* what is in one stays in it: readers need no lock */
static pthread_mutex_t writers = PTHREAD_MUTEX_INITIALIZER;

const pegen_kernel *pegen_xla_find(int64_t number) {
  const known *entry = atomic_load_explicit(&buckets[(uint64_t)number % BUCKETS], memory_order_acquire);
  while (entry && entry->number != number) entry = entry->next;
  return entry ? entry->kernel : NULL;
}

int pegen_xla_register(const pegen_kernel *kernel, int64_t number) {
  if (!pegen_kernel_supported(kernel)) return PEGEN_ERROR_KERNEL;
  _Atomic(known *) *bucket = &buckets[(uint64_t)number % BUCKETS];
  int error = 0;
  pthread_mutex_lock(&writers);
  if (!pegen_xla_find(number)) {
    known *entry = malloc(sizeof *entry);
    if (entry) {
      *entry = (known){kernel, number, atomic_load_explicit(bucket, memory_order_relaxed)};
      atomic_store_explicit(bucket, entry, memory_order_release);
    } else {
      error = PEGEN_ERROR_NO_MEMORY;
    }
  }
  pthread_mutex_unlock(&writers);
  return error;
}

/* ---- attributes ---- */

static const void *attribute(const xla_frame *frame, const char *name, int type, int dtype) {
  const xla_attributes *all = &frame->attributes;
  size_t size = strlen(name);
  for (int64_t i = 0; i < all->size; i++) {
    if (all->types[i] != type || all->names[i]->size != size || memcmp(all->names[i]->data, name, size)) continue;
    const void *value = all->values[i];
    int given = type == XLA_ATTRIBUTE_ARRAY ? ((const xla_array *)value)->dtype : ((const xla_scalar *)value)->dtype;
    return given == dtype ? value : NULL;
  }
  return NULL;
}

static bool read_number(const xla_frame *frame, const char *name, int64_t *value) {
  const xla_scalar *found = attribute(frame, name, XLA_ATTRIBUTE_SCALAR, XLA_S64);
  if (found) memcpy(value, found->value, sizeof *value);
  return found;
}

static bool read_roles(const xla_frame *frame, const char *name, int64_t n, const int64_t **roles) {
  const xla_array *found = attribute(frame, name, XLA_ATTRIBUTE_ARRAY, XLA_S64);
  if (!found || n < 0 || (uint64_t)n != found->size) return false;
  *roles = found->data;
  return true;
}

const char *pegen_xla_read_request(const xla_frame *frame, xla_request *request) {
  const xla_scalar *scale = attribute(frame, "scale", XLA_ATTRIBUTE_SCALAR, XLA_F64);
  if (!scale || !read_number(frame, "kernel", &request->number) || !read_number(frame, "entry", &request->entry) ||
      !read_number(frame, "layout", &request->layout) || !read_number(frame, "flags", &request->flags) ||
      !read_number(frame, "causal", &request->causal) ||
      !read_roles(frame, "arguments", frame->arguments.size, &request->roles[0]) ||
      !read_roles(frame, "results", frame->results.size, &request->roles[1]))
    return "the call does not have the attributes that pegen/xla.h lists";
  memcpy(&request->scale, scale->value, sizeof request->scale);
  request->kernel = pegen_xla_find(request->number);
  if (!request->kernel)
    return "this process has not registered the kernel that the program names: compile it here first, with the same "
           "description, options, targets and version of pegen";
  return NULL;
}

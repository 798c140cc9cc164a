/* explain/safetensors: one tensor of a checkpoint, as the library of that name writes it: the length of the header (64
 * bits, little-endian), the header (JSON), and the bytes of all tensors. */
#pragma once

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* By the ending of its name. */
bool safetensors_is(const char *path);

/* Reads a tensor of that shape, of F64, F32, F16 or BF16, of finite numbers; false after a diag_error that names the
 * file, the tensor, and `what` it is for. Nothing but the header and that tensor is read. */
bool safetensors_read(arena *a, const char *path, const char *tensor, const char *what, int rank, const int64_t *shape,
                      double *values);

/* explain/npy: one array from a .npy file, as numpy.save writes it (NEP 1). */
#pragma once

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* Reads an array of that shape, float16, float32 or float64 in row-major order, of finite numbers; false after a
 * diag_error that names the file and `what` the array is for. */
bool npy_read(arena *a, const char *path, const char *what, int rank, const int64_t *shape, double *values);

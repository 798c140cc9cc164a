/* verify/run: loads a compiled object into this process (LLVM's ORC), for check, bench and tests. */
#pragma once

#include "pegen/pegen.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct loaded_kernel loaded_kernel;

/* name: the spec's, so that NAME_kernel is looked up. NULL after a diag_error. Copies the bytes. */
loaded_kernel *run_load(const void *object, size_t size, const char *name);
const pegen_kernel *run_kernel(const loaded_kernel *loaded);
void run_unload(loaded_kernel *loaded);

/* Adds another object, finds a symbol (NULL after a diag_error), and lets another description stand for the kernel. */
bool run_add(loaded_kernel *loaded, const void *object, size_t size);
void *run_find(const loaded_kernel *loaded, const char *symbol);
void run_replace(loaded_kernel *loaded, const pegen_kernel *kernel);

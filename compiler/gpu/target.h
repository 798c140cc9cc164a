/* gpu/target: the GPUs that code is written for, and the way from a plan to its text. */
#pragma once

#include "gpu/entries.h"
#include "gpu/vendor.h"
#include "target/request.h"

/* A compiled module: what the object and the launcher need of it. */
typedef struct gpu_module {
  const gpu_target *target;
  const char *text; /* NUL-terminated */
  size_t size;
  const char *cubin; /* of cubin_size bytes; NULL: there is none */
  size_t cubin_size;
  int n_parameters;
  const gpu_program *program;
} gpu_module;

/* All chips of all vendors, NULL after the last. */
const gpu_target *gpu_target_at(int index);
const gpu_target *gpu_target_find(const char *name); /* NULL: not a GPU's name */
const gpu_target *gpu_target_default(void);
/* Parts a comma list: *cpus are the names that are no GPU's (NULL where none is left, and where list is), the
 * result is the lowest GPU named, or NULL. */
const gpu_target *gpu_target_parse(arena *a, const char *list, const char **cpus);
/* Whether code for the one that was chosen runs on all GPUs of the list; false after a diag_error. */
bool gpu_target_check(arena *a, const char *list, const gpu_target *chosen);

/* The module in the form of options->emit: ptx or asm (the vendor's), obj where it has objects, llvm or mlir. */
void gpu_write(arena *a, const gpu_program *p, const gpu_target *target, const compile_options *options,
               compile_output *out);

/* The module as text to embed and, with options->cubin, as machine code; NULL after a diag_error. */
gpu_module *gpu_compile(arena *a, const gpu_program *p, const gpu_target *target, const compile_options *options);

/* An object for this machine with the entries' bodies as functions (gpu/entries.h), and NAME_host_encode and
 * NAME_host_attention, which call what NAME_host_encode_runner (or ..._attention_runner) points at with
 * NAME_host_context and their own arguments. For check and tests. */
void gpu_write_host(arena *a, const gpu_program *p, int optimize, compile_output *out);

/* gpu/target: the GPUs that PTX is written for, and the way from a plan to its text. */
#ifndef PEGEN_GPU_TARGET_H
#define PEGEN_GPU_TARGET_H

#include "compile.h"
#include "gpu/entries.h"
#include "mlir/number.h"

#include <llvm/Config/llvm-config.h>

/* A row of the table: numbers, no code. */
typedef struct ptx_target {
  const char *name;        /* of --target, and LLVM's and ptxas' */
  const char *description;
  const char *features;    /* the least version of PTX that knows the chip */
  int level;               /* PTX of a lower level runs on chips of a higher one */
  unsigned native;         /* number types that it converts itself, of mlir/number.h */
} ptx_target;

/* A compiled module: what the object and the launcher need of it. */
typedef struct ptx_module {
  const ptx_target *target;
  const char *text; /* NUL-terminated */
  size_t size;
  int n_parameters;
  const ptx_program *program;
} ptx_module;

enum { PTX_TARGET_COUNT = LLVM_VERSION_MAJOR >= 22 ? 7 : 5 }; /* 19 knows no Blackwell */
extern const ptx_target ptx_targets[PTX_TARGET_COUNT];

/* Parts a comma list: *cpus are the names that are no GPU's (NULL where none is left, and where list is), the
 * result is the lowest GPU named, or NULL. */
const ptx_target *ptx_target_parse(arena *a, const char *list, const char **cpus);
const ptx_target *ptx_target_default(void);
const ptx_target *ptx_target_find(const char *name); /* NULL: not a GPU's name */

/* The module in the form of options->emit: ptx, asm (the same), llvm or mlir. */
void ptx_write(arena *a, const ptx_program *p, const ptx_target *target, const compile_options *options,
               compile_output *out);

/* The same as text to embed. */
ptx_module *ptx_compile(arena *a, const ptx_program *p, const ptx_target *target, int optimize);

/* An object for this machine with the entries' bodies as functions (gpu/entries.h), and NAME_host_encode and
 * NAME_host_attention, which call what NAME_host_encode_runner (or ..._attention_runner) points at with
 * NAME_host_context and their own arguments. For check and tests. */
void ptx_write_host(arena *a, const ptx_program *p, int optimize, compile_output *out);

#endif

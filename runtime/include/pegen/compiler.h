/* compiler.h: descriptions compiled while a program runs.
 *
 *     pegen_compile_request request = {.struct_size = sizeof request, .file = "geope3d.lua"};
 *     pegen_compiled *compiled = pegen_compile(&request);
 *     if (!compiled || !compiled->kernel) fail(compiled ? compiled->error : "no memory");
 *     error = compiled->kernel->encode(&args, 0, 1);
 *     pegen_compiled_free(compiled);                               no call may be under way in the kernel
 *
 * Part of libpegen, and nothing of LLVM is in it: the program `pegen` is started (posix_spawn, never fork), which runs
 * the description in a process without rights, compiles, and hands back a shared object over a pipe; if it dies, an
 * error text is all that comes of it. Neither a compiler nor a linker need be installed. The program is the request's
 * `program`; else what the environment's PEGEN names; else `pegen` in the folder of this library (or of the program it
 * is linked into), in its `bin`, or in the `bin` beside it.
 *
 * Safe from any thread; threads that ask for the same at once wait for one compilation. What was compiled is kept in a
 * cache on disk, which any number of processes may share: a folder of files that can be removed at any time. It is
 * found by content (the description with every file that it reads, the options, the program), belongs to the user
 * alone, and is checked before it is used. What was used least recently is removed where it grows too large. Where it
 * cannot be read or written (a full disk, a folder of another's)
 * compilation does without.
 */
#ifndef PEGEN_COMPILER_H
#define PEGEN_COMPILER_H

#include <pegen/pegen.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is asked for. Zero it, set struct_size = sizeof(pegen_compile_request), file or text, and what you use. */
typedef struct pegen_compile_request {
  uint32_t struct_size;
  int32_t n_defines;
  const char *file;           /* the description's path; or */
  const char *text;           /* its Lua text, which finds no modules of its own beside it */
  const char *label;          /* what messages call the text; NULL: "description" */
  const char *const *defines; /* values of the description's options: "head_dim=128" */
  const char *targets;        /* as --target: "x86-64-v3,sm_90", "native"; NULL: pegen's default for this machine */
  const char *dtypes;         /* as --dtype: "f32,bf16:f8e4m3"; NULL: f32, bf16 and f16 */
  const char *name;           /* what the kernel's name and the header's begin with; NULL: the description's */
  const char *program;        /* path of pegen; NULL: found as above */
  const char *cache; /* folder, made where it is missing; NULL: $XDG_CACHE_HOME/pegen or ~/.cache/pegen; "": none */
  double max_seconds; /* processor time of a compilation; 0: pegen's default, 300 s */
  int64_t max_memory; /* MiB of its process; 0: pegen's default, 4096 */
  int32_t trust_spec; /* 1: as --trust-spec, for your own descriptions on systems without seccomp */
  /* What follows came with 0.2. */
  int64_t max_cache; /* MiB that the cache's folder may have after an entry is stored; 0: PEGEN_CACHE_MIB; -1: any */
  int32_t tangents;  /* 1: as --tangents */
} pegen_compile_request;

enum { PEGEN_CACHE_MIB = 1024 };

/* What came of it: kernel, or error. */
typedef struct pegen_compiled {
  uint32_t struct_size;
  int32_t from_cache;         /* 1: nothing was compiled */
  const char *error; /* NULL: none; "geope3d.lua:12: error: ..." or what went wrong with the program; lines */
  const pegen_kernel *kernel; /* mapped until pegen_compiled_free; NULL after an error, and of pegen_explain */
  const char *header; /* the kernel's C header */
  const char *explanation; /* of pegen_explain: one JSON object, as `pegen explain --format=json` prints it */
  const void *object; /* the shared object's bytes, for a file of your own */
  size_t object_size;
} pegen_compiled;

/* Both return NULL only where there is no memory for the result itself. */
pegen_compiled *pegen_compile(const pegen_compile_request *request);
/* What holds of the description; kernel is NULL, and nothing is cached. Measures some of it: up to seconds. */
pegen_compiled *pegen_explain(const pegen_compile_request *request);

/* Unmaps the kernel. NULL is ignored. */
void pegen_compiled_free(pegen_compiled *compiled);

#ifdef __cplusplus
}
#endif
#endif

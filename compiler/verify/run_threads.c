/* verify/run_threads: blocks and threads as loops; see verify/run_threads.h. */
#include "verify/run_threads.h"

#include "base/diag.h"
#include "compile.h"
#include "gpu/forms.h"
#include "gpu/target.h"

#include "runtime/launch.h"

#include <stdlib.h>
#include <string.h>

typedef struct threads {
  pegen_kernel kernel; /* first: run_threads_entry is given its address */
  thread_function *entry[GPU_MAX_ENTRIES];
  bool waits[GPU_MAX_ENTRIES];
  int64_t wanted;
  int reverse; /* every other launch runs its threads backwards: their order must not matter */
  const char *last;
} threads;

void run_threads_grid(thread_function *run, int64_t grid_x, int64_t grid_y, int threads, bool barriers, bool reverse,
                      const int64_t *parameters) {
  for (int64_t grid_row = 0; grid_row < grid_y; grid_row++)
    for (int64_t i = 0; i < grid_x; i++) {
      int32_t block = (int32_t)(reverse ? grid_x - 1 - i : i);
      if (barriers) run_block(run, block, (int32_t)grid_row, threads, reverse, parameters);
      for (int t = 0; t < threads && !barriers; t++)
        run(block, (int32_t)grid_row, reverse ? threads - 1 - t : t, parameters);
    }
}

static int run_step(void *context, const pegen_launch_step *step) {
  threads *t = context;
  const pegen_ptx *ptx = t->kernel.ptx;
  ptrdiff_t entry = step->entry - ptx->entries;
  t->last = step->entry->name;
  t->reverse = !t->reverse;
  run_threads_grid(t->entry[entry], step->grid_x, step->grid_y, ptx->block, t->waits[entry], t->reverse,
                   step->parameter);
  return 0;
}

static int fits(DLDevice device) { return device.device_type == kDLCPU; }

static int run_entry(threads *t, pegen_launch_entry entry, const pegen_args *args, int part, int parts) {
  pegen_launch_request request = {.kernel = &t->kernel, .entry = entry, .args = args, .threads = t->wanted};
  if (part < 0 || part >= parts) return PEGEN_ERROR_PART;
  int error = pegen_launch_check(&request);
  if (error) return error;
  if (!pegen_launch_on_device(&request, fits)) return PEGEN_ERROR_DEVICE;
  return part == 0 ? pegen_launch_plan(&request, run_step, t) : 0;
}

#define X(name) \
  static int name(void *context, const pegen_args *args, int part, int parts) { \
    return run_entry(context, PEGEN_LAUNCH_##name, args, part, parts); \
  }
PEGEN_LAUNCHED(X)
#undef X

/* Sizes of workspaces, of the entries that have them on GPUs. */
#define SIZES(X) X(attention) X(encode_backward) X(attention_backward)
#define X(name) \
  static size_t name##_workspace(void *context, const pegen_args *args) { \
    threads *t = context; \
    return pegen_launch_workspace(&(pegen_launch_request){ \
        .kernel = &t->kernel, .entry = PEGEN_LAUNCH_##name, .args = args, .threads = t->wanted}); \
  }
SIZES(X)
#undef X

const char *run_threads_entry(const pegen_kernel *kernel) { return ((const threads *)(const void *)kernel)->last; }

/* What is looked for among the entries that a call launches: a name's end. */
typedef struct name_end {
  const char *end;
  bool found;
} name_end;

static int note_entry(void *context, const pegen_launch_step *step) {
  name_end *of = context;
  size_t length = strlen(step->entry->name), of_end = strlen(of->end);
  of->found |= length > of_end && !strcmp(step->entry->name + length - of_end, of->end);
  return 0;
}

static bool launches(const pegen_kernel *kernel, bool backward, const pegen_args *args, const char *end) {
  name_end of = {.end = end};
  pegen_args call = *args;
  pegen_launch_request request = {.kernel = kernel,
                                  .entry = backward ? PEGEN_LAUNCH_attention_backward : PEGEN_LAUNCH_attention,
                                  .args = &call,
                                  .threads = 1};
  if (!kernel->ptx) return false;
  call.workspace_bytes = pegen_launch_workspace(&request);
  if (call.workspace_bytes) call.workspace = arena_must(malloc(call.workspace_bytes));
  bool planned = !pegen_launch_plan(&request, note_entry, &of);
  free(call.workspace_bytes ? call.workspace : NULL);
  return planned && of.found;
}

bool run_threads_rounds_weights(const pegen_kernel *kernel, bool backward, const pegen_args *args) {
  return launches(kernel, backward, args, "_mma");
}

bool run_threads_has_tiles(const pegen_kernel *kernel, const pegen_args *args) {
  return launches(kernel, false, args, "_mma") || launches(kernel, false, args, "_simt");
}

bool run_threads_rounds_rows(const pegen_kernel *kernel, bool backward, const pegen_args *args) {
  return launches(kernel, backward, args, "_turn");
}

/* Sets a variable of the loaded code. */
static bool set_pointer(const loaded_kernel *loaded, const char *symbol, const void *value, size_t size) {
  void *at = run_find(loaded, symbol);
  if (at) memcpy(at, value, size);
  return at != NULL;
}

/* Puts the function at `runner` behind one of the kernel's entries, at `of`, which is called `entry` in the host's
 * object. */
static bool connect_entry(arena *a, loaded_kernel *loaded, const char *name, const char *entry, const void *runner,
                          void *of) {
  void *own = run_find(loaded, arena_printf(a, "%s_host_%s", name, entry)), *none = NULL;
  if (!own || !set_pointer(loaded, arena_printf(a, "%s_host_%s_runner", name, entry), runner, sizeof own)) return false;
  if (memcmp(of, &none, sizeof none) != 0) memcpy(of, &own, sizeof own);
  return true;
}

/* All that the kernel has; what its text has no entries for, it has not. */
static bool connect_entries(arena *a, loaded_kernel *loaded, const char *name, pegen_kernel *kernel) {
#define X(entry) \
  int (*entry##_runner)(void *, const pegen_args *, int, int) = entry; \
  if (pegen_launch_find(kernel, #entry) == PEGEN_LAUNCH_NONE) kernel->entry = NULL; \
  if (!connect_entry(a, loaded, name, #entry, &entry##_runner, &kernel->entry)) return false;
  PEGEN_LAUNCHED(X)
#undef X
#define X(entry) \
  size_t (*entry##_sizer)(void *, const pegen_args *) = entry##_workspace; \
  if (!connect_entry(a, loaded, name, #entry "_workspace", &entry##_sizer, &kernel->entry##_workspace)) return false;
  SIZES(X)
#undef X
  return true;
}

static bool connect(arena *a, loaded_kernel *loaded, const gpu_program *program, int64_t wanted) {
  const char *name = program->spec->name;
  threads *t = arena_new(a, threads);
  t->kernel = *run_kernel(loaded);
  t->wanted = wanted;
  if (t->kernel.ptx->n_entries > GPU_MAX_ENTRIES) diag_bug("run_threads", "%d entries", t->kernel.ptx->n_entries);
  for (int i = 0; i < t->kernel.ptx->n_entries; i++) {
    void *entry = run_find(loaded, t->kernel.ptx->entries[i].name);
    if (!entry) return false;
    memcpy(&t->entry[i], &entry, sizeof entry);
    t->waits[i] = gpu_entry_waits(&program->entry[i]);
  }
  void (*waiter)(int32_t) = run_block_wait;
  void (*warper)(int32_t, int32_t, const int32_t *, int32_t *) = run_block_warp;
  if (!connect_entries(a, loaded, name, &t->kernel) ||
      !set_pointer(loaded, arena_printf(a, "%s_host_context", name), &t, sizeof t) ||
      !set_pointer(loaded, arena_printf(a, "%s_host_waiter", name), &waiter, sizeof waiter) ||
      !set_pointer(loaded, arena_printf(a, "%s_host_warper", name), &warper, sizeof warper))
    return false;
  run_replace(loaded, &t->kernel);
  return true;
}

loaded_kernel *run_load_threads(arena *a, const spec *s, const char *target, unsigned dtypes, int optimize,
                                int64_t threads_wanted, bool gradients) {
  /* What is launched is the same for all GPUs: a vendor's code that no object takes in runs by the plan of another. */
  const gpu_target *gpu = gpu_target_find(target);
  if (!gpu->vendor->is_embedded) gpu = gpu_target_default();
  /* The object is asked for its driver, the kernel's description and the plan of launches. Neither its processor's code
   * nor its PTX runs, so neither is optimised, and attention's, which is long, is left out. Processors prepare the
   * tables of others. */
  compile_options options = {.emit = EMIT_OBJ,
                             .targets = arena_printf(a, "native,%s", gpu->name),
                             .dtypes = dtypes,
                             .optimize = 0,
                             .no_gradients = !gradients,
                             .launches_alone = s->pairwise};
  compile_output object = {0}, host = {0};
  if (!compile(a, s, &options, &object)) return NULL;
  loaded_kernel *loaded = run_load(object.data, object.size, s->name);
  free(object.data);
  if (!loaded) return NULL;
  const form *f = form_of(s);
  const gpu_program *program = gpu_program_of(a, gpu, f, f->plan(a, s), run_kernel(loaded)->dtypes, gradients);
  gpu_write_host(a, program, optimize, &host);
  bool ok = run_add(loaded, host.data, host.size) && connect(a, loaded, program, threads_wanted);
  free(host.data);
  if (ok) return loaded;
  run_unload(loaded);
  return NULL;
}

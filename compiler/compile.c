/* compile: the pipeline; see compile.h. */
#include "compile.h"

#include "base/diag.h"
#include "base/number.h"
#include "forms/form.h"
#include "gpu/target.h"
#include "object/describe.h"
#include "object/target.h"

#include "pegen/pegen.h"

#include <stdio.h>
#include <stdlib.h>

static void write_expr(const form *f, const void *plan, compile_output *out) {
  FILE *stream = arena_must(open_memstream(&out->data, &out->size));
  f->print(stream, plan);
  if (fclose(stream)) arena_must(NULL);
}

static bool write_programs(arena *a, const spec *s, const form *f, const void *plan, compile_output *out) {
  const program *programs[FORM_MAX_PROGRAMS];
  int count = form_programs(a, f, plan, programs);
  if (count == 0) {
    diag_error(s->file, s->line, "kernels of this kind are not programs; expected --emit expr or mlir");
    return false;
  }
  FILE *stream = arena_must(open_memstream(&out->data, &out->size));
  for (int i = 0; i < count; i++) {
    if (i) fputc('\n', stream);
    program_print(stream, programs[i]);
  }
  if (fclose(stream)) arena_must(NULL);
  return true;
}

/* What is written for a GPU alone: PTX, or what comes before it. */
static bool check_gpu_form(const compile_options *options, const ptx_target **gpu) {
  if (!*gpu) *gpu = ptx_target_default();
  if (options->emit != EMIT_OBJ) return true;
  diag_error(NULL, 0,
             "an object needs a processor; expected --target %s,x86-64-v3 or the like, or an output that ends in .ptx",
             (*gpu)->name);
  return false;
}

/* Whether rows can be written in other number types than they are read in, as asked for; else after a diag_error. */
static bool check_pairs(const spec *s, const form *f, const ptx_target *gpu, unsigned dtypes) {
  if (!(dtypes & number_all_pairs())) return true;
  if (!f->converts) {
    diag_error(s->file, s->line,
               "outputs of kernels of this kind have the number type of q and k; expected --dtype without ':'");
    return false;
  }
  for (int in = 0; in < NUMBER_CHANNEL_TYPES; in++)
    for (int out = NUMBER_CHANNEL_TYPES; out < NUMBER_OUT_TYPES; out++)
      if (gpu && dtypes & number_pair(in, out) && !(gpu->native & NUMBER_BIT(out))) {
        diag_error(NULL, 0, "%s: outputs of %s are made for processors only", gpu->name, number_name(out));
        return false;
      }
  return true;
}

/* What the form makes for GPUs; NULL after a diag_error. */
static const ptx_program *gpu_program(arena *a, const spec *s, const form *f, const void *plan, unsigned dtypes) {
  if (f->gpu) return f->gpu(a, plan, dtypes);
  diag_error(s->file, s->line,
             "kernels of this kind are made for processors only; expected --target x86-64-v3 or the like");
  return NULL;
}

bool compile(arena *a, const spec *s, const compile_options *options, compile_output *out) {
  unsigned dtypes = options->dtypes ? options->dtypes : number_all_dtypes();
  const cpu_target *targets[TARGET_MAX];
  const char *cpus;
  const ptx_target *gpu = ptx_target_parse(a, options->targets, &cpus);
  if (options->emit == EMIT_PTX && options->targets && !gpu) {
    diag_error(NULL, 0, "PTX is for GPUs; expected --target sm_90 or the like, not '%s'", options->targets);
    return false;
  }
  bool gpu_alone = options->emit == EMIT_PTX || (gpu && !cpus);
  int n_targets = gpu_alone ? 0 : target_parse(a, cpus, targets);
  if (!(gpu_alone ? check_gpu_form(options, &gpu) : n_targets > 0) || !spec_validate(s)) return false;

  const form *f = form_of(s);
  if (f && !check_pairs(s, f, gpu, dtypes)) return false;
  const void *plan = f ? f->plan(a, s) : NULL;
  const ptx_program *program = plan && gpu ? gpu_program(a, s, f, plan, dtypes) : NULL;
  if (!plan || (gpu && !program)) return false;
  if (options->emit == EMIT_EXPR) {
    write_expr(f, plan, out);
    return true;
  }
  if (options->emit == EMIT_PROGRAM) return write_programs(a, s, f, plan, out);
  if (gpu_alone) {
    ptx_write(a, program, gpu, options, out);
    return true;
  }
  if (!f->emit_cpu) {
    diag_error(s->file, s->line, "kernels of this kind are not written yet; expected --emit expr");
    return false;
  }
  ir b;
  ir_create(&b, s->file, s->line);
  if (f->imports) f->imports(&b);
  for (int i = 0; i < n_targets; i++) f->emit_cpu(&b, a, plan, targets[i], dtypes);
  describe_request request = {a,
                              f,
                              s,
                              plan,
                              dtypes,
                              describe_digest(a, f, s, plan),
                              gpu ? ptx_compile(a, program, gpu, options->optimize) : NULL};
  bool ok = target_write(&b, targets, n_targets, options, &request, out);
  ir_destroy(&b);
  return ok;
}

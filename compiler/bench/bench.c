/* bench/bench: what is measured of a description; see bench/bench.h. */
#include "bench/bench.h"

#include "base/diag.h"
#include "base/number.h"
#include "bench/append.h"
#include "bench/attention.h"
#include "bench/gpu.h"
#include "bench/report.h"
#include "bench/rows.h"
#include "bench/turns.h"
#include "forms/form.h"
#include "gpu/target.h"
#include "verify/run.h"

#include <stdio.h>
#include <stdlib.h>

static int refuse_gpu(const spec *s, const char *what) {
  diag_error(s->file, s->line, "bench: %s is timed on processors only; expected --target x86-64-v3 or the like", what);
  return STATUS_ERROR;
}

static int refuse_reading(const spec *s, const char *what) {
  diag_error(s->file, s->line,
             "bench: --then-read, but %s of '%s' is not timed with what comes next; expected an encode, on a processor",
             what, s->name);
  return STATUS_ERROR;
}

/* What is measured of a form's kernels; NULL: encode beside a loop that moves the same bytes. */
static bench_function *const measures[FORM_COUNT] = {[FORM_ATTENTION] = bench_attention};

static int measure_spec(arena *a, const spec *s, const compile_options *options, const bench_options *bench) {
  const form *f = form_of(s);
  if (!f) return STATUS_ERROR;
  if (options->dtypes & number_all_pairs()) {
    diag_error(s->file, s->line, "bench: outputs of another number type are not timed; expected --dtype without ':'");
    return STATUS_ERROR;
  }
  if (bench->table && !f->entries.prepare)
    return bench_refuse_table(s, f->entries.encode ? "the kernel" : "the attention");
  if (bench->backward && !(f->entries.encode_backward || f->entries.attention_backward)) {
    diag_error(s->file, s->line, "bench: --backward times calls of kernels that have gradients");
    return STATUS_ERROR;
  }
  if (bench->then_read && measures[f->kind]) return refuse_reading(s, "the attention");
  if (bench->shared_inputs && !spec_turns_rows(s)) {
    diag_error(s->file, s->line, "bench: --shared-inputs, but '%s' turns no rows by inputs", s->name);
    return STATUS_ERROR;
  }
  compile_options compiling = *options;
  const char *processors;
  bool on_gpu = gpu_target_parse(a, options->targets, &processors) && !processors;
  if (bench->append && (bench->backward || bench->then_read)) {
    diag_error(s->file, s->line,
               "bench: --append times NAME_append alone; expected it without --backward, --then-read");
    return STATUS_ERROR;
  }
  if (bench->group && !bench->append && !bench->keys) {
    diag_error(s->file, s->line,
               "bench: --group %d says how many heads of q one of k and v has in --append or with --keys, neither of "
               "which was given",
               bench->group);
    return STATUS_ERROR;
  }
  if ((bench->keys || bench->causal) && measures[f->kind] != bench_attention) {
    diag_error(s->file, s->line, "bench: %s of '%s', which has no attention; expected a description of attention",
               bench->keys ? "--keys" : "--causal", s->name);
    return STATUS_ERROR;
  }
  if (bench->append && (on_gpu || !f->entries.append))
    return bench_refuse_append(s, on_gpu ? "the GPU's kernel" : "the kernel");
  if (measures[f->kind]) return measures[f->kind](a, s, options, bench);
  if (f->out_dim && on_gpu) return refuse_gpu(s, f->name);
  if (s->n_inputs && on_gpu) return refuse_gpu(s, "an encoding that reads inputs");
  if (bench->backward && on_gpu) return refuse_gpu(s, "--backward of an encode");
  if (bench->then_read && on_gpu) return refuse_reading(s, "the GPU's kernel");
  if (on_gpu) return bench->table ? bench_refuse_table(s, "the GPU's kernel") : bench_gpu_spec(a, s, options, bench);
  compiling.emit = EMIT_OBJ;
  compiling.no_gradients = !bench->backward;
  if (!compiling.dtypes) compiling.dtypes = PEGEN_DTYPE_F32;
  compile_output object;
  double start = turns_now();
  if (!compile(a, s, &compiling, &object)) return STATUS_ERROR;
  if (!bench->report) printf("compiled in %.0f ms to %zu bytes\n", (turns_now() - start) * 1e3, object.size);
  loaded_kernel *loaded = run_load(object.data, object.size, s->name);
  free(object.data);
  if (!loaded) return STATUS_ERROR;
  int status = STATUS_OK;
  for (unsigned dtype = 1; dtype <= compiling.dtypes && !status; dtype <<= 1)
    if (compiling.dtypes & dtype)
      status = (bench->append ? bench_append : bench_kernel)(a, s, run_kernel(loaded), dtype, bench);
  run_unload(loaded);
  return status;
}

int bench_spec(arena *a, const spec *s, const compile_options *options, const bench_options *bench) {
  if (!bench->json) return measure_spec(a, s, options, bench);
  bench_options reporting = *bench;
  reporting.report = report_create(bench->command);
  return reporting.report ? report_finish(reporting.report, measure_spec(a, s, options, &reporting)) : STATUS_ERROR;
}

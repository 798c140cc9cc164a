/* compile: the pipeline; see compile.h. */
#include "compile.h"

#include "describe.h"
#include "diag.h"
#include "emit_cpu.h"
#include "group.h"
#include "plan.h"
#include "target.h"

#include "pegen/pegen.h"

#include <stdio.h>
#include <stdlib.h>

static void write_expr(const plan *p, compile_output *out) {
  FILE *stream = open_memstream(&out->data, &out->size);
  plan_print(stream, p);
  fclose(stream);
}

bool compile(arena *a, const spec *s, const compile_options *options, compile_output *out) {
  unsigned dtypes = options->dtypes ? options->dtypes : PEGEN_DTYPE_F32 | PEGEN_DTYPE_BF16 | PEGEN_DTYPE_F16;
  const cpu_target *targets[TARGET_MAX];
  block_program program;
  int n_targets = target_parse(a, options->targets, targets);
  if (!n_targets || !spec_validate(s)) return false;

  if (!group_build(a, s, &program)) return false;
  plan *p = plan_build(a, &program);
  if (options->emit == EMIT_EXPR) {
    write_expr(p, out);
    return true;
  }
  ir b;
  ir_create(&b, s->file, s->line);
  emit_cpu_imports(&b);
  for (int i = 0; i < n_targets; i++) emit_cpu(&b, a, p, targets[i], dtypes);
  describe_request request = {a, p, dtypes, describe_digest(a, p)};
  bool ok = target_write(&b, targets, n_targets, options, &request, out);
  ir_destroy(&b);
  return ok;
}

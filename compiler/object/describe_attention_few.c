/* object/describe_attention_few: see object/describe_attention_few.h. */
#include "object/describe_attention_few.h"

#include "cpu/attention/few.h"

static LLVMValueRef of_rows(describer *d, const cpu_target *target, const char *what, int rows) {
  return describe_function(d, emit_few_name(d->request->memory, target, what, rows));
}

static LLVMValueRef of_all(describer *d, const cpu_target *target, const char *what) {
  return of_rows(d, target, what, 0);
}

static LLVMValueRef by_rows(describer *d, const cpu_target *target, const char *what) {
  LLVMValueRef functions[PEGEN_FEW_BLOCK];
  for (int i = 0; i < PEGEN_FEW_BLOCK; i++) functions[i] = of_rows(d, target, what, i + 1);
  return LLVMConstArray2(d->ptr, functions, PEGEN_FEW_BLOCK);
}

static LLVMValueRef row_of(describer *d, const attention_plan *p, const cpu_target *target) {
  const attention_plan *on = attention_plan_forward(d->request->memory, p, target);
  return DESCRIBE(d, pegen_attention_few_code, F(keys, attention_few_keys(on, target)),
                  F(queries, attention_few_queries(on, target)), F(block, attention_few_block(target)),
                  F(begin, of_all(d, target, "begin")), F(load, of_all(d, target, "load")),
                  F(scores, by_rows(d, target, "scores")), F(pair_scores, of_all(d, target, "pair_scores")),
                  F(soften, of_all(d, target, "soften")), F(soften_plain, of_all(d, target, "soften_plain")),
                  F(values, by_rows(d, target, "values")), F(merge, of_all(d, target, "merge")),
                  F(end, of_all(d, target, "end")), F(lse, of_all(d, target, "lse")),
                  F(seen, of_all(d, target, "seen")));
}

LLVMValueRef describe_attention_few(describer *d, const attention_plan *p, const cpu_target *const *targets,
                                    int count) {
  LLVMValueRef rows[TARGET_MAX];
  bool some = false;
  for (int i = 0; i < count; i++)
    some |= attention_few_keys(attention_plan_forward(d->request->memory, p, targets[i]), targets[i]) > 0;
  if (!some) return describe_null(d);
  for (int i = 0; i < count; i++) rows[i] = row_of(d, p, targets[i]);
  return describe_rows(d, "few", rows, count);
}

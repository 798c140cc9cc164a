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
  const attention_plan *on = attention_plan_on(d->request->memory, p, target);
  describe_field fields[] = {
      FIELD(pegen_attention_few_code, keys, describe_i64(d, attention_few_keys(on, target))),
      FIELD(pegen_attention_few_code, queries, describe_i64(d, attention_few_queries(on, target))),
      FIELD(pegen_attention_few_code, block, describe_i64(d, attention_few_block(target))),
      FIELD(pegen_attention_few_code, begin, of_all(d, target, "begin")),
      FIELD(pegen_attention_few_code, scores, by_rows(d, target, "scores")),
      FIELD(pegen_attention_few_code, soften, of_all(d, target, "soften")),
      FIELD(pegen_attention_few_code, soften_plain, of_all(d, target, "soften_plain")),
      FIELD(pegen_attention_few_code, values, by_rows(d, target, "values")),
      FIELD(pegen_attention_few_code, merge, of_all(d, target, "merge")),
      FIELD(pegen_attention_few_code, end, of_all(d, target, "end")),
      FIELD(pegen_attention_few_code, lse, of_all(d, target, "lse")),
      FIELD(pegen_attention_few_code, seen, of_all(d, target, "seen"))};
  return DESCRIBE(d, pegen_attention_few_code, fields);
}

LLVMValueRef describe_attention_few(describer *d, const attention_plan *p, const cpu_target *const *targets,
                                    int count) {
  LLVMValueRef rows[TARGET_MAX];
  bool some = false;
  for (int i = 0; i < count; i++)
    some |= attention_few_keys(attention_plan_on(d->request->memory, p, targets[i]), targets[i]) > 0;
  if (!some) return describe_null(d);
  for (int i = 0; i < count; i++) rows[i] = row_of(d, p, targets[i]);
  return describe_rows(d, "few", rows, count);
}

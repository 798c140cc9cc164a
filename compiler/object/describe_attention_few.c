/* object/describe_attention_few: see object/describe_attention_few.h. */
#include "object/describe_attention_few.h"

#include "cpu/attention/few.h"

static LLVMValueRef by_type(describer *d, const cpu_target *target, const char *what, int rows) {
  LLVMValueRef functions[NUMBER_CHANNEL_TYPES];
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    functions[dtype] = describe_function(d, emit_few_name(d->request->memory, target, what, dtype, rows));
  return LLVMConstArray2(d->ptr, functions, NUMBER_CHANNEL_TYPES);
}

static LLVMValueRef by_rows(describer *d, const cpu_target *target, const char *what) {
  LLVMValueRef kinds[PEGEN_FEW_KINDS] = {by_type(d, target, what, 1), by_type(d, target, what, PEGEN_FEW_BLOCK)};
  return LLVMConstArray2(LLVMTypeOf(kinds[0]), kinds, PEGEN_FEW_KINDS);
}

static LLVMValueRef of_all(describer *d, const cpu_target *target, const char *what) {
  return describe_function(d, emit_few_name(d->request->memory, target, what, -1, 0));
}

static LLVMValueRef row_of(describer *d, const attention_plan *p, const cpu_target *target) {
  const attention_plan *on = attention_plan_on(d->request->memory, p, target);
  describe_field fields[] = {
      FIELD(pegen_attention_few_code, keys, describe_i64(d, attention_few_keys(on, target))),
      FIELD(pegen_attention_few_code, queries, describe_i64(d, attention_few_queries(on, target))),
      FIELD(pegen_attention_few_code, begin, by_type(d, target, "begin", 0)),
      FIELD(pegen_attention_few_code, scores, by_rows(d, target, "scores")),
      FIELD(pegen_attention_few_code, soften, of_all(d, target, "soften")),
      FIELD(pegen_attention_few_code, soften_plain, of_all(d, target, "soften_plain")),
      FIELD(pegen_attention_few_code, values, by_rows(d, target, "values")),
      FIELD(pegen_attention_few_code, seen_values, by_type(d, target, "seen_values", 0)),
      FIELD(pegen_attention_few_code, end, by_type(d, target, "end", 0)),
      FIELD(pegen_attention_few_code, lse, of_all(d, target, "lse"))};
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

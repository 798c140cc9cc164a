/* object/describe_attention_few: pegen_attention_few_code of each target; see kernel/attention_few.h. */
#pragma once

#include "object/describer.h"
#include "plan/attention.h"

/* [count] rows; null where the plan has no such code. */
LLVMValueRef describe_attention_few(describer *d, const attention_plan *p, const cpu_target *const *targets, int count);

/* target/processor: the table, and how --target reads it; see target/processor.h. */
#include "target/processor.h"

#include "base/diag.h"

#include "kernel/driver.h"

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>
#include <string.h>

/* Best first within an architecture: the dispatcher takes the first that the processor can run. */
#define X86(version, words, ...) \
  {.name = "x86-64-v" #version, \
   .description = words, \
   .suffix = "v" #version, \
   .triple = TARGET_X86_TRIPLE, \
   .cpu = "x86-64-v" #version, \
   .features = "", \
   .level = PEGEN_LEVEL_X86_64_V##version, \
   __VA_ARGS__}
static const cpu_target TARGETS[] = {
    X86(4, "AVX-512 (F, BW, CD, DQ, VL)", .dots = "+avx512bf16", .lanes = 16, .registers = 32, .has_fma = true,
        .native = NUMBER_BIT(NUMBER_F16), .has_streaming = true),
    X86(3, "AVX2, FMA, F16C", .lanes = 8, .registers = 16, .has_fma = true, .native = NUMBER_BIT(NUMBER_F16),
        .has_streaming = true),
    X86(2, "SSE4.2; runs on every x86-64 of the last fifteen years", .lanes = 4, .registers = 16, .is_compact = true),
    {.name = "aarch64",
     .description = "Armv8-A with NEON; not together with x86-64",
     .suffix = "neon",
     .triple = TARGET_ARM_TRIPLE,
     .cpu = "generic",
     .features = "+neon",
     .level = PEGEN_LEVEL_BASELINE,
     .lanes = 4,
     .registers = 32,
     .has_fma = true,
     .native = NUMBER_BIT(NUMBER_F16)},
};
enum { TARGET_COUNT = sizeof TARGETS / sizeof *TARGETS };

#if defined(__aarch64__)
static const char DEFAULT_TARGETS[] = "aarch64";
#else
static const char DEFAULT_TARGETS[] = "x86-64-v2,x86-64-v3,x86-64-v4";
#endif

const cpu_target *target_at(int i) { return i < TARGET_COUNT ? &TARGETS[i] : NULL; }

const char *target_dot_features(arena *a, const cpu_target *target) {
  const char *own = target->features, *between = *own ? "," : "";
  return arena_printf(a, "%s%s%s", own, between, target->dots);
}

bool target_wants_dots(void) {
  const int64_t level = PEGEN_LEVEL_BASELINE;
  int32_t chosen = 0;
  pegen_tuning tuning;
  const pegen_driver any = {.n_targets = 1, .levels = &level, .chosen = &chosen};
  pegen_dispatch(&any, &tuning);
  return tuning.dots;
}

/* The best row this processor can run, tuned for it. */
static const cpu_target *native_target(arena *a) {
  char *cpu = LLVMGetHostCPUName(), *features = LLVMGetHostCPUFeatures(), *triple = LLVMGetDefaultTargetTriple();
  cpu_target *t = arena_new(a, cpu_target);
  const char *wanted = strstr(features, "+avx512vl") && strstr(features, "+avx512bw") ? "x86-64-v4"
                       : strstr(features, "+avx2")                                    ? "x86-64-v3"
                                                                                      : "x86-64-v2";
  if (!strncmp(triple, "aarch64", 7)) wanted = "aarch64";
  for (int i = 0; i < TARGET_COUNT; i++)
    if (!strcmp(TARGETS[i].name, wanted)) *t = TARGETS[i];
  t->name = "native";
  t->suffix = "native";
  t->cpu = arena_strdup(a, cpu);
  t->features = arena_strdup(a, features);
  LLVMDisposeMessage(cpu);
  LLVMDisposeMessage(features);
  LLVMDisposeMessage(triple);
  return t;
}

static const cpu_target *find_target(arena *a, const char *name) {
  if (!strcmp(name, "native")) return native_target(a);
  for (int i = 0; i < TARGET_COUNT; i++)
    if (!strcmp(TARGETS[i].name, name)) return &TARGETS[i];
  const char *names[TARGET_COUNT + 1], *all = "native";
  names[TARGET_COUNT] = "native";
  for (int i = 0; i < TARGET_COUNT; i++) {
    names[i] = TARGETS[i].name;
    all = arena_printf(a, "%s, %s", names[i], all);
  }
  const char *near = diag_nearest(name, names, TARGET_COUNT + 1);
  diag_error(NULL, 0, "unknown target '%s'%s%s%s; expected one of %s", name, near ? ", did you mean '" : "",
             near ? near : "", near ? "'?" : "", all);
  return NULL;
}

int target_parse(arena *a, const char *list, const cpu_target **out) {
  char *rest = arena_strdup(a, list ? list : DEFAULT_TARGETS);
  int count = 0;
  for (char *name; (name = strtok_r(rest, ",", &rest));) {
    const cpu_target *t = find_target(a, name);
    if (!t) return 0;
    bool known = false;
    for (int i = 0; i < count; i++) known = known || !strcmp(out[i]->name, t->name);
    if (known) continue;
    if (count && strcmp(out[0]->triple, t->triple)) {
      diag_error(NULL, 0, "targets '%s' and '%s' are of different architectures; expected one architecture an object",
                 out[0]->name, t->name);
      return 0;
    }
    if (count == TARGET_MAX) diag_bug("target", "more than %d targets", TARGET_MAX);
    int at = count++;
    for (; at > 0 && out[at - 1]->level < t->level; at--) out[at] = out[at - 1];
    out[at] = t;
  }
  if (!count) diag_error(NULL, 0, "--target names no target; see --target=help");
  return count;
}

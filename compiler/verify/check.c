/* verify/check: the loop over targets; see verify/check.h. What is checked is a kind's
 * (verify/check_kind.h). */
#include "verify/check_kind.h"

#include "base/diag.h"
#include "forms/form.h"
#include "verify/trial.h"

#include <stdio.h>

static const uint64_t DEFAULT_SEED = 20260101;

static bool check_target(checker *c, const check_kind *kind, const check_options *options, const char *target) {
  /* Rows that are converted are compared with float32's. */
  unsigned dtypes = options->dtypes & number_all_pairs() ? options->dtypes | PEGEN_DTYPE_F32 : options->dtypes;
  loaded_kernel *loaded =
      (options->gradients ? trial_load_gradients : trial_load)(c->memory, c->spec, target, dtypes, options->optimize);
  if (!loaded) return false;
  c->kernel = run_kernel(loaded);
  printf("%s, target %s\n", c->spec->name, target);
  kind->run(c);
  run_unload(loaded);
  return true;
}

static const check_kind *const kinds[FORM_COUNT] = {
    [FORM_ATTENTION] = &check_attention,    [FORM_POLYNOMIAL] = &check_widen, [FORM_ADDITIVE] = &check_additive,
    [FORM_ROW_BLADES] = &check_rotors,      [FORM_BLADES] = &check_rotors,    [FORM_PARTS] = &check_rotors,
    [FORM_DENSE_FOUR] = &check_rotors,      [FORM_SCHUR] = &check_rotors,     [FORM_DENSE] = &check_rotors,
    [FORM_CHANGE_OF_BASIS] = &check_rotors,
};

int check_spec(arena *a, const spec *s, const check_options *options) {
  checker c = {.memory = a, .spec = s, .random = options->seed ? options->seed : DEFAULT_SEED};
  const char **targets;
  const form *f = form_of(s);
  if (!f) return 1;
  const check_kind *kind = kinds[f->kind];
  int count = trial_targets(a, options->targets, &targets);
  if (count == 0) {
    diag_error(s->file, 0, "this machine runs none of the targets '%s'", options->targets ? options->targets : "");
    return 1;
  }
  printf("%s: seed %llu; errors %s\n", s->name, (unsigned long long)c.random, kind->units(s));
  if (kind->choose) c.sample = kind->choose(&c);
  for (int i = 0; i < count; i++)
    if (!check_target(&c, kind, options, targets[i])) return 1;
  printf("%s: %s\n", s->name, c.failed ? "FAIL" : "pass");
  return c.failed ? 1 : 0;
}

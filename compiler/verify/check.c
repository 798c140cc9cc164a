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
  c->target = target;
  c->target_told = false;
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

static void begin(checker *c, const char *units, const char **targets, int count) {
  if (c->print == CHECK_JSON) {
    json_begin(&c->json, NULL, '{');
    json_text(&c->json, "name", c->spec->name);
    json_text(&c->json, "seed", arena_printf(c->memory, "%llu", (unsigned long long)c->random));
    json_text(&c->json, "units", units);
    json_begin(&c->json, "targets", '[');
    for (int i = 0; i < count; i++) json_text(&c->json, NULL, targets[i]);
    json_end(&c->json, ']');
    json_begin(&c->json, "checks", '[');
  } else if (c->print == CHECK_EVERYTHING) {
    printf("%s: seed %llu; errors %s\n", c->spec->name, (unsigned long long)c->random, units);
  }
}

/* compiled: for every target, or the last words are an error's. */
static void end(checker *c, const char **targets, int count, bool compiled) {
  if (c->print == CHECK_JSON) {
    json_end(&c->json, ']');
    json_bool(&c->json, "pass", compiled && !c->n_failed);
    json_end(&c->json, '}');
    return;
  }
  if (!compiled) return;
  printf("%s: ", c->spec->name);
  if (c->n_failed) printf("FAIL: %d of %d checks on ", c->n_failed, c->n_checks);
  else printf("pass: %d checks on ", c->n_checks);
  for (int i = 0; i < count; i++) printf("%s%s", i ? ", " : "", targets[i]);
  if (c->largest_what) printf("; the largest error is %.2Lf of its bound (%s)", c->largest, c->largest_what);
  puts("");
}

int check_spec(arena *a, const spec *s, const check_options *options) {
  checker c = {.memory = a,
               .spec = s,
               .random = options->seed ? options->seed : DEFAULT_SEED,
               .print = options->print,
               .json = {.out = stdout}};
  const char **targets;
  const form *f = form_of(s);
  if (!f) return 1;
  const check_kind *kind = kinds[f->kind];
  int count = trial_targets(a, options->targets, &targets);
  if (count == 0) {
    diag_error(s->file, 0, "this machine runs none of the targets '%s'", options->targets ? options->targets : "");
    return 1;
  }
  begin(&c, kind->units(s), targets, count);
  if (kind->choose) c.sample = kind->choose(&c);
  bool compiled = true;
  for (int i = 0; compiled && i < count; i++) compiled = check_target(&c, kind, options, targets[i]);
  end(&c, targets, count, compiled);
  return compiled && !c.n_failed ? 0 : 1;
}

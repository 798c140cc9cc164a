/* verify/check: the loop over targets and the table that it prints; see verify/check.h. What is checked is a kind's
 * (verify/check_kind.h). */
#include "verify/check_kind.h"

#include "base/diag.h"
#include "forms/form.h"
#include "verify/trial.h"

#include <math.h>
#include <stdio.h>

static const uint64_t DEFAULT_SEED = 20260101;

/* ---- the table ---- */

static const char *as_power(arena *a, long double value) {
  return value == 0 ? "0" : arena_printf(a, "2^%.1Lf", log2l(value));
}

static void row(checker *c, const char *type, const char *what, const char *found, const char *bound, bool pass) {
  printf("  %-5s %-44s %9s  %-2s %-7s %s\n", type, what, found, bound ? "<=" : "", bound ? bound : "",
         pass ? "pass" : "FAIL");
  c->failed = c->failed || !pass;
}

void check_report(checker *c, const char *type, const char *what, long double bound, const trial_error *e) {
  bool pass = !e->spoilt && e->error <= bound;
  row(c, type, what, as_power(c->memory, e->error), as_power(c->memory, bound), pass);
  if (!pass) printf("        %s\n", trial_error_text(c->memory, e));
}

void check_report_bits(checker *c, const char *type, const char *what, bool same) {
  row(c, type, what, same ? "same bits" : "differs", NULL, same);
}

bool check_called(checker *c, const char *type, const char *what, int error) {
  if (error == 0) return true;
  printf("  %-5s %-44s refused: %s FAIL\n", type, what, pegen_strerror(error));
  c->failed = true;
  return false;
}

/* ---- the loop ---- */

void check_each_type(checker *c, void (*visit)(checker *, number_type)) {
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++)
    if (c->kernel->dtypes & number_type_info((number_type)type)->dtype) visit(c, (number_type)type);
}

static bool check_target(checker *c, const check_kind *kind, const check_options *options, const char *target) {
  /* Rows that are converted are compared with float32's. */
  unsigned dtypes = options->dtypes & number_all_pairs() ? options->dtypes | PEGEN_DTYPE_F32 : options->dtypes;
  loaded_kernel *loaded = trial_load(c->memory, c->spec, target, dtypes, options->optimize);
  if (!loaded) return false;
  c->kernel = run_kernel(loaded);
  printf("%s, target %s\n", c->spec->name, target);
  kind->run(c);
  run_unload(loaded);
  return true;
}

static const check_kind *const kinds[FORM_COUNT] = {
    [FORM_ATTENTION] = &check_attention,    [FORM_POLYNOMIAL] = &check_widen,  [FORM_ADDITIVE] = &check_additive,
    [FORM_BLADES] = &check_rotors,          [FORM_DENSE_FOUR] = &check_rotors, [FORM_DENSE] = &check_rotors,
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

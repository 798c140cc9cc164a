/* verify/check_kind: the table that is printed; see verify/check_kind.h. */
#include "verify/check_kind.h"

#include <math.h>
#include <stdio.h>

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

void check_each_type(checker *c, void (*visit)(checker *, number_type)) {
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++)
    if (c->kernel->dtypes & number_type_info((number_type)type)->dtype) visit(c, (number_type)type);
}

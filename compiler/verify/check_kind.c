/* verify/check_kind: the table that is printed; see verify/check_kind.h. */
#include "verify/check_kind.h"

#include "verify/reference.h"

#include <math.h>
#include <stdio.h>

static const char *as_power(arena *a, long double value) {
  return value == 0 ? "0" : arena_printf(a, "2^%.1Lf", log2l(value));
}

/* One check, as it is told. */
typedef struct outcome {
  const char *type, *what;
  const char *found;         /* in words */
  long double error, bound;  /* bound < 0: there is none */
  bool pass;
  const char *where; /* of a failure; NULL: nothing is known */
} outcome;

static void print_json(checker *c, const outcome *o) {
  json_writer *w = &c->json;
  json_begin(w, NULL, '{');
  json_text(w, "target", c->target);
  json_text(w, "type", o->type);
  json_text(w, "what", o->what);
  if (o->bound >= 0) {
    json_number(w, "error", (double)o->error);
    json_number(w, "bound", (double)o->bound);
  } else {
    json_text(w, "found", o->found);
  }
  json_bool(w, "pass", o->pass);
  if (o->where) json_text(w, "where", o->where);
  json_end(w, '}');
}

static void print_text(checker *c, const outcome *o) {
  if (!c->target_told) printf("%s, target %s\n", c->spec->name, c->target);
  c->target_told = true;
  const char *bound = o->bound >= 0 ? as_power(c->memory, o->bound) : "";
  printf("  %-5s %-44s %9s  %-2s %-7s %s\n", o->type, o->what, o->found, *bound ? "<=" : "", bound,
         o->pass ? "pass" : "FAIL");
  if (o->where) printf("        %s\n", o->where);
}

static void tell(checker *c, const outcome *o) {
  c->n_checks++;
  c->n_failed += !o->pass;
  if (o->bound > 0 && o->error / o->bound > c->largest) {
    c->largest = o->error / o->bound;
    c->largest_what = arena_printf(c->memory, "%s, %s, %s", o->what, o->type, c->target);
  }
  if (c->print == CHECK_JSON) print_json(c, o);
  else if (!o->pass || c->print == CHECK_EVERYTHING) print_text(c, o);
}

void check_report(checker *c, const char *type, const char *what, long double bound, const trial_error *e) {
  bool pass = !e->spoilt && e->error <= bound;
  tell(c, &(outcome){type, what, as_power(c->memory, e->error), e->error, bound, pass,
                     pass ? NULL : trial_error_text(c->memory, e)});
}

void check_report_bits(checker *c, const char *type, const char *what, bool same) {
  tell(c, &(outcome){type, what, same ? "same bits" : "differs", 0, -1, same, NULL});
}

bool check_called(checker *c, const char *type, const char *what, int error) {
  if (error) tell(c, &(outcome){type, what, "refused", 0, -1, false, pegen_strerror(error)});
  return error == 0;
}

/* ---- positions ---- */

/* The largest factor by which a gain there makes channels longer or shorter. */
static long double largest_gain(const spec *s, const double *position, const double *const *operands) {
  long double largest = 1;
  for (int i = 0; i < s->n_parts; i++) {
    double own[SPEC_MAX_AXES];
    reference_place_of_part(&s->part[i], position, own);
    largest = fmaxl(largest, largest_gain(s->part[i].of, own, operands));
  }
  if (!s->gain[0]) return largest;
  for (int side = 0; side < 2; side++) {
    spec one = spec_of_side(s, side);
    for (int head = 0; head < s->heads; head++)
      for (int block = 0; block < s->n_blocks; block++) {
        long double gain = reference_gain_of(&one, position, operands, head, block);
        largest = fmaxl(largest, fmaxl(gain, 1 / gain));
      }
  }
  return largest;
}

/* Beyond it the reference's own errors begin to show: its exponentials square as often as phases double. */
static const double MOST_PHASE = 0x1p24;

void check_keep_moderate(const checker *c, const trial_operands *operands, double *position) {
  const spec *s = c->spec;
  for (int step = 0; step < 64 && (s->n_components || s->n_parts); step++) {
    double phase = trial_largest_phase(s, position, operands);
    if (!(phase > MOST_PHASE)) break;
    for (int a = 0; a < s->n_axes; a++) position[a] = ldexp(position[a], ilogb(MOST_PHASE) - ilogb(phase) - 1);
  }
  for (int step = 0; step < 64 && largest_gain(s, position, operands->values) > 0x1p8L; step++)
    for (int a = 0; a < s->n_axes; a++) position[a] /= 2;
}

/* A random direction, scaled until the largest phase is `phase` radians, or as large as it gets: where a
 * step does not bring it nearer, as for a bounded map of positions, or leads beyond 2^26, where the two
 * float32 of a GPU begin to lose a position's fraction, it is taken back. */
static void go_to_phase(checker *c, const trial_operands *operands, double phase, double *position) {
  const spec *s = c->spec;
  for (int a = 0; a < s->n_axes; a++)
    position[a] = random_uniform(&c->random, 0.3, 1) * (random_below(&c->random, 2) ? 1 : -1);
  /* Angles are linear in positions as a rule, and then the first step arrives. */
  for (int step = 0; step < 8; step++) {
    double now = trial_largest_phase(s, position, operands);
    if (!isfinite(now) || now == 0 || fabs(now / phase - 1) < 1e-9) return;
    double scale = phase / now;
    for (int a = 0; a < s->n_axes; a++) position[a] *= scale;
    double then = trial_largest_phase(s, position, operands);
    bool far = false;
    for (int a = 0; a < s->n_axes; a++) far = far || fabs(position[a]) > 0x1p26;
    if (!far && isfinite(then) && fabs(log(then / phase)) < fabs(log(now / phase))) continue;
    for (int a = 0; a < s->n_axes; a++) position[a] /= scale;
    return;
  }
}

void check_position_of_phase(checker *c, const trial_operands *operands, double phase, double *position) {
  go_to_phase(c, operands, phase, position);
  check_keep_moderate(c, operands, position);
}

long double check_phase_rounding(const checker *c, const trial_operands *operands, const double *positions,
                                 int64_t from, int64_t to) {
  enum { SAMPLE = 64 };
  const spec *s = c->spec;
  double largest = 0, grid[SPEC_MAX_AXES];
  if (s->n_components == 0 && s->n_parts == 0) return 0;
  for (int64_t i = from, step = positions ? 1 : (to - from) / SAMPLE | 1; i < to; i += step)
    largest = fmax(largest, trial_largest_phase(s, reference_place(s, positions, i, grid), operands));
  return largest * (c->kernel->ptx ? 0x1p-45L : 0x1p-51L);
}

/* ---- types ---- */

void check_each_type(checker *c, void (*visit)(checker *, number_type)) {
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++)
    if (c->kernel->dtypes & number_type_info((number_type)type)->dtype) visit(c, (number_type)type);
}

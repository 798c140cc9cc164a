/* explain/additive: what is known of something of the position that is added to the channels.
 *
 * A score is <q + p(r), k + p(s)>: it holds p(r) and p(s) on their own, so what must stay for it to stay is both.
 */
#include "explain/explain.h"
#include "explain/words.h"
#include "verify/reference.h"
#include "verify/trial.h"

#include <math.h>

enum { SAMPLES = 64 };
static const uint64_t SEED = 20260101;

typedef struct sum_facts {
  const spec *spec;
  trial_operands operands;
} sum_facts;

static int channels_of(const spec *s) { return s->heads * s->head_dim; }

/* What is added to the channels of all heads at a position. */
static void added(const sum_facts *f, const double *position, long double *values) {
  for (int head = 0; head < f->spec->heads; head++)
    for (int channel = 0; channel < f->spec->head_dim; channel++)
      values[head * f->spec->head_dim + channel] = reference_sum(f->spec, position, f->operands.values, head, channel);
}

static void probe_pair(const property_probe *p, const double *from, const double *to, long double *values) {
  const sum_facts *f = p->context;
  added(f, from, values);
  added(f, to, values + channels_of(f->spec));
}

/* The cosine of the angle between what is added here and there. */
static long double probe_likeness(const property_probe *p, const double *from, const double *to) {
  const sum_facts *f = p->context;
  arena *a = arena_create();
  long double *here = arena_array(a, long double, p->n_values), *there = here + channels_of(f->spec), sum = 0,
              square = 0, other = 0;
  probe_pair(p, from, to, here);
  for (int c = 0; c < channels_of(f->spec); c++)
    sum += here[c] * there[c], square += here[c] * here[c], other += there[c] * there[c];
  arena_destroy(a);
  return sum / sqrtl(square * other);
}

static property origin_property(arena *a, const sum_facts *f) {
  const double origin[SPEC_MAX_AXES] = {0};
  long double *values = arena_array(a, long double, channels_of(f->spec)), worst = 0;
  added(f, origin, values);
  for (int c = 0; c < channels_of(f->spec); c++) worst = fmaxl(worst, fabsl(values[c]));
  return property_measured(worst, "the largest number that is added there");
}

static void fill_properties(arena *a, const sum_facts *f, const int64_t *grid, uint64_t random, property *out) {
  property_probe probe = {.n_axes = f->spec->n_axes,
                          .unit = 1,
                          .n_values = 2 * channels_of(f->spec),
                          .grid = grid,
                          .samples = SAMPLES,
                          .pair = probe_pair,
                          .likeness = probe_likeness,
                          .context = (void *)f};
  out[PROPERTY_NORM] = property_proved(VERDICT_NO, "numbers are added to every row");
  out[PROPERTY_TRANSLATION] = measure_translation(a, &probe, &random);
  out[PROPERTY_ROTATION] = measure_rotation(a, &probe, &random);
  out[PROPERTY_COMMUTING] = property_proved(VERDICT_NOT_APPLICABLE, "there are no generators");
  out[PROPERTY_INVERTIBLE] = property_proved(VERDICT_YES, "what is added can be taken away");
  out[PROPERTY_DECAY] = measure_decay(a, &probe, &random);
  out[PROPERTY_DECAY].reason = arena_printf(a, "what is added far apart has a cosine of at most %.2Lf, 1 at one place",
                                            out[PROPERTY_DECAY].deviation);
  out[PROPERTY_CONTEXT] = property_proved(VERDICT_NO, "nothing is computed from a token's content");
  out[PROPERTY_ORIGIN] = origin_property(a, f);
}

bool explain_additive(arena *a, const spec *s, explanation *out) {
  uint64_t random = SEED;
  sum_facts facts = {.spec = s, .operands = trial_random_operands(a, s, NUMBER_F32, &random)};
  if (out->operands) facts.operands.values = out->operands;
  fill_properties(a, &facts, out->grid, random, out->property);
  const char *operands = explain_operands(a, s, &s->additive->value, 1);
  unsigned char *seen = arena_alloc(a, (size_t)expr_pool_count(s->pool));
  operation_count_add(&out->cost.token, s->additive->value, expr_pool_blocks(s->pool), seen);
  out->cost.per_head = s->additive->value->depends & DEPENDS_HEAD;
  out->cost.row_operations = s->head_dim;
  out->role = "additive";
  out->block = "none: numbers are added to the channels";
  out->bias = operands ? arena_printf(a, "a number for each channel and position, from %s", operands)
                       : "a number for each channel and position";
  out->group = "translations of the channels";
  out->normal_form = "x + table(position)";
  out->rows_precision = "float32 within 2^-22 of the largest of 1 and what is added; bfloat16 and float16 half a unit "
                        "in the last place more";
  return true;
}

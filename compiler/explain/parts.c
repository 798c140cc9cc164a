/* explain/parts: what is known of a head that blocks of several kinds share.
 *
 * Scores are sums of what the parts' channels give. What each part has by itself (lengths, an inverse, generators that
 * commute, the identity at the origin) all of the head has where all parts do; what is said of scores is proved where
 * it is of every part, and else measured over all of them together.
 */
#include "explain/explain.h"
#include "explain/rotor_facts.h"
#include "verify/reference.h"

#include <string.h>

typedef struct parts {
  const spec *spec;
  rotor_facts facts[SPEC_MAX_PARTS];
} parts;

static void probe_pair(const property_probe *p, const double *from, const double *to, long double *values) {
  const parts *all = p->context;
  for (int i = 0; i < all->spec->n_parts; i++) {
    double own[2][SPEC_MAX_AXES];
    reference_place_of_part(&all->spec->part[i], from, own[0]);
    reference_place_of_part(&all->spec->part[i], to, own[1]);
    rotor_facts_pair(&all->facts[i], own[0], own[1], values);
    values += rotor_facts_values(&all->facts[i]);
  }
}

static int channels_of(const spec *s) { return s->n_components * s->n_blocks; }

/* Each part's, by its share of the head; channels that pass through score as they did. */
static long double probe_likeness(const property_probe *p, const double *from, const double *to) {
  const parts *all = p->context;
  const spec *s = all->spec;
  int through = s->head_dim;
  long double sum = 0;
  for (int i = 0; i < s->n_parts; i++) {
    double own[2][SPEC_MAX_AXES];
    reference_place_of_part(&s->part[i], from, own[0]);
    reference_place_of_part(&s->part[i], to, own[1]);
    sum += rotor_facts_likeness(&all->facts[i], own[0], own[1]) * channels_of(s->part[i].of);
    through -= channels_of(s->part[i].of);
  }
  return (sum + through) / s->head_dim;
}

/* A property that the head has where all its parts do: the first that has not, or is less sure, speaks for all. */
static property weakest(arena *a, const explanation *e, property_name name) {
  property worst = e->part[0].property[name];
  int which = 0;
  bool same = true;
  for (int i = 1; i < e->n_parts; i++) {
    const property *p = &e->part[i].property[name];
    same = same && p->holds == worst.holds && p->proved == worst.proved && !strcmp(p->reason, worst.reason);
    bool fails = p->holds != VERDICT_YES, failed = worst.holds != VERDICT_YES;
    if (failed || (!fails && (p->proved || !worst.proved))) continue;
    worst = *p;
    which = i;
  }
  if (!same) worst.reason = arena_printf(a, "part %d: %s", which + 1, worst.reason);
  return worst;
}

/* What parts say of themselves, once where all say the same. */
static const char *joined(arena *a, const explanation *e, const char *(*said)(const explanation *)) {
  const char *text = "";
  bool same = true;
  for (int i = 0; i < e->n_parts; i++) {
    same = same && !strcmp(said(&e->part[i]), said(&e->part[0]));
    text = arena_printf(a, "%s%spart %d: %s", text, i ? "; " : "", i + 1, said(&e->part[i]));
  }
  return same ? said(&e->part[0]) : text;
}

static const char *precision(const explanation *part) { return part->entries_precision; }
static const char *group(const explanation *part) { return part->group; }
static const char *normal_form(const explanation *part) { return part->normal_form; }

static void add_counts(operation_count *sum, const operation_count *c) {
  sum->arithmetic += c->arithmetic;
  sum->divisions += c->divisions;
  sum->sines += c->sines;
  sum->exponentials += c->exponentials;
}

static bool explain_part(arena *a, const spec *s, int index, const explanation *whole, explanation *out) {
  const spec_part *part = &s->part[index];
  int64_t *grid = arena_array(a, int64_t, SPEC_MAX_AXES);
  for (int axis = 0; axis < part->of->n_axes && whole->grid; axis++) grid[axis] = whole->grid[part->axis[axis]];
  *out = (explanation){.form = whole->form, .grid = whole->grid ? grid : NULL, .operands = whole->operands};
  return explain_blades(a, part->of, out);
}

static void measure_scores(arena *a, const spec *s, explanation *out) {
  parts all = {.spec = s};
  property_probe probe = {.n_axes = s->n_axes,
                          .unit = 1,
                          .grid = out->grid,
                          .pair = probe_pair,
                          .likeness = probe_likeness,
                          .context = &all};
  long double rounding = 0;
  bool proved = true;
  for (int i = 0; i < s->n_parts; i++) {
    const spec *of = s->part[i].of;
    const property *p = &out->part[i].property[PROPERTY_TRANSLATION];
    int dimensions = of->algebra.p + of->algebra.q + of->algebra.r;
    rotor_facts *f = &all.facts[i];
    rotor_facts_open(a, of, dimensions > 3 ? 1 << 2 * (dimensions - 3) : 1, &out->part[i], f);
    probe.n_values += rotor_facts_values(f);
    probe.unit = f->unit < probe.unit ? f->unit : probe.unit;
    rounding = f->rounding > rounding ? f->rounding : rounding;
    if (!i || f->samples < probe.samples) probe.samples = f->samples;
    proved = proved && p->proved && p->holds == VERDICT_YES;
  }
  uint64_t *random = &all.facts[0].random;
  property translation = measure_translation(a, &probe, random);
  out->property[PROPERTY_TRANSLATION] =
      proved ? property_confirmed(PROPERTY_TRANSLATION, "every part's scores are functions of the displacement",
                                  translation, rounding)
             : translation;
  out->property[PROPERTY_ROTATION] = measure_rotation(a, &probe, random);
  out->property[PROPERTY_DECAY] = measure_decay(a, &probe, random);
}

bool explain_parts(arena *a, const spec *s, explanation *out) {
  static const property_name each[] = {PROPERTY_NORM, PROPERTY_COMMUTING, PROPERTY_INVERTIBLE, PROPERTY_CONTEXT,
                                       PROPERTY_ORIGIN};
  out->role = "separable";
  out->n_parts = s->n_parts;
  out->part = arena_array(a, explanation, s->n_parts);
  out->leftover = s->head_dim;
  for (int i = 0; i < s->n_parts; i++) {
    explanation *part = &out->part[i];
    if (!explain_part(a, s, i, out, part)) return false;
    part->leftover = s->part[i].count - channels_of(s->part[i].of);
    out->leftover -= channels_of(s->part[i].of);
    add_counts(&out->cost.prepared, &part->cost.prepared);
    add_counts(&out->cost.token, &part->cost.token);
    out->cost.per_head = out->cost.per_head || part->cost.per_head;
    out->cost.row_operations += part->cost.row_operations;
  }
  for (size_t i = 0; i < sizeof each / sizeof *each; i++) out->property[each[i]] = weakest(a, out, each[i]);
  if (out->property[PROPERTY_CONTEXT].holds == VERDICT_NO)
    out->property[PROPERTY_CONTEXT].reason = out->part[0].property[PROPERTY_CONTEXT].reason;
  measure_scores(a, s, out);
  out->block = arena_printf(a, "of %d kind%s, each on channels of its own", s->n_parts, s->n_parts > 1 ? "s" : "");
  out->group = joined(a, out, group);
  out->normal_form = joined(a, out, normal_form);
  out->entries_precision = joined(a, out, precision);
  out->rows_precision = out->part[0].rows_precision;
  return true;
}

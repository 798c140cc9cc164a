/* gpu/widen_tables: see gpu/widen_tables.h. */
#include "gpu/widen_tables.h"

#include "mlir/two_float.h"

static int monomial_index(widen_tables *t, const monomial *m) {
  int count = t->n_monomials + t->n_constant;
  for (int i = 0; i < count; i++)
    if (monomial_equal(&t->monomial[i], m)) return i;
  t->monomial[count] = *m;
  t->n_constant++;
  return count;
}

static widen_sums make_sums(arena *a, int most, int most_summands, const char *of) {
  widen_sums s = {.starts = arena_printf(a, "%s_starts", of),
                  .monomials = arena_printf(a, "%s_monomials", of),
                  .factors = arena_printf(a, "%s_factors", of)};
  s.start = arena_array(a, int32_t, most + 1);
  s.monomial = arena_array(a, int32_t, most_summands + 1);
  s.factor = arena_array(a, double, most_summands + 1);
  return s;
}

static void add_summand(widen_tables *t, widen_sums *s, const monomial *m, double factor) {
  s->monomial[s->n_summands] = monomial_index(t, m);
  s->factor[s->n_summands++] = factor;
}

static void end_sum(widen_sums *s) { s->start[++s->count] = s->n_summands; }

/* Those of `gain` that are of one column: summands of one weight are neighbours in the plan. */
static void add_gains(widen_tables *t, const widen_gain *gain, int count, int column, double scale) {
  int open = -1;
  for (int i = 0; i < count; i++) {
    const widen_gain *g = &gain[i];
    if (g->column != column) continue;
    if (open >= 0 && g->weight != open) end_sum(&t->gains);
    if (g->weight != open) t->gain_weight[t->gains.count] = g->weight;
    open = g->weight;
    add_summand(t, &t->gains, &g->power, g->factor / scale);
  }
  if (open >= 0) end_sum(&t->gains);
  t->column_start[++t->n_starts] = t->gains.count;
}

static void add_key(widen_tables *t, const widen_column *c, double scale) {
  for (int i = 0; i < c->n_key; i++) add_summand(t, &t->keys, &c->key[i], c->key_factor[i] * scale);
  end_sum(&t->keys);
}

static void add_lanes(arena *a, widen_tables *t, const widen_layout *l) {
  end_sum(&t->keys); /* of what pads */
  t->n_lanes = l->n_lanes;
  t->lane_column = arena_array(a, int32_t, l->n_lanes + 1);
  t->lane_low_key = arena_array(a, int32_t, l->n_lanes + 1);
  t->lane_low_query = arena_array(a, int32_t, l->n_lanes + 1);
  for (int i = 0; i < l->n_lanes; i++) {
    t->lane_column[i] = l->lane[i].column < 0 ? t->n_columns : l->lane[i].column;
    t->lane_low_key[i] = l->lane[i].low_key;
    t->lane_low_query[i] = l->lane[i].low_query;
  }
}

widen_tables widen_tables_make(arena *a, const plan_widen *p, const widen_layout *l) {
  int n_keys = 0, n_gains = p->n_gains + p->n_constant;
  for (int c = 0; c < p->n_columns; c++) n_keys += p->column[c].n_key;
  widen_tables t = {.n_columns = p->n_columns};
  t.monomial = arena_array(a, monomial, n_keys + n_gains + 1);
  t.gains = make_sums(a, n_gains, n_gains, "gain");
  t.keys = make_sums(a, p->n_columns + 1, n_keys, "key");
  t.gain_weight = arena_array(a, int32_t, n_gains + 1);
  t.column_start = arena_array(a, int32_t, p->n_columns + 3);
  for (int c = 0; c < p->n_columns; c++) {
    double scale = l ? l->scale[c] : 1;
    add_gains(&t, p->gain, p->n_gains, c, scale);
    if (l) add_key(&t, &p->column[c], scale);
  }
  t.column_start[++t.n_starts] = t.gains.count;
  if (l) add_lanes(a, &t, l);
  t.n_gains = t.gains.count;
  t.n_monomials = t.n_constant;
  t.n_constant = 0;
  if (!l) add_gains(&t, p->constant, p->n_constant, 0, 1);
  t.n_starts++;
  return t;
}

const char *widen_table_name(arena *a, const char *prefix, const char *table) {
  return arena_printf(a, "%s_%s", prefix, table);
}

static void emit_integers(ir *b, arena *a, const char *prefix, const char *name, int count, const int32_t *values) {
  ir_table(b, widen_table_name(a, prefix, name), count > 0 ? count : 1, NULL, values);
}

static void emit_sums(ir *b, arena *a, const char *prefix, const widen_sums *s) {
  float *factors = arena_array(a, float, 2 * s->n_summands + 2);
  for (int i = 0; i < s->n_summands; i++) two_float_split(s->factor[i], &factors[2 * i], &factors[2 * i + 1]);
  emit_integers(b, a, prefix, s->starts, s->count + 1, s->start);
  emit_integers(b, a, prefix, s->monomials, s->n_summands, s->monomial);
  ir_table(b, widen_table_name(a, prefix, s->factors), s->n_summands > 0 ? 2 * s->n_summands : 2, factors, NULL);
}

void widen_tables_emit(ir *b, arena *a, const widen_tables *t, const char *prefix) {
  bool has_lanes = t->keys.count > 0;
  emit_sums(b, a, prefix, &t->gains);
  if (has_lanes) emit_sums(b, a, prefix, &t->keys);
  emit_integers(b, a, prefix, "gain_weights", t->gains.count, t->gain_weight);
  emit_integers(b, a, prefix, "column_starts", t->n_starts, t->column_start);
  if (!has_lanes) return;
  emit_integers(b, a, prefix, "lane_columns", t->n_lanes, t->lane_column);
  emit_integers(b, a, prefix, "lane_low_keys", t->n_lanes, t->lane_low_key);
  emit_integers(b, a, prefix, "lane_low_queries", t->n_lanes, t->lane_low_query);
}

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

/* Adds the sums of `gain` that are of one column: summands of one weight are neighbours in the plan. */
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

/* ---- slopes ---- */

static widen_sums slopes_of(arena *a, widen_tables *t, const widen_sums *of, int count, int axes, const char *name) {
  widen_sums s = make_sums(a, axes * count, axes * of->n_summands, name);
  for (int axis = 0; axis < axes; axis++)
    for (int i = 0; i < count; i++) {
      for (int k = of->start[i]; k < of->start[i + 1]; k++) {
        monomial less = t->monomial[of->monomial[k]];
        int power = less.power[axis];
        if (power == 0) continue;
        less.power[axis]--;
        add_summand(t, &s, &less, of->factor[k] * power);
      }
      end_sum(&s);
    }
  return s;
}

static void list_gains(widen_slopes *s, const widen_tables *t) {
  for (int c = 0; c < t->n_columns; c++)
    for (int i = t->column_start[c]; i < t->column_start[c + 1]; i++) s->gain_column[i] = c;
  for (int w = 0, count = 0; w < s->n_weights; w++) {
    for (int i = 0; i < t->n_gains; i++)
      if (t->gain_weight[i] == w) s->weight_gain[count++] = i;
    s->weight_start[w + 1] = count;
  }
}

static void list_lanes(arena *a, widen_slopes *s, const widen_layout *l, int of_k) {
  int32_t *start = s->passing_start[of_k] = arena_array(a, int32_t, s->n_columns + 1),
          *lane = s->passing_lane[of_k] = arena_array(a, int32_t, l->n_lanes + 1);
  for (int c = 0, count = 0; c < s->n_columns; c++) {
    for (int i = 0; i < l->n_lanes; i++)
      if (l->lane[i].column == c && !(of_k ? l->lane[i].low_key : l->lane[i].low_query)) lane[count++] = i;
    start[c + 1] = count;
  }
}

widen_slopes widen_slopes_make(arena *a, widen_tables *t, const plan_widen *p, const widen_layout *l) {
  int axes = p->spec->n_axes, known = t->n_monomials;
  widen_slopes s = {
      .n_weights = p->p->n_weights, .n_columns = t->n_columns, .n_gains = t->n_gains, .n_lanes = l->n_lanes};
  monomial *more = arena_array(a, monomial, known + axes * (t->gains.n_summands + t->keys.n_summands) + 1);
  for (int i = 0; i < known; i++) more[i] = t->monomial[i];
  t->monomial = more;
  s.gains = slopes_of(a, t, &t->gains, t->n_gains, axes, "slope");
  s.keys = slopes_of(a, t, &t->keys, t->n_columns, axes, "key_slope");
  t->n_monomials += t->n_constant;
  t->n_constant = 0;
  s.gain_column = arena_array(a, int32_t, t->n_gains + 1);
  s.weight_start = arena_array(a, int32_t, s.n_weights + 1);
  s.weight_gain = arena_array(a, int32_t, t->n_gains + 1);
  list_gains(&s, t);
  for (int of_k = 0; of_k < 2; of_k++) list_lanes(a, &s, l, of_k);
  return s;
}

/* ---- in the module ---- */

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

void widen_slopes_emit(ir *b, arena *a, const widen_slopes *s, const char *prefix) {
  emit_sums(b, a, prefix, &s->gains);
  emit_sums(b, a, prefix, &s->keys);
  emit_integers(b, a, prefix, "gain_columns", s->n_gains, s->gain_column);
  emit_integers(b, a, prefix, "weight_starts", s->n_weights + 1, s->weight_start);
  emit_integers(b, a, prefix, "weight_gains", s->n_gains, s->weight_gain);
  emit_integers(b, a, prefix, "query_lane_starts", s->n_columns + 1, s->passing_start[0]);
  emit_integers(b, a, prefix, "query_lanes", s->n_lanes, s->passing_lane[0]);
  emit_integers(b, a, prefix, "key_lane_starts", s->n_columns + 1, s->passing_start[1]);
  emit_integers(b, a, prefix, "key_lanes", s->n_lanes, s->passing_lane[1]);
}

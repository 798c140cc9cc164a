/* plan/attention: what a pair of tokens adds to a score, in the form the kernel computes; see plan/attention.h. */
#include "plan/attention.h"

#include "algebra/block.h"
#include "algebra/relative.h"
#include "base/diag.h"
#include "spec/expr_facts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double LOG2_E = 1.44269504088896340736, LN_2 = 0.69314718055994530942;

/* ---- the pair's expressions ---- */

/* Rewrites x with coordinates and operands rounded to float32 first, and whatever is made of constants alone,
 * so that all of it is float32: displacements are small numbers, and a bias needs no more. What hides a key then stays
 * an infinity also where float64 is a sum of two float32. */
static const expr *in_f32(arena *a, expr_pool *pool, const expr *x) {
  const expr *v[3] = {NULL};
  int arity = expr_op_arity(x->op);
  if (x->op == EXPR_POSITION || x->op == EXPR_OPERAND || x->op == EXPR_COTANGENT)
    return expr_unary(pool, EXPR_NARROW, x);
  if (arity == 0) return x;
  for (int i = 0; i < arity; i++) v[i] = in_f32(a, pool, x->arg[i]);
  const expr *y = expr_rebuild(pool, x, v);
  return y->is_f32 || expr_is_fixed(y) ? y : expr_unary(pool, EXPR_NARROW, y);
}

/* Nothing else makes -infinity of numbers. */
static bool is_infinite(const attention_plan *p, const expr *x) {
  if (x->op == EXPR_CONST) return isinf(x->value);
  for (int i = 0; x->op == EXPR_TABLE && i < x->n_heads * expr_pool_blocks(p->spec->pool); i++)
    if (isinf(x->table[i])) return true;
  return false;
}

static bool is_gathered(const expr *x) { return x->op == EXPR_TABLE || x->op == EXPR_OPERAND || x->op == EXPR_ELEMENT; }

/* Leaves below a root, and what it costs. */
static void visit(attention_plan *p, const expr *x, bool *seen) {
  if (seen[x->id]) return;
  seen[x->id] = true;
  for (int i = 0; i < expr_op_arity(x->op); i++) visit(p, x->arg[i], seen);
  if (x->depends & DEPENDS_HEAD) p->per_head = true;
  if (expr_op_arity(x->op) > 0 && x->depends & DEPENDS_POSITION && x->op != EXPR_NARROW && x->op != EXPR_WIDEN)
    p->operations += x->terms ? x->terms : 1;
  if (is_infinite(p, x)) p->hides = true;
  if (x->op == EXPR_ELEMENT) p->indexed |= 1u << x->index;
  if (!is_gathered(x)) return;
  p->leaf_index[x->id] = p->n_leaves;
  p->leaf[p->n_leaves++] = x;
}

/* ---- the grid ---- */

/* Whether a pair's bias is dearer than the load of a tabulated one: elementary functions and tables read lane by
 * lane. Roots and quotients are where no lane stays empty, which rows of a multiple of 16 grant on every target. */
static bool is_dear(const expr *x, bool fills_lanes) {
  if (expr_op_is_elementary(x->op) || expr_op_is_lookup(x->op)) return true;
  if (fills_lanes && (x->op == EXPR_SQRT || x->op == EXPR_DIV)) return true;
  for (int i = 0; i < expr_op_arity(x->op); i++)
    if (is_dear(x->arg[i], fills_lanes)) return true;
  return false;
}

static bool has_grid_option(const spec *s) {
  for (int i = 0; i < s->n_options; i++)
    if (!strcmp(s->option[i].name, "grid")) return true;
  return false;
}

/* Whether pair functions are worth a table along the last axis of a grid. */
static bool is_worth_a_table(const attention_plan *p, bool fills_lanes) {
  return !p->score && (p->matrix || (p->bias && is_dear(p->bias, fills_lanes)));
}

static bool differs_by_block(const expr *x) { return x->depends & DEPENDS_BLOCK; }

/* Values that blocks share and a block's own computation begins from. */
static void find_shared(attention_plan *p, const expr *x, bool *seen) {
  if (seen[x->id] || !(x->depends & DEPENDS_POSITION)) return;
  seen[x->id] = true;
  if (!differs_by_block(x)) {
    p->shared[p->n_shared++] = x;
    return;
  }
  for (int i = 0; i < expr_op_arity(x->op); i++) find_shared(p, x->arg[i], seen);
}

/* Multiply-adds of a pair and block: of the matrix its entries and then the query's components; of a mirror t . k, the
 * key less its multiple of t, and the query's components. */
static bool is_mirror_cheaper(const attention_plan *p) {
  int n = p->spec->n_components, entries = 0;
  for (int i = 0; i < n * n; i++) entries += !expr_is_const(p->matrix[i], 0);
  return 3 * n < entries + n;
}

static void find_mirror(arena *a, attention_plan *p) {
  int n = p->spec->n_components;
  const expr **mirror = arena_array(a, const expr *, n);
  p->flipped = arena_array(a, bool, n);
  if (is_mirror_cheaper(p) && block_mirror(a, p->spec, mirror, p->flipped)) p->mirror = mirror;
}

static void find_entries(arena *a, attention_plan *p) {
  int n = p->spec->n_components, count = p->n_coefficients = p->mirror ? n : n * n;
  bool *seen = arena_array(a, bool, expr_pool_count(p->spec->pool));
  p->entry = arena_array(a, const expr *, count);
  p->entry_of = arena_array(a, int, count);
  p->entry_negated = arena_array(a, bool, count);
  p->shared = arena_array(a, const expr *, expr_pool_count(p->spec->pool));
  for (int i = 0; i < count; i++) {
    const expr *x = p->mirror ? p->mirror[i] : p->matrix[i];
    p->entry_of[i] = -1;
    if (expr_is_const(x, 0)) continue;
    p->entry_negated[i] = x->op == EXPR_NEG;
    if (p->entry_negated[i]) x = x->arg[0];
    for (int k = 0; k < p->n_entries; k++)
      if (p->entry[k] == x) p->entry_of[i] = k;
    if (p->entry_of[i] >= 0) continue;
    p->entry_of[i] = p->n_entries;
    p->entry[p->n_entries++] = x;
    find_shared(p, x, seen);
  }
}

/* ---- gradients ---- */

static void find_scatters(arena *a, attention_plan *p, const expr *bias) {
  expr_pool *pool = p->spec->pool;
  adjoint_output output = {bias, expr_cotangent(pool, 0, DEPENDS_POSITION)};
  const adjoint_scatter *found;
  int count = adjoint_scatters(a, pool, &output, 1, ADJOINT_OPERANDS | ADJOINT_INPUTS | ADJOINT_POSITIONS, &found);
  adjoint_scatter *narrow = arena_array(a, adjoint_scatter, count + 1),
                  *of_rows = arena_array(a, adjoint_scatter, count + 1);
  for (int i = 0; i < count; i++) {
    const expr *gradient = in_f32(a, pool, found[i].gradient);
    /* The product's leaf is in powers of two; what it gains is of natural numbers, as cotangents are. */
    if (found[i].leaf->op == EXPR_POSITION && found[i].leaf->index == SPEC_OF_SCORE)
      p->gain = in_f32(a, pool, expr_mul(pool, found[i].gradient, expr_const(pool, LOG2_E)));
    else if (found[i].leaf->op == EXPR_POSITION) p->place[found[i].leaf->index] = gradient;
    else if (found[i].leaf->op == EXPR_INPUT_AT)
      of_rows[p->n_row_scatters++] = (adjoint_scatter){found[i].leaf, gradient};
    else narrow[p->n_scatters++] = (adjoint_scatter){found[i].leaf, gradient};
  }
  p->scatter = narrow;
  p->row_scatter = of_rows;
}

static void find_sink(arena *a, attention_plan *p) {
  expr_pool *pool = p->spec->pool;
  const expr *sink = in_f32(a, pool, p->spec->pairwise->sink);
  adjoint_output output = {sink, expr_cotangent(pool, 0, DEPENDS_POSITION)};
  const adjoint_scatter *found;
  p->sink = expr_mul(pool, sink, expr_const(pool, LOG2_E));
  p->n_sinks = adjoint_scatters(a, pool, &output, 1, ADJOINT_OPERANDS, &found);
  adjoint_scatter *narrow = arena_array(a, adjoint_scatter, p->n_sinks + 1);
  for (int i = 0; i < p->n_sinks; i++) narrow[i] = (adjoint_scatter){found[i].leaf, in_f32(a, pool, found[i].gradient)};
  p->of_sink = narrow;
}

static void find_torques(arena *a, attention_plan *p) {
  const spec *s = p->spec;
  attention_torques *t = arena_new(a, attention_torques);
  const adjoint_output *outputs;
  const adjoint_scatter *found;
  torque_basis_of(a, s, &t->basis);
  const expr **tau = arena_array(a, const expr *, t->basis.count + 1);
  for (int k = 0; k < t->basis.count; k++) tau[k] = expr_cotangent(s->pool, 1 + k, DEPENDS_BLOCK | DEPENDS_POSITION);
  int n_outputs = torque_outputs(a, &t->basis, TORQUE_OF_Y, tau, &outputs),
      count = adjoint_scatters(a, s->pool, outputs, n_outputs, ADJOINT_OPERANDS | ADJOINT_POSITIONS, &found);
  t->scatter = arena_array(a, adjoint_scatter, count + 1);
  t->place = arena_array(a, const expr *, s->n_axes);
  for (int i = 0; i < count; i++)
    if (found[i].leaf->op == EXPR_POSITION) t->place[found[i].leaf->index] = found[i].gradient;
    else t->scatter[t->n_scatters++] = found[i];
  if (p->by_rows && t->n_scatters == 0) return;
  for (int axis = 0; axis < s->n_axes && p->by_rows; axis++) t->place[axis] = NULL; /* nobody gives the grid's */
  p->torques = t;
}

/* What turns values, too, has no gradient: of operands that are read there and in the bias not half of one. */
static void drop_rotating(arena *a, attention_plan *p) {
  bool *is_read = arena_array(a, bool, p->spec->n_operands + 1);
  adjoint_scatter *kept = arena_array(a, adjoint_scatter, p->n_scatters + 1);
  int count = 0;
  for (int i = 0; i < p->n_entries; i++) expr_mark_operands(p->entry[i], is_read);
  for (int i = 0; i < p->n_scatters; i++)
    if (!is_read[p->scatter[i].leaf->index]) kept[count++] = p->scatter[i];
  p->scatter = kept;
  p->n_scatters = count;
}

/* Leaves of gradients and of what is asked of tiles; what they cost is none of the scores'. */
static void visit_others(attention_plan *p, bool *seen) {
  int operations = p->operations;
  bool hides = p->hides;
  if (p->mask) visit(p, p->mask->unseen, seen);
  if (p->mask && p->mask->whole) {
    visit(p, p->mask->whole, seen);
    visit(p, p->mask->open, seen);
  }
  for (int i = 0; i < p->n_scatters; i++) visit(p, p->scatter[i].gradient, seen);
  for (int i = 0; i < p->n_row_scatters; i++) visit(p, p->row_scatter[i].gradient, seen);
  if (p->sink) visit(p, p->sink, seen);
  for (int i = 0; i < p->n_sinks; i++) visit(p, p->of_sink[i].gradient, seen);
  if (p->gain) visit(p, p->gain, seen);
  for (int axis = 0; axis < p->n_sums; axis++)
    if (p->place[axis]) visit(p, p->place[axis], seen);
  for (int axis = 0; p->torques && axis < p->spec->n_axes; axis++)
    if (p->torques->place[axis]) visit(p, p->torques->place[axis], seen);
  for (int i = 0; p->torques && i < p->torques->n_scatters; i++) visit(p, p->torques->scatter[i].gradient, seen);
  p->operations = operations;
  p->hides = hides;
}

bool attention_has_pairs(const attention_plan *p) { return p->bias || p->score || p->matrix || p->columns; }

bool attention_turns_pairs_and_values(const attention_plan *p) { return p->turns_values && p->matrix; }

bool attention_gains_by_turned_values(const attention_plan *p) {
  return p->turns_values && (p->matrix || p->of_turned);
}

bool attention_is_placed(const attention_plan *p) {
  return p->bias || p->matrix || p->columns || p->n_places > p->n_numbers;
}

/* ---- scores ---- */

bool attention_is_row(const attention_plan *p, int i) { return p->number[i].kind == PEGEN_READS_ROW; }

bool attention_is_pair(const attention_plan *p, int i) { return p->number[i].kind == PEGEN_READS_PAIR; }

/* A number of the call may be -infinity. */
static bool has_pairs_of_call(const attention_plan *p) {
  for (int i = 0; i < p->n_numbers; i++)
    if (attention_is_pair(p, i)) return true;
  return false;
}

/* What is known of no tile: a bit for each place. */
static unsigned unknown_places(const attention_plan *p) {
  unsigned bits = 0;
  for (int i = 0; i < p->n_numbers; i++)
    if (attention_is_row(p, i) || attention_is_pair(p, i)) bits |= 1u << (p->n_places - p->n_numbers + i);
  return bits;
}

/* The axis of a number of tokens, which is added where it is not there yet; -1: there are too many. */
static int axis_of_number(attention_plan *p, pegen_attention_number wanted) {
  int first = p->n_places - p->n_numbers;
  for (int i = 0; i < p->n_numbers; i++)
    if (!memcmp(&p->number[i], &wanted, sizeof wanted)) return first + i;
  if (p->n_places == SPEC_MAX_AXES) return -1;
  p->number[p->n_numbers++] = wanted;
  return p->n_places++;
}

/* The number that a leaf reads of tokens. */
static bool is_number(const spec *s, const expr *x, pegen_attention_number *number) {
  const spec_input *in = x->op == EXPR_INPUT ? &s->input[x->index] : NULL;
  if (in && spec_input_is_pair(in)) *number = (pegen_attention_number){PEGEN_READS_PAIR, 0, x->index, 0};
  else if (in) *number = (pegen_attention_number){PEGEN_READS_ELEMENT, in->of_keys, x->index, x->offsets[0]};
  else *number = (pegen_attention_number){PEGEN_READS_INDEX, x->index == SPEC_OF_KEY, -1, 0};
  return x->op == EXPR_INPUT || (x->op == EXPR_POSITION && x->index > SPEC_OF_SCORE);
}

/* Rewrites x with what is read of tokens as coordinates of displacements, and the product in powers of two. NULL:
 * tokens have too many. */
static const expr *placed(arena *a, attention_plan *p, const expr *x) {
  expr_pool *pool = p->spec->pool;
  const expr *arg[3] = {NULL};
  int arity = expr_op_arity(x->op);
  if (x->op == EXPR_POSITION && x->index == SPEC_OF_SCORE) return expr_mul(pool, x, expr_const(pool, LN_2));
  pegen_attention_number number;
  if (is_number(p->spec, x, &number)) {
    int axis = axis_of_number(p, number);
    if (axis < 0) return NULL;
    const expr *place = expr_position(pool, axis);
    return number.of_key || number.kind == PEGEN_READS_PAIR ? place : expr_neg(pool, place);
  }
  if (arity == 0) return x;
  if (x->op == EXPR_INPUT_AT) {
    bool of_keys = p->spec->input[x->index].of_keys;
    if (axis_of_number(p, (pegen_attention_number){PEGEN_READS_ROW, of_keys, x->index, 0}) < 0) return NULL;
  }
  if (x->op == EXPR_WIDEN && expr_op_is_input(x->arg[0]->op)) return placed(a, p, x->arg[0]);
  for (int i = 0; i < arity; i++)
    if (!(arg[i] = placed(a, p, x->arg[i]))) return NULL;
  return expr_rebuild(pool, x, arg);
}

/* x times a factor, inside of its choices: the product itself then is what it was before it was made natural. */
static const expr *times(expr_pool *pool, const expr *x, double factor) {
  if (x->op == EXPR_CONST && isinf(x->value)) return x;
  if (x->op == EXPR_NARROW) return expr_unary(pool, EXPR_NARROW, times(pool, x->arg[0], factor));
  if (x->op != EXPR_SELECT) return expr_mul(pool, x, expr_const(pool, factor));
  const expr *one = times(pool, x->arg[1], factor), *other = times(pool, x->arg[2], factor);
  return expr_select(pool, x->arg[0], one, other);
}

/* ---- strips ---- */

/* What a value is made of: a bit for each axis, and these. OF_QUERY: what is read of the query's token. */
enum { OF_OTHERS = 1 << SPEC_MAX_AXES, IS_DEAR = 2 << SPEC_MAX_AXES, OF_QUERY = 4 << SPEC_MAX_AXES };

static unsigned find_sources(const attention_plan *p, const expr *x, unsigned *seen) {
  int own = p->n_places - p->n_numbers;
  if (seen[x->id]) return seen[x->id];
  unsigned of = x->terms ? OF_OTHERS : 0;
  if (x->op == EXPR_POSITION && x->index >= SPEC_MAX_AXES) of |= OF_OTHERS;
  else if (x->op == EXPR_POSITION && x->index >= own)
    of |= p->number[x->index - own].of_key || attention_is_pair(p, x->index - own) ? OF_OTHERS : OF_QUERY;
  else if (x->op == EXPR_POSITION) of |= 1u << x->index;
  if (x->op == EXPR_INPUT_AT) of |= p->spec->input[x->index].of_keys ? OF_OTHERS : OF_QUERY;
  if (expr_op_is_elementary(x->op) || expr_op_is_lookup(x->op)) of |= IS_DEAR;
  for (int i = 0; i < expr_op_arity(x->op); i++) of |= find_sources(p, x->arg[i], seen);
  return seen[x->id] = of;
}

/* The largest parts that are made of the query and one coordinate, or of the only axis' displacement: keys that lie on
 * one axis have each a coordinate of their own. */
static void find_strips(attention_plan *p, const expr *x, unsigned *seen) {
  bool is_line = p->spec->n_axes == 1;
  unsigned of = find_sources(p, x, seen), axes = of & (OF_OTHERS - 1),
           others = is_line ? OF_OTHERS | OF_QUERY : OF_OTHERS;
  if (!(of & IS_DEAR) || p->n_strips == ATTENTION_MAX_STRIPS || attention_strip_of(p, x) >= 0) return;
  if (!(of & others) && axes && !(axes & (axes - 1)) && x->is_f32) {
    p->strip[p->n_strips++] = (attention_strip){x, is_line ? ATTENTION_OF_DISPLACEMENT : __builtin_ctz(axes)};
    return;
  }
  for (int i = 0; i < expr_op_arity(x->op); i++) find_strips(p, x->arg[i], seen);
}

int attention_strip_of(const attention_plan *p, const expr *x) {
  int i = p->n_strips - 1;
  while (i >= 0 && p->strip[i].value != x) i--;
  return i;
}

static bool find_score(arena *a, attention_plan *p) {
  const spec *s = p->spec;
  const expr *score = s->pairwise->score, *natural;
  if (!p->n_places && expr_reads_places(score, 0, s->n_axes)) p->n_places = s->n_axes;
  if (!(natural = placed(a, p, score))) {
    diag_error(s->file, s->line,
               "the score reads more of queries and keys than there is room for beside %d coordinates; %d of all are",
               s->n_axes, SPEC_MAX_AXES);
    return false;
  }
  natural = in_f32(a, s->pool, natural);
  p->score = times(s->pool, natural, LOG2_E);
  find_scatters(a, p, natural);
  for (int i = 0; i < p->n_numbers; i++) /* an index has no gradient */
    if (p->number[i].input < 0) p->place[p->n_places - p->n_numbers + i] = NULL;
  return true;
}

/* A polynomial by columns, whose numbers of keys are the first of all numbers, in its order. */
static bool find_columns(arena *a, attention_plan *p) {
  const spec *s = p->spec;
  const expr *score = s->pairwise->score;
  if (score && score->depends & (DEPENDS_HEAD | DEPENDS_OPERAND)) {
    diag_error(s->file, s->line,
               "the score of '%s' differs from head to head or reads an operand, which beside a pe.polynomial it "
               "cannot; a function of s, the displacement, indices and inputs was expected",
               s->name);
    return false;
  }
  if (!(p->columns = plan_widen_build(a, s))) return false;
  pegen_attention_number number;
  for (int i = 0; i < p->columns->p->n_keys; i++)
    if (is_number(s, p->columns->p->key[i], &number)) axis_of_number(p, number);
  p->per_head = p->columns->values->per_head;
  p->weights = plan_widen_gradient(a, p->columns);
  return true;
}

attention_plan *attention_plan_build(arena *a, const spec *s) {
  const spec_pairwise *pair = s->pairwise;
  attention_plan *p = arena_new(a, attention_plan);
  *p = (attention_plan){.spec = s, .head_dim = s->head_dim, .value_dim = pair->value_dim};
  p->place = arena_array(a, const expr *, SPEC_MAX_PLACES);
  p->n_places = pair->bias || pair->rotates || s->polynomial ? s->n_axes : 0;
  bool may_hide = false;
  if (s->polynomial && !find_columns(a, p)) return NULL;
  if (pair->score) {
    if (!find_score(a, p)) return NULL;
    if (!s->polynomial && !pair->rotates) find_strips(p, p->score, arena_array(a, unsigned, expr_pool_count(s->pool)));
    may_hide = has_pairs_of_call(p) || attention_may_hide(a, s, p->score, p->n_places);
    if (may_hide && interval_has_infinity(a, s->pool, p->score))
      p->mask = attention_mask_of(a, s, p->score, p->n_places, unknown_places(p));
  }
  if (pair->bias) {
    const expr *bias = in_f32(a, s->pool, pair->bias);
    p->bias = expr_mul(s->pool, bias, expr_const(s->pool, LOG2_E));
    find_scatters(a, p, bias);
    may_hide = attention_may_hide(a, s, p->bias, p->n_places);
    if (may_hide && interval_has_infinity(a, s->pool, p->bias))
      p->mask = attention_mask_of(a, s, p->bias, p->n_places, 0);
  }
  if (pair->rotates) {
    block_program program;
    if (s->function) { /* of every pair, in the lanes of a tile: code and time for that are not there */
      diag_error(s->file, s->line,
                 "combine of '%s' is a function of rotors, which attention does not compute pair by pair; expected "
                 "role = \"separable\", or pe.sum, pe.mean, pe.product{...} or pe.symmetric{...}",
                 s->name);
      return NULL;
    }
    if (!block_build(a, s, &program)) return NULL;
    p->matrix = program.matrix.entry;
    find_mirror(a, p);
    find_entries(a, p);
    p->stays = rotations_stay_on_pairs(a, s);
    if (!p->stays) p->rows = rotations_of_rows(a, s);
    p->turns_values = pair->turns_values;
    if (p->turns_values && p->stays) {
      diag_error(s->file, s->line,
                 "values = \"same\" of '%s' turns rows of v once each, and outputs back, which takes R(s - r) = "
                 "R(r)^-1 R(s): %s",
                 s->name, p->stays);
      return NULL;
    }
  }
  p->by_rows = s->grid[0] && is_worth_a_table(p, s->grid[s->n_axes - 1] % 16 == 0);
  if (p->turns_values) drop_rotating(a, p);
  else if (p->matrix) find_torques(a, p);
  if (pair->sink) find_sink(a, p);
  p->first_sink = p->n_scatters + (p->torques ? p->torques->n_scatters : 0);
  p->has_places = attention_is_placed(p) && !p->by_rows && !p->turns_values;
  p->sums_inputs = attention_reads_inputs(p);
  p->n_sums = p->sum_width = p->sums_inputs ? p->n_places : p->has_places ? s->n_axes : 0;
  for (int i = 0; i < p->n_numbers; i++)
    if (attention_is_row(p, i)) p->sum_width += (int)s->input[p->number[i].input].size;
  p->by_tiles = p->bias && !p->by_rows && is_dear(p->bias, false);
  bool wants_table = !s->grid[0] && !p->rows && is_worth_a_table(p, false);
  p->wants_grid = wants_table && has_grid_option(s) && (p->matrix || !attention_has_runs(p));
  int count = expr_pool_count(s->pool);
  bool *seen = arena_array(a, bool, count);
  p->leaf = arena_array(a, const expr *, count);
  p->leaf_index = arena_array(a, int, count);
  for (int i = 0; i < count; i++) p->leaf_index[i] = -1;
  if (p->bias) visit(p, p->bias, seen);
  if (p->score) visit(p, p->score, seen);
  p->own_operations = p->operations;
  for (int i = 0; i < p->n_entries; i++) visit(p, p->entry[i], seen);
  visit_others(p, seen);
  p->hides = (p->hides || has_pairs_of_call(p)) && may_hide;
  return p;
}

const attention_plan *attention_plan_on(arena *a, const attention_plan *p, const cpu_target *target) {
  if (!p->by_rows || p->matrix || 2 * p->spec->grid[p->spec->n_axes - 1] > target->lanes) return p;
  attention_plan *on = arena_new(a, attention_plan);
  *on = *p;
  on->by_rows = false;
  on->by_tiles = is_dear(p->bias, false);
  return on;
}

const attention_plan *attention_plan_gradient(arena *a, const attention_plan *p, const cpu_target *target) {
  if (!p->by_rows || !p->torques) return attention_plan_on(a, p, target);
  attention_plan *on = arena_new(a, attention_plan);
  *on = *p;
  on->torques = NULL;
  return on;
}

const attention_plan *attention_plan_operands(arena *a, const attention_plan *p) {
  if (!p->by_rows || !p->torques) return NULL;
  attention_plan *on = arena_new(a, attention_plan);
  *on = *p;
  on->by_rows = false;
  on->by_tiles = on->bias && is_dear(on->bias, false);
  on->of_operands = on->has_places = true; /* what torques are summed beside; that none are wanted the driver says */
  on->n_sums = on->sum_width = p->spec->n_axes;
  on->place = arena_array(a, const expr *, p->spec->n_axes);
  return on;
}

bool attention_is_turned(const attention_plan *p) { return p->turned && !p->matrix; }

bool attention_tells(const attention_plan *p) { return !p->score && !attention_is_turned(p); }

bool attention_moves(const attention_plan *p) {
  bool moves = p->has_places && (p->torques || p->columns);
  for (int axis = 0; axis < p->n_sums; axis++) moves = moves || p->place[axis];
  return moves;
}

bool attention_has_runs(const attention_plan *p) {
  bool has_strips = p->n_strips && p->strip[0].axis == ATTENTION_OF_DISPLACEMENT;
  return p->spec->n_axes == 1 && (has_strips || (p->by_tiles && p->n_places == 1 && !p->n_numbers));
}

bool attention_reads_inputs(const attention_plan *p) {
  for (int i = 0; i < p->n_numbers; i++)
    if (p->number[i].input >= 0) return true;
  return false;
}

/* The number that is where rows of an input are. */
static int row_number(const attention_plan *p, int input) {
  int i = 0;
  while (!(attention_is_row(p, i) && p->number[i].input == input)) i++;
  return i;
}

int attention_row_place(const attention_plan *p, int input) {
  return p->n_places - p->n_numbers + row_number(p, input);
}

int attention_first_element(const attention_plan *p, int input) {
  int first = p->n_sums;
  for (int i = 0; i < row_number(p, input); i++)
    if (attention_is_row(p, i)) first += (int)p->spec->input[p->number[i].input].size;
  return first;
}

/* Elements of rows of a side, of inputs before `end`. */
static int elements_before(const attention_plan *p, int end, bool of_keys) {
  int count = 0;
  for (int i = 0; i < p->n_numbers; i++) {
    int input = p->number[i].input;
    if (attention_is_row(p, i) && input < end && p->spec->input[input].of_keys == of_keys)
      count += (int)p->spec->input[input].size;
  }
  return count;
}

int attention_row_element(const attention_plan *p, int input) {
  return elements_before(p, input, p->spec->input[input].of_keys);
}

int attention_row_elements(const attention_plan *p, bool of_keys) {
  return elements_before(p, p->spec->n_inputs, of_keys);
}

bool attention_begins_terms(const adjoint_scatter *scatters, int i) {
  const expr *leaf = scatters[i].leaf;
  bool begins = expr_op_is_lookup(leaf->op);
  for (int k = 0; k < i; k++)
    begins = begins && !(expr_op_is_lookup(scatters[k].leaf->op) && scatters[k].leaf->terms == leaf->terms);
  return begins;
}

bool attention_keeps_biases(const attention_plan *p) {
  return p->by_tiles && !p->matrix && !p->turned; /* a bias that reads inputs is a score */
}

bool attention_keeps_pairs(const attention_plan *p) {
  bool scatters = false;
  for (int i = 0; i < p->n_scatters; i++) scatters = scatters || p->scatter[i].leaf->op == EXPR_ELEMENT;
  return scatters && attention_keeps_biases(p) && !p->mask;
}

const attention_plan *attention_plan_forward(arena *a, const attention_plan *p, const cpu_target *target) {
  if (!p->turned) return attention_plan_on(a, p, target);
  attention_plan *on = arena_new(a, attention_plan);
  *on = *p;
  on->matrix = on->mirror = NULL;
  on->n_entries = on->n_coefficients = 0;
  on->by_rows = false;
  on->by_tiles = on->bias && is_dear(on->bias, false);
  return on;
}

const attention_plan *attention_plan_turned_gradient(arena *a, const attention_plan *p, const cpu_target *target) {
  if (!p->turned) return NULL;
  attention_plan *on = arena_new(a, attention_plan);
  *on = *attention_plan_forward(a, p, target);
  if (p->torques && p->torques->n_scatters) on->n_scatters = 0; /* then operands gain pair by pair, all of them */
  on->torques = NULL;
  on->n_sums = on->sum_width = on->n_row_scatters = 0;
  on->has_places = false;
  on->of_turned = true;
  return on;
}

void attention_plan_print(FILE *out, const attention_plan *p) {
  const spec *s = p->spec;
  fprintf(out, "%s: attention, head_dim %d, value_dim %d\n", s->name, p->head_dim, p->value_dim);
  if (p->columns)
    fprintf(out,
            "score(i, j) = log2(e) %sscale (q_i . k_j + bias(r_j - r_i))%s, the bias by columns, counted from a "
            "query of the tile\n",
            p->score ? "score(" : "", p->score ? ", r_j - r_i, i, j)" : "");
  else if (p->score)
    fprintf(out, "score(i, j) = log2(e) score(scale q_i . k_j, r_j - r_i, i, j)%s\n",
            p->matrix ? ", the blocks of k_j turned by r_j - r_i" : "");
  else
    fprintf(out, "score(i, j) = log2(e) (scale q_i . k_j%s)%s\n", p->bias ? " + bias(r_j - r_i)" : "",
            p->matrix ? ", the blocks of k_j turned by r_j - r_i" : "");
  if (p->columns) plan_widen_print(out, p->columns);
  else fprintf(out, "operations of a pair: %d\n", p->operations);
  if (p->by_rows)
    fprintf(out, "computed once for each displacement along axis '%s' of the grid, and read by pairs\n",
            s->axis[s->n_axes - 1]);
  if (p->turns_values)
    fprintf(out, "rows of q, k and v are turned by their own positions, once each, and outputs back\n");
  else if (p->rows) fprintf(out, "processors turn rows of q and k by their own positions, once each\n");
  if (p->bias) {
    const char *name = "log2(e) bias";
    expr_print_roots(out, &p->bias, &name, 1);
  }
  if (p->score) {
    const char *name = "log2(e) score";
    expr_print_roots(out, &p->score, &name, 1);
  }
  if (p->sink) {
    const char *name = "log2(e) sink";
    expr_print_roots(out, &p->sink, &name, 1);
  }
  if (p->matrix) {
    int n = s->n_components;
    const char *names[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
    char text[SPEC_MAX_BLADES * SPEC_MAX_BLADES][32];
    if (p->mirror) fprintf(out, "R = (I - t t^T) D, two reflections; D = diag(");
    for (int i = 0; p->mirror && i < n; i++) fprintf(out, "%s1%s", p->flipped[i] ? "-" : "", i < n - 1 ? ", " : ")\n");
    for (int i = 0; i < p->n_coefficients; i++) {
      if (p->mirror) snprintf(text[i], sizeof text[i], "t[%d]", i);
      else snprintf(text[i], sizeof text[i], "R[%d][%d]", i / n, i % n);
      names[i] = text[i];
    }
    expr_print_roots(out, p->mirror ? p->mirror : p->matrix, names, p->n_coefficients);
  }
}

/* ---- tiles ---- */

enum { HEADS_ROOM = 192 << 10, TURNED_ROOM = 192 << 10, TURNED_GRADIENT_ROOM = 256 << 10, TURNED_PANEL = 64 << 10 };
enum { TURNED_GRADIENT_KEYS = 256 };

attention_shape attention_shape_of(const attention_plan *p, const cpu_target *target) {
  /* Accumulators, the registers of queries and one for a key's channel: 16 + 2 + 1 of 32, 12 + 2 + 1 of 16. */
  bool many_registers = target->lanes == 16 || !strncmp(target->triple, "aarch64", 7);
  attention_shape s = {.lanes = target->lanes,
                       .vectors = 2,
                       .rows = many_registers ? 8 : 6,
                       .channels = many_registers ? 8 : 6,
                       .unroll = 2};
  s.queries = s.vectors * s.lanes;
  /* Rows of keys and of values stay in the caches near the core: 32 KiB each, 16 keys at least. */
  int widest = p->head_dim > p->value_dim ? p->head_dim : p->value_dim, keys = 8192 / widest;
  keys = keys > 64 ? 64 : keys < 16 ? 16 : keys;
  s.keys = (keys + s.rows - 1) / s.rows * s.rows;
  if (s.keys > PEGEN_ATTENTION_TURNED_KEYS) diag_bug("attention", "tiles of %d keys", s.keys);
  /* Queries, outputs, scores and rows of keys of all heads of a tile stand on the stack. */
  int64_t head = ((int64_t)p->head_dim + p->value_dim + s.keys) * s.queries * 4 + (int64_t)s.keys * p->head_dim * 4;
  s.heads = !p->matrix || p->per_head || attention_reads_inputs(p) ? 1 : (int)(HEADS_ROOM / head);
  s.heads = s.heads < 1 ? 1 : s.heads > PEGEN_ATTENTION_HEADS ? PEGEN_ATTENTION_HEADS : s.heads;
  return s;
}

bool attention_has_dots(const attention_plan *p, const cpu_target *target) {
  return target->dots && (!p->spec->pairwise->rotates || p->rows) && p->head_dim % 2 == 0 && p->value_dim % 2 == 0;
}

turned_shape turned_gradient_shape_of(const attention_plan *p, const attention_shape *s) {
  turned_shape t = {.keys = s->keys};
  int64_t rows = (int64_t)s->queries * attention_pitch(p->head_dim) * 4,
          tile = 2 * rows + (int64_t)sizeof(pegen_attention_tile),
          key = (int64_t)p->head_dim * 4 * (1 + p->turns_values),
          room = TURNED_GRADIENT_ROOM - 3 * rows; /* less what wide rows take besides */
  while (t.keys + s->keys <= TURNED_GRADIENT_KEYS && (t.keys + s->keys) * key <= TURNED_PANEL) t.keys += s->keys;
  int64_t most = (room - t.keys * key) / tile;
  t.tiles = most < 1 ? 1 : most > PEGEN_ATTENTION_TURNED_TILES ? PEGEN_ATTENTION_TURNED_TILES : (int)most;
  return t;
}

bool attention_has_narrow(const attention_plan *p, const attention_shape *s) {
  return s->lanes >= 16 && !p->matrix && !p->of_turned && (!p->n_scatters || attention_keeps_pairs(p));
}

int attention_block(const attention_shape *s) { return s->rows; }

attention_shape attention_narrow_shape(const attention_shape *s) {
  attention_shape narrow = *s;
  narrow.is_narrow = true;
  narrow.vectors = narrow.heads = 1;
  return narrow;
}

turned_shape turned_shape_of(const attention_plan *p, const attention_shape *s) {
  turned_shape t = {.keys = s->keys, .state_numbers = (p->head_dim + p->value_dim + 2) * s->queries};
  int64_t state = (int64_t)t.state_numbers * 4 + (int64_t)sizeof(pegen_attention_tile),
          panel = (int64_t)t.keys * p->head_dim * 4 * (1 + p->turns_values), most = (TURNED_ROOM - panel) / state;
  t.tiles = most < 1 ? 1 : most > PEGEN_ATTENTION_TURNED_TILES ? PEGEN_ATTENTION_TURNED_TILES : (int)most;
  return t;
}

int attention_pitch(int width) {
  return (width + PEGEN_ATTENTION_PITCH - 1) / PEGEN_ATTENTION_PITCH * PEGEN_ATTENTION_PITCH;
}

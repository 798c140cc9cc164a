/* cpu/basis_adjoint: see cpu/basis_adjoint.h. */
#include "cpu/basis_adjoint.h"

#include "cpu/backward.h"
#include "cpu/product.h"
#include "mlir/arith.h"

enum { CACHE_LINE = 64 };

typedef struct basis {
  ir *b;
  arena *memory;
  const plan *p;
  const plan_gradient *of;
  matrix_shape m;
  const char *name;
  int64_t inverse_at; /* bytes of coefficients that stand before those of p->inverse */
  ir_value matrix, coefficients, outer; /* arguments */
  ir_value buffer[2];
} basis;

static const char *part_of(const basis *s, const char *word) { return arena_printf(s->memory, "%s_%s", s->name, word); }

/* ---- whole matrices ---- */

/* NAME_transposed(out, in). */
static void emit_transposed(const basis *s) {
  ir *b = s->b;
  int lanes = s->m.lanes;
  int64_t row = (int64_t)s->m.padded * 4;
  MlirType vector = ir_vector(b, lanes, b->f32);
  ir_value arguments[2], rows[64];
  ir_open(b, part_of(s, "transposed"), "pp", arguments);
  ir_loop down = ir_for(b, i64(b, 0), i64(b, s->m.padded / lanes));
  ir_loop right = ir_for(b, i64(b, 0), i64(b, s->m.padded / lanes));
  ir_value beside = mul(b, right.index, i64(b, (int64_t)lanes * 4)), below = mul(b, down.index, i64(b, lanes * row));
  ir_value from = ir_offset(b, ir_offset(b, arguments[1], below), beside);
  for (int i = 0; i < lanes; i++) rows[i] = ir_load(b, vector, ir_offset_const(b, from, i * row), 4);
  emit_transpose(b, lanes, rows);
  beside = mul(b, down.index, i64(b, (int64_t)lanes * 4));
  below = mul(b, right.index, i64(b, lanes * row));
  ir_value to = ir_offset(b, ir_offset(b, arguments[0], below), beside);
  for (int i = 0; i < lanes; i++) ir_store(b, rows[i], ir_offset_const(b, to, i * row), 4, false);
  ir_end_for(b, right);
  ir_end_for(b, down);
  ir_return(b);
}

static void transpose(const basis *s, ir_value out, ir_value in) {
  ir_call(s->b, part_of(s, "transposed"), 2, (ir_value[]){out, in});
}

static void multiply(const basis *s, ir_value out, ir_value x, ir_value y) {
  ir_call(s->b, part_of(s, "product"), 3, (ir_value[]){out, x, y});
}

/* Rows of `in` turned, or turned by the transposes. What lies beyond their channels is not written. */
static void turn_rows(const basis *s, const char *word, ir_value out, ir_value in) {
  ir_call(s->b, part_of(s, word), 3, (ir_value[]){in, s->coefficients, out});
}

/* Rows of `in` turned by R^-1, but for the factor of amplitudes where that is R^T. */
static void turn_rows_inversely(const basis *s, ir_value out, ir_value in) {
  if (!s->p->inverse) {
    turn_rows(s, "rows_back", out, in);
    return;
  }
  ir_value coefficients = ir_offset_const(s->b, s->coefficients, s->inverse_at);
  ir_call(s->b, part_of(s, "rows_inverse"), 3, (ir_value[]){in, coefficients, out});
}

static void clear(void *context, ir_value offset, ir_value *carried) {
  const basis *s = context;
  (void)carried;
  ir_value none = ir_float(s->b, ir_vector(s->b, s->m.lanes, s->b->f32), 0);
  for (int i = 0; i < 2; i++) ir_store(s->b, none, ir_offset(s->b, s->buffer[i], offset), 4, false);
}

static void open_buffers(basis *s) {
  for (int i = 0; i < 2; i++) s->buffer[i] = ir_alloca(s->b, matrix_bytes(&s->m), CACHE_LINE);
  emit_each_vector(s->b, &s->m, false, 0, NULL, clear, s);
}

typedef struct sum {
  const basis *s;
  ir_value from, sums;
  bool scaled; /* rows by the table of factors */
} sum;

static const char *factors_name(const basis *s) { return part_of(s, "factors"); }

static void add_wide(void *context, ir_value offset, ir_value *carried) {
  const sum *to = context;
  ir *b = to->s->b;
  MlirType vector = ir_vector(b, to->s->m.lanes, b->f32), wide = ir_vector(b, to->s->m.lanes, b->f64);
  (void)carried;
  ir_value place = ir_offset(b, to->sums, mul(b, offset, i64(b, 2))), before = ir_load(b, wide, place, 8);
  ir_value x = ir_cast(b, "arith.extf", ir_load(b, vector, ir_offset(b, to->from, offset), 4), b->f64);
  if (to->scaled) {
    ir_value row = ir_op2(b, "arith.divui", offset, i64(b, (int64_t)to->s->m.padded * 4));
    ir_value at = ir_offset(b, ir_table_address(b, factors_name(to->s)), mul(b, row, i64(b, 8)));
    x = mul(b, x, ir_broadcast(b, wide, ir_load(b, b->f64, at, 8)));
  }
  ir_store(b, add(b, before, x), place, 8, false);
}

/* ---- the functions ---- */

static ir_value is_turned(const basis *s) {
  return ir_compare_int(s->b, "ne", ir_address(s->b, s->coefficients), i64(s->b, 0));
}

static void open_function(basis *s, const char *word, const char *types, ir_value *arguments) {
  ir_open(s->b, part_of(s, word), types, arguments);
  s->matrix = arguments[0];
  s->coefficients = arguments[1];
  s->outer = arguments[2];
  open_buffers(s);
}

/* Element k of the basis of torques, of one block: sums of g_i y_j of its channels. by_column: `from` is transposed. */
static ir_value torque(const basis *s, ir_value from, bool by_column, int k, int block) {
  ir *b = s->b;
  const torque_element *element = &s->of->basis.element[k];
  const spec *of = s->p->spec;
  ir_value total = {NULL};
  for (int i = 0; i < element->n_entries; i++) {
    const torque_entry *e = &element->entry[i];
    int row = of->channel[e->row * of->n_blocks + block], column = of->channel[e->column * of->n_blocks + block];
    int64_t at = (int64_t)(by_column ? column * s->m.padded + row : row * s->m.padded + column) * 4;
    ir_value x = ir_load(b, b->f32, ir_offset_const(b, from, at), 4);
    if (!total.ptr) total = e->sign < 0 ? ir_op1(b, "arith.negf", x) : x;
    else total = ir_op2(b, e->sign < 0 ? "arith.subf" : "arith.addf", total, x);
  }
  return total.ptr ? ir_cast(b, "arith.extf", total, b->f64) : ir_float(b, b->f64, 0);
}

static void write_torques(const basis *s, ir_value from, bool by_column, ir_value gains) {
  for (int k = 0; s->of && k < s->of->n_torques; k++)
    for (int block = 0; block < s->p->spec->n_blocks; block++) {
      ir_value x = torque(s, from, by_column, k, block);
      ir_store(s->b, x, ir_offset_const(s->b, gains, ((int64_t)k * s->p->lanes + block) * 8), 8, false);
    }
}

/* C G C^T, transposed, in the first buffer. */
static void change_back(const basis *s) {
  multiply(s, s->buffer[0], s->outer, s->matrix);
  transpose(s, s->buffer[1], s->buffer[0]);
  multiply(s, s->buffer[0], s->buffer[1], s->matrix);
}

static bool is_scaled(const basis *s) { return s->p->spec->amplitude != 1 && !s->p->spec->inverse && !s->p->inverse; }

/* y = R u is turned back by R^-1, where R^T is at hand: of channels in blocks the amplitude's square times that. */
static void emit_factors(const basis *s) {
  const spec *of = s->p->spec;
  double *factor = arena_array(s->memory, double, s->m.padded), a = of->amplitude;
  for (int i = 0; i < s->m.padded; i++) factor[i] = 1;
  for (int i = 0; i < of->n_components * of->n_blocks; i++) factor[of->channel[i]] = a == 0 ? 1 : 1 / (a * a);
  ir_table_floats(s->b, factors_name(s), false, s->m.padded, factor);
}

/* (R^T G R^-T)^T, in the first buffer. */
static void turn_back(const basis *s) {
  ir *b = s->b;
  ir_branch turned = ir_if(b, is_turned(s));
  turn_rows_inversely(s, s->buffer[0], s->outer);
  transpose(s, s->buffer[1], s->buffer[0]);
  turn_rows(s, "rows_back", s->buffer[0], s->buffer[1]);
  ir_else(b, &turned);
  transpose(s, s->buffer[0], s->outer);
  ir_end_if(b, turned);
}

static void add_sums(const basis *s, ir_value from, ir_value sums, bool scaled) {
  sum to = {s, from, sums, scaled};
  emit_each_vector(s->b, &s->m, false, 0, NULL, add_wide, &to);
}

static void emit_adjoint(basis *s) {
  enum { GAINS = 3, SUMS, COUNT };
  ir *b = s->b;
  ir_value arguments[COUNT];
  const spec *of = s->p->spec;
  open_function(s, "adjoint", "ppppp", arguments);
  ir_branch turned = ir_if(b, is_turned(s));
  if (of->inverse && s->of) change_back(s);
  write_torques(s, of->inverse ? s->buffer[0] : s->outer, of->inverse, arguments[GAINS]);
  ir_end_if(b, turned);
  ir_branch wanted = ir_if(b, ir_compare_int(b, "ne", ir_address(b, arguments[SUMS]), i64(b, 0)));
  if (of->inverse) {
    add_sums(s, s->outer, arguments[SUMS], false);
  } else {
    turn_back(s);
    ir_branch scaled = ir_if(b, is_turned(s));
    add_sums(s, s->buffer[0], arguments[SUMS], is_scaled(s));
    ir_else(b, &scaled);
    add_sums(s, s->buffer[0], arguments[SUMS], false);
    ir_end_if(b, scaled);
  }
  ir_end_if(b, wanted);
  ir_return(b);
}

/* g x^T -> g x^T C^T R^T, row by row the turns of g x^T C^T; to turn back g x^T R^-T C, whose last factor stands column
 * by column as the first factor of its transpose. */
static void emit_turn(basis *s) {
  ir *b = s->b;
  ir_value arguments[3];
  bool back = s->p->spec->inverse;
  open_function(s, "turn", "ppp", arguments);
  if (!back) multiply(s, s->buffer[0], s->outer, s->matrix);
  ir_branch turned = ir_if(b, is_turned(s));
  if (back) turn_rows(s, "rows_back", s->buffer[0], s->outer);
  else turn_rows(s, "rows", s->outer, s->buffer[0]);
  if (back) transpose(s, s->buffer[1], s->buffer[0]);
  ir_else(b, &turned);
  transpose(s, s->buffer[1], back ? s->outer : s->buffer[0]);
  if (!back) transpose(s, s->outer, s->buffer[1]);
  ir_end_if(b, turned);
  if (back) {
    multiply(s, s->buffer[0], s->matrix, s->buffer[1]);
    transpose(s, s->outer, s->buffer[0]);
  }
  ir_return(b);
}

/* ---- rotors ---- */

static const cpu_target *inverse_target(arena *a, const cpu_target *target) {
  cpu_target *inverse = arena_new(a, cpu_target);
  *inverse = *target;
  inverse->suffix = arena_printf(a, "%s_inverse", target->suffix);
  return inverse;
}

static int64_t in_lines(int64_t bytes) { return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE; }

/* Where coefficients of the transposed turns end and those of the inverse begin. */
static int64_t transposed_bytes(arena *a, const plan *turns, const cpu_target *target) {
  int64_t bytes = emit_coefficient_bytes(a, plan_transpose(a, turns), target);
  return turns->inverse ? in_lines(bytes) : bytes;
}

int64_t emit_turned_back_bytes(arena *a, const plan *turns, const cpu_target *target) {
  int64_t inverse = turns->inverse ? emit_coefficient_bytes(a, turns->inverse, target) : 0;
  return transposed_bytes(a, turns, target) + inverse;
}

const char *emit_turned_back_name(arena *a, const plan *turns, const cpu_target *target) {
  const char *transposed = emit_rotor_name(a, emit_backward_target(a, target));
  return turns->inverse ? arena_printf(a, "%s_both", transposed) : transposed;
}

/* Both rotors, one after the other. */
static void emit_both_rotors(const basis *s, const cpu_target *target) {
  ir *b = s->b;
  ir_value arguments[3];
  ir_open(b, emit_turned_back_name(s->memory, s->p, target), "ppp", arguments);
  ir_call(b, emit_rotor_name(s->memory, emit_backward_target(s->memory, target)), 3, arguments);
  arguments[2] = ir_offset_const(b, arguments[2], s->inverse_at);
  ir_call(b, emit_rotor_name(s->memory, inverse_target(s->memory, target)), 3, arguments);
  ir_return(b);
}

/* The rotor of a plan beside the turns, and its function of a matrix' rows. */
static void emit_turns(const basis *s, const plan *p, const cpu_target *suffixed, const char *word) {
  chunk_walk walk = emit_chunks_of(s->b, s->memory, p, plan_tile_build(s->memory, p, suffixed->lanes), suffixed);
  emit_rotor(&walk);
  emit_turned_columns(&walk, s->p->spec->head_dim, s->m.padded, s->m.padded, part_of(s, word));
}

void emit_basis_adjoint(const chunk_walk *turns, const plan_gradient *of, const char *name) {
  ir *b = turns->b;
  arena *a = turns->memory;
  const cpu_target *target = turns->target;
  const plan *p = turns->p;
  int size = p->spec->head_dim;
  basis s = {.b = b, .memory = a, .p = p, .of = of, .name = name, .inverse_at = transposed_bytes(a, p, target)};
  s.m = matrix_shape_of(b, target, size, false);
  emit_turns(&s, plan_transpose(a, p), emit_backward_target(a, target), "rows_back");
  emit_turned_columns(turns, size, s.m.padded, s.m.padded, part_of(&s, "rows"));
  if (p->inverse) {
    emit_turns(&s, p->inverse, inverse_target(a, target), "rows_inverse");
    emit_both_rotors(&s, target);
  }
  emit_product(b, &s.m, part_of(&s, "product"), false);
  emit_transposed(&s);
  if (is_scaled(&s)) emit_factors(&s);
  emit_adjoint(&s);
  emit_turn(&s);
}

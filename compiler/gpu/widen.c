/* gpu/widen: columns of a polynomial bias on a GPU.
 *
 * 8 neighbouring lanes (more where there are many columns) have one token. One of them makes the monomials of its
 * coordinates in two-float arithmetic; all of them what the columns need of those, from tables, into shared memory; and
 * then they walk over the token's rows: each row is moved in pieces of 16 bytes, one a lane. A row of k ends in the
 * token's keys. For a row of q each lane evaluates every eighth term of the bias, the sums over terms are gathered, and
 * each lane makes every eighth column of them. What is a constant of the columns (plan/widen.h) stands in tables, so
 * that the code does not grow with their number.
 */

#include "base/diag.h"
#include "gpu/gradient.h"
#include "gpu/index.h"
#include "gpu/programs.h"
#include "gpu/widen_gains.h"
#include "gpu/widen_rows.h"
#include "mlir/number.h"
#include "plan/widen_gradient.h"

#include "kernel/launch.h"

enum { WARP = 32, PIECE = 16, MOST_SHARED = 48 << 10 };

/* The end of a token's rows of k and then of q: what each token has in shared memory beside its weights. */
enum { KEY_TAIL, QUERY_TAIL, TAILS };

typedef struct widen {
  ir *b;
  const plan_widen *p;
  const widen_layout *layout;
  gpu_body *body;
  weight_lanes lanes;
  ir_value valid;         /* i1: the lanes have a token of their own */
  ir_value encoded;       /* i1: the token is; null: all are */
} widen;

/* ---- tails ---- */

static int tail_bytes(const widen_layout *l, int element) { return (l->n_lanes * element + PIECE - 1) / PIECE * PIECE; }

static int element_of(const widen *w) { return w->body->entry->tile->element; }

/* A number of a lane in the rows' type: rounded, or what rounding took from it. */
static ir_value part_of(widen *w, ir_value x, ir_value low) {
  ir *b = w->b;
  row_thread *r = &w->body->rows;
  if (element_of(w) == 4) return x;
  ir_value high = emit_row_number(r, x);
  if (!w->layout->is_split) return high;
  ir_value back = emit_number_value(b, r->native, r->dtype, high);
  return ir_select(b, ir_compare_int(b, "ne", low, i32(b, 0)), emit_row_number(r, sub(b, x, back)), high);
}

/* Lane `index` of a tail; tokens that are not encoded have zeros. */
static void store_part(widen *w, int tail, ir_value index, ir_value x, const char *low) {
  ir *b = w->b;
  if (w->encoded.ptr) x = ir_select(b, w->encoded, x, ir_float(b, b->f32, 0));
  ir_value flag = w->layout->is_split ? weight_table_i32(&w->lanes, low, index) : (ir_value){NULL};
  ir_value at =
      weight_rest_at(&w->lanes, (int64_t)tail * tail_bytes(w->layout, element_of(w)), scaled(b, index, element_of(w)));
  ir_store(b, part_of(w, x, flag), at, element_of(w), false);
}

/* Lays the monomials of the token's coordinates less the origin, by its first lane. */
static void lay_monomials(widen *w) {
  ir *b = w->b;
  two_float place[SPEC_MAX_AXES];
  ir_branch first = ir_if(b, ir_compare_int(b, "eq", w->lanes.lane, i32(b, 0)));
  widen_load_place(w->body, w->body->parameter + gpu_parameters(w->p->spec), place);
  weight_lay_monomials(&w->lanes, place);
  ir_end_if(b, first);
}

/* All evals of a token. */
static void lay_token(void *context, const program_op *op) {
  widen *w = context;
  weight_lanes *l = &w->lanes;
  (void)op;
  lay_monomials(w);
  ir_wait(w->b, IR_BARRIER_WARP);
  weight_lay_gains(l);
  lane_turns keys = begin_turns(l, w->layout->n_lanes);
  store_part(w, KEY_TAIL, keys.index,
             weight_sum_at(l, &l->tables.keys, weight_table_i32(l, "lane_columns", keys.index)), "lane_low_keys");
  end_turns(l, keys);
}

static void lay_weights(widen *w, ir_value head) {
  weight_lanes *l = &w->lanes;
  gpu_body *t = w->body;
  const ir_value *inputs = t->parameter + pegen_ptx_inputs(PEGEN_PTX_OPERANDS, w->p->spec->n_operands);
  emit_thread_inputs(l->exprs, inputs, t->owner.batch, t->owner.token, head, t->entry->dtype);
  t->exprs.head = head;
  weight_lay_weights(l);
}

static void lay_columns(widen *w) {
  weight_lanes *l = &w->lanes;
  lane_turns turns = begin_turns(l, w->layout->n_lanes);
  store_part(w, QUERY_TAIL, turns.index, weight_column(l, weight_table_i32(l, "lane_columns", turns.index)),
             "lane_low_queries");
  end_turns(l, turns);
}

/* ---- rows ---- */

static void move_tail(widen *w, const row_place *place, ir_value is_k, ir_value valid) {
  ir *b = w->b;
  int access = w->body->entry->access, element = element_of(w);
  ir_value tail = ir_offset_const(b, place->out, (int64_t)w->p->spec->head_dim * element);
  ir_value from = ir_select(b, is_k, i32(b, 0), i32(b, tail_bytes(w->layout, element)));
  ir_branch exists = ir_if(b, valid);
  lane_turns t = begin_turns(&w->lanes, w->layout->n_lanes * element / access);
  ir_value at = scaled(b, t.index, access);
  ir_store(b, ir_load(b, widen_piece_type(w->body), weight_rest_at(&w->lanes, 0, add(b, from, at)), access),
           ir_offset(b, tail, wide(b, at)), access, false);
  end_turns(&w->lanes, t);
  ir_end_if(b, exists);
}

/* What a row of q has beside what all rows have, which are moved with a tail. */
static void lay_query(widen *w, ir_value head) {
  for (const program_op *op = program_row_ops(w->body->program, PART_Q); op; op = op->next) switch (op->kind) {
    case OP_LOAD:
    case OP_STORE:
    case OP_EVAL: break; /* summed as it is computed */
    case OP_SUM: lay_weights(w, head); break;
    case OP_COLUMNS: lay_columns(w); break;
    default: diag_bug("gpu/widen", "'%s' in a row", program_op_word(op->kind));
    }
}

/* All lanes of a warp are at the same row of their tokens. */
static void walk_rows(void *context, const program_op *ops) {
  widen *w = context;
  ir_value valid = w->valid;
  ir *b = w->b;
  if (ops == program_row_ops(w->body->program, PART_K)) return; /* rows of k follow those of q in one loop */
  gpu_body *t = w->body;
  row_origin origin = emit_row_origin(&t->rows, &t->owner, i64(b, 0));
  ir_value of_q = ir_cast(b, "arith.trunci", t->parameter[PEGEN_PTX_Q + PEGEN_PTX_TENSOR_HEADS], b->i32), row;
  ir_loop loop = gpu_begin_rows(t, &row);
  row_place place = emit_row_place(&t->rows, &origin, row);
  ir_value is_k = ir_compare_int(b, "sge", row, of_q);
  widen_move_row(t, &w->lanes, &place, valid);
  ir_branch queries = ir_if(b, ir_compare_int(b, "slt", row, of_q));
  lay_query(w, row);
  ir_end_if(b, queries);
  ir_wait(b, IR_BARRIER_WARP);
  move_tail(w, &place, is_k, valid);
  ir_end_for(b, loop);
}

/* ---- entries ---- */

static void emit_widen(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native,
                       bool host) {
  const plan_widen *p = program_widen_plan(program->encode);
  const widen_layout *layout = &p->layout[entry->dtype];
  gpu_body t = gpu_open(b, a, p->values, false, entry, native, host);
  widen w = {.b = b, .p = p, .layout = layout, .body = &t, .lanes = widen_lanes_of(&t, p)};
  weight_lanes *l = &w.lanes;
  l->rest = TAILS * tail_bytes(layout, entry->tile->element);
  l->tables = widen_tables_make(a, p, layout);
  widen_tables_emit(b, a, &l->tables, entry->name);
  /* Rows are heads in any case: what differs among them is made row by row. */
  t.rows.exprs = l->exprs = &t.exprs;
  const char *memory = arena_printf(a, "%s_tokens", entry->name);
  ir_shared(b, memory, (int64_t)(PEGEN_PTX_BLOCK / l->lanes) * weight_token_bytes(p, &l->tables, l->lanes, l->rest));
  l->shared = ir_shared_address(b, memory);
  w.valid = widen_own(&t, l);
  t.program = program->encode;
  w.encoded = gpu_is_encoded(&t);
  gpu_owner_walk walk = {lay_token, walk_rows, &w};
  gpu_walk_owner(&t, &walk, gpu_tokens(t.program, PART_ENCODED)->body);
  ir_return(b);
}

static bool add_entries(arena *a, gpu_program *program, const plan_widen *p, int dtype) {
  const spec *s = p->spec;
  const widen_layout *l = &p->layout[dtype];
  widen_tables tables = widen_tables_make(a, p, l);
  int element = number_bytes(dtype), lanes = weight_lanes_of(p, &tables, TAILS * tail_bytes(l, element), MOST_SHARED);
  if (!lanes) {
    diag_error(s->file, s->line,
               "kernels of this kind are made for processors only: %d columns with %d gains do not fit in a GPU's "
               "shared memory; expected a lower degree, or --target x86-64-v3 or the like",
               p->n_columns, tables.n_gains);
    return false;
  }
  gpu_entry like = {.of = PEGEN_LAUNCH_encode, .dtype = dtype};
  program->n_entries += widen_row_entries(a, p, &like, lanes, program->entry + program->n_entries);
  return true;
}

/* ---- gradients of rows: channels that were moved move back, by the lanes of a token as they came ---- */

/* What a row has of 16 bytes, 8 of 16 bits at 64 channels: neighbours are side by side. */
enum { LANES_BACK = 8 };

static void emit_back(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  const plan_widen *p = program_widen_plan(program->encode);
  gpu_body t = gpu_open(b, a, p->values, false, entry, native, host);
  weight_lanes l = widen_lanes_of(&t, p);
  t.rows.exprs = &t.exprs;
  ir_value valid = widen_own(&t, &l), row;
  row_origin origin = emit_row_origin(&t.rows, &t.owner, i64(b, 0));
  ir_loop loop = gpu_begin_rows(&t, &row);
  row_place place = emit_row_place(&t.rows, &origin, row);
  widen_move_row(&t, &l, &place, valid);
  ir_end_for(b, loop);
  ir_return(b);
}

static void add_back_entries(arena *a, gpu_program *program, const plan_widen *p, unsigned dtypes) {
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype)) continue;
    gpu_entry like = {.of = PEGEN_LAUNCH_encode_backward, .dtype = dtype, .emit = emit_back};
    program->n_entries += widen_row_entries(a, p, &like, LANES_BACK, program->entry + program->n_entries);
  }
}

static void add_gradients(arena *a, gpu_program *program, const plan_widen *p, unsigned dtypes) {
  const plan_gradient *of = plan_widen_gradient(a, p);
  add_back_entries(a, program, p, dtypes);
  int count = gpu_widen_gain_entries(a, p, of, dtypes, program->entry + program->n_entries);
  program->n_entries += count;
  if (count == 0) return;
  program->has_columns = true;
  program->queries_differ = p->values->per_head;
  program->of = plan_gradient_row_of(a, of);
  gpu_add_finishing(a, program);
}

const gpu_program *gpu_widen_program(arena *a, const program *encode, unsigned dtypes, bool gradients) {
  const plan_widen *p = program_widen_plan(encode);
  gpu_program *program = arena_new(a, gpu_program);
  *program = (gpu_program){.spec = p->spec, .encode = encode, .emit = emit_widen};
  program->summary = arena_printf(a, "%d terms of a bias, %d columns.", p->spec->n_blocks, p->n_columns);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    if (dtypes & 1u << dtype && !add_entries(a, program, p, dtype)) return NULL;
  if (gradients) add_gradients(a, program, p, dtypes);
  return program;
}

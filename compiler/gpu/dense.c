/* gpu/dense: see gpu/dense.h. */
#include "gpu/dense.h"

#include "base/diag.h"
#include "base/number.h"
#include "gpu/body.h"
#include "gpu/index.h"
#include "gpu/matrix_gradient.h"
#include "gpu/schedule.h"

#include "kernel/launch.h"

enum { WARP = 32, WARPS = PEGEN_PTX_BLOCK / WARP, MOST_SIZE = 8, MOST_COEFFICIENTS = 64, MOST_SHARED = 48 << 10 };

/* M / 2^s has a norm below 1/2: what TERMS of the series leave out is below 2^-50 of it. 2^40 is more than
 * the largest sum of angles that means anything. */
enum { TERMS = 13, MOST_SQUARINGS = 40 };

typedef struct dense {
  arena *memory;
  const program_op *matrix, *angles, *apply;
  const program_blocks *blocks;
  const expr **generator; /* [skew matrices]: a leaf with the offsets of the raw ones */
  int size, teams, slots; /* channels of a block; blocks at a time; times */
  gpu_body *body;
  stage stage;
  ir *b;
  ir_value owner, owners; /* i32: of the warp, of the launch */
  ir_value team, row;     /* i32: of the lane */
  ir_value encoded;        /* i1: the token is; null: all are */
  ir_value coefficient[MOST_COEFFICIENTS]; /* [slots][size]: the lane's row of every block */
} dense;

static ir_value least(ir *b, ir_value x, int64_t most) {
  return ir_select(b, ir_compare_int(b, "slt", x, i32(b, most)), x, i32(b, most));
}
static ir_value greater(ir *b, const char *compare, ir_value x, ir_value y) {
  return ir_select(b, ir_compare_float(b, compare, x, y), x, y);
}

/* ---- shared memory: the stage's rows, then these arrays ---- */

/* Bytes from lane to lane: an odd number of pairs, so that lanes side by side meet different banks. */
static int lane_bytes(int size) { return (size | 1) * TWO_FLOAT_BYTES; }

enum { NORMS, GENERATOR, POWER, MATRIX, ARRAYS };

static int array_bytes(int size, int slots, int array) {
  static const int lanes = WARP;
  return array == NORMS ? lanes * 4 : array == MATRIX ? lanes * 4 * size * slots : lanes * lane_bytes(size);
}

static int64_t scratch_bytes(int size, int slots) {
  int64_t bytes = 0;
  for (int i = 0; i < ARRAYS; i++) bytes += array_bytes(size, slots, i);
  return bytes;
}

/* Byte `at` (i32) of an array of the warp. */
static ir_value scratch(dense *d, int array, ir_value at) {
  ir *b = d->b;
  int64_t base = 0;
  for (int i = 0; i < array; i++) base += array_bytes(d->size, d->slots, i);
  ir_value memory = ir_shared_address(b, arena_printf(d->memory, "%s_scratch", d->body->entry->name));
  return ir_offset(
      b, memory, wide(b, add(b, add(b, scaled(b, d->stage.warp, scratch_bytes(d->size, d->slots)), i32(b, base)), at)));
}

static ir_value lane_row(dense *d, int array, ir_value lane) {
  return scratch(d, array, scaled(d->b, lane, lane_bytes(d->size)));
}

static two_float load_entry(dense *d, ir_value row, int column) {
  return two_float_load(d->b, ir_offset_const(d->b, row, (int64_t)column * TWO_FLOAT_BYTES));
}

static void store_entry(dense *d, ir_value row, int column, two_float x) {
  two_float_store(d->b, x, ir_offset_const(d->b, row, (int64_t)column * TWO_FLOAT_BYTES));
}

/* ---- forming ---- */

static two_float whole(dense *d, two_float x) {
  return x.lo.ptr ? two_float_add(d->b, two_float_f32(x.hi), two_float_f32(x.lo)) : x;
}

/* Adds angle times what the raw matrix gives to row `row` of the generator: its own row, or less its column. One after
 * the other, because both together are more registers than a thread has to spare. */
static void add_side(dense *d, int which, int side, ir_value first, two_float angle, two_float *sum) {
  ir *b = d->b;
  const spec_skew *g = &d->matrix->skew.of[which];
  int n = d->size;
  ir_value offset[MOST_SIZE];
  two_float raw[MOST_SIZE], zero = two_float_f32(ir_float(b, b->f32, 0));
  for (int j = 0; j < n; j++)
    offset[j] = side ? add(b, first, add(b, d->row, i32(b, (int64_t)j * n)))
                     : add(b, first, add(b, scaled(b, d->row, n), i32(b, j)));
  emit_thread_elements(&d->body->exprs, g->operand, n, offset, raw);
  for (int j = 0; j < n; j++) {
    const char *counts = g->rule == SKEW_DIFFERENCE ? "ne" : side ? "sgt" : "slt";
    two_float value = two_float_select(b, ir_compare_int(b, counts, d->row, i32(b, j)), raw[j], zero);
    value = two_float_mul(b, angle, (side != 0) != d->apply->transposed ? two_float_neg(b, value) : value);
    sum[j] = which || side ? two_float_add(b, sum[j], value) : value;
  }
}

/* Row `row` of the block's sum of angle times generator, turned round where it is applied transposed. */
static void sum_generators(dense *d, two_float *sum) {
  thread_emitter *e = &d->body->exprs;
  int count = d->matrix->skew.count;
  emit_thread_operands(e, (const expr **)d->angles->expr, count);
  for (int i = 0; i < count; i++) {
    ir_value first = emit_thread_offset(e, d->generator[i], 0);
    two_float angle = emit_thread_value(e, d->angles->expr[i], 0);
    for (int side = 0; side < 2; side++) add_side(d, i, side, first, angle, sum);
  }
}

/* Squarings that bring a norm below 1/2: its exponent and two more, none for what is small. */
static ir_value squarings(dense *d, ir_value norm) {
  ir *b = d->b;
  ir_value exponent = ir_op2(b, "arith.shrui", ir_cast(b, "arith.bitcast", norm, b->i32), i32(b, 23));
  ir_value count = sub(b, exponent, i32(b, 127 - 2));
  return least(b, ir_select(b, ir_compare_int(b, "slt", count, i32(b, 0)), i32(b, 0), count), MOST_SQUARINGS);
}

/* The largest sum of a row's magnitudes in the lane's own block, and of all in the warp. */
static void share_norms(dense *d, const two_float *sum, ir_value *own, ir_value *all) {
  ir *b = d->b;
  ir_value norm = ir_op1(b, "math.absf", sum[0].hi);
  for (int j = 1; j < d->size; j++) norm = add(b, norm, ir_op1(b, "math.absf", sum[j].hi));
  ir_store(b, norm, scratch(d, NORMS, scaled(b, d->stage.lane, 4)), 4, false);
  ir_wait(b, IR_BARRIER_WARP);
  *own = *all = norm;
  ir_value first = scaled(b, d->team, (int64_t)d->size * 4);
  for (int j = 0; j < d->size; j++)
    *own = greater(b, "ogt", ir_load(b, b->f32, scratch(d, NORMS, add(b, first, i32(b, j * 4))), 4), *own);
  for (int lane = 0; lane < d->teams * d->size; lane++)
    *all = greater(b, "ogt", ir_load(b, b->f32, scratch(d, NORMS, i32(b, lane * 4)), 4), *all);
}

/* row [size] times the block's matrix in `array`: what every lane of the block has put there. */
static void times(dense *d, const two_float *row, int array, two_float *product) {
  ir *b = d->b;
  ir_value first = scaled(b, d->team, d->size);
  for (int k = 0; k < d->size; k++) {
    ir_value other = lane_row(d, array, add(b, first, i32(b, k)));
    for (int j = 0; j < d->size; j++) {
      two_float term = two_float_mul_loosely(b, row[k], load_entry(d, other, j));
      product[j] = k ? two_float_add_loosely(b, product[j], term) : term;
    }
  }
  for (int j = 0; j < d->size; j++) product[j] = whole(d, product[j]);
}

static void load_row(dense *d, ir_value own, two_float *row) {
  for (int j = 0; j < d->size; j++) row[j] = load_entry(d, own, j);
}

static void store_row(dense *d, ir_value own, const two_float *row) {
  for (int j = 0; j < d->size; j++) store_entry(d, own, j, row[j]);
}

/* exp(M / 2^s), row by row: r <- e_i + r M / k from the last term to the first. A lane touches its own row alone. */
static void sum_series(dense *d, ir_value own) {
  ir *b = d->b;
  two_float row[MOST_SIZE], product[MOST_SIZE];
  float inverse[2 * TERMS];
  for (int k = 0; k < TERMS; k++) two_float_split(1.0 / (TERMS - k), &inverse[2 * k], &inverse[2 * k + 1]);
  const char *table = arena_printf(d->memory, "%s_terms", d->body->entry->name);
  ir_table(b, table, 2 * TERMS, inverse, NULL);
  two_float one = two_float_const(b, 1), none = {.hi = ir_float(b, b->f32, 0), .lo = {NULL}};
  for (int j = 0; j < d->size; j++) row[j] = two_float_select(b, ir_compare_int(b, "eq", d->row, i32(b, j)), one, none);
  store_row(d, own, row);
  ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, TERMS));
  ir_value term = narrow(b, loop.index);
  two_float factor =
      two_float_load(b, ir_offset(b, ir_table_address(b, table), wide(b, scaled(b, term, TWO_FLOAT_BYTES))));
  load_row(d, own, row);
  times(d, row, GENERATOR, product);
  for (int j = 0; j < d->size; j++) {
    two_float unit = two_float_select(b, ir_compare_int(b, "eq", d->row, i32(b, j)), one, none);
    product[j] = two_float_add(b, unit, two_float_mul(b, product[j], factor));
  }
  store_row(d, own, product);
  ir_end_for(b, loop);
}

/* Squares as often as any block of the warp needs; a block that is done keeps its matrix. */
static void square(dense *d, ir_value own, ir_value count, ir_value most) {
  ir *b = d->b;
  two_float row[MOST_SIZE], product[MOST_SIZE];
  ir_wait(b, IR_BARRIER_WARP);
  ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), ir_cast(b, "arith.extsi", most, b->i64));
  load_row(d, own, row);
  times(d, row, POWER, product);
  ir_value more = ir_compare_int(b, "slt", ir_cast(b, "arith.trunci", loop.index, b->i32), count);
  for (int j = 0; j < d->size; j++) product[j] = two_float_select(b, more, product[j], row[j]);
  ir_wait(b, IR_BARRIER_WARP); /* all have read */
  store_row(d, own, product);
  ir_wait(b, IR_BARRIER_WARP); /* all have written */
  ir_end_for(b, loop);
}

static ir_value block_of(dense *d, ir_value slot) {
  ir *b = d->b;
  return least(b, add(b, scaled(b, slot, d->teams), d->team), d->blocks->count - 1);
}

/* The lane's row of its blocks' matrices, one block after the other, into MATRIX. */
static void make_matrices(void *context, const program_op *op) {
  dense *d = context;
  ir *b = d->b;
  two_float sum[MOST_SIZE], row[MOST_SIZE];
  double amplitude = op->skew.factor;
  ir_value own_norm, all_norm;
  gpu_load_positions(d->body);
  ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, d->slots));
  ir_value slot = ir_cast(b, "arith.trunci", loop.index, b->i32);
  d->body->exprs.unit = block_of(d, slot);
  sum_generators(d, sum);
  share_norms(d, sum, &own_norm, &all_norm);
  ir_value count = squarings(d, own_norm), most = squarings(d, all_norm);
  ir_value factor =
      ir_cast(b, "arith.bitcast", ir_op2(b, "arith.shli", sub(b, i32(b, 127), count), i32(b, 23)), b->f32);
  for (int j = 0; j < d->size; j++) {
    row[j].hi = mul(b, sum[j].hi, factor);
    row[j].lo = sum[j].lo.ptr ? mul(b, sum[j].lo, factor) : ir_float(b, b->f32, 0);
  }
  store_row(d, lane_row(d, GENERATOR, d->stage.lane), row);
  ir_wait(b, IR_BARRIER_WARP);
  ir_value own = lane_row(d, POWER, d->stage.lane);
  sum_series(d, own);
  square(d, own, count, most);
  ir_value at = add(b, scaled(b, slot, (int64_t)WARP * 4 * d->size), scaled(b, d->stage.lane, 4LL * d->size));
  for (int j = 0; j < d->size; j++) {
    two_float x = load_entry(d, own, j);
    ir_value value = add(b, x.hi, x.lo);
    if (amplitude != 1) value = mul(b, value, ir_float(b, b->f32, amplitude));
    ir_store(b, value, ir_offset_const(b, scratch(d, MATRIX, at), 4LL * j), 4, false);
  }
  ir_end_for(b, loop);
  for (int s = 0; s < d->slots; s++)
    for (int j = 0; j < d->size; j++) {
      ir_value from = add(b, scaled(b, d->stage.lane, 4LL * d->size), i32(b, (int64_t)s * WARP * 4 * d->size));
      d->coefficient[s * d->size + j] = ir_load(b, b->f32, ir_offset_const(b, scratch(d, MATRIX, from), 4LL * j), 4);
    }
}

/* ---- applying ---- */

/* Bytes into a row of component j of the lane's block in `slot`. */
static ir_value channel_at(dense *d, int slot, int j) {
  d->body->exprs.unit = block_of(d, i32(d->b, slot));
  return scaled(d->b, emit_thread_index(&d->body->exprs, d->blocks->channel + (int64_t)j * d->blocks->count),
                d->body->entry->tile->element);
}

/* Component `row` of the lane's block in `slot`. */
static ir_value own_channel_at(dense *d, int slot) {
  ir *b = d->b;
  ir_value at = channel_at(d, slot, 0);
  for (int j = 1; j < d->size; j++)
    at = ir_select(b, ir_compare_int(b, "eq", d->row, i32(b, j)), channel_at(d, slot, j), at);
  return at;
}

/* Bytes of shared memory that are read together: 16 where blocks are made of those, fewer as a block, its place and a
 * row of shared memory demand. Lanes of one block read the same bytes. */
static int read_bytes(const dense *d) {
  int element = d->body->entry->tile->element, bytes = THREAD_PIECE;
  if (!gpu_has_neighbours(d->blocks)) return element;
  while ((d->size | d->blocks->channel[0] | d->body->p->spec->head_dim) * element % bytes) bytes /= 2;
  return bytes;
}

/* The channels of the lane's block in `slot` of a row. */
static void load_block(dense *d, int slot, int row, ir_value *x) {
  int bytes = read_bytes(d), element = d->body->entry->tile->element;
  row_thread reader = *d->stage.rows;
  ir_value raw[1];
  row_place place = {.raw = raw};
  reader.t = thread_tile_of_blocks(d->memory, 0, element, bytes);
  for (int j = 0; j < d->size; j += bytes / element) {
    place.in = ir_offset_const(d->b, stage_address(&d->stage, channel_at(d, slot, j)),
                               (int64_t)row * d->body->entry->tile->pitch);
    emit_row_load(&reader, &place);
    emit_row_unpack(&reader, &place, x + j);
  }
}

/* The lane's component of its blocks in every row: all are read before any is written. */
static void apply(stage *s, void *context) {
  dense *d = context;
  ir *b = d->b;
  int rows = s->flight, pitch = d->body->entry->tile->pitch;
  ir_value *sums = arena_array(d->memory, ir_value, rows * d->slots);
  for (int row = 0; row < rows; row++)
    for (int slot = 0; slot < d->slots; slot++) {
      ir_value sum = {NULL}, x[MOST_SIZE];
      load_block(d, slot, row, x);
      for (int j = 0; j < d->size; j++) {
        ir_value c = d->coefficient[slot * d->size + j];
        sum = j ? ir_fma(b, c, x[j], sum) : mul(b, c, x[j]);
      }
      sums[row * d->slots + slot] = sum;
    }
  ir_wait(b, IR_BARRIER_WARP);
  ir_branch branch;
  if (d->encoded.ptr) branch = ir_if(b, d->encoded);
  for (int slot = 0; slot < d->slots; slot++) {
    ir_value at = stage_address(s, own_channel_at(d, slot));
    for (int row = 0; row < rows; row++)
      ir_store(b, emit_row_number(s->rows, sums[row * d->slots + slot]), ir_offset_const(b, at, (int64_t)row * pitch),
               d->body->entry->tile->element, false);
  }
  if (d->encoded.ptr) ir_end_if(b, branch);
}

/* ---- entries ---- */

/* Blocks that a lane has, one after the other. */
static int slots_of(const program_blocks *blocks) {
  int teams = WARP / blocks->size;
  return (blocks->count + teams - 1) / teams;
}

/* Rows of an owner, the first of the warp: all that there are. */
static void emit_rows(void *context, const program_op *ops) {
  dense *d = context;
  ir *b = d->b;
  ir_value row;
  (void)ops; /* one apply */
  stage_begin(&d->stage, d->owner, d->owners, gpu_owner_of, d->body);
  ir_loop loop = gpu_begin_rows(d->body, &row);
  stage_rows(&d->stage, row, d->body->end);
  ir_end_for(b, loop);
}

static dense dense_of(arena *a, const program *encode) {
  dense d = {.memory = a, .apply = program_encoded_apply(encode)};
  d.matrix = encode->value[d.apply->argument[0]].maker;
  d.angles = encode->value[d.matrix->argument[0]].maker;
  d.blocks = &d.matrix->blocks;
  d.size = d.blocks->size;
  d.teams = WARP / d.size;
  d.slots = slots_of(d.blocks);
  d.generator = arena_array(a, const expr *, d.matrix->skew.count);
  gpu_generators(encode, &d.matrix->skew, d.generator);
  return d;
}

static void emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  if (entry->kind != GPU_ROWS) {
    gpu_emit_matrix_gradient(b, a, program, entry, native, host);
    return;
  }
  const struct program *turns = gpu_entry_program(program, entry);
  dense d = dense_of(a, turns);
  d.b = b;
  gpu_body t = gpu_open(b, a, d.matrix->plan, program->per_head, entry, native, host);
  t.program = gpu_schedule(a, turns);
  t.rows.exprs = &t.exprs;
  d.body = &t;
  d.stage = (stage){.rows = &t.rows,
                    .encode = apply,
                    .context = &d,
                    .piece = entry->access,
                    .memory = arena_printf(a, "%s_rows", entry->name),
                    .flight = entry->flight};
  ir_shared(b, d.stage.memory, stage_bytes(t.p, entry->tile, entry->access, WARPS));
  ir_shared(b, arena_printf(a, "%s_scratch", entry->name), WARPS * scratch_bytes(d.size, d.slots));
  d.stage.warp = ir_op2(b, "arith.divui", t.thread, i32(b, WARP));
  d.stage.lane = ir_op2(b, "arith.remui", t.thread, i32(b, WARP));
  /* Lanes that are left over do what the first of the last block do, with scratch of their own. */
  d.team = least(b, ir_op2(b, "arith.divui", d.stage.lane, i32(b, d.size)), d.teams - 1);
  d.row = ir_op2(b, "arith.remui", d.stage.lane, i32(b, d.size));
  d.owners = gpu_owners(&t);
  d.owner = add(b, scaled(b, t.block, WARPS), d.stage.warp);
  ir_branch inside = ir_if(b, ir_compare_int(b, "ult", d.owner, d.owners));
  gpu_range(&t);
  gpu_set_owner(&t, d.team, d.owner);
  d.encoded = gpu_is_encoded(&t);
  t.rows.streams = row_streams(b, t.parameter);
  gpu_owner_walk walk = {make_matrices, emit_rows, &d};
  gpu_walk_owner(&t, &walk, gpu_tokens(t.program, PART_ENCODED)->body);
  ir_end_if(b, inside);
  ir_return(b);
}

static const thread_tile *make_tile(arena *a, const program_blocks *blocks, int channels, int element) {
  thread_tile *t = thread_tile_of_blocks(a, blocks->count, element, element);
  t->owners = 1;
  t->pitch = channels * element;
  return t;
}

/* A warp's matrices and rows, of the widest numbers. */
bool gpu_dense_fits(arena *a, const program *encode) {
  const program_op *matrix = encode->value[program_encoded_apply(encode)->argument[0]].maker;
  int size = matrix->blocks.size, slots = size <= MOST_SIZE ? slots_of(&matrix->blocks) : 0;
  bool is_exp = matrix->skew.source == SOURCE_EXP || matrix->skew.source == SOURCE_SCHUR; /* whose basis is free */
  if (!is_exp || size > MOST_SIZE || slots * size > MOST_COEFFICIENTS) return false;
  const thread_tile *tile = make_tile(a, &matrix->blocks, encode->spec->head_dim, 4);
  int64_t rows = stage_bytes(matrix->plan, tile, tile->element, WARPS),
          wide_rows = stage_bytes(matrix->plan, tile, THREAD_PIECE, WARPS);
  return WARPS * scratch_bytes(size, slots) + (rows > wide_rows ? rows : wide_rows) <= MOST_SHARED;
}

static void add_entry(gpu_program *program, pegen_launch_entry of, const char *name, int dtype, const thread_tile *tile,
                      int access) {
  program->entry[program->n_entries++] =
      (gpu_entry){.name = name,
                  .of = of,
                  .dtype = dtype,
                  .access = access,
                  .tile = tile,
                  .flight = stage_flight(program_plan(program->encode), tile, access),
                  .blocks = 1};
}

static void add_entries(arena *a, gpu_program *program, const program_blocks *blocks, pegen_launch_entry of,
                        unsigned dtypes) {
  const spec *s = program->spec;
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype)) continue;
    const thread_tile *tile = make_tile(a, blocks, s->head_dim, number_bytes(dtype));
    const char *name = arena_printf(a, "%s_%s_%s", s->name, pegen_launch_word(of), number_name(dtype));
    if (s->head_dim * tile->element % THREAD_PIECE) add_entry(program, of, name, dtype, tile, tile->element);
    else {
      add_entry(program, of, name, dtype, tile, THREAD_PIECE);
      add_entry(program, of, arena_printf(a, "%s_narrow", name), dtype, tile, tile->element);
    }
  }
}

const gpu_program *gpu_dense_program(arena *a, const program *encode, const program *backward, unsigned dtypes) {
  const program_value *matrix = &encode->value[program_encoded_apply(encode)->argument[0]];
  const program_blocks *blocks = &matrix->maker->blocks;
  gpu_program *program = arena_new(a, gpu_program);
  *program = (gpu_program){.spec = encode->spec,
                           .encode = encode,
                           .per_head = matrix->spaces & IN(HEADS),
                           .backward = backward,
                           .operations = blocks->size * blocks->size,
                           .emit = emit};
  add_entries(a, program, blocks, PEGEN_LAUNCH_encode, dtypes);
  if (backward) add_entries(a, program, blocks, PEGEN_LAUNCH_encode_backward, dtypes);
  gpu_add_matrix_gradients(a, program, dtypes);
  return program;
}

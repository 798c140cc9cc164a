/* gpu/dense: dense blocks on a GPU: exp(sum_a theta_a A_a), formed and applied by the lanes of a warp.
 *
 * A warp has one token (and head, where heads differ). b lanes have a block: lane i forms row i of its matrix, in
 * two-float arithmetic by scaling and squaring, with the other rows in shared memory, and then multiplies that row with
 * the block's channels in every row of q and k, which are staged (gpu/staged_rows). Blocks beyond the 32 / b that a
 * warp has lanes for come after one another. No table: what forming costs is paid once a token, by all lanes.
 */

#include "base/number.h"
#include "gpu/body.h"
#include "gpu/index.h"
#include "gpu/matrix_gradient.h"
#include "gpu/programs.h"
#include "gpu/schedule.h"
#include "gpu/warp_exponential.h"

#include "kernel/launch.h"

enum {
  WARP = WARP_LANES,
  WARPS = PEGEN_PTX_BLOCK / WARP,
  MOST_SIZE = WARP_MOST_SIZE,
  MOST_COEFFICIENTS = 64,
  MOST_SHARED = 48 << 10
};

typedef struct dense {
  arena *memory;
  warp_exponential exponential;
  const program_op *apply;
  const program_blocks *blocks;
  int size, slots; /* channels of a block; blocks that a lane has, one after the other */
  gpu_body *body;
  stage stage;
  ir *b;
  ir_value owner, owners; /* i32: of the warp, of the launch */
  ir_value encoded;        /* i1: the token is; null: all are */
  ir_value coefficient[MOST_COEFFICIENTS]; /* [slots][size]: the lane's row of every block */
} dense;

/* ---- forming ---- */

/* Returns the bytes of a warp's matrices: its lanes' rows of all of its blocks. */
static int64_t matrix_bytes(int size, int slots) { return (int64_t)WARP * 4 * size * slots; }

/* The lane's row of its blocks' matrices, one block after the other, into MATRIX. */
static void make_matrices(void *context, const program_op *op) {
  dense *d = context;
  warp_exponential *x = &d->exponential;
  ir *b = d->b;
  double amplitude = op->skew.factor;
  gpu_load_positions(d->body);
  ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, d->slots));
  ir_value slot = ir_cast(b, "arith.trunci", loop.index, b->i32);
  d->body->exprs.unit = warp_block(x, slot);
  emit_thread_operands(&d->body->exprs, (const expr **)x->angles->expr, x->matrix->skew.count);
  warp_squarings squarings = warp_exponential_begin(x);
  warp_exponential_end(x, &squarings, NULL, NULL);
  ir_value own = warp_row(x, WARP_POWER, d->stage.lane);
  ir_value at = add(b, scaled(b, slot, (int64_t)WARP * 4 * d->size), scaled(b, d->stage.lane, 4LL * d->size));
  for (int j = 0; j < d->size; j++) {
    two_float entry = warp_entry(x, own, j);
    ir_value value = add(b, entry.hi, entry.lo);
    if (amplitude != 1) value = mul(b, value, ir_float(b, b->f32, amplitude));
    ir_store(b, value, ir_offset_const(b, warp_more(x, at), 4LL * j), 4, false);
  }
  ir_end_for(b, loop);
  for (int s = 0; s < d->slots; s++)
    for (int j = 0; j < d->size; j++) {
      ir_value from = add(b, scaled(b, d->stage.lane, 4LL * d->size), i32(b, (int64_t)s * WARP * 4 * d->size));
      d->coefficient[s * d->size + j] = ir_load(b, b->f32, ir_offset_const(b, warp_more(x, from), 4LL * j), 4);
    }
}

/* ---- applying ---- */

/* Bytes into a row of component j of the lane's block in `slot`. */
static ir_value channel_at(dense *d, int slot, int j) {
  d->body->exprs.unit = warp_block(&d->exponential, i32(d->b, slot));
  return scaled(d->b, emit_thread_index(&d->body->exprs, d->blocks->channel + (int64_t)j * d->blocks->count),
                d->body->entry->tile->element);
}

/* Component `row` of the lane's block in `slot`. */
static ir_value own_channel_at(dense *d, int slot) {
  ir *b = d->b;
  ir_value at = channel_at(d, slot, 0);
  for (int j = 1; j < d->size; j++)
    at = ir_select(b, ir_compare_int(b, "eq", d->exponential.row, i32(b, j)), channel_at(d, slot, j), at);
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
  dense d = {.memory = a, .exponential = warp_exponential_of(a, encode)};
  d.apply = d.exponential.apply;
  d.blocks = d.exponential.blocks;
  d.size = d.exponential.size;
  d.slots = d.exponential.slots;
  return d;
}

static void emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  const struct program *turns = gpu_entry_program(program, entry);
  dense d = dense_of(a, turns);
  d.b = b;
  gpu_body t = gpu_open(b, a, d.exponential.matrix->plan, program->per_head, entry, native, host);
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
  warp_exponential *x = &d.exponential;
  x->b = b;
  x->name = entry->name;
  x->exprs = &t.exprs;
  x->more = matrix_bytes(d.size, d.slots);
  warp_open(x, WARPS, t.thread);
  d.stage.warp = x->warp;
  d.stage.lane = x->lane;
  d.owners = gpu_owners(&t);
  d.owner = add(b, scaled(b, t.block, WARPS), d.stage.warp);
  ir_branch inside = ir_if(b, ir_compare_int(b, "ult", d.owner, d.owners));
  gpu_range(&t);
  gpu_set_owner(&t, x->team, d.owner);
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
  return WARPS * warp_scratch_bytes(size, matrix_bytes(size, slots)) + (rows > wide_rows ? rows : wide_rows) <=
         MOST_SHARED;
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

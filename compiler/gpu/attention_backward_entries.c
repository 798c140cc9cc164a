/* gpu/attention_backward_entries: which entries gradients of attention have and the shape of their tiles; see
 * gpu/attention_backward.h. */
#include "gpu/attention_backward.h"
#include "gpu/mma.h"

#include "kernel/launch.h"

enum {
  BANKS = 32,
  TEAMS = PEGEN_PTX_BLOCK / ATTEND_LANES,
  SHARED_BYTES = 48 << 10,
  SMALL = 64,     /* bytes of what is told and of alignment */
  MOST_QUADS = 8, /* of one kind of sums that a thread has in registers */
  FEW_QUADS = 4
};

/* ---- the shape of tiles ---- */

static int pitch_of(int width) { return (width + BANKS - 1) / BANKS * BANKS + ATTEND_QUAD; }

/* The origin, and what columns leave out of the scores of each query. */
int64_t attend_columns_bytes(const attention_plan *p, const attend_shape *t) {
  int most = t->queries > t->keys ? t->queries : t->keys;
  return 8LL * p->spec->n_axes + 4LL * most;
}

/* Of what columns of queries are made in, and where they count from. */
static bool columns_fit(const attention_plan *p, attend_shape *t, int64_t room) {
  arena *a = arena_create();
  room -= attend_columns_bytes(p, t);
  bool fit = attend_columns_fit(a, p, t, room, room);
  arena_destroy(a);
  return fit;
}

/* Of what weights and coordinates gain, when columns are made. */
static int64_t displacement_bytes(const attention_plan *p, const attend_gradient_shape *s) {
  return s->weighs || s->moves ? attend_place_bytes(p) * (s->tile.queries + s->tile.keys) : 0;
}

/* Of the entry of queries or that of keys, whichever has more. */
static int64_t number_bytes_of(const attention_plan *p, const attend_shape *t) {
  int64_t one = attend_number_bytes(p, false, t->queries) + attend_number_bytes(p, true, t->keys),
          other = attend_number_bytes(p, false, t->keys) + attend_number_bytes(p, true, t->queries);
  return one > other ? one : other;
}

static bool fits(const attention_plan *p, attend_gradient_shape *s) {
  attend_shape *t = &s->tile;
  int64_t room = 4LL * t->query_pitch * (2 * t->queries + (s->is_shared ? 1 : 2) * t->keys) +
                 4LL * t->queries * t->score_pitch + 8LL * t->keys + attend_gives_bytes(s, p) +
                 attend_turned_bytes(p, t) + SMALL;
  if (p->score) room += 4LL * t->queries * t->score_pitch;
  if (attend_has_places(p)) room += attend_place_bytes(p) * (t->queries + t->keys);
  room += number_bytes_of(p, t);
  if (attend_has_columns(p) && !columns_fit(p, t, SHARED_BYTES - room)) return false;
  if (attend_has_columns(p)) room += attend_columns_bytes(p, t);
  if (t->scratch < displacement_bytes(p, s)) t->scratch = displacement_bytes(p, s);
  room += t->scratch;
  return room <= SHARED_BYTES && t->rows * s->quads[0] <= MOST_QUADS && t->rows * s->quads[1] <= MOST_QUADS;
}

static attend_gradient_shape shape_of(const attention_plan *p, bool weighs, bool moves) {
  static const int sizes[][2] = {{4, 4}, {2, 4}, {2, 2}, {1, 4}, {1, 2}, {1, 1}}; /* rows and columns of a thread */
  attend_shape columns;
  attend_set_columns(p, &columns);
  int widest = columns.width > p->value_dim ? columns.width : p->value_dim;
  for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++)
    /* What a rotation is made of takes registers, and far more time than loads. */
    for (int is_shared = 0; is_shared < 2 && (!p->matrix || sizes[i][1] <= 2); is_shared++) {
      attend_gradient_shape s = {.tile = {.rows = sizes[i][0],
                                          .columns = sizes[i][1],
                                          .queries = TEAMS * sizes[i][0],
                                          .keys = ATTEND_LANES * sizes[i][1],
                                          .query_pitch = pitch_of(widest),
                                          .key_pitch = pitch_of(widest),
                                          .columns_at = columns.columns_at,
                                          .width = columns.width,
                                          .score_pitch = ATTEND_LANES * sizes[i][1] + ATTEND_LANES},
                                 .quads = {(p->head_dim + BANKS - 1) / BANKS, (p->value_dim + BANKS - 1) / BANKS},
                                 .is_shared = is_shared,
                                 .weighs = weighs,
                                 .moves = moves};
      if (fits(p, &s)) return s;
    }
  return (attend_gradient_shape){.is_shared = false};
}

/* Of a polynomial a smaller tile of which weights and coordinates gain, rather than a larger one of rows alone. */
attend_gradient_shape attend_gradient_shape_of(const attention_plan *p) {
  bool weighs = p->weights && attend_weights_fit(p), moves = p->columns && p->has_places && attend_has_columns(p);
  attend_gradient_shape s = shape_of(p, weighs, moves); /* what weights need is enough for coordinates */
  if (s.tile.rows == 0 && weighs) s = shape_of(p, false, moves);
  return s.tile.rows == 0 && moves ? shape_of(p, false, false) : s;
}

bool attend_gradient_fits(const attention_plan *p) { return attend_gradient_shape_of(p).tile.rows > 0; }

unsigned attend_gaining(const attention_plan *p) {
  unsigned bits = attend_gaining_of_pairs(p);
  if (!attend_gradient_shape_of(p).weighs) return bits;
  for (int i = 0; i < p->weights->n_scatters; i++) bits |= 1u << p->weights->scatter[i].leaf->index;
  return bits;
}

/* ---- entries ---- */

static const thread_tile *make_tile(arena *a, const attention_plan *p, int element, int access, int rows) {
  thread_tile *t = thread_tile_of_blocks(a, expr_pool_blocks(p->spec->pool), element, access);
  t->owners = rows;
  return t;
}

/* Sums of both kinds stand in the registers of a thread that has keys. */
static int blocks_of(const attend_gradient_shape *s, gpu_entry_kind kind) {
  int quads = s->tile.rows * (s->quads[0] + s->quads[1]);
  /* Of a tile of queries that weights gain of, the assembler would unroll loops as far as registers go. */
  int many = kind == GPU_ATTENTION_QUERIES && s->weighs ? 3 : 2;
  return quads > MOST_QUADS ? 1 : quads > FEW_QUADS ? many : 3;
}

/* Whether tile programs serve all that the description gains, of rows however these lie. */
static bool is_replaced(const gpu_program *program, const attention_plan *p) {
  const attend_design *design = program->plan;
  const mma_plan *const *plan = design->mma[MMA_ANY_ROWS];
  bool sums = p->n_sums > 0, gains = sums || attend_gaining(p);
  return plan[MMA_QUERIES] && plan[MMA_KEYS] && (!gains || plan[MMA_QUERIES_GAINS]) && (!sums || plan[MMA_KEYS_GAINS]);
}

static void add_rows(arena *a, gpu_program *program, const attention_plan *p, gpu_entry_kind kind, const char *word,
                     int dtype, bool narrow) {
  attend_gradient_shape s = attend_gradient_shape_of(p);
  int element = number_bytes(dtype), access = narrow ? element : THREAD_PIECE;
  const char *suffix = narrow ? "_narrow" : "";
  program->entry[program->n_entries++] =
      (gpu_entry){.name = arena_printf(a, "%s_%s_%s%s", program->spec->name, word, number_name(dtype), suffix),
                  .of = PEGEN_LAUNCH_attention_backward,
                  .word = word,
                  .kind = kind,
                  .dtype = dtype,
                  .access = access,
                  .tile = make_tile(a, p, element, access, s.tile.queries),
                  .flight = s.tile.keys,
                  .blocks = blocks_of(&s, kind)};
}

static void add_finish(arena *a, gpu_program *program, gpu_entry_kind kind, const char *word) {
  program->entry[program->n_entries++] =
      gpu_finish_entry(a, program->spec, PEGEN_LAUNCH_attention_backward_finish, kind, word);
}

static void add_weights(arena *a, gpu_program *program, const attention_plan *p, unsigned dtypes) {
  program->of = plan_gradient_row_of(a, p->weights);
  attend_add_weight_entries(a, program, p, dtypes);
  if (!attend_gaining(p)) return;
  add_finish(a, program, GPU_SUM, PEGEN_PTX_WORD_ATTENTION_SUM);
  add_finish(a, program, GPU_SCATTER, PEGEN_PTX_WORD_ATTENTION_SCATTER);
  add_finish(a, program, GPU_GATHER, PEGEN_PTX_WORD_ATTENTION_GATHER);
}

void gpu_add_attention_gradients(arena *a, gpu_program *program, const attention_plan *p, unsigned dtypes) {
  if (!attend_gradient_fits(p)) return;
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype) || is_replaced(program, p)) continue;
    int lanes = THREAD_PIECE / number_bytes(dtype);
    for (int narrow = p->head_dim % lanes || p->value_dim % lanes; narrow < 2; narrow++) {
      add_rows(a, program, p, GPU_ATTENTION_QUERIES, PEGEN_PTX_WORD_QUERIES, dtype, narrow);
      add_rows(a, program, p, GPU_ATTENTION_KEYS, PEGEN_PTX_WORD_KEYS, dtype, narrow);
    }
  }
  attend_gradient_shape shape = attend_gradient_shape_of(p);
  if (attend_gives_places(&shape, p) && p->has_places)
    add_finish(a, program, GPU_POSITIONS, PEGEN_PTX_WORD_ATTENTION_POSITIONS);
  if (p->sums_inputs) {
    program->inputs = attend_input_sums_of(a, p);
    add_finish(a, program, GPU_INPUTS, PEGEN_PTX_WORD_ATTENTION_INPUTS);
  }
  const attend_design *design = program->plan;
  bool keeps = attend_has_columns(p) && design->mma[MMA_16_BITS][MMA_KEYS];
  if (shape.weighs || shape.moves || keeps) program->n_weights = p->columns->p->n_weights;
  if (shape.weighs) add_weights(a, program, p, dtypes);
  if (!attend_gaining_of_pairs(p)) return;
  add_finish(a, program, GPU_SUM, PEGEN_PTX_WORD_ATTENTION_SUM);
  add_finish(a, program, GPU_TOTAL, PEGEN_PTX_WORD_TOTAL);
}

void attend_print_gradients(FILE *f, const gpu_program *program) {
  const attend_design *design = program->plan;
  bool has_some = false;
  for (int i = 0; i < program->n_entries; i++)
    has_some = has_some || program->entry[i].of == PEGEN_LAUNCH_attention_backward;
  if (!has_some) return;
  int rows = attend_gradient_shape_of(design->gradient).tile.queries;
  fprintf(f,
          "// Entries of gradients have these parameters and then: gradients of out and lse coming in, of q, k and v "
          "going out (rows as above;\n"
          "//   0: none), a number of each query, tiles of queries, tiles of a block, sums of chunks, "
          "shares of positions,\n"
          "//   of a polynomial what weights gain, and weights (docs/embedding-ptx.md).\n");
  fprintf(f,
          "// Grid: x = ceil(queries / %d) * heads * batches or fewer, then x = ceil(keys / %d) * heads of k * "
          "batches.\n",
          rows, rows);
}

/* gpu/attention_backward_entries: which entries gradients of attention have and the shape of their tiles; see
 * gpu/attention_backward.h. */
#include "gpu/attention_backward.h"

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

static bool fits(const attention_plan *p, const attend_gradient_shape *s) {
  const attend_shape *t = &s->tile;
  int64_t room = 4LL * t->query_pitch * (2 * t->queries + (s->is_shared ? 1 : 2) * t->keys) +
                 4LL * t->queries * t->score_pitch + 8LL * t->keys + attend_gains_bytes(p, t) + SMALL;
  if (attend_has_pairs(p)) room += (int64_t)TWO_FLOAT_BYTES * p->spec->n_axes * (t->queries + t->keys);
  return room <= SHARED_BYTES && t->rows * s->quads[0] <= MOST_QUADS && t->rows * s->quads[1] <= MOST_QUADS;
}

attend_gradient_shape attend_gradient_shape_of(const attention_plan *p) {
  static const int sizes[][2] = {{4, 4}, {2, 4}, {2, 2}, {1, 4}, {1, 2}, {1, 1}}; /* rows and columns of a thread */
  int widest = p->head_dim > p->value_dim ? p->head_dim : p->value_dim;
  for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++)
    for (int is_shared = 0; is_shared < 2; is_shared++) {
      attend_gradient_shape s = {.tile = {.rows = sizes[i][0],
                                          .columns = sizes[i][1],
                                          .queries = TEAMS * sizes[i][0],
                                          .keys = ATTEND_LANES * sizes[i][1],
                                          .query_pitch = pitch_of(widest),
                                          .key_pitch = pitch_of(widest),
                                          .score_pitch = ATTEND_LANES * sizes[i][1] + ATTEND_LANES},
                                 .quads = {(p->head_dim + BANKS - 1) / BANKS, (p->value_dim + BANKS - 1) / BANKS},
                                 .is_shared = is_shared};
      if (fits(p, &s)) return s;
    }
  return (attend_gradient_shape){.is_shared = false};
}

bool attend_gradient_fits(const attention_plan *p) {
  return !p->matrix && !p->columns && !p->score && attend_gradient_shape_of(p).tile.rows > 0;
}

unsigned attend_gaining(const attention_plan *p) {
  unsigned bits = 0;
  if (attend_gain_values(p) > 2 * ATTEND_MOST_GAINS) return 0;
  for (int i = 0; i < p->n_scatters; i++) bits |= 1u << p->scatter[i].leaf->index;
  return bits;
}

/* ---- entries ---- */

static const thread_tile *make_tile(arena *a, const attention_plan *p, int element, int access, int rows) {
  thread_tile *t = thread_tile_of_blocks(a, expr_pool_blocks(p->spec->pool), element, access);
  t->owners = rows;
  return t;
}

/* Sums of both kinds stand in the registers of a thread that has keys. */
static int blocks_of(const attend_gradient_shape *s) {
  int quads = s->tile.rows * (s->quads[0] + s->quads[1]);
  return quads > MOST_QUADS ? 1 : quads > FEW_QUADS ? 2 : 3;
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
                  .blocks = blocks_of(&s)};
}

static void add_finish(arena *a, gpu_program *program, gpu_entry_kind kind, const char *word) {
  program->entry[program->n_entries++] =
      gpu_finish_entry(a, program->spec, PEGEN_LAUNCH_attention_backward_finish, kind, word);
}

void gpu_add_attention_gradients(arena *a, gpu_program *program, const attention_plan *p, unsigned dtypes) {
  if (!attend_gradient_fits(p)) return;
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype)) continue;
    int lanes = THREAD_PIECE / number_bytes(dtype);
    for (int narrow = p->head_dim % lanes || p->value_dim % lanes; narrow < 2; narrow++) {
      add_rows(a, program, p, GPU_ATTENTION_QUERIES, PEGEN_PTX_WORD_QUERIES, dtype, narrow);
      add_rows(a, program, p, GPU_ATTENTION_KEYS, PEGEN_PTX_WORD_KEYS, dtype, narrow);
    }
  }
  if (!attend_gaining(p)) return;
  add_finish(a, program, GPU_SUM, PEGEN_PTX_WORD_ATTENTION_SUM);
  add_finish(a, program, GPU_TOTAL, PEGEN_PTX_WORD_TOTAL);
}

void attend_print_gradients(FILE *f, const gpu_program *program) {
  const attend_design *design = program->plan;
  bool has_some = false;
  for (int i = 0; i < program->n_entries; i++)
    has_some = has_some || program->entry[i].of == PEGEN_LAUNCH_attention_backward;
  if (!has_some) return;
  int rows = attend_gradient_shape_of(design->p).tile.queries;
  fprintf(f,
          "// Entries of gradients have these parameters and then: gradients of out and lse coming in, of q, k and v "
          "going out (rows as above;\n"
          "//   0: none), a number of each query, tiles of queries, tiles of a block, sums of chunks "
          "(docs/embedding-ptx.md).\n");
  fprintf(f,
          "// Grid: x = ceil(queries / %d) * heads * batches or fewer, then x = ceil(keys / %d) * heads of k * "
          "batches.\n",
          rows, rows);
}

/* gpu/mma: tile programs on GPUs, by one of two machines.
 *
 * A block has 4 warps; a warp has every row of 8 * halves of the tile that the block owns. Sums are fragments:
 * registers of one 16 x 8 product, of which lane 4 g + t has rows g and g + 8 and a quarter of the columns. Tiles of
 * rows lie in shared memory; a row's pitch is an odd number of 16 bytes, so that neighbouring rows meet every bank
 * once.
 *
 * mma_sync multiplies 16-bit rows on tensor cores (gpu/mma_sync.c). Their products are exact and summed in float32, in
 * the tensor core's own order. Weights (P, and dS of gradients) are rounded to the rows' type before they are
 * multiplied, as FlashAttention does. simt multiplies float32 by float32 (gpu/simt.c): float32 rows, and those of 16
 * bits that are widened when they are copied, since they lie anyhow or tensor cores do not take them.
 */
#pragma once

#include "gpu/attention.h"
#include "gpu/vendor.h"
#include "tile/tile.h"

typedef struct mma_machine mma_machine;

typedef struct mma_shape {
  tile_shape tile;   /* rows of tiles; channels and values as multiples of 16 */
  int halves;        /* of 8 own rows, of a warp: 1, or an even number */
  bool holds_own;    /* own rows that products read stay in registers */
  bool lies;         /* own rows of values, which one product reads, are read where they lie, not in shared memory */
  bool loops;        /* a thread's scores are computed one after the other, by the same code */
  int64_t scratch;   /* bytes in which own queries' columns are made; gpu/weights.h */
  int64_t shared;    /* bytes of dynamic shared memory */
} mma_shape;

/* A tile program and its shape on a machine. */
typedef struct mma_plan {
  const mma_machine *machine;
  const attention_plan *p; /* what its pairs are of */
  const tile_program *program;
  mma_shape shape;
} mma_plan;

/* The plans of a description: out, also of few queries, dq, dk and dv; where sums of both fill the registers, dv has a
 * plan of its own. Two more plans of dq and dk also make the gradients that pairs give to others than rows. Their tiles
 * have as many own rows, so that rows have the same bits. */
typedef enum mma_kind {
  MMA_FORWARD,
  MMA_FEW,
  MMA_QUERIES,
  MMA_KEYS,
  MMA_VALUES,
  MMA_QUERIES_GAINS,
  MMA_KEYS_GAINS,
  MMA_KIND_COUNT
} mma_kind;

/* Which rows: of 16 bits, on tensor cores where the chip has these, or float32; the second takes 16 bits, too. */
typedef enum mma_rows { MMA_16_BITS, MMA_FLOATS, MMA_MACHINES } mma_rows;

/* NULL: the machine does not serve this: few queries have columns or rotated pairs, or rows are too long; or of values,
 * that they have no plan of their own; or of gains, that nothing gains, or they have no room. */
const mma_plan *mma_plan_of(arena *a, const attention_plan *described, const gpu_target *chip,
                            const mma_machine *machine, mma_kind kind);
/* Whether what gains beside rows does so alone, in an entry that reads rows as they are and stores none. */
bool mma_gives_alone(const mma_plan *plan);

void gpu_emit_mma(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host);
/* Channels of a row of so many in whole accesses; those behind the row's own are 0. */
int mma_padded(const attend *t, int width);
/* What merges chunks of keys: gpu/mma_few.c. */
void gpu_emit_mma_finish(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, bool host);
/* What turns rows for those, once each, or copies rows that they do not take as they lie: gpu/mma_turned.c. */
void gpu_emit_mma_turn(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host);

/* ---- shared by gpu/mma*.c ---- */

typedef struct mma mma;

enum {
  MMA_ROWS = 16,
  MMA_COLUMNS = 8,
  MMA_INNER = 16,
  MMA_FRAGMENT = 4,
  MMA_LANES = 4 /* of a row */,
  MMA_WARPS = 4,
  MMA_HALF = MMA_ROWS / 2,
  MMA_MOST_HALVES = 4
};
enum { MMA_MOST_SIZES = 10, MMA_MOST_NUMBERS = 8 /* of an access */ };

typedef struct mma_size {
  int halves, streamed; /* 0: none */
  int stages; /* streamed tiles in memory: 1 waits for its loads */
  bool lies; /* as of mma_shape */
} mma_size;

/* A row of the table of machines. */
struct mma_machine {
  const char *name; /* in names of entries */
  int element; /* bytes of a number of rows in shared memory */
  int neighbours; /* columns that a lane has side by side of a sum over rows; the next lane has the next ones */
  int negative; /* a word of shared memory with the signs of all its numbers */
  bool holds; /* own rows of products may stay in registers */
  bool rounds; /* weights are rounded: functions of them and of pairs may be approximate */
  mma_size size[MMA_MOST_SIZES]; /* of tiles, from the best one on */
  int few; /* halves of rows in tiles of few queries, of which only the first are different queries */
  int unrolled; /* most multiply-adds in a turn's code of sums over streamed rows; 0: any number */
  void (*product)(mma *m, const tile_op *op);
};

extern const mma_machine mma_sync, mma_simt;

struct mma {
  attend *t;
  ir *b;
  arena *memory;
  const mma_machine *machine;
  const tile_program *p;
  mma_shape shape;
  bool is_bf16;
  bool turns_by_head, turns_values; /* of rows that come turned; by head: tiles of keys are of one head of q */
  ir_value warp, lane, group, quad; /* i32: of the block's warps; of the warp; lane / 4; lane % 4 */
  ir_value memory_of[TILE_MOST_VALUES]; /* shared memory of tiles: the first stage */
  ir_value stage; /* i32: stage that streamed tiles of this turn have */
  ir_value *sum[TILE_MOST_VALUES]; /* fragments: [row tiles][column tiles][4] */
  ir_value *held[TILE_MOST_VALUES]; /* own rows in registers: [row tiles][inner][4] */
  ir_value places_of[2], numbers_of[2]; /* shared memory of own and of streamed tokens' coordinates and numbers */
  ir_value origin[SPEC_MAX_AXES]; /* what coordinates count from: i64, where there are places */
  const ir_value *gradient; /* parameters behind forward's: PEGEN_PTX_ATTENTION_G_OUT ...; NULL: forward */
  const ir_value *few; /* the same: PEGEN_PTX_FEW_STATES ...; NULL: not tile_few */
  ir_value chunk; /* i32: of few queries' keys */
  ir_value q_head, k_head; /* i32; of few queries q_head is that of the thread's rows */
  ir_value sums_of; /* shared memory of sums one row a thread, in place of tiles: gpu/mma_rows.c */
  ir_value scratch_of; /* shared memory of streamed tiles, before they are loaded */
  ir_value seen_of; /* shared memory of what warps find: gpu/mma_seen.c */
  ir_value given_of; /* shared memory: gpu/mma_give.c */
  ir_value rotated_of; /* shared memory of what rows gain by rotations of pairs: gpu/mma_rotated.c */
  ir_value facts_of; /* shared memory of streamed queries' lse and delta: two float32 each */
  ir_value own_first, streamed_first; /* i32: first tokens of the tiles */
  ir_value scale; /* f32: of products, positive, in powers of two */
  ir_value maximum[MMA_MOST_HALVES], total[MMA_MOST_HALVES]; /* of the thread's rows */
  ir_value lse[MMA_MOST_HALVES], delta[MMA_MOST_HALVES]; /* of those, where they are queries; lse in powers of two,
                                                            infinity where no key is seen */
};

int mma_width(const mma *m, int value); /* columns of a value */
int mma_column_tiles(const mma *m, int value); /* of 8 columns, of a sum */
int mma_fragment(const mma *m); /* registers of a product of 16 or 8 rows by 8 columns */
int mma_registers(const mma *m, int value); /* of a sum */
int mma_numbers(const mma *m, int value); /* of a row, without what makes it a multiple of 16 */
int mma_side_tokens(const mma *m, bool own); /* of a tile of own tokens, or of streamed ones */
/* The thread's row `half`, and the column of register i of a sum, of the block's tile: i32. */
ir_value mma_row_of(const mma *m, int half);
ir_value mma_column(const mma *m, int value, int i);
int mma_half(const mma *m, int value, int i); /* which of the thread's rows register i is of */
/* Columns that a lane has side by side, `run` of them: their number, and the register of one in a row `half`. */
int mma_neighbours(const mma *m, int value);
int mma_register(const mma *m, int value, int half, int run, int i);
/* An op over a tile: copies of rows that are begun, and products. */
void mma_copy(mma *m, const tile_op *op);
ir_value mma_tile_at(const mma *m, int value, ir_value stage); /* shared memory */
/* Whether a value's rows are read where they lie; the address of such a row (i32) of the block's tile, of which those
 * behind the last token are the last one. */
bool mma_lies(const mma *m, int value);
ir_value mma_lying_row(mma *m, ir_value row);
int mma_pitch_of(const mma *m, int value); /* bytes from row to row in shared memory */
void mma_clear_padding(mma *m);
void mma_hold(mma *m, const tile_op *op); /* on tensor cores */
/* Numbers of rows where these lie, as many as an access has; and `count` neighbours. */
int mma_access_numbers(const mma *m);
void mma_load_numbers(mma *m, ir_value at, ir_value *x);
void mma_store_numbers(mma *m, ir_value at, int count, const ir_value *x);
/* Rows of the tensor that are given = a sum's rows times factor[halves]. */
void mma_store_rows(mma *m, const tile_op *op, const ir_value *factor);
ir_value mma_address_of(mma *m, tile_tensor tensor); /* i64; 0: it is not wanted */
/* A head's rows of a tensor. */
attend_rows mma_rows_of(mma *m, tile_tensor tensor);
/* A row of a tile, and its token: i32. */
typedef struct mma_place {
  ir_value row, token;
} mma_place;

/* The token of an own row (i32), and whether there is one: i1. */
mma_place mma_own_place(const mma *m, ir_value row);
ir_value mma_has_own(const mma *m, ir_value row);
attend_pair_of mma_pair(const mma *m, mma_place own, mma_place streamed);
/* Register i of an [own, streamed] value as a pair of tokens. */
attend_pair_of mma_pair_of(mma *m, int value, int i);
/* The pair of tokens of an [own, streamed] value whose score is computed in turn `turn` (i32). */
attend_pair_of mma_pair_in_turn(mma *m, int value, ir_value turn);
/* The score of a product, where pairs have something of their own; whether a pair is seen (i1). */
ir_value mma_scored(mma *m, ir_value product, const attend_pair_of *of);
ir_value mma_is_seen(mma *m, const attend_pair_of *of);
bool mma_has_pairs(const mma *m); /* a bias or a score */
ir_value mma_exp2(mma *m, ir_value x); /* as near as the machine's weights are */
/* 2^(x scale - less_by); scores of pairs are scaled already. */
ir_value mma_power(mma *m, ir_value x, ir_value less_by);
/* x of the four lanes that have one row: their maximum, their sum. */
ir_value mma_row_maximum(mma *m, ir_value x);
ir_value mma_row_sum(mma *m, ir_value x);

/* The loop's turn `index` (i32); what pairs of a tile's tokens are computed from, before a barrier; the head of q. */
void mma_set_turn(mma *m, ir_value index);
void mma_lay_tokens(mma *m, bool own, ir_value first, ir_value stage);
void mma_set_q_head(mma *m, ir_value head);
ir_value mma_heads_met(const mma *m); /* i32: heads of q, from m->q_head on, that own keys meet */
/* Bytes of shared memory for the coordinates and numbers of a side's tile; pairs read them where mma_set_side says. */
int64_t mma_place_bytes(const mma *m, bool own);
int64_t mma_number_bytes(const mma *m, bool own);
void mma_set_side(mma *m, bool own, ir_value stage);
/* A maximum that no score is expected below: a query that sees nothing keeps it, and its sum stays 0. */
#define MMA_NOTHING_SEEN (-0x1p126)
/* A row's maximum and total before its first key, of the head at hand. counts: i1, the one thread of a row whose total
 * counts a sink, which keys in chunks have in the first one. */
void mma_begin_softmax(mma *m, ir_value counts, ir_value *maximum, ir_value *total);

/* ---- gpu/mma_rows.c: where sums are not finite, all of it once more, one row a thread ---- */

int64_t mma_row_bytes(const mma *m); /* of shared memory, in place of tiles */
void mma_walk_rows(mma *m, int each, ir_value begin, ir_value end);

/* ---- gpu/mma_columns.c: a polynomial's columns, as 16-bit parts or float32; nothing where there are none ---- */

int mma_parts(const attention_plan *p, const mma_machine *machine); /* numbers of a row */
/* Shared memory: in which own queries' columns are made, in place of streamed tiles; of what columns leave out. */
int64_t mma_scratch_bytes(const mma *m);
int64_t mma_constant_bytes(const mma *m);
/* Sets how many lanes make an own query's columns: the fewest that `room` bytes serve. False: none do. */
bool mma_set_columns(mma *m, int64_t room);
/* What coordinates count from, where keys are owned: all threads of the block come here and meet. */
void mma_begin_columns(mma *m);
int64_t mma_origin_bytes(const mma *m);
/* A thread's row of a tile of parts, in two steps: what it is made of is loaded, without a branch; the row is made,
 * with streamed queries' facts. All threads of the block, before a barrier. */
typedef struct mma_asked {
  int value;
  bool of_keys;
  ir_value token, placed, stage; /* i32: the token, and another where it has no coordinates */
  gpu_raw_place place[SPEC_MAX_AXES];
  ir_value number[SPEC_MAX_AXES]; /* of a key's inputs */
  ir_value *weight; /* of a query */
} mma_asked;
mma_asked mma_ask_columns(mma *m, const tile_op *op, ir_value first, ir_value stage);
void mma_lay_columns(mma *m, mma_asked *of);
/* Lays columns of own keys again, where the head of q decides which rows of their inputs they are made of. */
void mma_lay_columns_of_head(mma *m);
/* Begins to load a tile of this turn, of rows (mma_copy) or of columns. */
void mma_load(mma *m, const tile_op *op);
/* What a product of columns is of a pair of rows of the tiles (i32). */
ir_value mma_columns_product(mma *m, const tile_op *op, ir_value own, ir_value streamed);
/* ---- gpu/mma_rotated.c: rotations that stay on the pairs ---- */

void mma_rotate(mma *m, const tile_op *op); /* rotated_product, rotated_sum */
int mma_rotated_registers(const mma *m); /* of what pairs keep while blocks are walked */
int64_t mma_rotated_bytes(const mma *m); /* of shared memory, in which own rows' sums of the latter stand */
void mma_clear_rotated(mma *m); /* all threads of the block, which meet */
void mma_add_rotated(mma *m); /* to the registers of the sum */

/* ---- gpu/mma_seen.c: tiles that a mask hides from all rows of the own tile ---- */

int64_t mma_seen_bytes(const mma *m); /* of shared memory */
/* [*begin, *end), i32, without those before the first tile that is seen, and behind the last one; all threads of the
 * block, which meet. The head of q is set. */
void mma_narrow_range(mma *m, ir_value *begin, ir_value *end);

/* ---- gpu/mma_few.c: queries of all heads that share one of k ---- */

/* A warp has 16 rows, of which the first 8 are queries; the others repeat them, so that a thread's rows are of one head
 * and nothing is computed twice of them: whether the thread's row `half` is such a repetition of the one before. */
bool mma_repeats(const mma *m, int half);
/* The query of an own row: its head, its token; rows without one have the last one's. */
typedef struct mma_query {
  ir_value head, token, exists; /* i32, i32, i1 */
} mma_query;
mma_query mma_query_of(const mma *m, ir_value row);
void mma_set_few(mma *m); /* the block's batch, head of k and chunk */
/* The chunk's tiles among those up to *end. */
void mma_range_of_chunk(mma *m, ir_value *begin, ir_value *end);
ir_value mma_is_split(mma *m); /* i1 */
/* The address of number `channel` (i64) of what the chunk comes to for a query; behind channels stand maximum and
 * total. */
ir_value mma_state_at(mma *m, const mma_query *of, ir_value channel);
void mma_store_state(mma *m, int value); /* the thread's rows of a sum */

/* ---- gpu/mma_gradient.c ---- */

/* What is known of a query that exists: lse (attend_load_lse) less what columns leave out, as weights of products need
 * it, row: of the query's tile; D, as the block or another wrote it. */
ir_value mma_product_lse(mma *m, ir_value row, ir_value token);
ir_value mma_load_delta(mma *m, ir_value token);
/* What a product gains, by its weight and what the weight gains. */
ir_value mma_gain_of(mma *m, ir_value weight, ir_value coming, ir_value delta, ir_value product,
                     const attend_pair_of *of);
/* What its score does; delta of register i's query. */
ir_value mma_score_gain(mma *m, ir_value weight, ir_value coming, ir_value delta);
ir_value mma_delta_of(mma *m, int value, int i);

int64_t mma_fact_bytes(const mma *m); /* of a stage, in shared memory */
void mma_own_facts(mma *m); /* lse and delta of own queries; delta is also written for the program of keys */
void mma_lay_facts(mma *m, ir_value first, ir_value stage); /* of streamed queries, before a barrier */
/* Stores the facts of the thread's query `token`, whose columns leave out `constant` (null: 0). */
void mma_store_facts(mma *m, ir_value token, ir_value stage, ir_value constant);
void mma_weight(mma *m, const tile_op *op);
void mma_gain(mma *m, const tile_op *op);
void mma_store_gradient(mma *m, const tile_op *op);

/* ---- gpu/mma_give.c: what scores gain goes on to what they read (gpu/give.h); nothing where no op gives ---- */

int64_t mma_give_bytes(const mma *m); /* of shared memory */
bool mma_gives_operands(const mma *m);
bool mma_gives_displacements(const mma *m); /* of a bias that is a polynomial: by pairs' displacements */
void mma_clear_elements(mma *m); /* of a program that gives to operands, once a block */
/* Begins what own rows give, before the turns of a head of q (is_first, i1: the first head), and ends it behind them.
 */
void mma_begin_gives(mma *m, ir_value is_first);
void mma_end_gives(mma *m);
void mma_give(mma *m, const tile_op *op);

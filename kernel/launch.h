/* launch.h: the parameters of a PTX entry, on which emitted code, launcher and tests agree.
 *
 * Every parameter has 8 bytes: addresses of the device's global memory, sizes, and
 * strides in bytes. A thread computes the rotors of one unit of channels of one token
 * once and applies them to `rows` rows. Rows are the heads of q and then of k, or, where rotors
 * differ from head to head, the batches of one head, k's row after q's.
 */
#pragma once

enum {
  PEGEN_PTX_BATCHES,
  PEGEN_PTX_TOKENS,
  PEGEN_PTX_ROWS,           /* rows of a thread: blocks of grid row y take rows y * ROWS up to (y + 1) * ROWS */
  PEGEN_PTX_POSITIONS,      /* address of token 0 of batch 0; 0: the built-in grid */
  PEGEN_PTX_POSITION_TYPE,  /* 0 float32, 1 float64, 2 int32, 3 int64 */
  PEGEN_PTX_POSITION_BATCH, /* strides; batch: 0 where batches share positions */
  PEGEN_PTX_POSITION_TOKEN,
  PEGEN_PTX_POSITION_AXIS,
  PEGEN_PTX_Q, /* PEGEN_PTX_TENSOR_COUNT parameters; then as many of k, with 0 heads where there is none */
  PEGEN_PTX_TENSOR_IN = 0,
  PEGEN_PTX_TENSOR_OUT,
  PEGEN_PTX_TENSOR_HEADS,
  PEGEN_PTX_TENSOR_IN_BATCH,
  PEGEN_PTX_TENSOR_IN_TOKEN,
  PEGEN_PTX_TENSOR_IN_HEAD,
  PEGEN_PTX_TENSOR_OUT_BATCH,
  PEGEN_PTX_TENSOR_OUT_TOKEN,
  PEGEN_PTX_TENSOR_OUT_HEAD,
  PEGEN_PTX_TENSOR_COUNT,
  PEGEN_PTX_K = PEGEN_PTX_Q + PEGEN_PTX_TENSOR_COUNT,
  /* Kernels whose q and k differ (pegen_kernel.has_sides) are launched for one of them at a time, at PEGEN_PTX_Q. In
     place of the other's address there is 1 where it is k, else 0. */
  PEGEN_PTX_SIDE = PEGEN_PTX_K + PEGEN_PTX_TENSOR_IN,
  /* Entries of gradients of the weights of attention's queries have no k, but the number of queries that are prefix
     tokens. */
  PEGEN_PTX_PREFIX = PEGEN_PTX_K + PEGEN_PTX_TENSOR_OUT,
  PEGEN_PTX_OPERANDS = PEGEN_PTX_K + PEGEN_PTX_TENSOR_COUNT, /* PEGEN_PTX_OPERAND_COUNT parameters of each operand */
  PEGEN_PTX_OPERAND_ADDRESS = 0,
  PEGEN_PTX_OPERAND_TYPE, /* PEGEN_PTX_OPERAND_F32 ... */
  PEGEN_PTX_OPERAND_COUNT,
  /* After the operands, PEGEN_PTX_INPUT_COUNT parameters of each input of a query. */
  PEGEN_PTX_INPUT_ADDRESS = 0,
  PEGEN_PTX_INPUT_TYPE, /* PEGEN_PTX_OPERAND_F32, or that of the rows */
  PEGEN_PTX_INPUT_BATCH, /* strides */
  PEGEN_PTX_INPUT_TOKEN,
  PEGEN_PTX_INPUT_HEAD,
  PEGEN_PTX_INPUT_COUNT,
  /* After the inputs, of entries that convert: addresses of the scales of the tensors at PEGEN_PTX_Q and PEGEN_PTX_K;
     0: 1. */
  PEGEN_PTX_SCALE_Q = 0,
  PEGEN_PTX_SCALE_K,
  PEGEN_PTX_SCALE_COUNT,
  /* After the inputs, of entries of gradients of operands and positions: what encode wrote or read of q, address and
     strides in bytes (batch, token, head); the same of k; and what a thread takes. PEGEN_PTX_ROWS are an item's.
     Entries of gradients of rows alone have the first two where channels are mapped (pegen_kernel.needs_input): what
     encode read. */
  PEGEN_PTX_KEPT_Q = 0,
  PEGEN_PTX_KEPT_ADDRESS = 0,
  PEGEN_PTX_KEPT_BATCH,
  PEGEN_PTX_KEPT_TOKEN,
  PEGEN_PTX_KEPT_HEAD,
  PEGEN_PTX_KEPT_COUNT,
  PEGEN_PTX_KEPT_K = PEGEN_PTX_KEPT_COUNT,
  PEGEN_PTX_FROM_INPUT = 2 * PEGEN_PTX_KEPT_COUNT, /* 1: they hold what encode read */
  PEGEN_PTX_ITEMS, /* tokens of batches; tokens, where rotors differ by head and batches share positions */
  PEGEN_PTX_CHUNK, /* items of a thread: its sums are those of a chunk */
  PEGEN_PTX_SUMS, /* address of the first chunk's sums; 0: no operand's gradient is wanted */
  PEGEN_PTX_SHARES, /* address of what threads give to positions; 0: not wanted */
  PEGEN_PTX_GRADIENT_COUNT,
  /* After those, of rows that turn by inputs: address of what inputs gain of rows, float32
     [items][heads][gains][blocks]; 0: not wanted. */
  PEGEN_PTX_INPUT_SHARES = PEGEN_PTX_GRADIENT_COUNT,
  PEGEN_PTX_ROW_GRADIENT_COUNT,
  /* After those, of dense blocks and changes of basis, of which a thread block has some teams. */
  PEGEN_PTX_MATRIX_SUMS = PEGEN_PTX_GRADIENT_COUNT, /* address: as of PEGEN_PTX_SUMS, of what generators gain */
  PEGEN_PTX_MATRIX_ROOM, /* address of the threads' own memory, pegen_ptx_gradient.thread_bytes each */
  PEGEN_PTX_MATRIX_GRADIENT_COUNT,
  /* After those, of columns: 1: to what inputs' gradients are; and gradients of inputs, as inputs themselves are;
     address 0: not wanted. */
  PEGEN_PTX_COLUMN_ADDS = PEGEN_PTX_GRADIENT_COUNT,
  PEGEN_PTX_COLUMN_INPUTS,
  /* Last, of entries whose columns have an origin of the call: as many parameters as positions have from
     PEGEN_PTX_POSITIONS on, of three tokens whose median they count from; address 0: from the description's own. */
  PEGEN_PTX_ORIGIN_COUNT = PEGEN_PTX_POSITION_AXIS + 1 - PEGEN_PTX_POSITIONS,
  PEGEN_PTX_MAX_PARAMETERS = 160,
  PEGEN_PTX_BLOCK = 128 /* threads of a block */
};

/* Parameters of an attention entry. A block has a tile of queries of one head; blocks lie along x, a head's tiles side
 * by side, heads within batches. */
enum {
  PEGEN_PTX_ATTENTION_TOKENS,
  PEGEN_PTX_ATTENTION_KEYS,
  PEGEN_PTX_ATTENTION_HEADS, /* of q */
  PEGEN_PTX_ATTENTION_GROUP, /* heads of q that share one of k and v */
  PEGEN_PTX_ATTENTION_CAUSAL, /* 1: query i sees keys j <= i + keys - tokens only */
  PEGEN_PTX_ATTENTION_SCALE, /* of q k^T times log2(e): the bits of a float32 */
  PEGEN_PTX_ATTENTION_POSITIONS, /* of queries: five parameters in the order above; all 0 where none are needed */
  PEGEN_PTX_ATTENTION_KEY_POSITIONS = PEGEN_PTX_ATTENTION_POSITIONS + 5,
  PEGEN_PTX_ATTENTION_Q =
      PEGEN_PTX_ATTENTION_KEY_POSITIONS + 5, /* PEGEN_PTX_ROWS_COUNT parameters; then as many of each of k, v and out */
  PEGEN_PTX_ROWS_ADDRESS = 0, /* of k also where there are no keys: a row is read before they are counted */
  PEGEN_PTX_ROWS_BATCH, /* strides */
  PEGEN_PTX_ROWS_TOKEN,
  PEGEN_PTX_ROWS_HEAD,
  PEGEN_PTX_ROWS_COUNT,
  PEGEN_PTX_ATTENTION_K = PEGEN_PTX_ATTENTION_Q + PEGEN_PTX_ROWS_COUNT,
  PEGEN_PTX_ATTENTION_V = PEGEN_PTX_ATTENTION_K + PEGEN_PTX_ROWS_COUNT,
  PEGEN_PTX_ATTENTION_OUT = PEGEN_PTX_ATTENTION_V + PEGEN_PTX_ROWS_COUNT,
  PEGEN_PTX_ATTENTION_OPERANDS =
      PEGEN_PTX_ATTENTION_OUT + PEGEN_PTX_ROWS_COUNT /* as above, the inputs of a query after them */
  /* After the inputs: lse as rows of one float32, address 0: not wanted. Kernels of before lse do not have them. Then,
     where scores read inputs, a parameter of each input: heads of q that read one of its heads. */
};

/* Behind those, of the entries of few queries (PEGEN_PTX_WORD_FEW) and of attention_finish. A block of the first has
 * the queries of all heads that share one of k and v, PEGEN_PTX_FEW_QUERIES at most, and a chunk of the keys; blocks
 * lie along x, a head's chunks side by side, heads of k within batches. A thread of the second has two channels of a
 * query; pairs of channels lie along x, within queries, heads and batches. */
enum {
  PEGEN_PTX_FEW_STATES, /* address: float32 [batches][heads of q][queries][chunks][value_dim + 2], what chunks come to:
       sums of weighted values, and behind them the maximum of scores in powers of two and the sum of weights; 0: there
       is one chunk, and its entry writes out and lse */
  PEGEN_PTX_FEW_CHUNKS,
  PEGEN_PTX_FEW_KEYS, /* of a chunk: a multiple of PEGEN_PTX_FEW_STEP */
  PEGEN_PTX_FEW_ROWS, /* batches * heads of q * queries */
  PEGEN_PTX_FEW_COUNT,
  PEGEN_PTX_FEW_QUERIES = 32,
  PEGEN_PTX_FEW_STEP = 128
};

/* The word of the entries of few queries, 16-bit rows on tensor cores. */
#define PEGEN_PTX_WORD_FEW "attention_few"

/* Behind those, of the entries that turn rows for tensor cores, each by the rotation of its own place: a thread has a
 * block of channels, or a channel that no rotation turns, of some heads of a token. Threads lie along x: blocks and
 * channels within tokens, sets of heads and batches. Channels may be turned where they are. */
enum {
  PEGEN_PTX_TURN_FROM, /* rows as above */
  PEGEN_PTX_TURN_TO = PEGEN_PTX_TURN_FROM + PEGEN_PTX_ROWS_COUNT,
  /* 1: rows of keys or values; 0: of queries. PEGEN_PTX_WORD_TURN_EACH writes a row of keys or values once for each
   * head of q that shares it. */
  PEGEN_PTX_TURN_OF_KEYS = PEGEN_PTX_TURN_TO + PEGEN_PTX_ROWS_COUNT,
  /* 1: by the transpose, of keys or values, where they are written for each head of q, the sum of these; 2: that sum of
   * values as they are */
  PEGEN_PTX_TURN_BACK,
  PEGEN_PTX_TURN_HEADS, /* of a thread; 1 where rotations differ from head to head */
  PEGEN_PTX_TURN_SETS, /* of heads, in all batches, times tokens */
  PEGEN_PTX_TURN_WIDTH, /* channels of a row that is copied */
  PEGEN_PTX_TURN_COUNT
};

/* The word of the entry, of the same parameters, that copies rows: a thread has a piece of 16 bytes. A kernel that has
 * it has tile programs that take and give rows of whole pieces alone, at multiples of 16 bytes. Behind a row's own
 * channels stand zeros. */
#define PEGEN_PTX_WORD_COPY "attention_copy"

/* Words of those entries: where queries and keys alone are turned, and where values are, too, and outputs back. A
 * kernel that has one of them has entries on tensor cores that take rows which come turned, and give turned ones.
 * EACH: rotations differ from head to head. */
#define PEGEN_PTX_WORD_TURN "attention_turn"
#define PEGEN_PTX_WORD_TURN_ALL "attention_turn_all"
#define PEGEN_PTX_WORD_TURN_EACH "attention_turn_each"
#define PEGEN_PTX_WORD_TURN_EACH_ALL "attention_turn_each_all"
#define PEGEN_PTX_WORD_TURNED "attention_turned"
#define PEGEN_PTX_WORD_FEW_TURNED "attention_few_turned"
/* After PEGEN_PTX_WORD_TURN_EACH, tiles of keys are those of each head of q, whose rows they read and write. */
#define PEGEN_PTX_WORD_QUERIES_TURNED "attention_backward_queries_turned"
#define PEGEN_PTX_WORD_KEYS_TURNED "attention_backward_keys_turned"
#define PEGEN_PTX_WORD_VALUES_TURNED "attention_backward_values_turned"
#define PEGEN_PTX_WORD_QUERIES_GAINS_TURNED "attention_backward_queries_gains_turned"
#define PEGEN_PTX_WORD_KEYS_GAINS_TURNED "attention_backward_keys_gains_turned"

/* Behind those, of the entries of gradients: rows as above, address 0 where they are not given or wanted. */
enum {
  PEGEN_PTX_ATTENTION_G_OUT, /* coming in */
  PEGEN_PTX_ATTENTION_G_LSE = PEGEN_PTX_ATTENTION_G_OUT + PEGEN_PTX_ROWS_COUNT,
  PEGEN_PTX_ATTENTION_G_Q = PEGEN_PTX_ATTENTION_G_LSE + PEGEN_PTX_ROWS_COUNT, /* going out */
  PEGEN_PTX_ATTENTION_G_K = PEGEN_PTX_ATTENTION_G_Q + PEGEN_PTX_ROWS_COUNT,
  PEGEN_PTX_ATTENTION_G_V = PEGEN_PTX_ATTENTION_G_K + PEGEN_PTX_ROWS_COUNT,
  PEGEN_PTX_ATTENTION_LESS = PEGEN_PTX_ATTENTION_G_V + PEGEN_PTX_ROWS_COUNT, /* address: a float32 of each query,
       [batches][heads][queries], that the entry of queries writes and that of keys reads */
  PEGEN_PTX_ATTENTION_ITEMS, /* tiles of queries of all heads and batches */
  PEGEN_PTX_ATTENTION_EACH, /* items of a block, side by side */
  PEGEN_PTX_ATTENTION_CHUNKS, /* address of numbers [blocks][PEGEN_PTX_ATTENTION_WARPS][elements of all operands];
                                 0: no operand's gradient is wanted */
  PEGEN_PTX_ATTENTION_SHARES, /* address of what positions gain: numbers [batches][queries][heads][axes] of the entry of
       queries, of that of keys [batches][keys][heads of k][axes]; where scores read inputs, and these gain, too, of
       either [heads][pegen_ptx_attention.n_sums]; 0: not wanted. Older kernels do not have it. */
  PEGEN_PTX_ATTENTION_WEIGHTS, /* of a bias that is a polynomial, address of what its weights gain: float32
       [batches][heads][queries][weights], that the entry of queries writes; 0: not wanted */
  PEGEN_PTX_ATTENTION_KEPT, /* the same of the weights themselves, where positions gain or tensor cores serve rows:
                               that of keys reads them, too */
  PEGEN_PTX_ATTENTION_PAIRS, /* address of what numbers of pairs gain: float32 [batches][queries][heads][inputs of
       pairs] [keys], that the entry of queries writes; 0: not wanted. Older kernels do not have it. */
  PEGEN_PTX_ATTENTION_GRADIENT_COUNT,
  PEGEN_PTX_ATTENTION_WARPS = PEGEN_PTX_BLOCK / 32
};

/* Words of the entries that a backward call of attention and its finish are made of. */
/* The first two are tile programs of gradients of rows alone. Where there is the third, the second makes gradients of
 * keys alone, and the third those of values. The fourth and fifth stand in for the first two where operands, inputs or
 * positions have gradients, too. Or the last two, which read the caller's rows, are launched before those, and make no
 * gradients of rows. A block of the fourth or sixth has PEGEN_PTX_ATTENTION_EACH tiles of queries. */
#define PEGEN_PTX_WORD_QUERIES_MMA "attention_backward_queries_mma"
#define PEGEN_PTX_WORD_KEYS_MMA "attention_backward_keys_mma"
#define PEGEN_PTX_WORD_VALUES_MMA "attention_backward_values_mma"
#define PEGEN_PTX_WORD_QUERIES_GAINS "attention_backward_queries_gains"
#define PEGEN_PTX_WORD_KEYS_GAINS "attention_backward_keys_gains"
#define PEGEN_PTX_WORD_QUERIES_GIVES "attention_backward_queries_gives"
#define PEGEN_PTX_WORD_KEYS_GIVES "attention_backward_keys_gives"
#define PEGEN_PTX_WORD_ATTENTION_SUM "attention_backward_sum" /* as PEGEN_PTX_WORD_SUM */
#define PEGEN_PTX_WORD_TOTAL "attention_backward_total"
/* From what weights gain to inputs and sums: as entries of gradients of columns below, q's channels being weights in
 * float32. Its sums are finished by the two behind it. */
#define PEGEN_PTX_WORD_WEIGHTS "attention_backward_weights"
#define PEGEN_PTX_WORD_ATTENTION_SCATTER "attention_backward_scatter" /* as PEGEN_PTX_WORD_SCATTER */
#define PEGEN_PTX_WORD_ATTENTION_GATHER "attention_backward_gather"
#define PEGEN_PTX_WORD_ATTENTION_INPUTS "attention_backward_inputs" /* as PEGEN_PTX_WORD_INPUTS, of numbers */
#define PEGEN_PTX_WORD_ATTENTION_PAIRS "attention_backward_pairs" /* the same of PEGEN_PTX_ATTENTION_PAIRS */
#define PEGEN_PTX_WORD_ATTENTION_POSITIONS \
  "attention_backward_positions" /* as PEGEN_PTX_WORD_POSITIONS; shares are heads */

/* Words of the entries (pegen_ptx.words) that a backward call, where it asks for gradients of operands or positions,
 * and its finish are made of. */
#define PEGEN_PTX_WORD_GRADIENT "encode_gradient" /* rows and their torques */
#define PEGEN_PTX_WORD_SUM "encode_gradient_sum"
#define PEGEN_PTX_WORD_SCATTER "encode_gradient_scatter"
#define PEGEN_PTX_WORD_GATHER "encode_gradient_gather"
#define PEGEN_PTX_WORD_POSITIONS "encode_gradient_positions"
#define PEGEN_PTX_WORD_INPUTS "encode_gradient_inputs"
#define PEGEN_PTX_WORD_MATRICES "encode_gradient_matrices"

/* What follows the entries of gradients. Numbers are pairs of float32 whose sum they are, the larger one first.
 * Sums of a chunk are numbers [sums][heads][blocks]; one head where heads share their rotors. */
enum { /* sums of neighbouring chunks, PEGEN_PTX_SUM_MOST of them: a thread a number */
       PEGEN_PTX_SUM_FROM, /* addresses */
       PEGEN_PTX_SUM_TO,
       PEGEN_PTX_SUM_NUMBERS, /* of a chunk */
       PEGEN_PTX_SUM_CHUNKS,
       PEGEN_PTX_SUM_COUNT,
       PEGEN_PTX_SUM_MOST = 64
};
enum { /* from sums to what leaves of operands gain, numbers [leaves][heads][blocks]: a thread a head and block */
       PEGEN_PTX_SCATTER_SUMS, /* addresses */
       PEGEN_PTX_SCATTER_CHUNKS,
       PEGEN_PTX_SCATTER_GAINED,
       PEGEN_PTX_SCATTER_OPERANDS /* as of encode */
};
enum { /* from there to elements of operands: a thread an element, those of all operands in one line */
       PEGEN_PTX_GATHER_GAINED, /* address */
       PEGEN_PTX_GATHER_ADDS, /* 1: to what is there */
       PEGEN_PTX_GATHER_OPERANDS /* of gradients: address (0: not wanted) and type (float32, float64) */
};
enum { /* from chunks of attention to elements of operands: a thread an element, those of all operands in one line */
       PEGEN_PTX_TOTAL_ADDS, /* 1: to what is there */
       PEGEN_PTX_TOTAL_SUMS, /* address: numbers [chunks][elements] */
       PEGEN_PTX_TOTAL_CHUNKS,
       PEGEN_PTX_TOTAL_OPERANDS /* as of PEGEN_PTX_GATHER_OPERANDS */
};
enum { /* of dense blocks and changes of basis, from sums to elements of the operands that hold generators: a thread an
          element, those of all such operands in one line */
       PEGEN_PTX_MATRICES_SUMS, /* address: numbers [chunks][generators][heads][blocks][padded][padded] */
       PEGEN_PTX_MATRICES_CHUNKS,
       PEGEN_PTX_MATRICES_ADDS, /* as of gather */
       PEGEN_PTX_MATRICES_OPERANDS
};
enum { /* what threads gave to positions: a thread a set, token and axis */
       PEGEN_PTX_POSITIONS_SHARES, /* address: numbers [sets][batches][tokens][shares][axes] */
       PEGEN_PTX_POSITIONS_SETS,
       PEGEN_PTX_POSITIONS_BATCHES, /* whose shares are summed, of a set; 0: nothing is gained */
       PEGEN_PTX_POSITIONS_TOKENS,
       PEGEN_PTX_POSITIONS_COUNT, /* shares: threads of an item */
       PEGEN_PTX_POSITIONS_OUT, /* address, type (float32, float64), strides (set, token, axis) */
       PEGEN_PTX_POSITIONS_OUT_TYPE,
       PEGEN_PTX_POSITIONS_OUT_SET,
       PEGEN_PTX_POSITIONS_OUT_TOKEN,
       PEGEN_PTX_POSITIONS_OUT_AXIS,
       PEGEN_PTX_POSITIONS_ADDS,
       PEGEN_PTX_POSITIONS_PARAMETERS
};

enum { /* what rows gave to an input: a thread an element of its gradient, rows' tokens, heads and batches outside */
       PEGEN_PTX_INPUTS_SHARES, /* address: float32 [batches][tokens][heads][gains][blocks], of scores as
                                   PEGEN_PTX_ATTENTION_SHARES */
       PEGEN_PTX_INPUTS_BATCHES, /* of the shares; 0: nothing is gained */
       PEGEN_PTX_INPUTS_TOKENS,
       PEGEN_PTX_INPUTS_HEADS,
       PEGEN_PTX_INPUTS_FIRST, /* the input's first element among those of the rows of all inputs; of pairs: numbers of
                                  a row of PEGEN_PTX_ATTENTION_PAIRS */
       PEGEN_PTX_INPUTS_SIZE, /* elements of a row */
       PEGEN_PTX_INPUTS_OUT, /* float32: address, strides (batch, token, head), batches: 1, or those above; heads, of
                               which as many of those above follow each other as one of these has */
       PEGEN_PTX_INPUTS_OUT_BATCH,
       PEGEN_PTX_INPUTS_OUT_TOKEN,
       PEGEN_PTX_INPUTS_OUT_HEAD,
       PEGEN_PTX_INPUTS_OUT_BATCHES,
       PEGEN_PTX_INPUTS_OUT_HEADS,
       PEGEN_PTX_INPUTS_ADDS, /* 1: to what is there */
       PEGEN_PTX_INPUTS_PARAMETERS
};

/* These return where the inputs begin of an entry whose operands begin at `operands`, and what follows the inputs. */
static inline int pegen_ptx_inputs(int operands, int n_operands) {
  return operands + n_operands * PEGEN_PTX_OPERAND_COUNT;
}
static inline int pegen_ptx_behind_inputs(int operands, int n_operands, int n_inputs) {
  return pegen_ptx_inputs(operands, n_operands) + n_inputs * PEGEN_PTX_INPUT_COUNT;
}
/* Returns the first parameter behind lse of an attention entry. */
static inline int pegen_ptx_behind_lse(int n_operands, int n_inputs) {
  return pegen_ptx_behind_inputs(PEGEN_PTX_ATTENTION_OPERANDS, n_operands, n_inputs) + PEGEN_PTX_ROWS_COUNT;
}

/* Number types of operands. */
enum { PEGEN_PTX_OPERAND_F32, PEGEN_PTX_OPERAND_F64, PEGEN_PTX_OPERAND_F16, PEGEN_PTX_OPERAND_BF16 };

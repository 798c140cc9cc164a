/* launch.h: the parameters of a PTX entry, on which emitted code, launcher and tests agree.
 *
 * Every parameter has 8 bytes: addresses of the device's global memory, sizes, and
 * strides in bytes. A thread computes the rotors of one unit of channels of one token
 * once and applies them to `rows` rows. Rows are the heads of q and then of k, or, where rotors
 * differ from head to head, the batches of one head, k's row after q's.
 */
#ifndef PEGEN_KERNEL_LAUNCH_H
#define PEGEN_KERNEL_LAUNCH_H

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
};

/* Number types of operands. */
enum { PEGEN_PTX_OPERAND_F32, PEGEN_PTX_OPERAND_F64, PEGEN_PTX_OPERAND_F16, PEGEN_PTX_OPERAND_BF16 };

#endif

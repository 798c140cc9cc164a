/* arguments.h: the arguments that entries take, one row each. From it the launcher knows which tensors must be on one
 * device, XLA's handler where a buffer goes and whether it is written, pegen_explain_error what an argument should have
 * been, and docs/c-interface.md its table, which a test holds.
 *
 *     X(of, field, kind, shape, type, uses, wrong, refused)
 *
 * of     the struct that has the field: args, or grad, which args->grad points to
 * field  its name there
 * kind   TENSOR; LIST: a pointer to tensors, one for each operand or input; MEMORY: bytes of the caller's; NUMBER
 * shape  a letter a dimension. B batches, H heads of q, G heads of k, N tokens of q, M tokens of k, D head_dim, E what
 *        encode makes of it, V channels of v, P axes; a small letter: any size, b: B or left out. Rows (BH.., BG..) may
 *        lack B, and are then [N,H,..]. Behind a slash: as a cache in pages
 * type   ROW: what the kernel was compiled for; OUT: that, or what it converts to; POSITION: float32, float64, int32,
 *        int64; OPERAND: float32, float64, float16, bfloat16; GRADIENT: float32, float64; INPUT: float32, or q's; F32,
 *        I32, I64; NONE
 * uses   by entry: encode, attention, append, prepare, encode_backward, attention_backward, prepare_backward,
 *        attention_tangent. r: read, w: written, R, W: the same, and the call is refused without; '.': not looked at,
 *        or refused
 * wrong  the error of a call where it does not fit, for arguments that have one of their own; OK: those of any tensor
 * refused  the error of a call that gives it to an entry with a '.'; OK: there it is not looked at
 */
#pragma once

#define PEGEN_ARGUMENTS(X) \
  X(args, q, TENSOR, "BHND", ROW, "rRr.rR.R", OK, OK) \
  X(args, k, TENSOR, "BGMD/pgGD", ROW, "rRR.rR.R", OK, OK) \
  X(args, v, TENSOR, "BGMV/pgGV", ROW, ".Rr..R.R", OK, OK) \
  X(grad, q_out, TENSOR, "BHNE", ROW, "....r...", MISSING_GRADIENT, OK) \
  X(grad, k_out, TENSOR, "BGME", ROW, "....r...", MISSING_GRADIENT, OK) \
  X(grad, out, TENSOR, "BHNV", ROW, ".....R.W", MISSING_GRADIENT, OK) \
  X(grad, lse, TENSOR, "BHN", F32, ".....r.w", LSE, OK) \
  X(args, positions, TENSOR, "bNP", POSITION, "rrrrrrrr", POSITIONS_SHAPE, OK) \
  X(args, k_positions, TENSOR, "bMP", POSITION, "rrrrrrrr", POSITIONS_SHAPE, OK) \
  X(args, operands, LIST, "operand", OPERAND, "RRRRRRRR", OPERAND_SHAPE, OK) \
  X(args, inputs, LIST, "input", INPUT, "RRR.RR.R", INPUT_SHAPE, OK) \
  X(args, origin, TENSOR, "bP", POSITION, "r...r...", ORIGIN, ORIGIN) \
  X(args, first_token, NUMBER, "", NONE, "r.r.r...", FIRST_TOKEN, FIRST_TOKEN) \
  X(args, causal, NUMBER, "", NONE, ".r...r.r", OK, OK) \
  X(args, scale, NUMBER, "", NONE, ".r...r.r", SCALE, OK) \
  X(args, split_keys, NUMBER, "", NONE, ".r......", OK, OK) \
  X(args, q_norm, TENSOR, "D", OPERAND, "..r.....", NORM, NO_NORM) \
  X(args, k_norm, TENSOR, "D", OPERAND, "..r.....", NORM, NO_NORM) \
  X(args, norm_epsilon, NUMBER, "", NONE, "..r.....", NORM, OK) \
  X(args, q_scale, TENSOR, "", F32, "r.r.....", OUTPUT_SCALE, OK) \
  X(args, k_scale, TENSOR, "", F32, "r.r.....", OUTPUT_SCALE, OK) \
  X(args, v_scale, TENSOR, "", F32, "..r.....", OUTPUT_SCALE, OK) \
  X(args, cu_seqlens, TENSOR, "s", I32, "rr..rr.r", SEQUENCES, NO_SEQUENCES) \
  X(args, k_cu_seqlens, TENSOR, "s", I32, "rr..rr.r", SEQUENCES, NO_SEQUENCES) \
  X(args, block_table, TENSOR, "Bt", I32, ".r......", PAGES, NO_PAGES) \
  X(args, lengths, TENSOR, "B", I32, ".r......", PAGES, NO_PAGES) \
  X(args, slots, TENSOR, "bM", I64, "r.R.....", SLOTS, NO_SLOTS) \
  X(args, table, MEMORY, "", NONE, "r.rWr...", TABLE, OK) \
  X(args, q_out, TENSOR, "BHNE", OUT, "w.w.....", OK, OK) \
  X(args, k_out, TENSOR, "BGME/pgGE", OUT, "w.W.....", OK, OK) \
  X(args, v_out, TENSOR, "/pgGD", OUT, "..w.....", OK, NO_NORM) \
  X(args, out, TENSOR, "BHNV", ROW, ".W...R.R", OK, OK) \
  X(args, lse, TENSOR, "BHN", F32, ".w...R.R", LSE, OK) \
  X(grad, q, TENSOR, "BHND", ROW, "....ww.R", OK, OK) \
  X(grad, k, TENSOR, "BGMD", ROW, "....ww.R", OK, OK) \
  X(grad, v, TENSOR, "BGMV", ROW, ".....w.R", OK, OK) \
  X(grad, positions, TENSOR, "bNP", GRADIENT, "....www.", GRADIENT_SHAPE, OK) \
  X(grad, k_positions, TENSOR, "bMP", GRADIENT, "....www.", GRADIENT_SHAPE, OK) \
  X(grad, operands, LIST, "operand", GRADIENT, "....www.", GRADIENT_SHAPE, OK) \
  X(grad, inputs, LIST, "input", INPUT, "....ww..", GRADIENT_SHAPE, OK) \
  X(grad, table, MEMORY, "", NONE, "....w.R.", GRADIENT_TABLE, OK) \
  X(args, workspace, MEMORY, "", NONE, "ww..www.", WORKSPACE, OK)

/* Columns of uses. */
#define PEGEN_ARGUMENT_USES(X) \
  X(encode) \
  X(attention) X(append) X(prepare) X(encode_backward) X(attention_backward) X(prepare_backward) X(attention_tangent)

typedef enum pegen_argument_use {
#define X(entry) PEGEN_USE_##entry,
  PEGEN_ARGUMENT_USES(X)
#undef X
} pegen_argument_use;

typedef enum pegen_argument {
#define X(of, field, ...) PEGEN_ARGUMENT_##of##_##field,
  PEGEN_ARGUMENTS(X)
#undef X
      PEGEN_ARGUMENT_COUNT
} pegen_argument;

typedef enum pegen_argument_kind {
  PEGEN_ARGUMENT_TENSOR,
  PEGEN_ARGUMENT_LIST,
  PEGEN_ARGUMENT_MEMORY,
  PEGEN_ARGUMENT_NUMBER
} pegen_argument_kind;

typedef enum pegen_argument_type {
  PEGEN_TYPE_ROW,
  PEGEN_TYPE_OUT,
  PEGEN_TYPE_POSITION,
  PEGEN_TYPE_OPERAND,
  PEGEN_TYPE_GRADIENT,
  PEGEN_TYPE_INPUT,
  PEGEN_TYPE_F32,
  PEGEN_TYPE_I32,
  PEGEN_TYPE_I64,
  PEGEN_TYPE_NONE
} pegen_argument_type;

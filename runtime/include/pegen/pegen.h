/* pegen.h: what a program that links pegen's kernels needs.
 *
 * `pegen NAME.lua -o NAME.o --header NAME.h` writes an object that exports
 *
 *     extern const pegen_kernel NAME_kernel;
 *     int    NAME_encode(const pegen_args *args, int part, int parts);
 *     size_t NAME_workspace(const pegen_args *args);
 *     int    NAME_prepare(const pegen_args *args, int part, int parts);     where encode can do with a table
 *     size_t NAME_table_bytes(const pegen_args *args);
 *     int    NAME_encode_backward(const pegen_args *args, int part, int parts);     gradients: see pegen_grad_args
 *     int    NAME_encode_backward_finish(const pegen_args *args, int part, int parts);
 *     size_t NAME_encode_backward_workspace(const pegen_args *args);
 *     int    NAME_prepare_backward(const pegen_args *args, int part, int parts);    the same by way of a table
 *     int    NAME_prepare_backward_finish(const pegen_args *args, int part, int parts);
 *     size_t NAME_prepare_backward_workspace(const pegen_args *args);
 *     size_t NAME_gradient_table_bytes(const pegen_args *args);
 *     int    NAME_append(const pegen_args *args, int part, int parts);      norm, encode, k and v into their caches
 *     int    NAME_attention_finish(const pegen_args *args, int part, int parts);     keys in chunks: see split_keys
 *     size_t NAME_attention_workspace(const pegen_args *args);
 *
 * `-o NAME.so` writes a shared object that exports the same, for dlopen, and whatever NAME is
 *
 *     extern const pegen_kernel pegen_kernel_of_library;                    the same as NAME_kernel
 *
 * The object needs nothing else: no library, no start-up call. The runtime
 * library (-lpegen) adds error texts, look-ups by name and a parallel-for.
 *
 * Kernels are pure: they allocate nothing, print nothing, lock nothing, and
 * may be called from any thread. They check every argument before they write a
 * byte and return 0 or a pegen_error. A call works on its stack: 160 KiB are
 * enough up to head_dim 256, 256 KiB up to 1024, 1.2 MiB for any kernel; attention takes 96 KiB up to
 * head_dim 64 (value_dim where it is larger), 192 KiB up to 256, 512 KiB up to 1024, 1.7 MiB at most, however many
 * tokens there are; where it rotates pairs, 256 KiB up to 256; where values turn, too, 640 KiB up to 1024 and 2.1 MiB
 * at most. A bias that is a
 * polynomial adds 64 KiB at most, and 8 bytes for each term and each factor that operands have in it (PaPE: 4 KiB), in
 * backward entries six times as many.
 *
 * append takes 40 KiB more than encode. Backward entries take 64 KiB more than encode, and 80 bytes for each block; in
 * a basis of Schur forms 64 KiB more; of dense blocks of more than 32 channels, and with a change of basis of as many,
 * 256 KiB more. Those of attention take 160 KiB up to head_dim 64, 320 KiB up to 256, 1 MiB up to 1024, 3.25 MiB at
 * most; where it rotates pairs, 512 KiB up to 256, 1.25 MiB up to 1024, 4.5 MiB at most, and 128 bytes more for each
 * block and each number that operands have in it; where values turn, too, 1.75 MiB up to 1024, 6.25 MiB at most.
 *
 * Dense blocks take 128 KiB up to 32 channels, 384 KiB up to 64; a change of basis of the head 128 KiB up to head_dim
 * 64, 448 KiB up to 128, which is its most.
 *
 * Tables: prepare turns positions and operands into what encode needs of them (coefficients of rotors, matrices of
 * dense blocks), in memory of the caller's. An engine calls it when positions or weights change, and hands the same
 * table to every call, every layer that shares them and every thread; positions and operands are then neither needed
 * nor looked at. Without a table encode computes the same itself. A table says what it was made for, and one of another
 * kernel, another number of tokens or other batches of positions is refused. Nothing that it says is believed: a table
 * from a stranger can hold wrong numbers, but no call reads outside of it. It holds for every processor that the object
 * has code for.
 *
 * Floating-point state: entries compute with rounding to nearest, denormals kept and exceptions masked, whatever the
 * thread that calls has set (fesetround, flush-to-zero, traps), and give its state back on every way out;
 * pegen_fold_basis and pegen_scan_tokens too. Flags of exceptions that their arithmetic raises stay raised. Where the
 * state is the usual one nothing is written.
 *
 * Phases are right to 2^-22 up to 2^24 radians. Beyond, they are off in proportion to their size: by about
 * 2^-46 of it, and on processors, where they are float64, 2^-52, so that from 2^52 on nothing is left of them.
 * Exponentials of learned matrices M are right to 2^-22 max(1, |M|), entry by entry, up to |M| = 500 and on in
 * proportion; where an element of M is not finite, its block is NaN and the others are right. Channels that pass
 * through keep their values; a signalling NaN of 16 bits may come out quiet.
 */
#ifndef PEGEN_PEGEN_H
#define PEGEN_PEGEN_H

/* DLPack's header: the machine's, where there is one, or the copy that is installed beside this file. */
#ifdef __has_include
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#else
#include "dlpack/dlpack.h"
#endif
#else
#include <dlpack/dlpack.h>
#endif
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows by one whenever a struct below changes in a way that struct_size cannot express. */
#define PEGEN_ABI_VERSION 1

/* Why a kernel refused; pegen_strerror gives the sentence. 33 is retired: operands of a GPU launch had
 * to be float32.                                              ORDER PEGEN_ERROR */
#define PEGEN_ERRORS(X) \
  X(OK, 0, "no error") \
  X(NULL_ARGS, 1, "args is NULL") \
  X(STRUCT_SIZE, 2, "args->struct_size is not the size of a pegen_args of any version") \
  X(PART, 3, "part and parts must satisfy 0 <= part < parts") \
  X(NOTHING_TO_DO, 4, "neither q with q_out nor k with k_out was given") \
  X(MISSING_OUTPUT, 5, "q without q_out, q_out without q, or the same of k") \
  X(MISSING_POSITIONS, 6, "positions is NULL, and this kernel has no built-in grid") \
  X(MISSING_OPERAND, 7, "fewer operands were given than the kernel has, or one of them is NULL") \
  X(NULL_DATA, 8, "a tensor with elements has a NULL data pointer") \
  X(NULL_SHAPE, 9, "a tensor of rank above 0 has a NULL shape") \
  X(RANK, 10, "a tensor has the wrong number of dimensions: rows have 4 or, all tensors of the call alike, 3") \
  X(NEGATIVE_SIZE, 11, "a tensor has a negative size") \
  X(HEAD_DIM, 12, "the last dimension of q, k or an output is not the kernel's head_dim") \
  X(SHAPE_MISMATCH, 13, "sizes of two tensors that must agree do not") \
  X(HEADS, 14, \
    "the number of heads is not the one this kernel was made for (operands or phases per head), nor, of q that is " \
    "encoded, a multiple of it") \
  X(POSITIONS_SHAPE, 15, \
    "positions is neither [N,P] nor [B,N,P], nor, of one axis, [N] or [B,N], or disagrees with q or k") \
  X(GRID_SIZE, 16, "the number of tokens is not skip_tokens plus the size of the built-in grid") \
  X(OPERAND_SHAPE, 17, "an operand has another shape than the header says, or is not contiguous") \
  X(DTYPE, 18, "a number type that this kernel has no code for") \
  X(DTYPE_MISMATCH, 19, \
    "q, k and their outputs must have one number type; outputs may have one that the kernel converts to") \
  X(POSITIONS_DTYPE, 20, "positions must be float32, float64, int32 or int64") \
  X(OPERAND_DTYPE, 21, "an operand must be float32, float64, float16 or bfloat16") \
  X(CHANNEL_STRIDE, 22, "channels must be adjacent: the stride of the last dimension must be 1") \
  X(STRIDE, 23, "an output has strides with which two of its elements share memory, or that overflow") \
  X(ALIGNMENT, 24, "a data pointer is not aligned to its element") \
  X(OVERLAP, 25, "an output overlaps another tensor without being its own input, element for element") \
  X(DEVICE, 26, "a tensor is not in the memory of the device that this entry runs on") \
  X(PROCESSOR, 27, "this object has no code for this processor; compile with --target x86-64-v2 added") \
  X(WORKSPACE, 28, \
    "workspace is NULL, or workspace_bytes is less than NAME_workspace(), on a GPU pegen_cuda_workspace(), says") \
  X(SIZE_OVERFLOW, 29, "a tensor is too large to address") \
  X(NO_PTX, 30, "this object was compiled without a GPU target; add sm_80 or another to --target") \
  X(NO_CUDA_DRIVER, 31, "no CUDA driver: libcuda.so.1 cannot be loaded, or finds no device") \
  X(CUDA, 32, "the CUDA driver reported an error; pegen_cuda_error_name() says which") \
  X(ENTRY, 34, "this kernel has no entry of that name; NULL and \"encode\" name the one it has") \
  X(KERNEL, 35, "the kernel is NULL, or was made for another version of pegen/pegen.h than the runtime") \
  X(NO_MEMORY, 36, "no memory on the host, for a kernel's module or for what folding works on") \
  X(MISSING_INPUT, 37, "fewer inputs were given than the kernel has, or one of them is NULL") \
  X(INPUT_SHAPE, 38, \
    "an input is neither [B,H,N,size] nor, where its size is 0, [B,H,N], or disagrees with q; [N,H,size] and [N,H] " \
    "where that is [N,H,D]") \
  X(INPUT_DTYPE, 39, "inputs must all have q's number type, or all be float32") \
  X(MISSING_TABLE, 40, \
    "prepare needs a table to write, grad->table an args->table, and prepare_backward a grad->table") \
  X(TABLE_BYTES, 41, \
    "table_bytes is less than NAME_table_bytes() says, or that of grad than NAME_gradient_table_bytes()") \
  X(TABLE, 42, "the table was not made by this kernel's prepare, or for other numbers of tokens or batches") \
  X(OUTPUT_SCALE, 43, "q_scale or k_scale is not one float32, or its output is not of float8") \
  X(UNKNOWN_FIELD, 44, \
    "args has a field that is not 0 and that this object, made before there was one, does not know") \
  X(MISSING_GRADIENT, 45, "a backward call without args->grad, or with neither q_out nor k_out in it") \
  X(GRADIENT_SHAPE, 46, \
    "a gradient has another shape than what it is the gradient of, or is an operand's and not contiguous") \
  X(GRADIENT_DTYPE, 47, \
    "gradients of rows and inputs have their type, those of operands and positions float32 or float64") \
  X(MISSING_KEPT, 48, "gradients of operands and positions need q and k: what encode wrote, or what it read") \
  X(GRADIENT_FLAGS, 49, "grad->flags has a bit that this object does not know") \
  X(MISSING_TENSOR, 50, "attention needs q, k, v and out") \
  X(VALUE_DIM, 51, "the last dimension of v or out is not the kernel's value_dim") \
  X(HEAD_GROUPS, 52, "the number of heads of q is no multiple of that of k and v") \
  X(SCALE, 53, "scale is not a finite number") \
  X(INDEXED_OPERAND, 54, "an operand that is read at a computed index must be float32") \
  X(GRID_ONLY, 55, "this kernel is made for its built-in grid alone: positions and k_positions must be NULL") \
  X(NO_GRADIENT, 56, "a gradient was asked for that this kernel's entry does not have") \
  X(LSE, 57, "lse is not float32 of the shape [B,H,N] of q, [N,H] where that is [N,H,D]") \
  X(GRADIENT_TABLE, 58, \
    "grad->table was not begun by this kernel's encode_backward on this processor, or for other numbers of tokens or " \
    "batches, or holds what comes of the other of what encode wrote and read") \
  X(SEQUENCES, 59, \
    "cu_seqlens and k_cu_seqlens must be adjacent int32 [B+1] of as many sequences, and alike for gradients of " \
    "positions that q and k share") \
  X(NO_SEQUENCES, 60, \
    "cu_seqlens is for encode, attention and their gradients on processors, without a table of a grid and, in encode " \
    "with positions given, without tokens that are skipped") \
  X(PAGES, 61, \
    "block_table and lengths must be adjacent int32 [B,most_pages] and [B], k and v [pages,page_size,Hkv,D] with a " \
    "page_size that is a multiple of 16, with k_positions where positions are needed and without k_cu_seqlens") \
  X(PAGE, 62, "block_table has a page that k and v do not have, among those that a length needs") \
  X(LENGTHS, 63, "a length is negative, or longer than its pages, k_positions or the built-in grid") \
  X(NO_PAGES, 64, "block_table and lengths are for attention on processors, and not for its gradients") \
  X(SLOTS, 65, \
    "slots must be adjacent int64 [B,M], or [tokens] of as many as k has in all batches; append is for calls with " \
    "them") \
  X(SLOT, 66, "a slot is neither -1 nor one that k_out [pages,page_size,Hkv,E], or v_out, has") \
  X(NO_SLOTS, 67, "slots are for encode and append on processors, and not for their gradients") \
  X(NORM, 68, \
    "q_norm and k_norm must be adjacent [head_dim] of a type that operands have, of a tensor that is given, and " \
    "norm_epsilon a finite number that is not negative") \
  X(NO_NORM, 69, "q_norm, k_norm and v_out are for append, on processors") \
  X(SCAN, 70, \
    "a scan needs in and out, [B,H,N,C] or [B,H,N], a period that is finite and not negative, and known flags") \
  X(NEEDS_INPUT, 71, \
    "this kernel maps channels before they turn: its gradients, those of rows too, take in q and k what encode read, " \
    "and grad->flags must have PEGEN_GRAD_FROM_INPUT") \
  X(BOUNDS, 72, \
    "cu_seqlens or k_cu_seqlens does not begin at 0, falls, or does not end at the number of rows: rows of padding " \
    "behind the last sequence are one sequence more") \
  X(SEQUENCE_POSITIONS, 73, "positions is NULL, and rows of several sequences are each at a position of their own") \
  X(ORIGIN, 74, \
    "columns count positions from the middle of positions, and where q or k is alone, or k goes to slots, from " \
    "args->origin: [P] or [B,P] of a position's type; a kernel without has_origin, and a call without positions, has " \
    "none") \
  X(FIRST_TOKEN, 75, \
    "first_token is negative, or not 0 of a call that it is not for: it is for encode, append and gradients of " \
    "encode " \
    "on processors, with positions and without a table")

typedef enum pegen_error {
  PEGEN_ERROR_NONE = 0 /* PEGEN_ERROR_OK; it stands first so that no comma stands last, which C89 and C++98 refuse */
#define PEGEN_ERROR_ENUM(name, value, text) , PEGEN_ERROR_##name = value
  PEGEN_ERRORS(PEGEN_ERROR_ENUM)
#undef PEGEN_ERROR_ENUM
} pegen_error;

/* ---- gradients ---- */

enum {
  /* of operands, inputs, positions and a table: added to what is there; without it what is there is lost */
  PEGEN_GRAD_ACCUMULATE = 1,
  PEGEN_GRAD_FROM_INPUT = 2  /* q and k hold what encode read; without it what encode wrote */
};

/* What a backward entry reads and writes beside the arguments of the forward one: gradients of a loss, those of what
 * forward wrote coming in, those of what it read going out. Any that goes out may be NULL, and costs nothing then.
 *
 * NAME_encode_backward takes the arguments of NAME_encode (positions, operands, inputs, a table) and
 *   grad->q_out, k_out   coming in, [B,H,N,E], [B,Hkv,M,E] of the kernel's row types; NULL: no rows of that tensor
 *   grad->q, k           going out, [B,H,N,D], [B,Hkv,M,D] of the same type, rounded once; may be q_out and k_out
 *                        themselves where E = D
 *   grad->operands       [n_operands], each of its operand's shape, contiguous, float32 or float64
 *   grad->inputs         [n_inputs], each of its input's shape and type, any strides. Of columns: only with q_out,
 *                        rounded once; of rows that turn by inputs: sums of float32 over the rows that read them, of q
 *                        before k
 *   grad->positions      of the shape of args->positions, any strides, float32 or float64; also grad->k_positions
 * and, only where an operand, an input or positions have a gradient, positions and operands beside any table, and
 *   args->q, k           (not of what is added to rows, nor where E is not D) of every tensor of q_out and k_out what
 * encode wrote, or (PEGEN_GRAD_FROM_INPUT) what it read; in its type and shape. From 16-bit rows that encode wrote,
 * rounded as they are, gradients of operands carry errors of 2^-8 (bfloat16) or 2^-11 (float16) of the sum of the
 * absolute values of what is added; from what it read they do not. What it read is needed where what it wrote does not
 * hold what was turned: an amplitude of 0, outputs of another number type; a kernel that maps channels before they
 * turn, or multiplies them by matrices of the description's own (pegen_kernel.needs_input), takes it for all gradients,
 * those of rows too, and refuses other calls (NEEDS_INPUT). And args->workspace NAME_encode_backward_workspace(args)
 * bytes, 8-byte aligned, of no tensor of the call.
 *
 * Encode's other gradients are refused (NO_GRADIENT), as are those that are 0 whatever the call is. In the basis of a
 * Schur form gradients of operands are those of scores, which do not depend on it: of S y for rows y, where S is what
 * the basis lacks. A q_out or k_out that is only read (grad->q, k is NULL) may have any strides, also 0. n_operands is
 * the length of both lists.
 *
 * Parts as in encode. Then, where an operand has a gradient and after all parts have come back (the caller's barrier),
 * NAME_encode_backward_finish(args, part, parts) with the same arguments adds up what they left in the workspace, each
 * part (of the first 16) some of the elements. All results are the same to the bit for any number of parts of either. A
 * gradient of positions [N,P] is the sum over batches; where k has no positions of its own (args->k_positions is NULL),
 * that of q and k together. Tokens that are skipped give positions and inputs 0. Where encode appends columns (E is not
 * D) q and k gain the channels that it moved; what the columns gain goes on to inputs, operands and positions. In 16
 * bits, where a column is a rounded value beside what rounding took, rounding counts as exact: the value gains what a
 * product of columns that was not rounded would give it.
 *
 * By way of a table that many calls read (layers that share positions and operands, batches), what operands and
 * positions gain is computed once for all of them: each call's
 *   NAME_encode_backward with args->table and
 *   grad->table          NAME_gradient_table_bytes(args) bytes, 64-byte aligned, of no tensor of the call; table_bytes
 * adds there what its rows give each token and head of the table (torques), where PEGEN_GRAD_ACCUMULATE is set, and
 * begins the table anew where it is not: that is for the first call. It takes q and k as above, no positions, operands
 * or workspace, and gradients of those in the same call are refused (NO_GRADIENT). Calls that share a grad->table come
 * one after the other, all with PEGEN_GRAD_FROM_INPUT or all without; their order is that of the sums. Then
 *   NAME_prepare_backward, once, takes the arguments of NAME_prepare but for the table, and grad->table, which it
 * reads, writes grad->operands, positions and k_positions as above, with NAME_prepare_backward_workspace(args) bytes of
 * workspace, and is followed by NAME_prepare_backward_finish where an operand has a gradient. NAME_gradient_table_bytes
 * takes the arguments of NAME_prepare. A table of gradients is of the processor that it was begun on. What it holds is
 * float64 of rotors, and of dense blocks of the type that their matrices are formed in: of float32 each call that adds
 * to it rounds once.
 *
 * NAME_attention_backward takes the arguments of NAME_attention (q, k, v, out, positions, operands, inputs, causal,
 * scale), where out and lse are what that wrote, and
 *   grad->out            coming in, of out's shape and type
 *   grad->lse            coming in, [B,H,N] float32; NULL: the loss does not look at lse
 *   grad->q, k, v        going out, of the shapes and type of q, k, v, rounded once; no tensor of the call
 *   grad->operands       of those that a bias or a rotation of pairs is a function of, as encode's; read at computed
 *                        places, too
 *   grad->inputs         [n_inputs] of a polynomial's, each of its input's shape and type, rounded once, any strides
 *   grad->positions,     of those given, float32 or float64, as encode's: displacements turn and add, and a token gains
 *   grad->k_positions    as a query and, where k has no positions of its own, as a key
 *   args->workspace      NAME_attention_backward_workspace(args) bytes, 8-byte aligned: float32 rows of k and v, and
 *                        float64 sums of operands, at most as many numbers as q and as one of all operands; of tables
 *                        that batches with the same positions read float32 of pairs, at most as many as q and k; where
 *                        positions have a gradient a float64 for each axis of each row of q, and of k, too; inputs of
 *                        scores, one for each of their numbers that is read, of k for each head of q.
 * Gradients of rows of 16 bits carry what rounding took from out: 2^-8 (bfloat16) or 2^-11 (float16) of the sum of the
 * absolute values of what is added. What is not seen leaves no trace, whatever it holds; a query that sees nothing
 * gains 0, and so do inputs of tokens that are skipped. Gradients that there are none of are refused (NO_GRADIENT):
 * of what is not given, as positions of a built-in grid that is tabulated. Where an operand, positions or inputs
 * of a score have a gradient NAME_attention_backward_finish follows as in encode.
 * Results are the same to the bit for any number of parts; up to as many as k has heads in all batches share no work.
 */
typedef struct pegen_grad_args {
  uint32_t struct_size; /* sizeof(pegen_grad_args); it grows as pegen_args does */
  uint32_t flags;       /* PEGEN_GRAD_ */
  const DLTensor *q_out, *k_out, *out, *lse; /* coming in; out and lse are attention's */
  DLTensor *q, *k, *v;                       /* going out */
  DLTensor *const *operands, *const *inputs; /* in the order of args->operands and args->inputs */
  DLTensor *positions, *k_positions;
  /* What follows came later. */
  void *table; /* of encodings that read args->table: encode_backward adds to it, prepare_backward reads it */
  size_t table_bytes; /* bytes at table */
} pegen_grad_args;

/* The least that its struct_size may be; see PEGEN_ARGS_FIRST_SIZE. */
#define PEGEN_GRAD_ARGS_FIRST_SIZE offsetof(pegen_grad_args, table)

/* Arguments of every entry. Zero it, set struct_size = sizeof(pegen_args) and what you use.
 *
 * It grows at its end. Caller and object may be of different versions, either the older one: fields that a caller's
 * struct ends before count as 0, and fields that an object does not know must be 0, or it refuses (UNKNOWN_FIELD)
 * rather than leave out what was asked for.
 *
 * Strides are DLPack's, in elements; NULL strides mean contiguous. Any batch,
 * head and token stride will do (also negative and 0 for inputs); the stride
 * of channels is 1. [B,N,H,D] memory is the same tensor with other strides.
 *
 * Without batches, as engines have them, tensors of rows are [N,H,D], all of a call alike (k [M,Hkv,D], outputs,
 * gradients; inputs [N,H,size] and [N,H], lse [N,H]): one batch. Positions of one axis may lack the dimension of axes,
 * [N] and [B,N], and their gradients have the shape that they have; [x,1] is [N,1] where x is the number of tokens, and
 * in calls without rows (prepare). Nothing is copied. */
typedef struct pegen_args {
  uint32_t struct_size;
  int32_t n_operands;
  /* [B,H,N,D]; NULL together with q_out. Where operands are of heads, H of encode may be a multiple of their number,
   * which k has: head h of q takes the operands of head h / (H / Hkv). */
  const DLTensor *q;
  const DLTensor *k;             /* [B,Hkv,M,D]; NULL together with k_out */
  const DLTensor *v;             /* [B,Hkv,M,Dv]; attention only */
  DLTensor *q_out, *k_out;       /* encode: [B,H,N,E], [B,Hkv,M,E]; may be q and k themselves where E = D */
  DLTensor *out;                 /* attention: [B,H,N,Dv] */
  const DLTensor *positions; /* [N,P] or [B,N,P] of float32, float64, int32 or int64; NULL where a grid is built in */
  const DLTensor *k_positions; /* [M,P] or [B,M,P]; NULL: the same as positions */
  const DLTensor *const *operands; /* in the order of the header's NAME_OPERAND_ enum */
  void *workspace; /* NAME_workspace() bytes, or NULL where that is 0 */
  /* What follows came later. */
  void *table; /* NAME_table_bytes() bytes, 64-byte aligned: prepare writes, encode reads; NULL: encode does without */
  size_t table_bytes; /* bytes at table */
  size_t workspace_bytes; /* bytes at workspace; 0: not told, and not checked */
  /* Of each query token, in the order of the header's NAME_INPUT_ enum. Encode without columns: float32, of each token
   * of q and of k, which have the same heads and tokens; the inputs' B and H may be 1, for all. */
  const DLTensor *const *inputs;
  int32_t n_inputs;
  int32_t causal; /* attention: 1: query i sees keys j <= i + M - N only; what it does not see may hold NaN */
  double scale; /* attention: factor of q k^T (and of a bias that shares it); 0: the kernel's own,
                   1/sqrt(D) unless its description states another */
  /* What follows came with outputs of float8: one float32 on the kernel's device, read at the call; NULL: 1. What is
   * stored is the value divided by the scale, as vLLM's and FlashInfer's caches hold it: value = stored * scale. The
   * product with the scale's reciprocal, rounded to float32, is rounded to nearest even; what is too large becomes the
   * largest number (448, 57344), NaN stays NaN. A scale that is no positive, finite, normal number makes every element
   * NaN. Outputs of other types have no scale. */
  const DLTensor *q_scale, *k_scale;
  const pegen_grad_args *grad; /* backward entries only; others do not look at it */
  /* attention: [B,H,N] float32, any strides: ln of the sum over keys of exp(score), of exactly the scores that the
   * description says; -infinity where a query sees no key. NULL: not wanted, and costs nothing. Its backward reads it.
   */
  DLTensor *lse;
  /* attention: 1: where there are few queries and many keys, parts share the keys, too (flash decoding). They write
   * what becomes of chunks of keys to workspace, of NAME_attention_workspace(args) bytes, 8-byte aligned, of no tensor
   * of the call, and NAME_attention_finish(args, part, parts) writes out and lse after all of them have come back (the
   * caller's barrier). Chunks depend on the number of keys alone: the same bits for any number of parts of both. Where
   * NAME_attention_workspace says 0 the call is not split, needs no workspace, and finish does nothing. 0: attention
   * does it all, and looks at no workspace. pegen_launch splits alike: "attention_finish" is launched on the same
   * stream, and pegen_cuda_workspace says the bytes; there 16-bit rows that are turned inside of attention are turned
   * once each into the workspace, however many queries there are. */
  int64_t split_keys;
  /* Encode, attention and their gradients on processors: sequences of different lengths, whose rows follow each other.
   * [B+1] int32: sequence b has rows [cu_seqlens[b], cu_seqlens[b + 1]) of q, and [k_cu_seqlens[b],
   * k_cu_seqlens[b + 1]) of k; 0 first, never falling, the number of rows last. NULL for k: as for q. Then all rows
   * are [total,H,D], any strides but of channels, lse [total,H], inputs [total,H,size], positions [total,P],
   * k_positions [rows of k,P]. Each sequence is computed as by a call of its own, to the bit: queries see its keys
   * alone, causal counts from its end, attention's prefix tokens are its first; in encode a built-in grid begins anew
   * (a sequence has its tokens, or none), in attention it is one sequence's. What operands gain is the sum over
   * sequences. split_keys has no effect. Encode refuses (NO_SEQUENCES) tokens that are skipped where positions are
   * given, and tables of a grid; other entries and GPUs refuse sequences. */
  const DLTensor *cu_seqlens, *k_cu_seqlens;
  /* attention on processors: a cache of keys and values in pages. k is [pages,page_size,Hkv,D] and v
   * [pages,page_size,Hkv,Dv], any strides but of channels (so also [pages,Hkv,page_size,D] memory), page_size a
   * multiple of 16; block_table [B,most_pages] int32: the pages of each sequence, in its order, which sequences may
   * share, of which those behind the last that is needed may hold anything; lengths [B] int32: keys of each sequence,
   * those of its queries among them; 0: none. Key j of sequence b is row j mod page_size of page block_table[b][j /
   * page_size]. Inputs of keys are in the same pages, [pages,page_size,Hkv,size] or [pages,page_size,Hkv]. Queries are
   * [B,H,N,D], or, with cu_seqlens, [total,H,D]. Each sequence is computed as by a call of its own whose keys follow
   * each other: causal is aligned at its end, prefix tokens are its first keys. k_positions are [M,P] or [B,M,P] for
   * the sequence's keys in their order, and needed where positions are; M is no less than any length; on a built-in
   * grid key j is its point j. Keys are read where they are. split_keys is as without pages. Both NULL: rows follow
   * each other. Other entries and GPUs refuse them (NO_PAGES). */
  const DLTensor *block_table, *lengths;
  /* encode on processors: where rows of k are written, int64, adjacent, [B,M]
   * or [B M] for the tokens of all batches in their order. k_out is a cache [pages,page_size,Hkv,E], any strides but of
   * channels, its own memory: slot s is row s mod page_size of its page s / page_size, -1: the token's row is left out.
   * Rows are those of a call without slots, in k_out's number type. Slots should differ: of tokens with the same slot
   * one's row remains, and where parts run together its elements may be of both. Rows of k of four dimensions. NULL:
   * k_out has k's shape. Other entries and GPUs refuse them (NO_SLOTS). Rows may lack the dimension of batches, all
   * alike, where the kernel has no inputs. */
  const DLTensor *slots;
  /* append: v [B,Hkv,M,D], of k's number type, goes to the same slots of its own cache, [pages,page_size,Hkv,D] as k's,
   * in that type or one that encode converts to: divided by v_scale as k_out by k_scale. NULL together with v. */
  DLTensor *v_out;
  const DLTensor *v_scale;
  /* append: learned weights w [D] of any operand's type, used as float32: rows of q, and of k, are encoded of
   * x w / sqrt(mean(x^2) + norm_epsilon), computed in float32 and not rounded before they are encoded. NULL: rows as
   * they are. Tokens that are skipped are normalised, too. */
  const DLTensor *q_norm, *k_norm;
  double norm_epsilon;
  /* Kernels with has_origin, encode and its gradients: the position that columns of q and of k count from, [P], or
   * [B,P] of each batch or sequence, of a type that positions have, on the kernel's device. Rows of q and k make scores
   * together where both count from the same place, and lose fewest digits where that is amid them. NULL: the middle of
   * args->positions of each batch or sequence: on each axis the median of three tokens, M = s + n / 2, M - n / 3 and
   * M + n / 3 of n tokens behind s that are skipped, 0 for what is not finite. Whoever keeps rows of k for later calls
   * gives it, one for all of them: calls where it cannot be known otherwise (q or k alone, slots) are refused without.
   */
  const DLTensor *origin;
  /* encode, append and encode's gradients, on processors and with positions: the index in its sequence of the first row
   * of a batch (with cu_seqlens of every sequence). Row n passes through where first_token + n is below skip_tokens: of
   * a token that is generated, or a chunk of a prompt, it is not 0. Attention counts from the keys' end instead; other
   * entries, tables and GPUs refuse it (FIRST_TOKEN). */
  int64_t first_token;
} pegen_args;

/* What struct_size may be: at least the first version's, at most what any version will have, a multiple of 8. */
#define PEGEN_ARGS_FIRST_SIZE offsetof(pegen_args, table)
enum { PEGEN_ARGS_MOST_SIZE = 4096 };

typedef struct pegen_operand {
  const char *name;
  const char *doc; /* what it is, with units and source */
  const char *units; /* "1", "radians per unit of position" */
  const char *initializer; /* how to initialise it for training; "" where unknown */
  int32_t rank;
  const int64_t *shape; /* [rank] */
  const char *const *dimension; /* [rank]: "axes", "heads", "blocks" or a number as text */
} pegen_operand;

/* A tensor with a row for each query token and head, [B,H,N,size], or each key's (pegen_kernel.key_inputs). */
typedef struct pegen_input {
  const char *name;
  const char *doc;
  const char *units;
  int64_t size; /* of the last dimension; 0: the input is [B,H,N] */
} pegen_input;

/* Type codes of float8 in DLPack 1.1 (kDLFloat8_e4m3fn, kDLFloat8_e5m2); headers of before do not have them. */
enum { PEGEN_DL_FLOAT8_E4M3FN = 10, PEGEN_DL_FLOAT8_E5M2 = 12 };

/* Bits of pegen_kernel.dtypes: rows that are written in the type they are read in. Of rows that are read in one type
 * and written as float8, the type's bit moved up: PEGEN_DTYPE_BF16 << PEGEN_TO_F8E4M3. */
enum { PEGEN_DTYPE_F32 = 1, PEGEN_DTYPE_BF16 = 2, PEGEN_DTYPE_F16 = 4 };
enum { PEGEN_TO_F8E4M3 = 8, PEGEN_TO_F8E5M2 = 16 };

typedef int pegen_entry(const pegen_args *args, int part, int parts);
typedef size_t pegen_workspace_entry(const pegen_args *args);

/* A GPU entry of the PTX that is compiled into an object; see pegen/cuda.h for how to launch it. */
typedef struct pegen_ptx_entry {
  const char *name; /* of the .entry */
  uint32_t dtype; /* its bit of pegen_kernel.dtypes */
  int32_t access; /* addresses and strides of q, k and outputs must be multiples of this many bytes */
  int32_t units; /* threads of a token (and head, where per_head) */
  int32_t flight; /* rows a thread has under way: rows a thread should be a multiple */
  int32_t columns; /* tokens (of a batch, or a head where per_head) that a warp has; 0: units lie in one line over all
                      warps */
} pegen_ptx_entry;

/* What attention entries need to be launched. Their `columns` are the queries of a block, `flight` the keys of a tile.
 */
typedef struct pegen_ptx_attention {
  int32_t first_entry; /* of pegen_ptx.entries: this one and all after it are of attention */
  int32_t n_parameters;
  int32_t value_dim; /* Dv */
  int32_t placed; /* 1: positions are needed */
  int32_t grid_only; /* 1: and must be the built-in grid's */
  uint32_t indexed; /* bits: operands that are read at computed places, and must be float32 */
  uint32_t
      gaining; /* bits: operands that have gradients; kernels without "attention_backward" among words end before it
                */
  int32_t n_sums; /* where scores read inputs, numbers of a token and head that coordinates and these gain; 0: none.
                     Kernels without such inputs may end before it */
} pegen_ptx_attention;

/* What a launch must know of the entries of gradients of operands and positions. */
typedef struct pegen_ptx_gradient {
  int32_t n_sums; /* numbers of a head and block that chunks keep; 0: operands have no gradient */
  int32_t n_gained; /* and that leaves of operands gain */
  int32_t n_blocks;
  int32_t has_positions; /* 1: positions have a gradient */
  int32_t needs_kept; /* 1: what encode wrote or read is asked for */
  int32_t n_shares; /* that positions gain of an item and head; 0: one a thread */
  int32_t matrix_sums; /* numbers of a chunk that learned matrices gain; 0: there are none */
  int32_t matrix_elements; /* of the operands that hold them */
  int32_t thread_bytes; /* of the workspace, a thread's own */
  int32_t n_weights; /* of attention whose bias is a polynomial: numbers of a query, of which inputs, operands and
                        positions gain; structs of other kernels may end before it */
  int32_t n_input_gains; /* numbers of a row that turns by inputs (per_head 3), of which these gain: a float32 each */
} pegen_ptx_gradient;

typedef struct pegen_ptx {
  const char *text; /* NUL-terminated; size without the NUL */
  uint64_t size;
  uint64_t digest[2]; /* of the text: equal digests, equal modules */
  const char *chip; /* "sm_90": it runs on this and later ones */
  int32_t block; /* threads of a block */
  int32_t n_parameters;
  int32_t per_head; /* 1: rotors differ from head to head, and a thread's rows are batches of one head; 2: the heads of
                       q differ; 3: each row has its own, of inputs, and a thread's rows are one of q and one of k */
  int32_t n_entries;
  const pegen_ptx_entry *entries; /* of one number type the widest access first; the last takes any address */
  const pegen_ptx_attention *attention; /* of a kernel with NAME_attention; other kernels' structs may end before it */
  const char *const *words; /* [n_entries]: "encode", "attention", "encode_backward", what each is launched for; kernels
                               whose struct_size ends before attention_backward do not have it */
  const pegen_ptx_gradient *gradient; /* of the same kernels; NULL: there are none of operands and positions */
  const int32_t *shared; /* [n_entries] bytes of dynamic shared memory that a launch of each gives a block; kernels
                            whose ptx_size ends before it do not have it, and need none */
} pegen_ptx;

/* Of an encoding that widens, the rows of one number type. */
typedef struct pegen_width {
  int32_t out_dim; /* E */
  int32_t n_columns; /* E - D */
  const char *const *columns; /* [n_columns] as pegen_kernel's */
} pegen_width;

/* What an object says of itself. struct_size first, so that fields can be added at the end. */
typedef struct pegen_kernel {
  uint32_t struct_size;
  uint32_t abi_version; /* PEGEN_ABI_VERSION of the compiler that made it */
  const char *name;
  const char *doc; /* one line from the spec */
  const char *digest; /* of the description and its options: equal digests, equal mathematics */
  const char *options; /* "head_dim=64 base=100 ..." */
  const char *targets; /* "x86-64-v3 x86-64-v4" */
  uint32_t dtypes; /* PEGEN_DTYPE_ bits, and those of pairs */
  int32_t head_dim; /* D */
  int32_t out_dim; /* E; equal to D unless the encoding widens */
  int32_t n_axes; /* P */
  const char *const *axes; /* [P] names */
  int32_t heads; /* number of heads it is made for; 0: any */
  int32_t skip_tokens; /* tokens at the front of a sequence that pass through; of attention the first keys, and query i
                          of N where i + M - N is below it */
  const int64_t *grid; /* [P] sizes of the built-in grid, or NULL */
  int32_t n_operands;
  const pegen_operand *operands;
  pegen_entry *encode;
  pegen_entry *attention; /* NULL for separable encodings */
  pegen_workspace_entry *workspace;
  const pegen_ptx *ptx; /* NULL: compiled without a GPU target */
  /* What follows came later: kernels whose struct_size ends here do not have it. */
  pegen_entry *prepare; /* writes args->table; NULL: there is no table */
  pegen_workspace_entry *table_bytes; /* bytes of the table that args asks for; NULL: there is no table */
  int32_t n_inputs;
  int32_t n_columns; /* out_dim - head_dim: what an encoding that widens appends to q and k, padding included */
  const pegen_input *inputs;
  const char *const *columns; /* [n_columns] meaning of each: "h^2 w"; "0" of padding; NULL where there are none */
  const pegen_width
      *widths; /* [f32, bf16, f16] where they differ: out_dim and columns are those of the first compiled in; or NULL */
  /* Gradients; NULL: compiled with --no-grad, or there are none of this kind of kernel. */
  pegen_entry *encode_backward, *encode_backward_finish;
  pegen_workspace_entry *encode_backward_workspace; /* bytes of args->workspace for them; 0 where none is needed */
  pegen_entry *attention_backward, *attention_backward_finish;
  pegen_workspace_entry *attention_backward_workspace;
  pegen_entry *prepare_backward, *prepare_backward_finish; /* NULL: as above, or there is no table */
  pegen_workspace_entry *gradient_table_bytes; /* bytes of grad->table; 0 where positions or operands are wrong */
  pegen_workspace_entry *prepare_backward_workspace;
  pegen_entry *attention_finish; /* of calls whose args->split_keys is set */
  pegen_workspace_entry *attention_workspace;
  int32_t
      has_sides; /* 1: rows of q and k of one token are encoded differently (an amplitude of each, or sides = "dual") */
  uint16_t pair_inputs; /* bit i: attention's score reads inputs[i], which is float32 and may have one batch, or head,
                           for all */
  uint16_t key_inputs; /* bit i: of keys, [B,Hkv,M,size] or [B,H,M,size], or in pages as k is */
  pegen_entry *append; /* NULL: of dense blocks and columns */
  int32_t reads_indices; /* 1: attention's score reads indices of tokens in their sequence, so that a call of some of
                            its tokens is no part of a call of all */
  int32_t needs_input; /* 1: channels are mapped before they turn, or multiplied by what may have no inverse, and
                          encode_backward takes what encode read alone */
  uint32_t ptx_size; /* bytes of *ptx, which fields may be added to at its end */
  double scale; /* the factor of q k^T in a call of attention that gives none; 0: there is no attention */
  int32_t has_origin; /* 1: columns count positions from args->origin, or from the middle of a call's tokens; 0: from
                         where the description says */
} pegen_kernel;

/* ---- the runtime library (libpegen): optional, needs no compiler behind it ---- */

/* The sentence for an error; "unknown error" for other numbers. Never NULL. */
const char *pegen_strerror(int error);
/* "PEGEN_ERROR_SHAPE_MISMATCH"; "PEGEN_ERROR_UNKNOWN" for other numbers. */
const char *pegen_error_name(int error);

/* Index of the operand of that name, or -1. */
int pegen_find_operand(const pegen_kernel *kernel, const char *name);
/* Elements of operand i; 0 where i is out of range. */
int64_t pegen_operand_size(const pegen_kernel *kernel, int i);
/* 1 where this runtime understands the kernel (abi_version, struct_size), else 0. */
int pegen_kernel_supported(const pegen_kernel *kernel);

/* Runs entry(args, part, parts) for every part on `threads` threads (the caller is one of
 * them) and returns the first error in the order of parts. threads <= 1 calls it directly.
 * Threads are created and joined inside the call: an engine with a pool of its own
 * calls the entry from it instead. Results do not depend on threads. */
int pegen_parallel(pegen_entry *entry, const pegen_args *args, int threads);

#ifdef __cplusplus
}
#endif
#endif

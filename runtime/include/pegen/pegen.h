/* pegen.h: what a program that links pegen's kernels needs.
 *
 * `pegen rope.lua -o rope.o --header rope.h` writes an object and its header. A call:
 *
 *     #include "rope.h"
 *
 *     int64_t shape[] = {1, HEADS, TOKENS, ROPE_HEAD_DIM}, places[] = {TOKENS, ROPE_AXES};
 *     DLTensor q = pegen_tensor(queries, kDLFloat, 32, 4, shape, NULL);
 *     DLTensor k = pegen_tensor(keys, kDLFloat, 32, 4, shape, NULL);
 *     DLTensor positions = pegen_tensor(where, kDLInt, 32, 2, places, NULL);
 *
 *     pegen_args args = {.struct_size = sizeof args, .q = &q, .k = &k, .q_out = &q, .k_out = &k,
 *                        .positions = &positions};
 *     int error = rope_encode(&args, 0, 1);    // part 0 of 1; threads may call parts 0 to n - 1 of n
 *     if (error) puts(pegen_strerror(error));  // and then nothing was written
 *
 * Entries, and the fields of pegen_args that they read (r) and write (w); (): may be NULL or 0.
 *
 *     entry                        arguments
 *     NAME_encode                  r q or k, positions (k_positions operands inputs table cu_seqlens slots origin
 *                                  first_token q_scale k_scale workspace); w q_out k_out
 *     NAME_append                  as encode, and r slots (v v_scale q_norm k_norm norm_epsilon); w (v_out)
 *     NAME_attention               r q k v positions (k_positions operands inputs causal scale split_keys cu_seqlens
 *                                  k_cu_seqlens block_table lengths workspace); w out (lse)
 *     NAME_attention_finish        as attention, after all its parts, where split_keys is set
 *     NAME_prepare                 r positions (k_positions operands); w table
 *     NAME_encode_backward         as encode, and r grad->q_out k_out (q k: what encode wrote or read);
 *                                  w grad->q k operands inputs positions table
 *     NAME_attention_backward      as attention, and r out lse grad->out (lse); w grad->q k v operands inputs positions
 *     NAME_attention_tangent       as attention, and r out lse grad->q k v; w grad->out (lse)
 *     NAME_prepare_backward        as prepare, and r grad->table; w grad->operands positions
 *     NAME_..._backward_finish     the same arguments, after all parts, where operands, inputs or positions gain
 *     NAME_..._workspace           bytes that args->workspace must have; 0: none, or wrong arguments
 *     NAME_table_bytes             bytes of args->table; NAME_gradient_table_bytes: of grad->table
 *
 * NAME_kernel says what an object holds; an entry that it lacks is NULL there. `-o NAME.so` writes a shared object with
 * the same symbols, for dlopen, and pegen_kernel_of_library, which is NAME_kernel whatever NAME is. The object needs
 * nothing else. The runtime library (-lpegen) adds error texts, look-ups by name and a parallel-for.
 *
 * ---- what a call promises ----
 *
 * Kernels are pure: they allocate nothing, print nothing, lock nothing, and may be called from any thread. They check
 * every argument before they write a byte, and return 0 or a pegen_error. Results have the same bits for any number of
 * parts.
 *
 * Floating-point state: entries round to nearest, keep denormals and mask exceptions, whatever the calling thread has
 * set. They give its state back on every way out; pegen_fold_basis and pegen_scan_tokens do so, too. Flags that their
 * arithmetic raises stay raised. Rotated bfloat16 channels below 2^-126 may be 0 where a processor rounds them itself.
 *
 * Precision: phases are right to 2^-22 up to 2^24 radians. Beyond, they are off in proportion: by about 2^-46 of their
 * size, on processors 2^-52. Exponentials of learned matrices M are right to 2^-22 max(1, |M|) up to |M| = 500, and on
 * in proportion. Where an element of M is not finite its block is NaN, and the others are right. Channels that pass
 * through keep their values; a signalling NaN of 16 bits may come out quiet.
 *
 * Stack of a call, at most, however many tokens there are:
 *
 *     up to head_dim (or value_dim)        64       256      1024     any
 *     encode                               160      160      256      1.2 MiB    (KiB where nothing is said)
 *     append                               40 more than encode
 *     encode_backward                      64 more than encode, and 80 bytes a block; Schur forms 64 more; dense blocks
 *                                          and changes of basis of more than 32 channels 256 more
 *     dense blocks                         128 up to 32 channels, 384 up to 64
 *     change of basis                      128 up to head_dim 64, 448 up to 128, which is its most
 *     attention                            128      192      512      1.7 MiB
 *     attention that rotates pairs         272      272      512      1.7 MiB
 *     attention whose values rotate        640      640      640      2.1 MiB
 *     a polynomial bias                    64 more, and 8 bytes a term and factor of operands; backward six times these
 *     a score that reads inputs            64 more; with parts of one coordinate of the key 128 more
 *     attention_backward, _tangent         160      320      1 MiB    3.25 MiB
 *     the same, pairs rotated              512      512      1.25 MiB 4.5 MiB, and 128 bytes a block and number of
 *                                          operands in it
 *     the same, values rotated             1.75 MiB 1.75 MiB 1.75 MiB 6.25 MiB
 *
 * ---- tables ----
 *
 * prepare turns positions and operands into what encode needs of them, in the caller's memory. An engine calls it when
 * positions or weights change. It hands the table to every call, layer and thread that shares them; positions and
 * operands are then not looked at. Without a table encode computes the same itself. A table of another kernel, number
 * of tokens or batches of positions is refused. A table from a stranger can hold wrong numbers, but no call reads
 * outside of it. It holds for every processor that the object has code for.
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

/* Why a kernel refused; pegen_strerror gives the sentence. 33 is retired: a launch once took operands of float32 alone.
 *                                                             ORDER PEGEN_ERROR */
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
    "an input is neither [B,H,N,size] nor, where its size is 0, [B,H,N], nor of pairs [B,H,N,M], or disagrees with q " \
    "or k; [N,H,size] and [N,H] where q is [N,H,D]; of pairs none beside cu_seqlens or pages") \
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
  /* gradients of operands, inputs, positions and a table are added to what is there; without it that is lost */
  PEGEN_GRAD_ACCUMULATE = 1,
  PEGEN_GRAD_FROM_INPUT = 2 /* q and k hold what encode read; without it what encode wrote */
};

/* Gradients of a loss, beside the arguments of the forward entry: those of what forward wrote come in, those of what it
 * read go out. Any that goes out may be NULL, and costs nothing then. Lists have as many pointers as args->operands and
 * args->inputs.
 *
 * ---- NAME_encode_backward ----
 *
 * It takes the arguments of NAME_encode and
 *
 *   grad->q_out, k_out   in: [B,H,N,E], [B,Hkv,M,E] of the kernel's row types; NULL: no rows of that tensor
 *   grad->q, k           out: [B,H,N,D], [B,Hkv,M,D] of the same type, rounded once; may be q_out and k_out where E = D
 *   grad->operands       out: each of its operand's shape, contiguous, float32 or float64
 *   grad->inputs         out: each of its input's shape and type, any strides. With bias channels: only with q_out,
 *                        rounded once. Where rows rotate by inputs: float32 sums over rows, those of q first
 *   grad->positions,     out: of the shapes of args->positions and args->k_positions, any strides,
 *   grad->k_positions    float32 or float64
 *   args->q, k           in, where an operand, an input or positions gain, of each tensor of q_out and k_out: what
 *                        encode wrote or, with PEGEN_GRAD_FROM_INPUT, what it read. Not for what is added to rows, nor
 *                        where E is not D
 *   args->workspace      NAME_encode_backward_workspace(args) bytes, 8-byte aligned, of no tensor of the call
 *
 * What encode read is needed where what it wrote does not hold what was rotated: an amplitude of 0, outputs of another
 * number type. Kernels with needs_input take it for all gradients, and refuse other calls (NEEDS_INPUT). From 16-bit
 * rows that encode wrote, gradients of operands carry errors of 2^-8 (bfloat16) or 2^-11 (float16) of the sum of the
 * absolute values of what is added; from what it read they do not.
 *
 * Other gradients are refused (NO_GRADIENT), as are those that are always 0. In the basis of a Schur form gradients of
 * operands are those of scores. A q_out or k_out that is only read may have any strides, 0 included. Tokens that are
 * skipped give positions and inputs 0. Where encode appends bias channels, q and k gain the channels that it moved, and
 * inputs, operands and positions what the bias channels gain; rounding of 16-bit columns counts as exact.
 *
 * A gradient of positions [N,P] is the sum over batches. Where args->k_positions is NULL it is that of q and k
 * together. Where an operand has a gradient NAME_encode_backward_finish(args, part, parts) follows, after all parts and
 * with the same arguments; each of its first 16 parts adds up some of the elements.
 *
 * ---- by way of a table ----
 *
 * Layers and batches that share positions and operands can have these gradients computed once. Each call is
 * NAME_encode_backward with args->table and
 *
 *   grad->table          NAME_gradient_table_bytes(args) bytes, 64-byte aligned, of no tensor of the call; table_bytes
 *
 * It adds the torques of its rows there. Without PEGEN_GRAD_ACCUMULATE it begins the table anew, which is for the first
 * call. It takes q and k as above, no positions, operands or workspace; gradients of those in the same call are refused
 * (NO_GRADIENT). Calls that share a table come one after the other, all with PEGEN_GRAD_FROM_INPUT or all without;
 * their order is that of the sums. Then once
 *
 *   NAME_prepare_backward          arguments of NAME_prepare but for the table, grad->table, and a workspace of
 *                                  NAME_prepare_backward_workspace(args); writes grad->operands, positions, k_positions
 *   NAME_prepare_backward_finish   where an operand has a gradient
 *
 * NAME_gradient_table_bytes takes the arguments of NAME_prepare. The table is of the processor that it was begun on. It
 * holds float64 of rotors; of dense blocks the type that matrices are formed in, where float32 rounds once a call.
 *
 * ---- NAME_attention_backward ----
 *
 * It takes the arguments of NAME_attention, where out and lse are what that wrote, and
 *
 *   grad->out            in: of out's shape and type
 *   grad->lse            in: [B,H,N] float32; NULL: the loss does not look at lse
 *   grad->q, k, v        out: of the shapes and type of q, k, v, rounded once; no tensor of the call
 *   grad->operands       out: those of a bias, a score or a rotation of pairs, read at computed indices, too
 *   grad->inputs         out: each of its input's shape and type, rounded once, any strides
 *   grad->positions,     out: of those given, float32 or float64. A token gains as a query and, where k has no
 *   grad->k_positions    positions of its own, as a key
 *   args->workspace      NAME_attention_backward_workspace(args) bytes, 8-byte aligned
 *
 * The workspace holds float32 rows of k and v and float64 sums of operands: at most as many numbers as q and one of all
 * operands. Tables that batches with the same positions read add float32 of pairs, at most as many as q and k.
 * Gradients of positions add a float64 for each axis of each row of q and k, inputs of scores one for each number that
 * is read.
 *
 * Gradients of 16-bit rows carry what rounding took from out: 2^-8 (bfloat16) or 2^-11 (float16) of the sum of absolute
 * values of what is added. Hidden keys leave no trace, whatever they hold. A query that sees nothing gains 0, and so do
 * inputs of skipped tokens. What has no gradient is refused (NO_GRADIENT), such as positions of a tabulated grid. Where
 * an operand, positions or inputs of a score gain NAME_attention_backward_finish follows, as in encode. Up to as many
 * parts as k has heads in all batches share no work.
 *
 * ---- NAME_attention_tangent ----
 *
 * Forward mode (Jacobian times vector), of objects that were compiled with --tangents, on processors. It takes the
 * arguments of NAME_attention but pages, where out and lse are what that wrote, and
 *
 *   grad->q, k, v        in: what q, k and v change by, of their shapes and types, any strides, 0 included
 *   grad->out            out: what out changes by, of its shape and type, rounded once
 *   grad->lse            out: what lse changes by, [B,H,N] float32; NULL: not wanted
 *
 * Positions, inputs and operands do not change (NO_GRADIENT). Hidden keys leave no trace, and a query that sees nothing
 * has 0.
 */
typedef struct pegen_grad_args {
  uint32_t struct_size; /* sizeof(pegen_grad_args); it grows as pegen_args does */
  uint32_t flags; /* PEGEN_GRAD_ */
  const DLTensor *q_out, *k_out, *out, *lse; /* coming in; out and lse are attention's, and of its tangent go out */
  DLTensor *q, *k, *v; /* going out; of attention's tangent coming in */
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
 * It grows at its end, and caller and object may be of different versions. Fields that a caller's struct ends before
 * count as 0. Fields that an object does not know must be 0, or it refuses (UNKNOWN_FIELD).
 *
 * Strides are DLPack's, in elements; NULL means contiguous. Batch, head and token strides may be any, for inputs also
 * negative and 0. The stride of channels is 1. [B,N,H,D] memory is the same tensor with other strides.
 *
 * Rows of one batch may be [N,H,D], all of a call alike: k [M,Hkv,D], outputs, gradients, inputs [N,H,size] and [N,H],
 * lse [N,H]. Positions of one axis may be [N] and [B,N], and their gradients are shaped alike. [x,1] is [N,1] where x
 * is the number of tokens, and in calls without rows. Nothing is copied. */
typedef struct pegen_args {
  uint32_t struct_size;
  int32_t n_operands;
  /* [B,H,N,D]; NULL together with q_out. Where operands are of heads, encode's H may be a multiple of their number,
   * which k has: head h of q takes the operands of head h / (H / Hkv). */
  const DLTensor *q;
  const DLTensor *k; /* [B,Hkv,M,D]; NULL together with k_out */
  const DLTensor *v; /* [B,Hkv,M,Dv]; attention and append */
  DLTensor *q_out, *k_out; /* encode: [B,H,N,E], [B,Hkv,M,E]; may be q and k themselves where E = D */
  DLTensor *out; /* attention: [B,H,N,Dv] */
  const DLTensor *positions; /* [N,P] or [B,N,P] of float32, float64, int32 or int64; NULL where a grid is built in */
  const DLTensor *k_positions; /* [M,P] or [B,M,P]; NULL: the same as positions */
  const DLTensor *const *operands; /* in the order of the header's NAME_OPERAND_ enum */
  void *workspace; /* NAME_workspace() bytes, or NULL where that is 0 */
  /* What follows came later. */
  void *table; /* NAME_table_bytes() bytes, 64-byte aligned: prepare writes, encode reads; NULL: encode does without */
  size_t table_bytes; /* bytes at table */
  size_t workspace_bytes; /* bytes at workspace; 0: not told, and not checked */
  /* In the order of the header's NAME_INPUT_ enum. Encode without bias channels: float32, of each token of q and of k,
   * which have equal heads and tokens. The inputs' B and H may be 1, for all. */
  const DLTensor *const *inputs;
  int32_t n_inputs;
  int32_t causal; /* attention: 1: query i sees keys j <= i + M - N only; what it does not see may hold NaN */
  double scale; /* attention: factor of q k^T (and of a bias that shares it); 0: the kernel's own,
                   1/sqrt(D) unless its description states another */
  /* Outputs of float8: one float32 on the kernel's device, read at the call; NULL: 1. value = stored * scale, as vLLM's
   * and FlashInfer's caches hold it. The product with the scale's reciprocal, rounded to float32, is rounded to nearest
   * even. What is too large becomes the largest number (448, 57344), NaN stays NaN. A scale that is not positive,
   * finite and normal makes every element NaN. Outputs of other types have no scale. */
  const DLTensor *q_scale, *k_scale;
  const pegen_grad_args *grad; /* backward entries only; others do not look at it */
  /* attention: [B,H,N] float32, any strides: ln of the sum over keys of exp(score); -infinity where a query sees no
   * key. NULL: not requested, and costs nothing. Its backward reads it. */
  DLTensor *lse;
  /* attention: 1: in decode parts share the keys, too. They write states of chunks of keys to workspace, of
   * NAME_attention_workspace(args) bytes, 8-byte aligned, of no tensor of the call. After all of them (the caller's
   * barrier) NAME_attention_finish(args, part, parts) writes out and lse. Chunks depend on the number of keys alone:
   * the same bits for any number of parts. Where NAME_attention_workspace says 0 the call is not split, and finish does
   * nothing. pegen_launch splits alike ("attention_finish", pegen_cuda_workspace); there, where attention rotates
   * rows inside, each is rotated once into the workspace, however many queries there are, be this 0 or 1. */
  int64_t split_keys;
  /* Encode, attention and their gradients on processors: sequences of different lengths, whose rows follow each other.
   * [B+1] int32: sequence b has rows [cu_seqlens[b], cu_seqlens[b + 1]) of q, and the same of k by k_cu_seqlens. 0
   * first, never falling, the number of rows last. NULL for k: as for q. Rows are [total,H,D], lse [total,H], inputs
   * [total,H,size], positions [total,P], k_positions [rows of k,P]. Each sequence is computed as by a call of its own,
   * to the bit: its own keys, causal from its end, its own prefix tokens. In encode a built-in grid begins anew (a
   * sequence has its tokens, or none). What operands gain is the sum over sequences. split_keys has no effect. Encode
   * refuses (NO_SEQUENCES) skipped tokens where positions are given, and tables of a grid; other entries and GPUs
   * refuse sequences. */
  const DLTensor *cu_seqlens, *k_cu_seqlens;
  /* attention on processors: keys and values in pages. k is [pages,page_size,Hkv,D] and v [pages,page_size,Hkv,Dv], any
   * strides but of channels, page_size a multiple of 16. block_table [B,most_pages] int32: the pages of each sequence,
   * in order; sequences may share pages, and what lies behind the last that is needed may hold anything. lengths [B]
   * int32: keys of each sequence, those of its queries among them; 0: none. Key j of sequence b is row j mod page_size
   * of page block_table[b][j / page_size]. Inputs of keys are in the same pages. Queries are [B,H,N,D] or, with
   * cu_seqlens, [total,H,D]. Causal, prefix tokens, k_positions ([M,P] or [B,M,P], M no less than any length) and grids
   * count in the sequence. Both NULL: rows follow each other. Other entries and GPUs refuse them (NO_PAGES). */
  const DLTensor *block_table, *lengths;
  /* encode on processors: where rows of k are written, int64, adjacent, [B,M], or [B M] for the tokens of all batches.
   * k_out is a cache [pages,page_size,Hkv,E], any strides but of channels, its own memory. Slot s is row s mod
   * page_size of page s / page_size; -1 leaves the token's row out. Slots should differ: of tokens with one slot one's
   * row remains, and where parts run together its elements may be of both. NULL: k_out has k's shape. Other entries and
   * GPUs refuse them (NO_SLOTS). Rows may be [N,H,D] where the kernel has no inputs. */
  const DLTensor *slots;
  /* append: v [B,Hkv,M,D], of k's number type, goes to the same slots of its own cache, [pages,page_size,Hkv,D], in
   * that type or one that encode converts to: divided by v_scale as k_out by k_scale. NULL together with v. */
  DLTensor *v_out;
  const DLTensor *v_scale;
  /* append: weights w [D] of any operand's type. Rows of q, and of k, are encoded of x w / sqrt(mean(x^2) +
   * norm_epsilon), computed in float32 and not rounded in between. NULL: rows as they are. Skipped tokens are
   * normalised, too. */
  const DLTensor *q_norm, *k_norm;
  double norm_epsilon;
  /* Kernels with has_origin, encode and its gradients: the position that bias channels count from, [P], or [B,P] of
   * each batch or sequence, of a type that positions have, on the kernel's device. Rows of q and k make scores together
   * where both count from one place, best amid them. NULL: the middle of args->positions of each batch or sequence: on
   * each axis the median of three tokens, M = s + n / 2, M - n / 3 and M + n / 3 of n tokens behind s that are skipped,
   * 0 for what is not finite. Whoever keeps rows of k for later calls gives it, one for all of them. Calls of q or k
   * alone, and those with slots, are refused without. */
  const DLTensor *origin;
  /* encode, append and encode's gradients, on processors and with positions: the index in its sequence of the first row
   * of a batch (with cu_seqlens of every sequence). Row n passes through where first_token + n is below skip_tokens.
   * Attention counts from the keys' end instead; other entries, tables and GPUs refuse it (FIRST_TOKEN). */
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

/* A tensor with a row for each query token and head, [B,H,N,size], or each key's (pegen_kernel.key_inputs), or with a
 * number for each pair of a query and one of M keys, [B,H,N,M]. */
typedef struct pegen_input {
  const char *name;
  const char *doc;
  const char *units;
  int64_t size; /* of the last dimension; 0: the input is [B,H,N]; PEGEN_SIZE_OF_KEYS: M */
} pegen_input;
enum { PEGEN_SIZE_OF_KEYS = -1 };

/* Type codes of float8 in DLPack 1.1 (kDLFloat8_e4m3fn, kDLFloat8_e5m2); headers of before do not have them. */
enum { PEGEN_DL_FLOAT8_E4M3FN = 10, PEGEN_DL_FLOAT8_E5M2 = 12 };

/* Bits of pegen_kernel.dtypes: rows that are written in the type they are read in. Where rows are written as float8 it
 * is the bit of the type that is read, moved up: PEGEN_DTYPE_BF16 << PEGEN_TO_F8E4M3. */
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
  const void
      *cubin; /* the text as machine code of that chip (--cubin), of cubin_size bytes; or NULL. By ptx_size, too */
  uint64_t cubin_size;
} pegen_ptx;

/* Rows of one number type, of an encoding that appends bias channels. */
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
                           for all; a number for each pair may have 16 bits, and its gradient is float32 */
  uint16_t key_inputs; /* bit i: of keys, [B,Hkv,M,size] or [B,H,M,size], or in pages as k is */
  pegen_entry *append; /* NULL: of dense blocks and columns */
  int32_t reads_indices; /* 1: attention's score reads indices of tokens in their sequence, so that a call of some of
                            its tokens is no part of a call of all */
  int32_t needs_input; /* 1: encode_backward takes what encode read, and nothing else: channels are mapped before they
                          are rotated, or multiplied by what may have no inverse */
  uint32_t ptx_size; /* bytes of *ptx, which fields may be added to at its end */
  double scale; /* the factor of q k^T in a call of attention that gives none; 0: there is no attention */
  int32_t has_origin; /* 1: columns count positions from args->origin, or from the middle of a call's tokens; 0: from
                         where the description says */
  int32_t reads_narrow_pairs; /* 1: numbers of pairs may be bfloat16 or float16; 0: of kernels of before */
  pegen_entry *attention_tangent; /* NULL: compiled without --tangents */
} pegen_kernel;

#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L)
/* A tensor of the host's memory, where it lies. code, bits: kDLFloat and 32, kDLBfloat and 16, kDLInt and 64, ...;
 * strides: of elements; NULL: the last dimension varies fastest. */
static inline DLTensor pegen_tensor(void *data, int code, int bits, int ndim, int64_t *shape, int64_t *strides) {
  DLTensor tensor;
  tensor.data = data;
  tensor.device.device_type = kDLCPU;
  tensor.device.device_id = 0;
  tensor.ndim = ndim;
  tensor.dtype.code = (uint8_t)code;
  tensor.dtype.bits = (uint8_t)bits;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  tensor.strides = strides;
  tensor.byte_offset = 0;
  return tensor;
}
#endif

/* ---- the runtime library (libpegen): optional, needs no compiler behind it ---- */

/* The sentence for an error; "unknown error" for other numbers. Never NULL. */
const char *pegen_strerror(int error);
/* "PEGEN_ERROR_SHAPE_MISMATCH"; "PEGEN_ERROR_UNKNOWN" for other numbers. */
const char *pegen_error_name(int error);

/* Why an entry refused a call, in a sentence: which argument, what was seen, what was expected.
 *
 *     int error = NAME_encode(&args, 0, 1);
 *     char why[256];
 *     if (error) {
 *       pegen_explain_error(&NAME_kernel, "encode", &args, error, why, sizeof why);
 *       fprintf(stderr, "%s\n", why);           "positions are of 4 tokens; expected 5, as many as q has"
 *     }
 *
 * entry: as pegen_launch knows them, "encode" and so on. args: those of the call, unchanged. Returns 1 where an
 * argument was found, 0 where text is only pegen_strerror's sentence behind the names of what it is about. With an
 * error of 0 it says what shapes and number types of a call would be refused for, and text is "" where that is
 * nothing: memory is then not looked at. text always ends with a NUL where size is not 0. */
int pegen_explain_error(const pegen_kernel *kernel, const char *entry, const pegen_args *args, int error, char *text,
                        size_t size);

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

/* entries.h: the functions that an object exports, one row each. From it the compiler makes the exported functions, the
 * fields of pegen_kernel that point at them, the header's declarations and what a form says it has; the launcher, the
 * host's run of GPU threads and tests take the names from it.
 *
 *     X(name, role, of, option, text)
 *
 * name    NAME_name, the field of pegen_kernel (runtime/include/pegen/pegen.h), and what a form calls its driver's
 *         function by (compiler/forms/form.h)
 * role    CALL: int (args, part, parts); FINISH: the same, after all parts of another have come back; SIZE: size_t
 *         (args)
 * of      the entry that it belongs to: a CALL to itself, its FINISH and its sizes to it
 * option  ALWAYS; GRADIENT: --no-grad leaves it out; TANGENT: --tangents adds it
 * text    a comment in the header, without its marks; %s: what softmax is taken of; NULL: the text before says it all
 *
 * Rows come in the order of pegen_kernel; a new one is the last.
 */
#pragma once

#define PEGEN_ENTRIES(X) \
  X(encode, CALL, encode, ALWAYS, \
    "Encodes q and k; part `part` of `parts`, (0, 1) does it all. Returns 0 or a pegen_error, and then\n" \
    "nothing was written.") \
  X(attention, CALL, attention, ALWAYS, \
    "out = softmax(%s) v; part `part` of `parts`, (0, 1) does it all. Returns 0 or a pegen_error, and\n" \
    "then nothing was written.") \
  X(prepare, CALL, prepare, ALWAYS, \
    "Writes args->table, of table_bytes(args) bytes: all that encode needs of positions and operands, which then " \
    "need " \
    "not be\n" \
    "given. To be called again when they change. q and k are not looked at. Parts as in encode.") \
  X(workspace, SIZE, workspace, ALWAYS, "Bytes that args->workspace must have; 0: none.") \
  X(table_bytes, SIZE, prepare, ALWAYS, "0 where positions or operands are wrong.") \
  X(encode_backward, CALL, encode_backward, GRADIENT, \
    "Gradients, of what args->grad asks for; see pegen_grad_args. finish after all parts have come back, where an\n" \
    "operand has a gradient. Parts as in encode.") \
  X(encode_backward_finish, FINISH, encode_backward, GRADIENT, NULL) \
  X(encode_backward_workspace, SIZE, encode_backward, GRADIENT, \
    "Bytes that args->workspace must have for them; 0: none, or the arguments are wrong.") \
  X(attention_backward, CALL, attention_backward, GRADIENT, \
    "Gradients, of what args->grad asks for; see pegen_grad_args. finish after all parts have come back, where an\n" \
    "operand has a gradient. Parts as in attention.") \
  X(attention_backward_finish, FINISH, attention_backward, GRADIENT, NULL) \
  X(attention_backward_workspace, SIZE, attention_backward, GRADIENT, \
    "Bytes that args->workspace must have for them; 0: none, or the arguments are wrong.") \
  X(prepare_backward, CALL, prepare_backward, GRADIENT, \
    "From args->grad->table, which encode_backward of calls that read a table has filled, to gradients of operands " \
    "and\n" \
    "positions; see pegen_grad_args. finish after all parts have come back, where an operand has a gradient. Parts " \
    "as\n" \
    "in prepare.") \
  X(prepare_backward_finish, FINISH, prepare_backward, GRADIENT, NULL) \
  X(gradient_table_bytes, SIZE, prepare_backward, GRADIENT, \
    "Bytes of args->grad->table; 0 where positions or operands are wrong.") \
  X(prepare_backward_workspace, SIZE, prepare_backward, GRADIENT, \
    "Bytes that args->workspace must have for them; 0: none, or the arguments are wrong.") \
  X(attention_finish, FINISH, attention, ALWAYS, \
    "After all parts of attention have come back, where args->split_keys is set: out, of what they left in the\n" \
    "workspace; nothing where attention_workspace is 0. Parts as in attention.") \
  X(attention_workspace, SIZE, attention, ALWAYS, \
    "Bytes that args->workspace must have for a call with split_keys; 0: it is not split, or the arguments are\n" \
    "wrong.") \
  X(append, CALL, append, ALWAYS, \
    "What serves a token: RMS norms of q and k where they are given, encode, k and v to their caches at\n" \
    "args->slots. Parts as in encode.") \
  X(attention_tangent, CALL, attention_tangent, TANGENT, \
    "What attention's out (and lse) change by when q, k and v change by args->grad->q, k and v: forward\n" \
    "mode. Parts as in attention.")

typedef enum pegen_entry_kind {
#define X(name, role, of, option, text) PEGEN_ENTRY_##name,
  PEGEN_ENTRIES(X)
#undef X
      PEGEN_ENTRY_COUNT
} pegen_entry_kind;

/* Entries that --abi tvm-ffi makes packed functions of (kernel/tvm_ffi.c). */
#define PEGEN_TVM_FFI(X) \
  X(encode) X(attention) X(encode_backward) X(encode_backward_workspace) X(append) X(prepare) X(table_bytes)

/* The words of entries that GPUs have, too: what pegen_launch is asked for, and what the PTX entries of such a call are
 * found by (pegen_ptx.words). */
#define PEGEN_LAUNCHED(X) \
  X(encode) \
  X(attention) \
  X(encode_backward) X(encode_backward_finish) X(attention_backward) X(attention_backward_finish) X(attention_finish)

typedef enum pegen_launch_entry {
  PEGEN_LAUNCH_NONE = -1,
#define X(name) PEGEN_LAUNCH_##name,
  PEGEN_LAUNCHED(X)
#undef X
      PEGEN_LAUNCH_COUNT
} pegen_launch_entry;

static inline const char *pegen_launch_word(pegen_launch_entry entry) {
  static const char *const words[] = {
#define X(name) #name,
      PEGEN_LAUNCHED(X)
#undef X
  };
  return words[entry];
}

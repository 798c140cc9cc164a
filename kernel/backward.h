/* backward.h: gradients of encodings; see backward.c, dense_backward.c. */
#pragma once

#include "gradient.h"
#include "table.h"

/* What the gradients of a form's kernel are, as far as their calls are concerned. */
typedef struct pegen_backward_facts {
  int64_t row_bytes;                   /* of the form's tables */
  int64_t has_operands, has_positions; /* 1: they have gradients */
  int64_t needs_kept; /* 1: which take what encode wrote or read; 0: the gradients of rows alone */
  int64_t needs_input; /* 1: all gradients, those of rows too, take what encode read */
  int64_t most_chunks; /* of tokens */
  int64_t sums_bytes; /* of one chunk's sums */
  int64_t finish_bytes; /* what one of those who finish has of a head */
  int64_t token_bytes; /* what is kept of a token until all heads are done */
  int64_t widens; /* 1: encode widens rows, whose gradients come in as wide as that and go out narrower */
  int64_t has_inputs; /* 1: inputs have gradients */
  int64_t torque_bytes; /* of a row of tables of gradients; 0: there are none */
  int64_t torque_layout; /* in which processor's order; 0: the same for all */
} pegen_backward_facts;

/* A backward call, checked: a forward call whose rows are gradients, coming in and going out. */
typedef struct pegen_backward_call {
  const pegen_backward_facts *facts;
  pegen_tuning tuning; /* set as an entry begins (finish.h) */
  pegen_call rows;
  pegen_args args; /* of that forward call */
  const pegen_grad_args *grad;
  int64_t of_operands, of_positions, of_inputs; /* 1: some are wanted */
  int64_t of_table; /* 1: grad->table is added to, or read */
  int64_t from_input; /* 1: what encode read is at hand, or was when the table was filled */
  pegen_table_header torques; /* what its header is */
  pegen_view torque_memory; /* empty: there is none */
  int64_t is_written[2]; /* 1: gradients of q's, k's rows go out */
  pegen_view kept[2]; /* what encode wrote or read, where the gradient of an operand or of positions is wanted */
  pegen_view positions[2]; /* gradients of positions and k_positions; empty: not wanted */
  int64_t position_is_f64[2];
  pegen_view inputs[PEGEN_MAX_INPUTS]; /* gradients of inputs; empty: not wanted */
} pegen_backward_call;

/* Checks everything in the order that check_backward.c states; fills *call where it returns 0. with_workspace: also
 * that there is one of so many bytes as pegen_backward_workspace says. */
PEGEN_INTERNAL int pegen_check_backward(const pegen_driver *driver, const pegen_backward_facts *facts,
                                        const pegen_args *args, int part, int parts, int with_workspace,
                                        pegen_backward_call *call);

static inline int pegen_has_rows(const pegen_backward_call *call, int s) {
  return call->rows.stream[s].given && !call->rows.stream[s].in.empty;
}

/* Which of grad->positions and k_positions the positions of streams gain that share those of `first`; -1: neither. */
static inline int pegen_gaining_positions(const pegen_backward_call *call, const pegen_stream *first) {
  int own = first->keys && call->args.k_positions;
  return call->positions[own].empty ? -1 : own;
}

/* Whether all batches have one set of positions, and of what positions gain: their rows have one rotor or matrix, and
 * what it gains may be summed over them. */
static inline int pegen_batches_share(const pegen_backward_call *call, const pegen_stream *first) {
  int which = pegen_gaining_positions(call, first);
  if (call->of_table) return call->torques.batches[call->torques.sections > 1 && first->keys] == 1;
  if (which >= 0 && call->positions[which].stride[PEGEN_POSITION_BATCH] != 0) return 0;
  return first->grid || first->positions.stride[PEGEN_POSITION_BATCH] == 0;
}

/* Chunks of tokens whose sums are kept apart: a matter of the call's sizes alone. */
PEGEN_INTERNAL int64_t pegen_backward_chunks(const pegen_backward_call *call);
/* Parts of finish that have work; more of them have none. */
enum { PEGEN_FINISHERS = 16 };

/* Bytes of the workspace; 0: none. Sums come first, behind them what is kept of tokens. */
PEGEN_INTERNAL int64_t pegen_backward_sums(const pegen_driver *driver, const pegen_backward_call *call);
PEGEN_INTERNAL int64_t pegen_backward_workspace(const pegen_driver *driver, const pegen_backward_call *call);

/* Parts of the checks, of prepare_backward's calls, too (check_prepare_backward.c): gradients of operands and positions
 * and what was kept; the workspace, and what is written against every other tensor. */
PEGEN_INTERNAL int pegen_check_gained(const pegen_driver *driver, const pegen_args *args, pegen_backward_call *call);
PEGEN_INTERNAL int pegen_check_gained_memory(const pegen_driver *driver, const pegen_args *args, int with_workspace,
                                             const pegen_backward_call *call);
PEGEN_INTERNAL void pegen_clear_backward_call(const pegen_backward_facts *facts, pegen_backward_call *call);

/* What encode does once its call is checked, with the functions of `target`. kept [2]: rows of q and k that these take
 * beside the call's; NULL: they take none. */
PEGEN_INTERNAL int pegen_encode_checked(const pegen_driver *driver, const pegen_args *args, pegen_call *call,
                                        const pegen_target_code *target, const pegen_tuning *tuning, pegen_view *kept,
                                        int part, int parts);

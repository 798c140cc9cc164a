/* explain/explain: `pegen explain SPEC.lua`, what the compiler understood of a description.
 *
 * A form of encodings (rotors of blades, dense blocks, monomials, pairs, sums) fills
 * an explanation: words for the parts of the description, the group and its normal form, what
 * holds of it and how that is known, and what it costs. Two printers read it: text for a
 * person and JSON for programs.
 */
#ifndef PEGEN_EXPLAIN_EXPLAIN_H
#define PEGEN_EXPLAIN_EXPLAIN_H

#include "base/arena.h"
#include "explain/property.h"
#include "spec/spec.h"

/* ORDER EXPLAIN_FORMAT */
typedef enum explain_format { EXPLAIN_TEXT, EXPLAIN_JSON, EXPLAIN_FORMAT_COUNT } explain_format;

/* Operations of one kind of work, counted as nodes of the expressions and not as instructions. */
typedef struct operation_count {
  int arithmetic;   /* + - * min max < select floor abs neg; a multiply-add is two */
  int divisions;    /* and square roots */
  int sines;        /* sines and cosines */
  int exponentials; /* and logarithms */
} operation_count;

typedef struct explain_cost {
  operation_count prepared;  /* once a call: of operands alone */
  operation_count token;     /* once a token; once a token and head where per_head */
  bool per_head;             /* a token's work is not shared by heads; it always is by q and k */
  int row_operations;        /* a row of q or k: head_dim channels */
  int pair_operations;       /* a pair of tokens and head, in attention */
} explain_cost;

/* The entries of gradients. */
typedef struct explain_gradient {
  bool has_rows;         /* there are such entries */
  int row_operations;    /* of a row's gradient */
  int torques;           /* sums over rows of each block, from which all others follow; 0: none is asked for */
  int torque_operations; /* of a row, beside them */
  operation_count token; /* once a token (and head, where per_head): from torques to what is summed */
  bool keeps_rows;       /* operands' and positions' need the rows as they were written, or read */
  int64_t chunk_bytes;   /* of the workspace: sums of one chunk of tokens; 0: no operand has a gradient */
} explain_gradient;

typedef struct explanation {
  const char *form;        /* its name, set by the caller */
  const char *role;        /* "separable", "pairwise", "additive" */
  const char *block;       /* what a group of channels is */
  int block_size, n_blocks, leftover; /* channels; leftover: of the head, in no block */
  const char *generator[SPEC_MAX_AXES]; /* by axis; NULL where nothing turns, as are phases and combine */
  const char *phase[SPEC_MAX_AXES];
  const char *combine;
  const char *bias;        /* of attention, or what is added; NULL: none */
  const char *group;       /* "SO(3)" */
  const char *normal_form; /* what the kernel computes */
  property property[PROPERTY_COUNT];
  explain_cost cost;
  explain_gradient gradient;
  int columns_added, columns_of_zeros; /* to each row of q and k; those of them that only fill it up */
  const char *entries_precision, *rows_precision;
} explanation;

/* What a form tells; false after a diag_error where the description cannot be compiled. */
typedef bool explain_function(arena *a, const spec *s, explanation *out);
explain_function explain_blades, explain_dense, explain_change_of_basis, explain_attention, explain_polynomial,
    explain_additive;

/* Of a plan whose kernels have entries of gradients. */
struct plan;
void explain_gradients(arena *a, const struct plan *p, int row_operations, explain_gradient *out);

/* Prints to the standard output; 0, or 1 after a diag_error. */
int explain_spec(arena *a, const spec *s, explain_format format);

#endif

/* explain/explain: `pegen explain SPEC.lua`, what the compiler understood of a description.
 *
 * A form of encodings (rotors of blades, dense blocks, monomials, pairs, sums) fills
 * an explanation: words for the parts of the description, the group and its normal form, what
 * holds of it and how that is known, and what it costs. Two printers read it: text for a
 * person and JSON for programs.
 */
#pragma once

#include "base/arena.h"
#include "explain/property.h"
#include "spec/spec.h"

/* ORDER EXPLAIN_FORMAT */
typedef enum explain_format { EXPLAIN_TEXT, EXPLAIN_JSON, EXPLAIN_FORMAT_COUNT } explain_format;

/* Values of operands, from a .npy file or a checkpoint (.safetensors). */
typedef struct explain_file {
  const char *operand; /* NULL: the description has one, or the checkpoint has all that are mapped */
  const char *path;
} explain_file;

/* What an operand is called in a checkpoint. */
typedef struct explain_map {
  const char *operand, *tensor;
} explain_map;

/* What is asked for beside the words. */
typedef struct explain_request {
  explain_format format;
  int n_grid; /* axes of a grid over which scores are told and properties are measured; 0: none is given */
  int64_t grid[SPEC_MAX_AXES];
  int n_positions, axes_of_positions; /* at which rotors are told */
  const double *position;             /* [n_positions][axes_of_positions] */
  bool is_seeded;                     /* a seed was given: operands as they are drawn are what is explained */
  uint64_t seed;                      /* of operands that no file gives */
  int n_files;
  const explain_file *file;
  int n_maps;
  const explain_map *map;
} explain_request;

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
  bool per_row;              /* nor by q and k */
  int row_operations;        /* a row of q or k: head_dim channels */
  int pair_operations;       /* a pair of tokens and head, in attention */
} explain_cost;

/* The entries of gradients. */
enum { TYPICAL_NORM = 4 }; /* of M in exp(M), that costs are told for */

typedef struct explain_gradient {
  bool has_rows;         /* there are such entries */
  int row_operations;    /* of a row's gradient */
  int torques;           /* sums over rows of each block, from which all others follow; 0: none is asked for */
  int torque_operations; /* of a row, beside them */
  operation_count token; /* once a token (and head, where per_head): from torques to what is summed */
  bool keeps_rows;       /* operands' and positions' need the rows as they were written, or read */
  const char *missing;   /* what has no gradient although forward depends on it; NULL: nothing */
  int64_t chunk_bytes;   /* of the workspace: sums of one chunk of tokens; 0: no operand has a gradient */
  int64_t table_bytes; /* of a table of gradients: of a token (and head, where per_head), without what processors add
                        * to fill vectors up; 0: there is none */
  int weights; /* of a query, from which inputs, operands and its position gain; 0: there are no columns */
  int pair_operations; /* of attention: of a pair and head */
  bool of_operands, of_inputs; /* of attention's bias, of columns */
  bool of_positions; /* in attention */
  int key_bytes; /* of attention's workspace: of a key and head of k */
} explain_gradient;

typedef struct explanation explanation;
struct explanation {
  int n_parts;       /* of a head that several kinds of blocks share */
  explanation *part; /* what each of them is; blocks, generators, phases, group and normal form are theirs alone */
  const char *form; /* its name; set by the caller, as are the two below */
  const int64_t *grid; /* that properties are measured on; NULL: random positions */
  const double **operands; /* with which they are; NULL: random ones */
  const char *role; /* "separable", "pairwise", "additive" */
  const char *block; /* what a group of channels is */
  int block_size, n_blocks, leftover; /* channels; leftover: of the head, in no block */
  const char *generator[SPEC_MAX_AXES]; /* by axis; NULL where nothing turns, as are phases and combine */
  const char *phase[SPEC_MAX_AXES];
  const char *combine;
  const char *gain; /* a factor of channels that is a function of the position; NULL: there is none */
  const char *score; /* of attention: what it is a function of; NULL: scale q . k, and the bias */
  const char *bias; /* of attention, or what is added; NULL: none */
  const char *group; /* "SO(3)" */
  const char *normal_form; /* what the kernel computes */
  property property[PROPERTY_COUNT];
  explain_cost cost;
  explain_gradient gradient;
  int columns_added, columns_of_zeros; /* to each row of q and k; those of them that only fill it up */
  const char *entries_precision, *rows_precision;
};

/* What a form tells; false after a diag_error where the description cannot be compiled. */
typedef bool explain_function(arena *a, const spec *s, explanation *out);
explain_function explain_blades, explain_dense, explain_change_of_basis, explain_attention, explain_polynomial,
    explain_additive, explain_parts;

/* What a form's entries of gradients tell, where it has them; false after a diag_error. */
struct form;
bool explain_gradients(arena *a, const struct form *f, const spec *s, int row_operations, explain_gradient *out);

/* Prints to the standard output; 0, or 1 after a diag_error. */
int explain_spec(arena *a, const spec *s, const explain_request *request);

/* verify/check_kind: the checks of one kind of kernel, and what the checks of all kinds share: the table that is
 * printed.
 *
 * verify/check.c compiles and loads a kernel for each target; a kind (check.c has the one of each form) brings what the
 * kernels are called on and what must hold.
 */
#pragma once

#include "base/json.h"
#include "base/number.h"
#include "pegen/pegen.h"
#include "verify/check.h"
#include "verify/oracle.h"
#include "verify/trial.h"

enum { CHECK_PARTS = 3 }; /* of a call that is compared with one in one part */

/* A check under way. */
typedef struct checker {
  arena *memory;
  const spec *spec;
  const pegen_kernel *kernel; /* of the target at hand */
  const void *sample;         /* the kind's: what all targets are called on; NULL where it keeps nothing */
  const struct check_gradients *gradients; /* what all targets' gradients are taken on; NULL: not yet chosen */
  uint64_t random;
  check_print print;
  json_writer json;   /* of CHECK_JSON */
  const char *target; /* at hand */
  bool target_told;   /* its line is printed */
  int n_checks, n_failed;
  long double largest;      /* error over its bound */
  const char *largest_what; /* where that was; NULL: no check had a bound */
} checker;

struct attention_trial;

typedef struct check_kind check_kind;
struct check_kind {
  const char *(*units)(const spec *s); /* what errors are relative to, in words */
  const void *(*choose)(checker *c);   /* the sample, before the first target; NULL: there is none */
  void (*run)(checker *c);             /* all checks of c->kernel */
};

extern const check_kind check_rotors;    /* separable: blocks that turn */
extern const check_kind check_additive;  /* something of the position is added to the channels */
extern const check_kind check_attention; /* functions of the displacement within attention */
extern const check_kind check_widen;     /* columns that widen q and k */

/* ---- for the kinds ---- */

/* Calls for every number type that the kernel has. */
void check_each_type(checker *c, void (*visit)(checker *c, number_type type));

/* Calls that rows are converted in. */
typedef struct converted_call {
  const DLTensor *positions;
  const trial_operands *operands;
  int64_t heads, k_heads, tokens;
} converted_call;
/* Checks every pair of types that the kernel has: its outputs against its own float32 rows (verify/check_converted). */
void check_each_pair(checker *c, const converted_call *call);

/* Calls of append: as converted_call, with one batch. */
typedef struct append_call {
  const DLTensor *positions;
  const trial_operands *operands;
  int64_t heads, k_heads, tokens;
  long double bound; /* of rows that are normalised */
  /* Rows of q, or of k, against the reference's of `in`, float64 numbers [1][heads][tokens][channels]. */
  void (*compare)(const checker *c, bool of_k, const DLTensor *in, const DLTensor *out, trial_error *worst);
} append_call;
/* Checks every number type that the kernel has, with norms and without; nothing where it has no such entry, and on GPUs
 * (verify/check_append). */
void check_append(checker *c, const append_call *call);

/* Gradients of rows, and of operands and positions where the kernel has them, against the reference's; nothing where it
 * has no entry for them (verify/check_backward). */
void check_encode_backward(checker *c);

/* Checks gradients of attention, on the tensors of a forward call; every step-th query has a gradient coming in
 * (verify/check_attention_backward). */
void check_attention_backward(checker *c, const struct attention_trial *trial, const char *name, const char *what,
                              int64_t step);

/* Halves the position until no phase is beyond 2^24 radians, and no gain beyond 2^8 or below 2^-8: rows would leave the
 * range of their type. */
void check_keep_moderate(const checker *c, const trial_operands *operands, double *position);
/* What rounding leaves of the phases of tokens [from, to), in radians: they are float64, or on GPUs sums of two
 * float32. positions: [tokens][axes]; NULL: the grid's. */
long double check_phase_rounding(const checker *c, const trial_operands *operands, const double *positions,
                                 int64_t from, int64_t to);
/* A position in a random direction whose largest phase is `phase` radians, or as large as it gets. */
void check_position_of_phase(checker *c, const trial_operands *operands, double phase, double *position);

/* A check is told: the largest error beside its bound, and of a failure where it was. */
void check_report(checker *c, const char *type, const char *what, long double bound, const trial_error *e);
/* A check is told: whether two results have the same bits. */
void check_report_bits(checker *c, const char *type, const char *what, bool same);
/* Whether a call (its error) was accepted; a refusal is a failure. */
bool check_called(checker *c, const char *type, const char *what, int error);

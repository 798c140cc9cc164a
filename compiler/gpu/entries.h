/* gpu/entries: from the plan to MLIR for one GPU thread.
 *
 * The body of an entry is a function of the thread's indices and the parameters of
 * kernel/launch.h. It is emitted as GPU kernels, and as functions of the host
 *
 *     void NAME(int32_t block, int32_t grid_row, int32_t thread, const int64_t *parameters)
 *
 * which tests call for one thread after the other: the same arithmetic and addresses on
 * machines without a GPU. A barrier is there a call of ir.host_wait, which lets the others come as far, and
 * what the lanes of a warp do together one of ir.host_warp.
 */
#pragma once

#include "mlir/ir.h"
#include "plan/gradient.h"
#include "plan/thread.h"
#include "program/program.h"

#include "kernel/entries.h"

#include <stdio.h>

/* What an entry does. Those behind GPU_ROWS are of gradients of operands and positions (gpu/gradient.h). */
typedef enum gpu_entry_kind {
  GPU_ROWS,
  GPU_GRADIENT, /* of rows, and with them torques */
  GPU_SUM,
  GPU_MATRICES,
  GPU_SCATTER,
  GPU_GATHER,
  GPU_POSITIONS,
  GPU_INPUTS,
  GPU_PAIRS,
  GPU_COLUMN_GRADIENT, /* of rows that columns widened, and with them weights (gpu/widen_gains.h) */
  GPU_MATRIX_GRADIENT, /* of rows, and with them torques of matrices (gpu/matrix_gradient.h) */
  GPU_ATTENTION_WEIGHTS, /* gpu/attention_backward.h */
  GPU_MMA, /* attention on tensor cores: gpu/mma.h; ORDER mma_kind */
  GPU_MMA_FEW,
  GPU_MMA_QUERIES,
  GPU_MMA_KEYS,
  GPU_MMA_VALUES,
  GPU_MMA_QUERIES_GAINS,
  GPU_MMA_KEYS_GAINS,
  GPU_MMA_FINISH, /* of chunks that GPU_MMA_FEW left */
  GPU_MMA_TURN,   /* of rows that those entries take turned */
  GPU_MMA_COPY,   /* of rows that they do not take as they lie */
  GPU_TOTAL
} gpu_entry_kind;

/* The plans of a row: the whole's, or those of a head's parts, in their order. */
typedef struct gpu_plans {
  int count;
  const plan *of[SPEC_MAX_PARTS];
} gpu_plans;

typedef struct gpu_program gpu_program;
typedef struct gpu_entry gpu_entry;
/* Appends an entry to the module. native: of mlir/number.h; host: see above. */
typedef void gpu_emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host);

/* One entry: a number type and a width of access. Where a unit's accesses would leave 32-byte sectors half
 * written, or no unit is made of whole accesses, rows go through shared memory (gpu/staged_rows). */
struct gpu_entry {
  const char *name; /* NAME_encode_bf16, NAME_encode_bf16_narrow */
  int dtype;        /* number_type of rows */
  int other;        /* number_type that rows are converted to; 0: none */
  int access;       /* bytes of an access to rows */
  bool reads_kept;  /* gradients of rows whose channels are mapped: what encode read, too */
  const thread_tile *tile; /* a part's is followed by the next part's, in the order of the plans */
  int blocks;       /* of ir_kernel */
  int flight;       /* rows whose loads are under way at once */
  pegen_launch_entry of; /* what it is launched for */
  const char *word; /* that it is found by; NULL: that of `of` */
  gpu_entry_kind kind;
  gpu_emit *emit; /* NULL: the program's */
  const struct mma_plan *mma; /* of a tile program (gpu/mma.h) */
  int shared; /* bytes of shared memory that a launch gives a block (ir_shared_dynamic), which is then all that it has;
                 0: none */
  int units; /* threads of a token, where groups of them share units and wait for one another by barriers of the block;
                0: the tile's */
};

/* Whether blocks follow one another, each of neighbouring channels. */
bool gpu_has_neighbours(const program_blocks *blocks);

/* What it is found by (pegen_ptx.words). */
const char *gpu_entry_word(const gpu_entry *entry);
/* Threads of a token (and head, where heads differ). */
int gpu_entry_units(const gpu_entry *entry);
/* Whether its threads wait for one another. */
bool gpu_entry_waits(const gpu_entry *entry);

enum { GPU_MAX_ENTRIES = 64 };

/* What the launcher must know of attention entries to check a call as the CPU's driver does. */
typedef struct gpu_attention_facts {
  int first_entry; /* of the program's: it and all after it are of attention */
  int n_parameters, value_dim;
  bool placed; /* positions are needed */
  bool grid_only; /* and must be the built-in grid's */
  unsigned indexed; /* operands that are read by index */
  unsigned gaining; /* operands that have gradients */
  int n_sums; /* numbers that a token of a head gives to coordinates and inputs of scores; 0: these gain nothing */
} gpu_attention_facts;

/* What generators of a dense block gain, and how it is kept. */
typedef struct gpu_matrices {
  int numbers; /* of a chunk: [generators][heads][blocks][padded][padded] */
  int elements; /* of the operands that hold generators */
  int thread_bytes; /* of a thread's own memory */
} gpu_matrices;

/* What elements of inputs' rows, of all inputs in one line, gain: sums of a token and head, numbers terms[first[e]] up
 * to terms[first[e + 1]] of its n_sums. */
typedef struct gpu_input_sums {
  int n_sums, count, n_terms; /* count: of elements */
  int32_t *first, *terms;
} gpu_input_sums;

/* What a form makes for GPUs. */
struct gpu_program {
  const spec *spec;
  const void *plan; /* the form's, where entries are emitted from it; NULL: */
  const program *encode; /* they are emitted from this */
  const program
      *backward; /* and those of gradients from this, by the plan's transposed matrices; NULL: there are none */
  gpu_plans rows; /* of rotors and sums: encode's */
  gpu_plans transposed; /* and those of the transposed matrices; 0: the same matrices are made either way */
  const program *gradient; /* of operands and positions, from what encode wrote; NULL: there are none */
  const plan_gradient_row *of; /* what torques give, by the plans of rows; NULL: there are none */
  const gpu_matrices *matrices; /* that gain of torques, and give to `of`; NULL: there are none */
  bool has_columns; /* of rows, which give to `of`, where there is any, and to positions */
  int n_weights; /* of attention's queries, which give to `of`, where there is any, and to positions; 0: there are none
                  */
  const gpu_input_sums *inputs; /* of scores; NULL: they read none, or these have no gradients */
  bool per_head; /* rotors differ from head to head */
  bool of_rows; /* and from row to row, by inputs */
  bool queries_differ; /* or what `of` is summed for does: heads of q */
  int operations; /* of a block and token */
  const char
      *summary; /* in the head of the PTX file, where there are no blocks; NULL: blocks, channels and operations */
  int n_entries; /* widest access first within a type */
  const gpu_attention_facts *attention; /* NULL: all entries encode */
  gpu_entry entry[GPU_MAX_ENTRIES];
  gpu_emit *emit; /* its entries, but for those that have one of their own */
  /* The head of the PTX file from entries to grid, each line a comment; NULL: as of blocks that are encoded. */
  void (*print_work)(FILE *out, const gpu_program *program);
};

/* What torques give where rows have one plan; NULL: nothing. */
static inline const plan_gradient *gpu_gains_of(const gpu_program *p) { return p->of ? p->of->part[0] : NULL; }

/* The program whose rows an entry turns: encode's, or the transposed one. */
const program *gpu_entry_program(const gpu_program *program, const gpu_entry *entry);

/* Entries of rows that are written in the type they are read in, for a call that `of` says, and those that convert;
 * their number. */
int gpu_row_entries(arena *a, const gpu_plans *plans, pegen_launch_entry of, unsigned dtypes, gpu_entry *entries);
int gpu_converting_entries(arena *a, const gpu_plans *plans, unsigned dtypes, gpu_entry *entries);
/* Their body: rows by the program's matrices, or by the transposed ones. */
gpu_emit gpu_emit_rows;
/* An entry that adds up gradients, found by a word, of a call that `of` says (gpu/finish). */
gpu_entry gpu_finish_entry(arena *a, const spec *s, pegen_launch_entry of, gpu_entry_kind kind, const char *word);

/* gpu/entries: from the plan to MLIR for one GPU thread.
 *
 * The body of an entry is a function of the thread's indices and the parameters of
 * kernel/launch.h. It is emitted as GPU kernels, and as functions of the host
 *
 *     void NAME(int32_t block, int32_t grid_row, int32_t thread, const int64_t *parameters)
 *
 * which tests call for one thread after the other: the same arithmetic and addresses on
 * machines without a GPU. A barrier is there a call of ir.host_wait, which lets the others come as far.
 */
#ifndef PEGEN_GPU_ENTRIES_H
#define PEGEN_GPU_ENTRIES_H

#include "mlir/ir.h"
#include "plan/thread.h"
#include "program/program.h"

#include <stdio.h>

/* One entry: a number type and a width of access. Where a unit's accesses would leave 32-byte sectors half
 * written, or no unit is made of whole accesses, rows go through shared memory (gpu/staged_rows). */
typedef struct gpu_entry {
  const char *name; /* NAME_encode_bf16, NAME_encode_bf16_narrow */
  int dtype;        /* number_type of rows */
  int other;        /* number_type that rows are converted to; 0: none */
  int access;       /* bytes of an access to rows */
  const thread_tile *tile;
  int blocks;       /* of ir_kernel */
  int flight;       /* rows whose loads are under way at once */
  bool is_backward; /* gradients of rows */
  int units; /* threads of a token, where groups of them share units and wait for one another by barriers of the block;
                0: the tile's */
} gpu_entry;

/* Whether blocks follow one another, each of neighbouring channels. */
bool gpu_has_neighbours(const program_blocks *blocks);

/* Threads of a token (and head, where heads differ). */
int gpu_entry_units(const gpu_entry *entry);
/* Whether its threads wait for one another. */
bool gpu_entry_waits(const gpu_entry *entry);

enum { GPU_MAX_ENTRIES = 24 };

/* What the launcher must know of attention entries to check a call as the CPU's driver does. */
typedef struct gpu_attention_facts {
  int first_entry; /* of the program's: it and all after it are of attention */
  int n_parameters, value_dim;
  bool placed; /* positions are needed */
  bool grid_only; /* and must be the built-in grid's */
  unsigned indexed; /* operands that are read by index */
} gpu_attention_facts;

/* What a form makes for GPUs. */
typedef struct gpu_program gpu_program;
struct gpu_program {
  const spec *spec;
  const void *plan; /* the form's, where entries are emitted from it; NULL: */
  const program *encode; /* they are emitted from this */
  const program
      *backward; /* and those of gradients from this, by the plan's transposed matrices; NULL: there are none */
  const struct plan *transposed;
  bool per_head; /* rotors differ from head to head */
  int operations; /* of a block and token */
  const char
      *summary; /* in the head of the PTX file, where there are no blocks; NULL: blocks, channels and operations */
  int n_entries; /* widest access first within a type */
  int n_backward; /* the last of them: gradients of rows */
  const gpu_attention_facts *attention; /* NULL: all entries encode */
  gpu_entry entry[GPU_MAX_ENTRIES];
  /* Appends an entry to the module. native: of mlir/number.h; host: see above. */
  void (*emit)(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host);
  /* The head of the PTX file from entries to grid, each line a comment; NULL: as of blocks that are encoded. */
  void (*print_work)(FILE *out, const gpu_program *program);
};

/* Rotors in closed form on blades. backward: the gradient of its rows; NULL: without. */
const gpu_program *gpu_rotor_program(arena *a, const program *encode, const program *backward, unsigned dtypes);

/* Parameters of every entry (kernel/launch.h); those that convert have PEGEN_PTX_SCALE_COUNT more. */
int gpu_parameters(const spec *s);

#endif

/* sass/code: machine code of NVIDIA's GPUs, as the disassembler lists it, and what a loop of it takes.
 *
 * In: the text that `nvdisasm -hex -c` or `cuobjdump -sass` prints. Out: the instructions of each entry with their
 * control fields (cycles until the next one, scoreboards that are set and waited for), then the turn of the main loop,
 * then the cycles that a multiprocessor takes for it. Every function here is one of its arguments alone.
 */
#pragma once

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* Units that instructions are issued to.                                                       ORDER SASS_PIPE */
typedef enum sass_pipe {
  SASS_TENSOR,  /* matrix products */
  SASS_FMA,     /* float32, and products of integers */
  SASS_ALU,     /* integers, comparisons, conversions to 16 bits */
  SASS_XU,      /* exponentials, reciprocals, conversions of integers */
  SASS_LSU,     /* memory, and exchanges between lanes */
  SASS_UNIFORM, /* one lane for the whole warp */
  SASS_CONTROL, /* jumps, barriers, constants: issue slots alone */
  SASS_PIPE_COUNT
} sass_pipe;
extern const char *const sass_pipe_names[SASS_PIPE_COUNT];

enum { SASS_SCOREBOARDS = 6, SASS_LANES = 32, SASS_SCHEDULERS = 4 };

typedef struct sass_instruction {
  const char *text;   /* predicate, opcode and operands */
  const char *opcode; /* in text */
  int target;         /* of a jump: an instruction of the same entry; -1: none */
  bool predicated; /* by a predicate, or, of jumps, by lanes that have parted */
  sass_pipe pipe;
  double cycles; /* that its pipe is busy for one warp; of products the chip's row says it */
  int latency;   /* from there to the result, of those that set a scoreboard */
  int bytes;     /* of a lane's access to memory */
  int stall;     /* cycles until the warp's next instruction */
  int sets, frees; /* scoreboard of the result, of operands that were read; -1: none */
  unsigned waits;  /* bits of scoreboards */
} sass_instruction;

typedef struct sass_code {
  const char *name; /* of the entry */
  int count;
  sass_instruction *at;
} sass_code;

/* The entries of a listing; their number. */
int sass_parse(arena *a, const char *listing, sass_code **out);
bool sass_is(const sass_instruction *i, const char *opcode); /* modifiers apart */

/* One turn of the main loop: instructions in the order in which they are executed, loops of a known number of turns
 * rolled out. */
typedef struct sass_turn {
  int count; /* 0: there is no loop */
  const sass_instruction **at;
  int loops;               /* on the way whose number of turns is not in the code: one turn of each is counted */
  int products, multiply_adds; /* HMMA; FFMA, which are nearly all products where there is no HMMA */
  int issued[SASS_PIPE_COUNT];
  int copies, copied_bytes; /* of a lane: cp.async */
  int loaded_bytes;         /* of a lane: loads from global memory to registers */
  int row_bytes;            /* of a lane: loads and stores of 16 bytes, which are rows */
  int stages;               /* of copies: tiles in shared memory, one of them being read; 0: nothing is copied */
} sass_turn;

/* The main loop is the innermost one with the most products, or, without any, that with the most instructions among
 * the innermost whose number of turns is not in the code. The shortest way through it that has all products and copies
 * is taken: masks of partial tiles and what is computed anew for tokens far away are not on it. */
sass_turn sass_main_loop(arena *a, const sass_code *code);

/* All that a thread does that encodes so many rows of a token: what comes before the loop over rows, its turns, what
 * comes after. */
sass_turn sass_rows(arena *a, const sass_code *code, int rows);

/* A multiprocessor and what stands around it. */
typedef struct sass_chip {
  const char *name, *target;
  int multiprocessors;
  double gigahertz;      /* at which the peak is stated */
  int registers, shared; /* of a multiprocessor, shared memory in bytes */
  int warps, blocks;     /* that one may have */
  double peak;           /* TFLOP/s of 16-bit products, dense */
  double mma_share;      /* of it that mma.sync reaches */
  double copy;           /* TB/s of a copy, bytes read and written */
  double reach; /* what measured attention reaches of the schedule below, which knows no misses of instruction caches,
                   no conflicts of register banks and no waves of blocks that end early */
} sass_chip;
const sass_chip *sass_chip_at(int index); /* NULL after the last */
/* Cycles that one product of 16 x 8 x 16 occupies a scheduler's tensor core. */
double sass_product_cycles(const sass_chip *chip);

/* What ptxas says of an entry, and how it is launched. */
typedef struct sass_resources {
  int registers, spill_stores, spill_loads, threads;
  int64_t shared; /* bytes of a block, dynamic ones included */
} sass_resources;

/* From PTX (threads, dynamic shared memory) and what `ptxas -v` printed; false where either does not name the entry. */
bool sass_read_resources(arena *a, const char *ptx, const char *log, const char *entry, sass_resources *out);

typedef struct sass_occupancy {
  int blocks, warps; /* of a multiprocessor */
  const char *limit; /* what more blocks lack */
} sass_occupancy;
sass_occupancy sass_occupancy_of(const sass_chip *chip, const sass_resources *r);

/* Accesses to shared memory as PTX has them, by the first warp's addresses: expressions of the lane, in which what is
 * the same of all lanes (parameters, the block) counts as 0, and registers of loops as before the first turn. */
typedef struct sass_banks {
  int accesses, known; /* instructions; those whose addresses are such expressions */
  int wavefronts, least; /* of those that are known: passes over the 32 banks, and without conflicts */
} sass_banks;
sass_banks sass_find_conflicts(arena *a, const char *ptx, const char *entry);

/* Cycles from turn to turn of a scheduler, all of whose warps (at least one) go round at once: each issues in order, as
 * control fields say; pipes are busy as long as rows of the table say. rows_in_memory: rows come from there and go
 * there; else caches hold what is loaded. */
double sass_schedule(const sass_chip *chip, const sass_turn *turn, int warps, bool rows_in_memory);
/* Cycles in which a scheduler's share of the memory moves the rows of a turn. */
double sass_copy_cycles(const sass_chip *chip, const sass_turn *turn);

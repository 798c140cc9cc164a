/* forms/form: the kinds of kernel that a description can become, one row each.
 *
 * A form takes a validated description through the stages that are its own: it plans (normal form
 * and loops), prints its plan and makes programs of it. What all forms share (targets, the object's head, the driver's
 * checks) reads this table and knows no form by name. At most one form takes a description.
 */
#pragma once

#include "program/backward.h"
#include "spec/spec.h"

#include "kernel/entries.h"

#include <stdio.h>

/* Names of the driver's functions behind the entries of kernel/entries.h; NULL: the form has no such entry. Functions
 * of sizes are size_t (driver, args), the others int (driver, args, part, parts). */
typedef struct form_entries {
#define X(name, role, of, option, text) const char *name;
  PEGEN_ENTRIES(X)
#undef X
} form_entries;

/* A row of kernel/entries.h. */
typedef enum entry_role { ENTRY_CALL, ENTRY_FINISH, ENTRY_SIZE } entry_role;
/* Which entries an object has: those of a row and of all rows before it. */
typedef enum entry_option { ENTRY_ALWAYS, ENTRY_GRADIENT, ENTRY_TANGENT } entry_option;
typedef struct entry_row {
  const char *name;
  entry_role role;
  pegen_entry_kind of;
  entry_option option;
  const char *text;
} entry_row;
extern const entry_row entry_rows[PEGEN_ENTRY_COUNT];

/* A program that a form makes of its plan: the body of an entry, or what a target makes one of. */
typedef struct form_program_row {
  const char *word;                                    /* program.entry: "encode" */
  const program *(*make)(arena *a, const void *plan); /* NULL: this plan has none */
  const char *pass; /* that is run on what is made (program/passes.h); NULL: none */
  /* In place of make: gradients in a frame, one way. */
  const program *(*back)(arena *a, const void *plan, torque_frame frame, backward_way way);
  torque_frame frame;
  backward_way way;
} form_program_row;

enum { FORM_MAX_PROGRAMS = 12 };

/* The forms, special before general: the first that takes a description has it. Rooms that know something of a form's
 * kernels beyond what stands here have a table by this number: emitters (cpu/forms, gpu/forms), the driver's
 * descriptors (object/describe), check, explain and bench.                                           ORDER FORM_KIND */
#define FORMS(X) \
  X(ATTENTION, form_attention)             /* attention with functions of the displacement in it */ \
  X(POLYNOMIAL, form_polynomial)           /* columns that widen q and k */ \
  X(ADDITIVE, form_additive)               /* sums with something of the position */ \
  X(PARTS, form_parts)                     /* rotors in closed form of several kinds of blocks in one head */ \
  X(BLADES, form_blades)                   /* rotors in closed form on blades of Cl(p,q,r) */ \
  X(ROW_BLADES, form_row_blades)           /* the same, of inputs: a matrix for each row */ \
  X(DENSE_FOUR, form_dense_four)           /* the same machinery for exponentials of 4 x 4 skew matrices */ \
  X(SCHUR, form_schur)                     /* dense blocks in the planes of their real Schur form */ \
  X(DENSE, form_dense)                     /* exponentials of larger skew matrices */ \
  X(CHANGE_OF_BASIS, form_change_of_basis) /* blocks in closed form after a change of basis of the whole head */

typedef enum form_kind {
#define X(name, row) FORM_##name,
  FORMS(X)
#undef X
      FORM_COUNT
} form_kind;

typedef struct form {
  form_kind kind;
  const char *name;     /* of the driver's text in kernel/embedded.c, and for people */
  form_entries entries;
  bool (*takes)(const spec *s);
  /* The normal form and the loops; NULL after a diag_error. What it returns is what the others get. */
  void *(*plan)(arena *a, const spec *s);
  void (*print)(FILE *out, const void *plan); /* --emit expr */
  form_program_row programs[FORM_MAX_PROGRAMS]; /* up to the first without a word */
  /* Whether heads differ, so that a call must have the heads the kernel was made for: a PEGEN_PER_HEAD_ of
   * kernel/loop.h. */
  int (*per_head)(const void *plan);
  /* Channels that encode writes of rows of a number type: head_dim, unless the encoding widens. NULL:
   * head_dim. *columns receives the meaning of each channel beyond head_dim. */
  int (*out_dim)(arena *a, const void *plan, int dtype, const char ***columns);
  bool converts; /* rows may be written in another number type than they are read in */
} form;

/* The form that takes the description; NULL after a diag_error where there is none. */
const form *form_of(const spec *s);
/* The form's programs of a plan, checked; their number. */
int form_programs(arena *a, const form *f, const void *plan, const program **out);
/* The one of a word; NULL where there is none. */
const program *form_program(arena *a, const form *f, const void *plan, const char *word);
/* The driver's function behind an entry; NULL where the form has none, or it is beyond what was asked for. */
const char *form_entry(const form *f, pegen_entry_kind kind, entry_option most);

/* Forms that the driver's text of blades (kernel/encode.c) serves; and of these, those with tables. */
#define FORM_BLADES_ENTRIES \
  .encode = "pegen_driver_encode", .append = "pegen_driver_append", .workspace = "pegen_driver_workspace", \
  .encode_backward = "pegen_driver_encode_backward", .encode_backward_finish = "pegen_driver_encode_backward_finish", \
  .encode_backward_workspace = "pegen_driver_encode_backward_workspace"
#define FORM_TABLE_ENTRIES \
  .prepare = "pegen_driver_prepare", .table_bytes = "pegen_driver_table_bytes", \
  .prepare_backward = "pegen_driver_prepare_backward", \
  .prepare_backward_finish = "pegen_driver_prepare_backward_finish", \
  .prepare_backward_workspace = "pegen_driver_prepare_backward_workspace", \
  .gradient_table_bytes = "pegen_driver_gradient_table_bytes"
#define FORM_BACKWARD_PROGRAMS(back, word, way) \
  {word, NULL, NULL, back, TORQUE_OF_Y, way}, { word "_from_x", NULL, NULL, back, TORQUE_OF_X, way }
#define FORM_ROTOR_PROGRAMS(encode, prepare, transposed, back) \
  {"encode", encode}, {"prepare", prepare}, {"encode_transposed", transposed}, \
      FORM_BACKWARD_PROGRAMS(back, "encode_backward", BACKWARD_AT_ONCE), \
      FORM_BACKWARD_PROGRAMS(back, "encode_backward_by_table", BACKWARD_TO_TABLE), \
      FORM_BACKWARD_PROGRAMS(back, "prepare_backward", BACKWARD_FROM_TABLE)

/* Entries of the forms that the driver's dense text (kernel/dense.c) serves: matrices of blocks, however they are made.
 */
#define FORM_DENSE_ENTRIES \
  .encode = "pegen_dense_encode", .prepare = "pegen_dense_prepare", .workspace = "pegen_driver_workspace", \
  .table_bytes = "pegen_dense_table_bytes", .encode_backward = "pegen_dense_encode_backward", \
  .encode_backward_finish = "pegen_dense_encode_backward_finish", \
  .encode_backward_workspace = "pegen_dense_encode_backward_workspace", \
  .prepare_backward = "pegen_dense_prepare_backward", \
  .prepare_backward_finish = "pegen_dense_prepare_backward_finish", \
  .gradient_table_bytes = "pegen_dense_gradient_table_bytes", \
  .prepare_backward_workspace = "pegen_dense_prepare_backward_workspace"
#define FORM_DENSE_PROGRAMS(encode, prepare) \
  {{"encode", encode}, {"prepare", prepare}, {"encode_transposed", encode, "transpose"}}

#define X(name, row) extern const form row;
FORMS(X)
#undef X

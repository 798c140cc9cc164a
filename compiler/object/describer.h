/* object/describer: constants of an LLVM module in the layout of C structs, from which object/describe and each form's
 * part of it are made. */
#pragma once

#include "forms/form.h"
#include "gpu/target.h"
#include "plan/plan.h"
#include "target/processor.h"

#include <llvm-c/Core.h>
#include <stddef.h>

typedef struct describe_request {
  arena *memory;
  const form *form;
  const spec *spec;
  const void *plan; /* the form's */
  unsigned dtypes;  /* PEGEN_DTYPE_ bits compiled in */
  entry_option entries; /* which are exported, with what they need */
  bool tvm_ffi;     /* entries are packed functions of TVM-FFI, too */
  const char *digest;
  const gpu_module *ptx; /* NULL: none is compiled in */
} describe_request;

typedef struct describer {
  LLVMModuleRef module;
  LLVMContextRef context;
  const describe_request *request;
  LLVMTypeRef ptr, i32, i64;
} describer;

/* Whether entries of gradients are compiled in. */
static inline bool describe_gains(const describer *d) { return d->request->entries >= ENTRY_GRADIENT; }

LLVMValueRef describe_i32(describer *d, int64_t value);
LLVMValueRef describe_i64(describer *d, int64_t value);
LLVMValueRef describe_f64(describer *d, double value);
LLVMValueRef describe_null(describer *d);
/* A constant in the layout of a C struct: DESCRIBE(d, pegen_leaf, F(operand, 1), ...), with each of its fields once. A
 * value is a number, a text, a constant, or an array of constants that fills the field. A field that is missing, or of
 * another size than its value, is our bug. */
typedef struct describe_field {
  const char *name;
  size_t offset, size;
  LLVMValueRef value;
} describe_field;
#define DESCRIBE(d, type, ...) \
  __extension__({ \
    typedef type described; \
    describer *d_ = (d); \
    describe_field fields_[] = {__VA_ARGS__}; \
    describe_struct(d_, #type, fields_, sizeof fields_ / sizeof *fields_, sizeof(type)); \
  })
#define F(field, value) \
  {#field, offsetof(described, field), sizeof(((described *)0)->field), \
   _Generic(((described *)0)->field, \
       double: describe_real, \
       default: _Generic((value), \
           LLVMValueRef: describe_constant, \
           LLVMValueRef *: describe_elements, \
           char *: describe_text, \
           const char *: describe_text, \
           default: describe_integer))(d_, sizeof(((described *)0)->field), value)}
/* The address of a function that was emitted, and those of one for each number type of rows. */
#define CODE(field, name) F(field, describe_function(d_, name))
#define CODES(field, name, target) F(field, describe_by_type(d_, target, name))
LLVMValueRef describe_struct(describer *d, const char *what, describe_field *fields, size_t count, size_t size);
LLVMValueRef describe_integer(describer *d, size_t size, int64_t value);
LLVMValueRef describe_real(describer *d, size_t size, double value);
LLVMValueRef describe_text(describer *d, size_t size, const char *text);
LLVMValueRef describe_constant(describer *d, size_t size, LLVMValueRef value);
LLVMValueRef describe_elements(describer *d, size_t size, LLVMValueRef *values);
/* A private constant of the module, and its address. */
LLVMValueRef describe_global(describer *d, const char *name, LLVMValueRef value, bool constant);
LLVMValueRef describe_array(describer *d, const char *name, LLVMTypeRef type, LLVMValueRef *values,
                            int count); /* NULL of none */
/* Structs of one type: as describe_array. */
LLVMValueRef describe_rows(describer *d, const char *name, LLVMValueRef *values, int count);
LLVMValueRef describe_string(describer *d, const char *text);
LLVMValueRef describe_bytes(describer *d, const char *data, size_t size); /* of NULL: a null pointer */
LLVMValueRef describe_strings(describer *d, const char *name, const char *const *texts, int count);
LLVMValueRef describe_sizes(describer *d, const char *name, const int64_t *sizes, int count);
/* A pegen_leaf of `count` offsets (i32) or numbers (f64), in a constant of that name; operand -1: of none. */
LLVMValueRef describe_leaf(describer *d, const char *name, int operand, int n_heads, LLVMValueRef *values, int count);
/* pegen_leaf rows: what the driver gathers for a plan. */
LLVMValueRef describe_leaves(describer *d, const plan *p);
/* pegen_leaf rows of several plans, one after the other, as of `blocks` blocks: of the most that one has. */
LLVMValueRef describe_leaves_of(describer *d, const plan *const *plans, int n_plans, int blocks);
/* pegen_leaf rows of where something is added; blocks that a plan does not have are at -1. */
LLVMValueRef describe_places_of(describer *d, const plan *const *plans, int n_plans, int blocks);
/* A pegen_skew row; blocks: matrices of a head. */
LLVMValueRef describe_skew(describer *d, const spec_skew *g, int blocks);
/* An emitted function's address; null where the module has none of that name, or it is NULL. */
LLVMValueRef describe_function(describer *d, const char *name);
LLVMValueRef describe_by_type(describer *d, const cpu_target *target,
                              const char *(*name)(arena *a, const cpu_target *target, int dtype));

/* object/describer: constants of an LLVM module in the layout of C structs, from which object/describe and each form's
 * part of it are made. */
#ifndef PEGEN_OBJECT_DESCRIBER_H
#define PEGEN_OBJECT_DESCRIBER_H

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
  bool gradients;   /* entries of gradients are compiled in */
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

LLVMValueRef describe_i16(describer *d, int64_t value);
LLVMValueRef describe_i32(describer *d, int64_t value);
LLVMValueRef describe_i64(describer *d, int64_t value);
LLVMValueRef describe_f64(describer *d, double value);
LLVMValueRef describe_null(describer *d);
/* A constant in the layout of a C struct, from its fields by name, each of them once. One that is missing, or of
 * another size than its value, is our bug. */
typedef struct describe_field {
  const char *name;
  size_t offset, size;
  LLVMValueRef value;
} describe_field;
#define FIELD(type, field, value) {#field, offsetof(type, field), sizeof(((type *)0)->field), value}
#define DESCRIBE(d, type, fields) describe_struct(d, #type, fields, sizeof fields / sizeof *fields, sizeof(type))
LLVMValueRef describe_struct(describer *d, const char *what, describe_field *fields, size_t count, size_t size);
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
/* pegen_leaf rows: what the driver gathers for a plan. */
LLVMValueRef describe_leaves(describer *d, const plan *p);
/* pegen_leaf rows of several plans, one after the other, as of `blocks` blocks: of the most that one has. */
LLVMValueRef describe_leaves_of(describer *d, const plan *const *plans, int n_plans, int blocks);
/* pegen_leaf rows of where something is added; blocks that a plan does not have are at -1. */
LLVMValueRef describe_places_of(describer *d, const plan *const *plans, int n_plans, int blocks);
/* A pegen_skew row; blocks: matrices of a head. */
LLVMValueRef describe_skew(describer *d, const spec_skew *g, int blocks);
/* An emitted function's address; NULL where the module has none of that name. */
LLVMValueRef describe_function(describer *d, const char *name);

#endif

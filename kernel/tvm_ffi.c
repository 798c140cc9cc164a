/* tvm_ffi.c: entries as TVM-FFI's packed functions, which --abi tvm-ffi puts into an object: __tvm_ffi_NAME_encode and
 * so on, as its loaders look them up.
 *
 * Arguments come as tagged values: tensors (TVM's, or DLPack's) as they lie, None for what is left out, also at the
 * end. Their order is that of the tables below; docs/tvm-ffi.md has it for people. The structs are those of TVM-FFI's
 * stable C interface. Errors are raised by the one function that is imported, weakly: where the loader has none, -1
 * without words is all there is.
 *
 * Names that are local to an object stand beside those of a form's driver there: all begin with tvm_.
 */
#include "entries.h"

#include "pegen/pegen.h"

/* TVMFFIAny. */
typedef struct any {
  int32_t type;
  uint32_t zero;
  union {
    int64_t integer;
    double number;
    void *pointer;
  } value;
} any;

/* TVMFFITypeIndex, and what stands before the DLTensor of a tensor object. */
enum { NONE = 0, INTEGER = 1, BOOLEAN = 2, NUMBER = 3, DLTENSOR = 7, TENSOR = 70, OBJECT_BYTES = 24 };

extern void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) __attribute__((weak));

/* ---- messages ---- */

typedef struct text {
  char data[512];
  unsigned size;
} text;

static void tvm_add(text *t, const char *words) {
  for (; *words && t->size < sizeof t->data - 1; words++) t->data[t->size++] = *words;
  t->data[t->size] = 0;
}

static const char *tvm_sentence(int error) {
  switch (error) {
#define CASE(name, value, words) \
  case value: return words;
    PEGEN_ERRORS(CASE)
#undef CASE
  }
  return "unknown error";
}

/* "geope3d_encode: positions: what is wrong"; name NULL: of no single argument. */
static int tvm_refuse(const char *kind, const pegen_kernel *kernel, const char *entry, const char *name,
                      const char *what) {
  text message;
  message.size = 0;
  tvm_add(&message, kernel->name);
  tvm_add(&message, "_");
  tvm_add(&message, entry);
  tvm_add(&message, ": ");
  if (name) tvm_add(&message, name), tvm_add(&message, ": ");
  tvm_add(&message, what);
  if (TVMFFIErrorSetRaisedFromCStr) TVMFFIErrorSetRaisedFromCStr(kind, message.data);
  return -1;
}

/* ---- signatures ---- */

enum { MOST_LISTED = 32 }; /* operands that a description may have (dsl/operands.lua) */

typedef enum kind {
  OF_ARGS,
  OF_GRAD,
  OPERANDS,
  INPUTS,
  OPERAND_GRADIENTS,
  INPUT_GRADIENTS,
  WORKSPACE,
  TABLE,
  CAUSAL,
  NUMBER_OF_ARGS,
  FROM_INPUT
} kind;

typedef struct parameter {
  int64_t kind, offset; /* of the tensor's field, or the number's */
  char name[24];        /* in place: a pointer would need a relocation */
} parameter;

#define ARGS(name) {OF_ARGS, offsetof(pegen_args, name), #name}
#define FLOAT(name) {NUMBER_OF_ARGS, offsetof(pegen_args, name), #name}
#define GRAD(name, text) {OF_GRAD, offsetof(pegen_grad_args, name), text}
#define OTHER(kind, text) {kind, 0, text}
#define LIST(...) {__VA_ARGS__}
#define GIVEN ARGS(positions), ARGS(k_positions), OTHER(OPERANDS, "operand"), OTHER(INPUTS, "input")

static const parameter tvm_encode[] = {ARGS(q), ARGS(k), GIVEN, ARGS(q_out), ARGS(k_out), OTHER(TABLE, "table")};
/* also of table_bytes, without the last */
static const parameter tvm_prepare[] = {ARGS(positions), ARGS(k_positions), OTHER(OPERANDS, "operand"),
                                        OTHER(TABLE, "table")};
static const parameter tvm_attention[] = {
    ARGS(q), ARGS(k), ARGS(v), GIVEN, ARGS(out), ARGS(lse), OTHER(CAUSAL, "causal"), FLOAT(scale)};
static const parameter tvm_append[] =
    LIST(ARGS(q), ARGS(k), ARGS(v), GIVEN, ARGS(slots), ARGS(q_out), ARGS(k_out), ARGS(v_out), ARGS(q_norm),
         ARGS(k_norm), FLOAT(norm_epsilon), ARGS(q_scale), ARGS(k_scale), ARGS(v_scale), OTHER(TABLE, "table"));
static const parameter tvm_encode_backward[] =
    LIST(GRAD(q_out, "grad_q_out"), GRAD(k_out, "grad_k_out"), GIVEN, GRAD(q, "grad_q"), GRAD(k, "grad_k"), ARGS(q),
         ARGS(k), OTHER(FROM_INPUT, "from_input"), GRAD(positions, "grad_positions"),
         GRAD(k_positions, "grad_k_positions"), OTHER(OPERAND_GRADIENTS, "gradient of an operand"),
         OTHER(INPUT_GRADIENTS, "gradient of an input"), OTHER(WORKSPACE, "workspace"));

typedef struct signature {
  const parameter *parameters;
  int count;
  const char *name;
} signature;

static int tvm_find_signature(int entry, signature *found) {
#define FOUND(list, words) (*found = (signature){list, sizeof list / sizeof *list, words}, 1)
  switch (entry) {
  case PEGEN_ENTRY_encode: return FOUND(tvm_encode, "encode");
  case PEGEN_ENTRY_attention: return FOUND(tvm_attention, "attention");
  case PEGEN_ENTRY_encode_backward: return FOUND(tvm_encode_backward, "encode_backward");
  case PEGEN_ENTRY_encode_backward_workspace: return FOUND(tvm_encode_backward, "encode_backward_workspace");
  case PEGEN_ENTRY_append: return FOUND(tvm_append, "append");
  case PEGEN_ENTRY_prepare: return FOUND(tvm_prepare, "prepare");
  case PEGEN_ENTRY_table_bytes: return FOUND(tvm_prepare, "table_bytes");
  default: return 0;
  }
}

/* ---- arguments ---- */

typedef struct call {
  const pegen_kernel *kernel;
  signature signature;
  const any *given;
  int count, next;
  pegen_args args;
  pegen_grad_args grad;
  const DLTensor *operands[MOST_LISTED], *inputs[MOST_LISTED];
  DLTensor *gradients[MOST_LISTED], *input_gradients[MOST_LISTED];
} call;

/* The next argument; one beyond the last is None. */
static const any *tvm_take(call *c) {
  static const any tvm_none = {NONE, 0, {0}};
  return c->next < c->count ? &c->given[c->next++] : &tvm_none;
}

static int tvm_take_tensor(call *c, const char *name, DLTensor **tensor) {
  const any *x = tvm_take(c);
  *tensor = 0;
  if (x->type == DLTENSOR) *tensor = x->value.pointer;
  else if (x->type == TENSOR) *tensor = (DLTensor *)((char *)x->value.pointer + OBJECT_BYTES);
  else if (x->type != NONE)
    return tvm_refuse("TypeError", c->kernel, c->signature.name, name, "expected a tensor, or None");
  return 0;
}

static int tvm_take_tensors(call *c, const char *name, int count, DLTensor **tensors) {
  if (count > MOST_LISTED) return tvm_refuse("ValueError", c->kernel, c->signature.name, name, "too many of them");
  for (int i = 0; i < count; i++)
    if (tvm_take_tensor(c, name, &tensors[i])) return -1;
  return 0;
}

static int tvm_take_integer(call *c, const char *name, int64_t *value) {
  const any *x = tvm_take(c);
  *value = x->type == NONE ? 0 : x->value.integer;
  if (x->type == NONE || x->type == INTEGER || x->type == BOOLEAN) return 0;
  return tvm_refuse("TypeError", c->kernel, c->signature.name, name, "expected an integer, or None");
}

static int tvm_take_number(call *c, const char *name, double *value) {
  const any *x = tvm_take(c);
  *value = x->type == NUMBER ? x->value.number : x->type == NONE ? 0 : (double)x->value.integer;
  if (x->type == NONE || x->type == INTEGER || x->type == NUMBER) return 0;
  return tvm_refuse("TypeError", c->kernel, c->signature.name, name, "expected a number, or None");
}

/* Memory of the caller's. */
static int tvm_take_bytes(call *c, const char *name, void **at, size_t *size) {
  DLTensor *room;
  if (tvm_take_tensor(c, name, &room)) return -1;
  if (!room) return 0;
  if (room->ndim != 1 || !room->shape || room->dtype.lanes != 1 || (room->strides && room->strides[0] != 1))
    return tvm_refuse("ValueError", c->kernel, c->signature.name, name, "expected one dense dimension of bytes");
  if (room->device.device_type != kDLCPU && room->device.device_type != kDLCUDAHost)
    return tvm_refuse("ValueError", c->kernel, c->signature.name, name, "expected memory of the processor");
  int64_t bytes = room->shape[0] * (room->dtype.bits / 8);
  if (bytes <= 0) return 0; /* of which a size of 0 would not be checked */
  *at = (char *)room->data + room->byte_offset;
  *size = (size_t)bytes;
  return 0;
}

static int tvm_take_parameter(call *c, const parameter *p) {
  int64_t integer = 0;
  int error;
  switch ((kind)p->kind) {
  case OF_ARGS: return tvm_take_tensor(c, p->name, (DLTensor **)((char *)&c->args + p->offset));
  case OF_GRAD: return tvm_take_tensor(c, p->name, (DLTensor **)((char *)&c->grad + p->offset));
  case OPERANDS: return tvm_take_tensors(c, p->name, c->kernel->n_operands, (DLTensor **)c->operands);
  case INPUTS: return tvm_take_tensors(c, p->name, c->kernel->n_inputs, (DLTensor **)c->inputs);
  case OPERAND_GRADIENTS:
    error = tvm_take_tensors(c, p->name, c->kernel->n_operands, c->gradients);
    for (int i = 0; i < c->kernel->n_operands && !error; i++)
      if (c->gradients[i]) c->grad.operands = c->gradients;
    return error;
  case INPUT_GRADIENTS:
    error = tvm_take_tensors(c, p->name, c->kernel->n_inputs, c->input_gradients);
    for (int i = 0; i < c->kernel->n_inputs && !error; i++)
      if (c->input_gradients[i]) c->grad.inputs = c->input_gradients;
    return error;
  case WORKSPACE: return tvm_take_bytes(c, p->name, &c->args.workspace, &c->args.workspace_bytes);
  case TABLE: return tvm_take_bytes(c, p->name, &c->args.table, &c->args.table_bytes);
  case CAUSAL:
    error = tvm_take_integer(c, p->name, &integer);
    c->args.causal = integer != 0;
    return error;
  case NUMBER_OF_ARGS: return tvm_take_number(c, p->name, (double *)(void *)((char *)&c->args + p->offset));
  case FROM_INPUT:
    error = tvm_take_integer(c, p->name, &integer);
    c->grad.flags = integer ? PEGEN_GRAD_FROM_INPUT : 0;
    return error;
  }
  return 0;
}

static int tvm_take_all(call *c) {
  for (int i = 0; i < c->signature.count; i++)
    if (tvm_take_parameter(c, &c->signature.parameters[i])) return -1;
  if (c->next < c->count)
    return tvm_refuse("TypeError", c->kernel, c->signature.name, 0, "more arguments than it takes");
  c->args.operands = c->operands;
  c->args.n_operands = c->kernel->n_operands;
  c->args.inputs = c->inputs;
  c->args.n_inputs = c->kernel->n_inputs;
  return 0;
}

/* ---- calls ---- */

static int tvm_run(const call *c, int entry) {
  const pegen_kernel *kernel = c->kernel;
  if (entry == PEGEN_ENTRY_encode) return kernel->encode(&c->args, 0, 1);
  if (entry == PEGEN_ENTRY_attention) return kernel->attention(&c->args, 0, 1);
  if (entry == PEGEN_ENTRY_append) return kernel->append(&c->args, 0, 1);
  if (entry == PEGEN_ENTRY_prepare) return kernel->prepare(&c->args, 0, 1);
  int error = kernel->encode_backward(&c->args, 0, 1);
  if (!error && c->grad.operands) error = kernel->encode_backward_finish(&c->args, 0, 1);
  return error;
}

/* By words: a struct's own = {0} would call memset, which nobody has. */
static void tvm_clear(void *at, size_t bytes) {
  for (size_t i = 0; i < bytes / sizeof(int64_t); i++) ((int64_t *)at)[i] = 0;
}

static void tvm_set_value(any *result, int type, int64_t value) {
  result->type = type;
  result->zero = 0;
  result->value.integer = value;
}

/* handle, arguments, how many, result: TVMFFISafeCallType, with the kernel and the entry in place of the handle. */
int pegen_driver_tvm_ffi(const pegen_kernel *kernel, int entry, const any *given, int count, any *result) {
  call c;
  tvm_clear(&c, sizeof c);
  if (!tvm_find_signature(entry, &c.signature)) return -1;
  c.kernel = kernel;
  c.given = given;
  c.count = count;
  c.args.struct_size = sizeof c.args;
  c.grad.struct_size = sizeof c.grad;
  if (tvm_take_all(&c)) return -1;
  if (c.signature.parameters == tvm_encode_backward) c.args.grad = &c.grad;
  tvm_set_value(result, NONE, 0);
  if (entry == PEGEN_ENTRY_encode_backward_workspace) {
    tvm_set_value(result, INTEGER, (int64_t)kernel->encode_backward_workspace(&c.args));
    return 0;
  }
  if (entry == PEGEN_ENTRY_table_bytes) {
    tvm_set_value(result, INTEGER, (int64_t)kernel->table_bytes(&c.args));
    return 0;
  }
  int error = tvm_run(&c, entry);
  return error ? tvm_refuse("ValueError", kernel, c.signature.name, 0, tvm_sentence(error)) : 0;
}

/* driver.h: what the files of the driver share. Nothing of it leaves the kernel object.
 *
 * The driver is freestanding C11: no library, no call that a linker would have to
 * resolve. So there are no struct copies and no aggregate initialisers here (a C
 * compiler may turn them into memcpy and memset), and it is built with -fno-builtin
 * (so that loops are not turned into them either).
 *
 *     check.c     arguments -> pegen_call, or the first error
 *     view.c      DLTensor -> the bytes it covers; do two tensors share an element?
 *     memory.c    what a call reads and writes; does it write where it may not?
 *     enter.c     the floating-point state in which all the others run
 *     dispatch.c  the processor -> the first target that it can run
 *     processor.c what each kind of processor wants of a walk through memory
 *     position.c  coordinates and operands of any number type -> doubles
 *     sequences.c boundaries of sequences whose rows follow each other
 *     rows.c      rows as addresses and strides; tokens that pass through
 *     head_groups.c  heads of q that share operands with one of k
 *     walk.c      parts, runs of tokens, prefetch, the order of stores
 *     table.c     what prepare and encode must agree about
 *     dense.c     form "dense": tables of matrices, and rows times them; dense_maker.c: forming them
 *     gradient_table.c  what encode_backward and prepare_backward must agree about; prepare_backward.c: the latter, of
 *                 form "blades", and check_prepare_backward.c its arguments
 *     dense_backward.c  gradients of the same; finish.c: sums of chunks to operands, of all forms
 *     encode.c    form "blades": pegen_call -> calls of the emitted functions; check_slots.c: of k to a
 *                 cache in pages
 *     append.c    the same with norms before and v beside: all that a token that is served needs
 *     backward.c  gradients of the same; check_backward.c: their arguments
 *     widen.c     form "polynomial": the same; widen_backward.c: gradients of the same
 *     attention.c form "attention": the same, by sequences; attention_pages.c: whose keys are in pages
 *     attention_items.c a sequence by items: tiles of queries (attention_walk.c), or chunks of keys;
 *                 attention_strips.c: coordinates that keys have in common
 *     attention_few.c the same of few queries, by tiles of keys
 *     attention_gradients.c, attention_backward.c gradients of the same; check_attention_backward.c: their arguments;
 *                 attention_tangent.c: forward mode, checked there, too;
 *                 weight_gains.c: what comes of a polynomial's weights
 *
 * Each form (compiler/forms/form.h) has driver files of its own beside the first eight; kernel/CMakeLists.txt
 * lists which, and an object carries its form's only.
 */
#pragma once

#include "arguments.h"
#include "loop.h"
#include "processor.h"

#define PEGEN_INTERNAL __attribute__((visibility("hidden")))

/* Returns from a check with the first error that another one finds. */
#define PEGEN_TRY(check) \
  do { \
    int error_ = (check); \
    if (error_) return error_; \
  } while (0)

/* Room on the stack of the function that asks, from a line of the cache on. */
#define PEGEN_STACK(bytes) __builtin_alloca_with_align((size_t)(bytes), 512)

static inline void pegen_copy_bytes(void *to, const void *from, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) ((char *)to)[i] = ((const char *)from)[i];
}
static inline int64_t pegen_smaller(int64_t x, int64_t y) { return x < y ? x : y; }
static inline int64_t pegen_larger(int64_t x, int64_t y) { return x > y ? x : y; }

/* A tensor as bytes: `dims` outer dimensions with strides, each index of which begins a run
 * of `width` adjacent bytes (a row of channels, one coordinate, a whole operand).
 * Dimensions of size 1 have stride 0, so that equal strides mean equal addressing. */
enum { PEGEN_VIEW_DIMS = 3 };
typedef struct pegen_view {
  uintptr_t base; /* address of index (0, 0, 0) */
  uintptr_t low, high; /* every byte lies in [low, high) */
  int64_t width;
  int64_t empty; /* 1: no elements; then nothing but size is meaningful */
  int64_t size[PEGEN_VIEW_DIMS], stride[PEGEN_VIEW_DIMS]; /* stride in bytes */
} pegen_view;

/* The address of index (i, j, k). */
static inline char *pegen_at(const pegen_view *view, int64_t i, int64_t j, int64_t k) {
  return (char *)(view->base + (uintptr_t)(i * view->stride[0] + j * view->stride[1] + k * view->stride[2]));
}

enum { PEGEN_BATCH, PEGEN_HEAD, PEGEN_TOKEN }; /* dimensions of the view of q, k and their outputs */

/* A tensor of rows is [B,H,N,D], or of one batch [N,H,D], as engines have them; lse and inputs of one number a row lack
 * D. `rank`: with all dimensions. The size of PEGEN_BATCH, PEGEN_HEAD or PEGEN_TOKEN. */
static inline int64_t pegen_rows_size(const DLTensor *rows, int rank, int dim) {
  if (rows->ndim == rank) return rows->shape[dim];
  return dim == PEGEN_BATCH ? 1 : rows->shape[dim == PEGEN_HEAD];
}
/* 1: two have the same rows, in tensors of the same layout. */
PEGEN_INTERNAL int pegen_same_rows(const DLTensor *a, int rank_a, const DLTensor *b, int rank_b);
enum { PEGEN_POSITION_BATCH, PEGEN_POSITION_TOKEN, PEGEN_POSITION_AXIS }; /* of positions */

/* Where sequences begin whose rows follow each other, and where the last one ends. */
typedef struct pegen_bounds {
  const int32_t *at; /* [sequences + 1] */
  int64_t sequences; /* 0 where there are no bounds */
  pegen_view view; /* empty: the same */
} pegen_bounds;

/* One of q and k, checked. */
typedef struct pegen_stream {
  int64_t given; /* 0: the rest is not set */
  int64_t in_type, out_type; /* PEGEN_NUMBER_; where they differ, rows are converted */
  double gain; /* of rows that are converted; see pegen_rows */
  pegen_view scale; /* what gain was made of, empty where there is none */
  int64_t keys; /* 1: of k */
  int64_t group; /* heads that share operands per head: 1 but of q where k has fewer heads, and operands are of those */
  int64_t in_place; /* out is in, element for element */
  const int64_t
      *slots; /* [batch][token]: where rows of out are, a view of one page of no batches; NULL: as rows of in */
  uintptr_t cache; /* of slots: row 0 of page 0; tokens of a page, and bytes from one to the next */
  int64_t page_size, page;
  pegen_view slot_view; /* of slots */
  const float *norm; /* weights of what rows are normalised by before they are encoded; NULL: they are not */
  double epsilon; /* of norms */
  pegen_view in, out_of_place;
  const pegen_view *out; /* &in or &out_of_place */
  int64_t grid; /* 1: coordinates are those of the built-in grid; 0: of positions */
  int64_t bare; /* 1: positions have no dimension of axes */
  pegen_view positions;
  int64_t position_type; /* pegen_position_type */
} pegen_stream;

/* Where columns count positions from; see pegen_args.origin. */
typedef struct pegen_origin {
  const double *fixed; /* [axes] the description's own, for what no view says */
  int64_t is_given; /* view is of args->origin, [..,B,P]; 0: of args->positions, whose middle is meant */
  int64_t type; /* pegen_position_type of view; -1: there is none */
  pegen_view view;
  pegen_bounds bounds; /* of q's sequences, in args->positions */
} pegen_origin;

/* A checked call. */
typedef struct pegen_call {
  pegen_stream stream[2]; /* q, k */
  int64_t joint; /* 1: q and k have the same tokens and positions, and go in one pass */
  int64_t type; /* PEGEN_NUMBER_ of q and k, and of outputs that do not convert */
  int64_t tabled; /* 1: args->table stands for positions and operands, which were not looked at */
  pegen_bounds bounds[2]; /* of q's rows and k's */
  int64_t as_batches[2]; /* 1: so many sequences of one length, which are the stream's batches from here on; 0: none */
  pegen_view input[PEGEN_MAX_INPUTS]; /* the kernel's: of the query tokens, where q is given; else all zeros */
  int64_t wide_inputs; /* 1: inputs are float32, and q is not */
  pegen_origin origin; /* of kernels that have one; fixed is set by the form */
} pegen_call;

/* Checks everything in the order that check.c states; fills *call where it returns 0. row_bytes: of a row of the form's
 * tables, where the kernel has any. */
PEGEN_INTERNAL int pegen_check(const pegen_driver *driver, const pegen_args *args, int part, int parts,
                               int64_t row_bytes, pegen_call *call);

/* Checks a call that only reads the rows where is_written ([2]: q, k) is 0. Their outputs are the rows themselves,
 * which may repeat elements and overlap what else is read. narrows: 1: rows are read as wide as encode writes them, and
 * written as wide as it reads them. */
PEGEN_INTERNAL int pegen_check_written(const pegen_driver *driver, const pegen_args *args, int64_t row_bytes,
                                       const int64_t *is_written, int64_t narrows, pegen_call *call);

/* Heads whose rotors or matrices differ. */
static inline int64_t pegen_heads_apart(const pegen_driver *driver) {
  return driver->per_head ? driver->kernel->heads : 1;
}

/* Slots of rows that go to a cache in pages, whose view the stream's out is (check_slots.c). */
PEGEN_INTERNAL int pegen_check_slots(const DLTensor *slots, const DLTensor *rows, pegen_stream *stream);
/* The out of such a stream, whose memory was checked, becomes one page, as walks want it. */
PEGEN_INTERNAL void pegen_go_to_page(pegen_stream *stream);
/* Rows v, of k's shape and type, that go to v_out, a cache of their own, at the slots of a call that is checked. What
 * they may not overlap is not asked. */
PEGEN_INTERNAL int pegen_check_values(const pegen_driver *driver, const pegen_args *args, pegen_stream *stream);
/* Positions and operands alone, for prepare: fills grid, positions and position_type of both streams (the second is
 * given where k has positions of its own). */
PEGEN_INTERNAL int pegen_check_prepare(const pegen_driver *driver, const pegen_args *args, int part, int parts,
                                       pegen_call *call);

/* Views of q, which pegen_group_heads has made those of one head of each group. */
typedef struct pegen_head_groups {
  pegen_view *view[3];
  uintptr_t first[3];
  int64_t step[3];
  int n;
} pegen_head_groups;

/* A checked call, and what was kept of q's rows (NULL: nothing): from then on as one with as many heads of q as
 * operands have. How often it is to be walked, k in the first round alone; pegen_take_group before each. */
PEGEN_INTERNAL int64_t pegen_group_heads(pegen_call *call, pegen_view *kept, pegen_head_groups *g);
PEGEN_INTERNAL void pegen_take_group(pegen_head_groups *g, int64_t round);

/* Queries of a call of attention that are prefix tokens, of which the sequence has `skip`: the last query stands beside
 * the last key, so that query i is token i + keys - tokens. */
static inline int64_t pegen_attention_prefix(int64_t skip, int64_t tokens, int64_t keys) {
  int64_t prefix = skip + tokens - keys;
  return skip <= 0 || prefix < 0 ? 0 : prefix < tokens ? prefix : tokens;
}

/* Parts of it, for the checks of other forms; each returns 0 or a pegen_error unless it says otherwise. */
PEGEN_INTERNAL int pegen_same_type(const DLTensor *a, const DLTensor *b); /* 1: theirs are of one */
PEGEN_INTERNAL int64_t pegen_row_type(const DLTensor *tensor); /* PEGEN_NUMBER_, below PEGEN_ROW_TYPES; -1: another */
PEGEN_INTERNAL int64_t pegen_position_type_of(const DLTensor *tensor); /* pegen_position_type, -1: none of them */
PEGEN_INTERNAL int pegen_check_rows_shape(const DLTensor *tensor, int64_t head_dim);
PEGEN_INTERNAL int pegen_check_coordinates(const pegen_kernel *kernel, const DLTensor *positions, const DLTensor *rows);
/* A struct that its caller says is so long: `first` bytes or more, and beyond those that are known nothing but zeros.
 */
PEGEN_INTERNAL int pegen_check_struct(const void *given, uint32_t size, size_t first, size_t known);
/* args, the part, and that arguments are given which this entry does not refuse (arguments.h). */
PEGEN_INTERNAL int pegen_check_part(const pegen_args *args, int part, int parts, pegen_argument_use use);
/* Operands: all given, of the kernel's shapes, of their types, and their memory. */
PEGEN_INTERNAL int pegen_check_operands(const pegen_kernel *kernel, const pegen_args *args);
/* An operand's, or its gradient's: `wrong` where it is another, or not contiguous. */
PEGEN_INTERNAL int pegen_check_operand_shape(const pegen_operand *want, const DLTensor *tensor, int wrong);
/* Inputs of the tokens of q, or of whichever rows they are: all given, of the rows' sizes, of q's type (type, as
 * pegen_row_type) or all float32, and their memory. */
/* Inputs of scores: float32, of all heads or batches where these are one. */
static inline int pegen_input_is_of_pairs(const pegen_kernel *kernel, int input) {
  return kernel->pair_inputs >> input & 1;
}
/* Whether numbers of pairs may have 16 bits; kernels of before read float32 alone. */
static inline int pegen_reads_narrow_pairs(const pegen_kernel *kernel, int input) {
  return kernel->inputs[input].size == PEGEN_SIZE_OF_KEYS &&
         kernel->struct_size >= offsetof(pegen_kernel, reads_narrow_pairs) + sizeof kernel->reads_narrow_pairs &&
         kernel->reads_narrow_pairs;
}
static inline int pegen_input_is_of_keys(const pegen_kernel *kernel, int input) {
  return kernel->key_inputs >> input & 1;
}
PEGEN_INTERNAL int pegen_check_inputs_given(const pegen_kernel *kernel, const pegen_args *args);
PEGEN_INTERNAL int pegen_check_input_shapes(const pegen_driver *driver, const pegen_args *args, const DLTensor *rows);
PEGEN_INTERNAL int pegen_check_inputs(const pegen_kernel *kernel, const pegen_args *args, int64_t type,
                                      int64_t *are_wide, pegen_view *views);
/* Rows of channels, of either layout; of all that have the shape of rows but for `run` channels. */
PEGEN_INTERNAL int pegen_view_rows(const DLTensor *tensor, pegen_view *view);
/* Checks rows of `width` channels that must have the sizes and type of others, and fills *view. is_gradient: they are a
 * gradient of those, and errors of shape and type say so. */
PEGEN_INTERNAL int pegen_check_rows_like(const DLTensor *rows, const DLTensor *of, int64_t width, int is_gradient,
                                         pegen_view *view);
PEGEN_INTERNAL int pegen_view_like_rows(const DLTensor *tensor, int run, pegen_view *view);
/* A cache [pages,page_size,heads,width] as rows [pages,heads,page_size,width]. */
PEGEN_INTERNAL int pegen_view_pages(const DLTensor *cache, pegen_view *view);
/* 1: positions are [N] or [B,N], of a kernel with one axis. tokens: of the rows that they are of; -1: there are none,
 * and [x,1] is [N,P]. */
PEGEN_INTERNAL int pegen_bare_positions(const pegen_kernel *kernel, const DLTensor *positions, int64_t tokens);
PEGEN_INTERNAL int pegen_view_positions(const DLTensor *positions, int64_t is_bare, pegen_view *view);
/* Fills *type, -1 of the built-in grid (positions NULL), *is_bare as above, and the view of what is given. */
PEGEN_INTERNAL int pegen_view_coordinates(const pegen_kernel *kernel, const DLTensor *positions, int64_t tokens,
                                          int64_t *type, int64_t *is_bare, pegen_view *view);

/* Sequences (sequences.c): the boundaries of q's rows or of k's, checked; none; 1: two are alike; sequences that have
 * tokens; 1: each has so many, or none. */
PEGEN_INTERNAL int pegen_read_bounds(const pegen_args *args, int of_keys, int64_t total, pegen_bounds *b);
PEGEN_INTERNAL void pegen_no_bounds(pegen_bounds *b);
PEGEN_INTERNAL int pegen_same_bounds(const pegen_bounds *a, const pegen_bounds *b);
PEGEN_INTERNAL int64_t pegen_count_sequences(const pegen_bounds *b);
PEGEN_INTERNAL int pegen_are_of_length(const pegen_bounds *b, int64_t tokens);
/* A view of sequence `from`, in whose dimension `dim` tokens are, becomes that of sequence `to`. */
PEGEN_INTERNAL void pegen_go_to_sequence(pegen_view *view, int dim, const pegen_bounds *b, int64_t from, int64_t to);
/* Rows of one batch become those of so many, of as many tokens each. */
PEGEN_INTERNAL void pegen_as_batches(pegen_view *view, int64_t sequences);

/* Tests of a tensor (view.c) return 1 where its elements are of that type, and where its memory can be read here. */
PEGEN_INTERNAL int pegen_one_of(const DLTensor *tensor, int code, int bits);
PEGEN_INTERNAL int pegen_on_host(const DLTensor *tensor);

/* Fills *view from a tensor whose rank, shape and dtype are checked. The last `run` dimensions (0 or 1)
 * must be adjacent elements and become the width (at least one); dimensions of the tensor fill the view's
 * from the last backwards, missing ones in front are of size 1. Returns 0 or a pegen_error:
 * SIZE_OVERFLOW, CHANNEL_STRIDE, NULL_DATA, ALIGNMENT. */
PEGEN_INTERNAL int pegen_view_of(const DLTensor *tensor, int run, pegen_view *view);

/* Fills *view from a contiguous tensor, such as an operand, as one run of bytes. */
PEGEN_INTERNAL int pegen_view_contiguous(const DLTensor *tensor, pegen_view *view);

/* Fills *view from plain memory; may return SIZE_OVERFLOW. */
PEGEN_INTERNAL int pegen_view_memory(const void *at, int64_t bytes, pegen_view *view);

/* 1 where both name the same elements by the same indices. */
PEGEN_INTERNAL int pegen_views_equal(const pegen_view *a, const pegen_view *b);

/* 0 where no byte belongs to both; 1 where some does, or where the search became too long. */
PEGEN_INTERNAL int pegen_views_share(const pegen_view *a, const pegen_view *b); /* whose ranges overlap */
static inline int pegen_views_meet(const pegen_view *a, const pegen_view *b) {
  if (a->empty || b->empty || a->high <= b->low || b->high <= a->low) return 0; /* as a rule */
  return pegen_views_share(a, b);
}

/* 0 where two indices of the view share a byte. The rule: dimensions sorted by
 * stride must nest, each stride at least as long as all that lies inside of it. */
PEGEN_INTERNAL int pegen_view_nests(const pegen_view *view);

/* The target to run here, index of the first of driver->levels that this processor has, and what it wants; -1: none. */
PEGEN_INTERNAL int pegen_dispatch(const pegen_driver *driver, pegen_tuning *tuning);
/* What *pegen_driver.chosen keeps: 1 + the target, the processor's row in the table, its last cache. */
enum { PEGEN_CHOSEN_TARGET = 255, PEGEN_CHOSEN_DOTS = 1 << 30 };
PEGEN_INTERNAL int32_t pegen_choice(int32_t target, int32_t row, int64_t last_cache);
PEGEN_INTERNAL int32_t pegen_processor_row(const pegen_processor_id *id);
/* The row's wishes on a machine with that cache. */
PEGEN_INTERNAL void pegen_tune(pegen_tuning *tuning, int32_t choice);

/* The rows of a stream. */
PEGEN_INTERNAL void pegen_set_rows(pegen_rows *rows, const pegen_stream *stream);
/* Rows that are read beside them. */
PEGEN_INTERNAL void pegen_set_kept(pegen_input_rows *rows, const pegen_view *kept);
/* Sets how far ahead rows are asked for. broken: the hardware does not see what is read next, for the walk leaves and
 * enters rows far apart, or computes too long between them. */
PEGEN_INTERNAL void pegen_set_prefetch(pegen_loop *loop, const pegen_tuning *tuning, int broken, int64_t touched);
/* Sets tiles and runs of rows that have a rotor each, in the order of memory: all heads of a token, or tiles of one
 * head. Sums of gradients are then taken in an order that no tile changes. */
PEGEN_INTERNAL void pegen_set_own_rows(pegen_loop *loop, const pegen_tuning *tuning, int by_head);
/* In place of that prefetch, where it is better, of rows of float32 whose rotors heads have to themselves: those of 16
 * bits are turned more slowly than they come. */
PEGEN_INTERNAL void pegen_prefetch_built(pegen_loop *loop, const pegen_tuning *tuning, const pegen_stream *of,
                                         int64_t touched);
/* 1: a head's tokens are nearer in memory than a token's heads. */
PEGEN_INTERNAL int pegen_by_head(const pegen_stream *stream);
/* Copies tokens [begin, end) of a batch as they are, or converted; zeros where the output is wider. A row of them. */
PEGEN_INTERNAL void pegen_copy_tokens(const pegen_stream *stream, int64_t batch, int64_t begin, int64_t end);
PEGEN_INTERNAL void pegen_copy_row(const pegen_stream *stream, char *to, const char *from);
static inline int pegen_converts(const pegen_stream *stream) { return stream->in_type != stream->out_type; }

/* 1: the kernel's columns count from an origin of the call. */
static inline int pegen_has_origin(const pegen_kernel *kernel) {
  return kernel->struct_size >= offsetof(pegen_kernel, has_origin) + sizeof kernel->has_origin && kernel->has_origin;
}
/* Columns count from the median of three tokens, axis by axis: this one, and those `step` before and behind it. -1: no
 * token is encoded. A third, for a row of a grid of images has a power of two tokens. */
static inline int64_t pegen_middle_token(int64_t tokens, int64_t skipped, int64_t *step) {
  int64_t encoded = tokens - skipped;
  *step = encoded / 3;
  return encoded > 0 ? skipped + encoded / 2 : -1;
}

/* Where pegen_driver_position finds the coordinates of a stream's batch; nowhere where a grid is built in. */
PEGEN_INTERNAL void pegen_set_positions(pegen_loop *loop, const pegen_stream *stream, int64_t batch);

/* `count` neighbouring elements of an operand from `first` on, as doubles. */
PEGEN_INTERNAL void pegen_gather_run(const DLTensor *operand, int64_t first, int64_t count, double *out);
/* The values that a head's leaves have, as emitted prepare functions take them: double [n_leaves][lanes]. */
PEGEN_INTERNAL void pegen_gather_leaves(const pegen_leaf *leaves, int64_t n_leaves, int64_t n_blocks, int64_t lanes,
                                        const pegen_args *args, int64_t head, double *out);
/* The coordinates at `at`, whose neighbours are `step` bytes apart. */
PEGEN_INTERNAL void pegen_coordinates(const char *at, int64_t type, int64_t step, int64_t axes, double *out);
/* Row-major coordinates of a cell of a grid. */
PEGEN_INTERNAL void pegen_cell(const int64_t *grid, int64_t axes, int64_t cell, double *out);
/* Writes the coordinates of a token of the built-in grid. */
PEGEN_INTERNAL void pegen_grid_position(const pegen_kernel *kernel, int64_t token, double *out);

/* An operand's elements at offsets[n], as doubles. */
PEGEN_INTERNAL void pegen_gather(const DLTensor *operand, const int32_t *offsets, int64_t n, double *out);

/* Parts [first, last) of `parts`. */
typedef struct pegen_part {
  int first, last, parts;
} pegen_part;

/* Items [*begin, *end) of `items`: the share of part `part`, or of several. 0 where it is empty. */
PEGEN_INTERNAL int pegen_share(int64_t items, int part, int parts, int64_t *begin, int64_t *end);
PEGEN_INTERNAL int pegen_share_of(int64_t items, const pegen_part *of, int64_t *begin, int64_t *end);

/* Tokens [begin, end) of a batch. */
typedef struct pegen_run {
  int64_t batch, begin, end;
} pegen_run;

/* Items are the tokens of one batch after the other: takes the longest run of one batch off [*item, end). 0: none is
 * left. */
PEGEN_INTERNAL int pegen_next_run(int64_t tokens, int64_t *item, int64_t end, pegen_run *run);

/* Streaming stores are weakly ordered: the caller's next release must cover them. */
PEGEN_INTERNAL void pegen_order_stores(int streamed);

/* Bytes of all rows. */
PEGEN_INTERNAL int64_t pegen_view_bytes(const pegen_view *view);
/* May the output be written past the cache? Rows that begin and end at multiples of so many bytes, a power of two, and
 * never lines that were just read. */
PEGEN_INTERNAL int pegen_streams_aligned(const pegen_stream *stream, int64_t bytes);

/* A field of args that older callers' structs end before: 0 there. */
#define PEGEN_GIVEN(args, field) \
  ((args)->struct_size >= offsetof(pegen_args, field) + sizeof(args)->field ? (args)->field : 0)
/* A field of args->grad that older callers' structs end before: 0 there. */
#define PEGEN_GRAD_GIVEN(grad, field) \
  ((grad)->struct_size >= offsetof(pegen_grad_args, field) + sizeof(grad)->field ? (grad)->field : 0)

/* A caller's struct of another version as this one's; its size was checked (enter.c). */
PEGEN_INTERNAL void pegen_copy_args(pegen_args *to, const pegen_args *from);

/* Returns how many tokens the built-in grid stands for: those that are skipped, and its points. */
static inline int64_t pegen_grid_tokens(const pegen_kernel *kernel) {
  int64_t points = 1;
  for (int i = 0; i < kernel->n_axes; i++) points *= kernel->grid[i];
  return kernel->skip_tokens + points;
}

/* A driver of its own for a call whose rows begin behind their sequence's first token: fewer of them, or none, are
 * skipped. */
typedef struct pegen_own_driver {
  pegen_driver driver;
  pegen_kernel kernel;
} pegen_own_driver;

PEGEN_INTERNAL const pegen_driver *pegen_from_first_token(const pegen_driver *driver, const pegen_args *args,
                                                          pegen_own_driver *own);

/* 1: rows of sequences follow each other. */
static inline int pegen_has_bounds(const pegen_args *args) {
  return args && (PEGEN_GIVEN(args, cu_seqlens) || PEGEN_GIVEN(args, k_cu_seqlens));
}

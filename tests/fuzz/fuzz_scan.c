/* fuzz_scan: any arguments for pegen_scan_tokens.
 *
 * In: bytes that are read as a sound call and a few edits of it. Tensors lie in fuzz_world's memory. A sound call is
 * accepted; a refusal writes nothing; an accepted call's outputs are nobody else's elements but their own input's, it
 * writes them and nothing else, whatever the number of parts, and they are those of contiguous copies in one part.
 */
#include "fuzz_world.h"
#include "pegen/scan.h"

#include <string.h>

enum { IN, OUT, STATE_IN, STATE_OUT, TENSORS, BOUNDS = 6, DIMS = 4, MOST = 1 << 20 };

typedef struct tensor {
  DLTensor dl;
  int64_t *shape, *strides; /* exactly as long as the rank: the sanitizer sees what reads past them */
} tensor;

typedef struct call {
  tensor of[TENSORS];
  tensor bounds;
  int32_t *at;   /* of the bounds */
  int64_t count; /* of the numbers at `at` */
  pegen_scan scan;
  int part, parts;
  size_t used;
  bool is_sound;
} call;

static int64_t *copied(const int64_t *from, int count) {
  int64_t *to = malloc(sizeof *to * (size_t)count);
  if (!to) abort();
  memcpy(to, from, sizeof *to * (size_t)count);
  return to;
}

/* In the next free bytes, tokens or heads inside; `channels`: the last dimension's stride is 1. */
static void place(reader *r, call *c, int which, int rank, const int64_t *shape, bool channels, int code, int bits) {
  tensor *t = &c->of[which];
  int64_t strides[DIMS], step = 1, low = 0;
  int last = channels ? rank - 1 : rank, turned = below(r, 2);
  if (channels) strides[last] = 1, step = shape[last];
  for (int i = last - 1; i >= 0; i--) {
    int d = turned && i > 0 ? last - i : i; /* dimensions but the first in the opposite order */
    bool falls = byte(r) % 4 == 0;
    step += below(r, 3);
    strides[d] = falls ? -step : step;
    if (falls && shape[d] > 0) low += step * (shape[d] - 1);
    step *= shape[d] ? shape[d] : 1;
  }
  c->used = (c->used + 7) & ~(size_t)7;
  t->shape = copied(shape, rank);
  t->strides = copied(strides, rank);
  t->dl = (DLTensor){.data = world + c->used,
                     .device = {kDLCPU, 0},
                     .ndim = rank,
                     .dtype = {(uint8_t)code, (uint8_t)bits, 1},
                     .shape = t->shape,
                     .strides = t->strides,
                     .byte_offset = (uint64_t)(low * bits / 8)};
  c->used += (size_t)(step * bits / 8);
  EXPECT(c->used <= WORLD);
}

static void make_bounds(reader *r, call *c, int64_t sequences, int64_t tokens) {
  int64_t count = sequences + 1, one = 1;
  int32_t before = 0;
  c->count = count;
  c->at = malloc(sizeof *c->at * (size_t)count);
  if (!c->at) abort();
  for (int64_t i = 0; i < count; i++) {
    before += i ? (int32_t)below(r, (unsigned)(tokens - before) + 1) : 0;
    c->at[i] = i == sequences ? (int32_t)tokens : before;
  }
  c->bounds.shape = copied(&count, 1);
  c->bounds.strides = copied(&one, 1);
  c->bounds.dl = (DLTensor){.data = c->at,
                            .device = {kDLCPU, 0},
                            .ndim = 1,
                            .dtype = {kDLInt, 32, 1},
                            .shape = c->bounds.shape,
                            .strides = c->bounds.strides};
}

static void make_sound(reader *r, call *c) {
  static const int codes[] = {kDLFloat, kDLFloat, kDLFloat, kDLBfloat}, bits[] = {32, 64, 16, 16};
  int type = below(r, 4), wide = below(r, 2), rank = 3 + below(r, 2), uses = byte(r);
  int64_t shape[] = {1 + below(r, 3), 1 + below(r, 5), below(r, 12), 1 + below(r, 20)};
  int64_t sequences = shape[0];
  memset(c, 0, sizeof *c);
  if (uses & 1) {
    shape[0] = 1;
    sequences = 1 + below(r, BOUNDS - 1);
    make_bounds(r, c, sequences, shape[2]);
  }
  int64_t state[] = {sequences, shape[1], shape[3]};
  place(r, c, IN, rank, shape, rank == 4, codes[type], bits[type]);
  place(r, c, OUT, rank, shape, rank == 4, kDLFloat, wide ? 64 : 32);
  place(r, c, STATE_IN, rank - 1, state, rank == 4, kDLFloat, 64);
  place(r, c, STATE_OUT, rank - 1, state, rank == 4, kDLFloat, 64);
  c->scan = (pegen_scan){.struct_size = sizeof c->scan,
                         .flags = uses >> 1 & 1,
                         .in = &c->of[IN].dl,
                         .out = &c->of[OUT].dl,
                         .state_in = uses & 4 ? &c->of[STATE_IN].dl : NULL,
                         .state_out = uses & 8 ? &c->of[STATE_OUT].dl : NULL,
                         .cu_seqlens = uses & 1 ? &c->bounds.dl : NULL,
                         .period = uses & 16 ? 6.25 : 0};
  if ((uses & 32) && type < 2 && wide == type) c->scan.out = &c->of[IN].dl;
  if ((uses & 64) && c->scan.state_in && c->scan.state_out) c->scan.state_out = &c->of[STATE_IN].dl;
  c->parts = 1 + below(r, 9);
  c->part = below(r, (unsigned)c->parts);
  c->is_sound = true;
}

static void edit(reader *r, call *c) {
  unsigned which = below(r, TENSORS + 1);
  tensor *t = which < TENSORS ? &c->of[which] : &c->bounds;
  if (!t->shape) return;
  unsigned d = below(r, (unsigned)t->dl.ndim + !t->dl.ndim);
  c->is_sound = false;
  switch (below(r, 15)) {
  case 0: t->shape[d] = number(r); break;
  case 1: t->strides[d] = number(r); break;
  case 2: t->dl.strides = NULL; break;
  case 3: t->dl.shape = NULL; break;
  case 4: t->dl.data = world + (size_t)byte(r) * 8; break;
  case 5: t->dl.byte_offset = (uint64_t)number(r); break;
  case 6: t->dl.dtype.bits = (uint8_t)(8 << below(r, 5)); break;
  case 7: t->dl.dtype.code = (uint8_t)below(r, 6); break;
  case 8: t->dl.device.device_type = kDLCUDA; break;
  case 9: t->dl.data = NULL; break;
  case 10: c->scan.flags = byte(r); break;
  case 11: c->scan.period = (double)number(r); break;
  case 12: c->part = (int)number(r), c->parts = (int)number(r); break;
  case 13:
    if (c->at) c->at[0] = (int32_t)number(r);
    break;
  case 14:
    if (c->of[OUT].dl.ndim == c->of[IN].dl.ndim) c->of[OUT].dl.data = c->of[IN].dl.data;
    break;
  }
}

static bool is_huge(const call *c) {
  for (int i = 0; i < TENSORS; i++) {
    __int128 all = 1;
    for (int d = 0; d < c->of[i].dl.ndim && c->of[i].dl.shape; d++) {
      if (c->of[i].shape[d] < 0 || c->of[i].shape[d] > MOST) return true;
      all *= c->of[i].shape[d] ? c->of[i].shape[d] : 1;
    }
    if (all > MOST) return true;
  }
  return false;
}

/* What the caller may lie about: memory that it does not have. */
static bool is_of_world(const call *c) {
  const DLTensor *all[] = {c->scan.in, c->scan.out, c->scan.state_in, c->scan.state_out};
  for (int i = 0; i < TENSORS; i++)
    if (all[i] && !world_holds(all[i])) return false;
  return !c->scan.cu_seqlens || (c->bounds.dl.data == c->at && c->bounds.dl.byte_offset == 0);
}

static void run_all(const call *c, int parts) {
  world_poison();
  for (int part = parts - 1; part >= 0; part--) EXPECT(pegen_scan_tokens(&c->scan, part, parts) == 0);
  world_unpoison();
  world_expect_unchanged(true);
}

static void expect_apart(const pegen_scan *s) {
  world_clear();
  if (!world_same_elements(s->in, s->out)) world_read(s->in);
  if (s->state_in && (!s->state_out || !world_same_elements(s->state_in, s->state_out))) world_read(s->state_in);
  EXPECT(world_write(s->out));
  if (s->state_out) EXPECT(world_write(s->state_out));
}

static void run_accepted(const call *c) {
  const pegen_scan *s = &c->scan;
  DLTensor *in = world_copy(s->in), *out = world_copy(s->out);
  DLTensor *from = s->state_in ? world_copy(s->state_in) : NULL, *to = s->state_out ? world_copy(s->state_out) : NULL;
  pegen_scan apart = *s;
  apart.in = in;
  apart.out = out;
  apart.state_in = from;
  apart.state_out = to;
  EXPECT(pegen_scan_tokens(&apart, 0, 1) == 0);
  run_all(c, c->parts > 64 ? 1 : c->parts);
  world_expect_same(s->out, out);
  if (to) world_expect_same(s->state_out, to);
  world_copy_free(in);
  world_copy_free(out);
  world_copy_free(from);
  world_copy_free(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static call c;
  reader r = {data, size};
  make_sound(&r, &c);
  for (int i = below(&r, 4); i > 0; i--) edit(&r, &c);
  for (size_t i = 0; i < c.used; i++) world[i] = (unsigned char)(i * 37 + 11) & 0x3f; /* numbers of any size, finite */
  world_remember();
  if (!is_huge(&c) &&
      (!c.bounds.shape || (c.bounds.shape[0] <= c.count && c.bounds.dl.data == c.at && c.bounds.dl.byte_offset == 0))) {
    int answer = pegen_scan_tokens(&c.scan, FUZZ_NO_SHARE, FUZZ_PARTS);
    world_expect_unchanged(false);
    if (c.is_sound) EXPECT(answer == 0);
    bool is_part = c.part >= 0 && c.part < c.parts;
    if (answer || !is_part) {
      EXPECT(pegen_scan_tokens(&c.scan, c.part, c.parts) != 0);
      world_expect_unchanged(false);
    } else if (is_of_world(&c)) {
      expect_apart(&c.scan);
      run_accepted(&c);
    }
  }
  for (int i = 0; i < TENSORS; i++) free(c.of[i].shape), free(c.of[i].strides);
  free(c.bounds.shape), free(c.bounds.strides), free(c.at);
  return 0;
}

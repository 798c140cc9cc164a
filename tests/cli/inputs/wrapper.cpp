// wrapper: pegen.hpp in a program: tensors that are copied, parts, refusals.
#include <pegen/pegen.hpp>

#include "rope.h"

#include <cmath>
#include <cstdio>
#include <string>

static pegen::tensor rows(std::vector<float> &memory, int64_t tokens) {
  return pegen::tensor(memory.data(), {1, 2, tokens, ROPE_HEAD_DIM}, {tokens * 128, 64, 128, 1}); // [B,N,H,D]
}

int main() {
  const int64_t tokens = 5;
  std::vector<float> q(tokens * 128, 1), k(tokens * 128, 1);
  const std::vector<int32_t> places = {0, 1, 2, 3, 4};
  pegen::tensor queries = rows(q, tokens), keys = rows(k, 1), positions(places.data(), {tokens, 1});
  keys = rows(k, tokens);
  pegen_args args = pegen::arguments();
  args.q = &queries, args.q_out = &queries, args.k = &keys, args.k_out = &keys, args.positions = &positions;
  for (int part = 0; part < 2; part++) pegen::call(rope_encode, args, part, 2);
  if (std::fabs(q[128] - (std::cos(1.0) - std::sin(1.0))) > 1e-6 || q != k) return 1;
  pegen::tensor few = rows(k, tokens - 1), narrow(k.data(), kDLBfloat, 16, {1, 2, tokens, 64});
  try {
    args.k = &few;
    pegen::call(rope_encode, args);
    return 2;
  } catch (const pegen::error &e) {
    if (e.code != PEGEN_ERROR_SHAPE_MISMATCH || std::string(e.what()).find("sizes of two tensors")) return 3;
  }
  try {
    args.k = &narrow;
    pegen::call(rope_encode, args);
    return 4;
  } catch (const pegen::error &e) {
    if (e.code != PEGEN_ERROR_DTYPE_MISMATCH) return 5;
  }
  try {
    pegen::tensor wrong(k.data(), {1, 2, tokens, 64}, {1});
    return 6;
  } catch (const pegen::error &e) {
    return std::printf("%d: %s\n", e.code, e.what()) < 0;
  }
}

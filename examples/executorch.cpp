/* ExecuTorch: rows of a program of ExecuTorch's turned by a kernel that pegen made, beside its own operators.
 *
 *   pegen specs/rope.lua -o rope.o --header rope.h
 *   python3 executorch_graph.py 1024 32 rope.pte         tokens, heads of 64 channels
 *   (a project of find_package(executorch); tests/examples/executorch.sh has the same without CMake)
 *   ./executorch rope.pte 1024 32
 *
 * The kernel is an operator of the program (pegen::rope.out): ExecuTorch plans where its result lies, orders it among
 * the others, and lends it its pool of threads. A kernel's entry takes just that: a part, of parts. Nothing is copied;
 * sizes and strides are DLPack's in 32 bits. Any other kernel goes the same way, also one that there is no operator
 * for.
 */
extern "C" {
#include "rope.h"
}

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/kernel/kernel_includes.h>
#include <executorch/runtime/kernel/thread_parallel_interface.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

using executorch::extension::Module;
using executorch::runtime::Error;
using executorch::runtime::EValue;

/* ---- the operator ---- */

namespace {

struct Viewed {
  DLTensor tensor;
  int64_t shape[4], strides[4];
};

/* order: which of ExecuTorch's dimensions each of the tensor's is; -1: one of size 1. */
void view(Viewed &v, const executorch::aten::Tensor &t, DLDataType type, int rank, const int *order) {
  v.tensor = {};
  v.tensor.data = const_cast<void *>(t.const_data_ptr());
  v.tensor.device = {kDLCPU, 0};
  v.tensor.ndim = rank;
  v.tensor.dtype = type;
  for (int i = 0; i < rank; i++) {
    v.shape[i] = order[i] < 0 ? 1 : t.sizes()[order[i]];
    v.strides[i] = order[i] < 0 ? 1 : t.strides()[order[i]];
  }
  v.tensor.shape = v.shape;
  v.tensor.strides = v.strides;
}

/* rope.out(Tensor rows, Tensor positions, *, Tensor(a!) out) -> Tensor(a!): rows [B,N,H,D] of float32, positions [N] of
 * int64. */
void rope_out(executorch::runtime::KernelRuntimeContext &context, executorch::runtime::Span<EValue *> stack) {
  static const int row_order[] = {0, 2, 1, 3}, position_order[] = {0, -1};
  Viewed q, q_out, at;
  view(q, stack[0]->toTensor(), {kDLFloat, 32, 1}, 4, row_order);
  view(at, stack[1]->toTensor(), {kDLInt, 64, 1}, 2, position_order);
  view(q_out, stack[2]->toTensor(), {kDLFloat, 32, 1}, 4, row_order);
  pegen_args args = {};
  args.struct_size = sizeof args;
  args.q = &q.tensor;
  args.q_out = &q_out.tensor;
  args.positions = &at.tensor;
  std::atomic<int> refusal{0};
  const int parts = static_cast<int>(executorch::extension::get_thread_count());
  executorch::extension::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; part++)
      if (int error = rope_kernel.encode(&args, static_cast<int>(part), parts)) refusal = error;
  });
  if (!refusal) return;
  std::fprintf(stderr, "%s refuses: error %d of pegen/pegen.h\n", rope_kernel.name, refusal.load());
  context.fail(Error::InvalidArgument);
}

const auto registered = executorch::runtime::register_kernel(executorch::runtime::Kernel("pegen::rope.out", rope_out));

/* ---- both programs ---- */

/* The result, and microseconds of the program: the best of 50. */
executorch::aten::Tensor run(Module &module, const char *method, const std::vector<EValue> &inputs, double *best) {
  std::vector<EValue> made;
  *best = INFINITY;
  for (int i = 0; i < 50; i++) {
    const auto start = std::chrono::steady_clock::now();
    auto result = module.execute(method, inputs);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (!result.ok()) {
      std::fprintf(stderr, "%s failed: error %d of ExecuTorch's\n", method, static_cast<int>(result.error()));
      std::exit(1);
    }
    made = std::move(*result);
    *best = std::fmin(*best, took.count());
  }
  return made.at(0).toTensor();
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 4 || registered != Error::Ok) return 2;
  const int tokens = std::atoi(argv[2]), heads = std::atoi(argv[3]);
  std::vector<float> numbers(static_cast<size_t>(tokens) * static_cast<size_t>(heads) * ROPE_HEAD_DIM);
  std::vector<int64_t> places(static_cast<size_t>(tokens));
  for (size_t i = 0; i < numbers.size(); i++) numbers[i] = static_cast<float>(i * 7919 % 2003) / 1000 - 1;
  for (size_t i = 0; i < places.size(); i++) places[i] = static_cast<int64_t>(i);
  auto rows = executorch::extension::from_blob(numbers.data(), {1, tokens, heads, ROPE_HEAD_DIM});
  auto positions = executorch::extension::from_blob(places.data(), {tokens}, executorch::aten::ScalarType::Long);
  const std::vector<EValue> inputs = {*rows, *positions};

  Module module(argv[1]);
  double theirs_us, ours_us, largest = 0;
  const auto theirs = run(module, "theirs", inputs, &theirs_us), ours = run(module, "ours", inputs, &ours_us);
  for (size_t i = 0; i < numbers.size(); i++)
    largest = std::fmax(
        largest, std::fabs(static_cast<double>(theirs.const_data_ptr<float>()[i]) - ours.const_data_ptr<float>()[i]));
  std::printf("%d tokens, %d heads, %d threads: ExecuTorch %.0f us, pegen %.0f us; largest difference %.1e\n", tokens,
              heads, static_cast<int>(executorch::extension::get_thread_count()), theirs_us, ours_us, largest);
  return !(largest < 1e-5);
}

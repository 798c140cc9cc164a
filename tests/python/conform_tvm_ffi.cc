/* Pairs, whatever is asked: an engine for `pegen conform --tvm-ffi`. */
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <cmath>

using namespace tvm::ffi;

static void rotate(Map<String, Tensor> arrays, Map<String, Any> asked) {
  if (asked["kind"].cast<String>() != "encode") TVM_FFI_THROW(NotImplementedError) << "no attention here";
  auto *at = static_cast<const int64_t *>(arrays["positions"].data_ptr());
  double base = asked["base"].cast<double>();
  for (const char *name : {"q", "k"}) {
    Tensor rows = arrays[name], found = arrays["found_" + std::string(name)];
    auto *x = static_cast<const float *>(rows.data_ptr());
    auto *y = static_cast<float *>(found.data_ptr());
    int64_t n = rows.size(2), d = rows.size(3);
    for (int64_t i = 0; i < rows.numel(); i += 2) {
      double angle = at[i / d % n] * std::pow(base, -double(i % d) / d);
      y[i] = std::cos(angle) * x[i] - std::sin(angle) * x[i + 1];
      y[i + 1] = std::sin(angle) * x[i] + std::cos(angle) * x[i + 1];
    }
  }
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(rotate, rotate);

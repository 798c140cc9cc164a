// torch_cuda.cpp: a stand-in for libtorch_cuda, for a PyTorch without CUDA. Its device has the host's memory, so each
// of PyTorch's own operators runs on the processor, on tensors of the same memory.
//
// Tensors are on "cuda:0" and have the dispatch key CUDA: what is registered for that key is what is called. Python
// asks for a device's initialisation once, which device.py answers.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/TensorShape.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace {

const c10::Device there(c10::kCUDA, 0), here(c10::kCPU);

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::kCUDA> {
  c10::Device exchangeDevice(c10::Device) const override { return there; }
  c10::Device getDevice() const override { return there; }
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, there); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, there); }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

// What autograd asks before it goes to a device.
struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
};
using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", Hooks)

// A tensor of the other device over the memory of x, which it keeps.
at::Tensor on(c10::Device device, const at::Tensor &x) {
  if (!x.defined() || x.device() == device || (!x.is_cpu() && !x.is_cuda())) return x;
  return at::for_blob(x.data_ptr(), x.sizes())
      .strides(x.strides())
      .deleter([x](void *) {})
      .options(x.options().device(device))
      .target_device(device)
      .resizeable_storage()
      .allocator(c10::GetAllocator(c10::kCPU))
      .make_tensor();
}

c10::IValue moved(c10::Device device, const c10::IValue &value) {
  if (value.isTensor()) return on(device, value.toTensor());
  if (value.isDevice() && value.toDevice().is_cuda()) return device;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor &x : value.toTensorVector()) list.push_back(on(device, x));
    return list;
  }
  if (!value.isList() || !value.toListRef().size()) return value;
  c10::impl::GenericList list(value.toList().elementType());
  for (const c10::IValue &x : value.toListRef()) list.push_back(moved(device, x));
  return list;
}

// An operator of PyTorch's: on the processor. What it writes in place is returned as it came, of the size that it is now.
void on_processor(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const auto &arguments = op.schema().arguments(), &returns = op.schema().returns();
  const size_t n = arguments.size();
  std::vector<c10::IValue> given(stack->end() - n, stack->end()), used;
  for (auto value = stack->end() - n; value != stack->end(); ++value) used.push_back(*value = moved(here, *value));
  op.callBoxed(*stack);
  for (size_t i = 0; i < n; i++) {
    const c10::AliasInfo *alias = arguments[i].alias_info();
    if (!alias || !alias->isWrite() || !given[i].isTensor() || !given[i].toTensor().is_cuda()) continue;
    const at::Tensor now = on(there, used[i].toTensor());
    c10::TensorImpl *impl = given[i].toTensor().unsafeGetTensorImpl();
    if (impl->sizes() == now.sizes()) continue;
    impl->set_storage_keep_dtype(now.storage());
    impl->set_sizes_and_strides(now.sizes(), now.strides());
  }
  for (size_t r = 0; r < returns.size(); r++) {
    c10::IValue &out = *(stack->end() - returns.size() + r);
    const c10::AliasInfo *alias = returns[r].alias_info();
    out = moved(there, out);
    for (size_t i = 0; i < n && alias && alias->isWrite(); i++)
      if (arguments[i].alias_info() && *arguments[i].alias_info() == *alias) out = given[i];
  }
}

// Memory that was freed is kept for the next tensor of its size, as a device's is.
struct Memory final : c10::Allocator {
  static constexpr size_t alignment = 512;
  std::mutex lock;
  std::unordered_map<size_t, std::vector<void *>> kept;
  std::unordered_map<void *, size_t> sizes;

  static Memory &get() {
    static auto *memory = new Memory; // tensors may outlive what is destroyed at the end
    return *memory;
  }
  static void give_back(void *memory) {
    std::lock_guard<std::mutex> guard(get().lock);
    get().kept[get().sizes[memory]].push_back(memory);
  }
  c10::DataPtr allocate(size_t bytes) override {
    const size_t size = (bytes + alignment - 1) / alignment * alignment;
    if (!size) return {nullptr, nullptr, &give_back, there};
    std::lock_guard<std::mutex> guard(lock);
    std::vector<void *> &free = kept[size];
    if (free.empty()) {
      free.push_back(std::aligned_alloc(alignment, size));
      sizes[free.back()] = size;
    }
    void *memory = free.back();
    free.pop_back();
    return {memory, memory, &give_back, there};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void *to, const void *from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

const c10::DispatchKeySet key(c10::DispatchKey::CUDA);

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &Memory::get(), key, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &Memory::get(), key, c10::dtype_or_default(type));
}

} // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
  library.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&on_processor>()); // else one for all devices
}

TORCH_LIBRARY_IMPL(_, CUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_processor>()); }

extern "C" {
void *stream_of_device = nullptr; // what tests set

int aoti_torch_get_current_cuda_stream(int32_t, void **stream) {
  *stream = stream_of_device;
  return 0;
}
}

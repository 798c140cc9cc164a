/* pegen.hpp: pegen.h for C++11 and later: tensors that hold their sizes, errors as exceptions. It needs no library.
 *
 *     pegen::tensor q(queries, {1, 8, tokens, 64}), k(keys, {1, 8, tokens, 64}), positions(where, {tokens, 1});
 *     pegen_args args = pegen::arguments();
 *     args.q = &q, args.q_out = &q, args.k = &k, args.k_out = &k, args.positions = &positions;
 *     pegen::call(rope_encode, args);
 */
#ifndef PEGEN_PEGEN_HPP
#define PEGEN_PEGEN_HPP

#include <pegen/pegen.h>

#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace pegen {

struct error : std::runtime_error {
  explicit error(int number) : std::runtime_error(text(number)), code(number) {}
  static const char *text(int number) {
    switch (number) {
#define PEGEN_ERROR_CASE(name, value, sentence) \
  case value: return sentence;
      PEGEN_ERRORS(PEGEN_ERROR_CASE)
#undef PEGEN_ERROR_CASE
    }
    return "unknown error";
  }
  int code; /* a pegen_error */
};

/* A copy holds sizes of its own, and looks at the same memory. */
class tensor : public DLTensor {
public:
  using sizes = std::vector<int64_t>;
  /* T: float, double, an integer type; others by their code and bits: kDLBfloat, 16. */
  template <typename T>
  tensor(T *memory, sizes shape, sizes strides = {})
      : tensor(const_cast<typename std::remove_const<T>::type *>(memory),
               std::is_floating_point<T>::value ? kDLFloat : kDLInt, 8 * sizeof(T), shape, strides) {}
  tensor(void *memory, int code, int bits, sizes shape, sizes strides = {})
      : DLTensor(pegen_tensor(memory, code, bits, static_cast<int>(shape.size()), nullptr, nullptr)),
        lengths(std::move(shape)), steps(std::move(strides)) {
    if (!steps.empty() && steps.size() != lengths.size()) throw error(PEGEN_ERROR_RANK);
    place();
  }
  tensor(const tensor &other) : DLTensor(other), lengths(other.lengths), steps(other.steps) { place(); }
  tensor &operator=(const tensor &other) {
    DLTensor::operator=(other), lengths = other.lengths, steps = other.steps, place();
    return *this;
  }

private:
  void place() { shape = lengths.data(), strides = steps.empty() ? nullptr : steps.data(); }
  sizes lengths, steps;
};

inline pegen_args arguments() {
  pegen_args args = pegen_args();
  args.struct_size = sizeof args;
  return args;
}

/* Part `part` of `parts`; throws what the entry refused. */
inline void call(pegen_entry *entry, const pegen_args &args, int part = 0, int parts = 1) {
  if (int number = entry(&args, part, parts)) throw error(number);
}

}  // namespace pegen
#endif

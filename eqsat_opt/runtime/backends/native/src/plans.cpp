// Kernels as plans call them, without onnxruntime: made once, and then called with one pointer.
#include <cstdint>
#include <memory>
#include <new>

#include "kernels.h"

#define EQSAT_CALL extern "C" __attribute__((visibility("default")))

namespace eqsat {

const Kernels* kernels();  // null on processors without any

namespace {

// A plan runs on one thread.
void run_here(const void*, void (*task)(void*, size_t), size_t n, void* data) {
  for (size_t i = 0; i < n; i++) task(data, i);
}

constexpr Parallel kHere{run_here, nullptr};

Product plain_product(int64_t depth, int64_t columns) {
  return {depth, columns, Activation::kNone, 0.0f, 0.0f};
}

struct ProductCall {
  Product product;
  Factors factors;
};

struct NormalizationCall {
  Normalization normalization;
  Rows rows;
};

}  // namespace
}  // namespace eqsat

struct EqsatCall {
  int (*function)(void* data);
  void* data;
};

// All of them in order; 1 more than the number of the first that fails, 0 if none does.
EQSAT_CALL int64_t eqsat_call_all(const EqsatCall* calls, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    if (calls[i].function(calls[i].data)) return i + 1;
  }
  return 0;
}

// weights[depth, columns] in panels, which several products share; null if there is no kernel or no
// memory.
EQSAT_CALL void* eqsat_weights(int64_t depth, int64_t columns, const float* weights) {
  using namespace eqsat;
  if (!kernels()) return nullptr;
  const Product product = plain_product(depth, columns);
  std::unique_ptr<Memory> memory(new (std::nothrow) Memory);
  if (!memory || !memory->get(static_cast<size_t>(kernels()->packed_floats(product)))) return nullptr;
  kernels()->pack_weights(product, {weights, false, 1.0f}, memory->data);
  return memory.release();
}

EQSAT_CALL void eqsat_free_weights(void* data) { delete static_cast<eqsat::Memory*>(data); }

// output[rows, columns] = input[rows, depth] weights[depth, columns]; null if there is no memory.
EQSAT_CALL void* eqsat_product(int64_t rows, int64_t depth, int64_t columns, const float* input,
                               const void* weights, float* output) {
  using namespace eqsat;
  const float* packed = static_cast<const Memory*>(weights)->data;
  return new (std::nothrow)
      ProductCall{plain_product(depth, columns), {input, packed, nullptr, output, rows}};
}

EQSAT_CALL int eqsat_run_product(void* data) {
  const auto& call = *static_cast<eqsat::ProductCall*>(data);
  return eqsat::kernels()->multiply(call.product, call.factors, eqsat::kHere) ? 0 : 1;
}

EQSAT_CALL void eqsat_free_product(void* data) { delete static_cast<eqsat::ProductCall*>(data); }

// Rows of `size` elements; `shift` may be null. Null if there is no kernel or no memory.
EQSAT_CALL void* eqsat_normalization(int64_t count, int64_t size, int is_centred, float epsilon,
                                     const float* const* data, float* output) {
  using namespace eqsat;
  if (!kernels()) return nullptr;
  return new (std::nothrow) NormalizationCall{
      {size, is_centred != 0, epsilon},
      {data[0], nullptr, nullptr, data[1], data[2], output, nullptr, count, 0}};
}

EQSAT_CALL int eqsat_run_normalization(void* data) {
  const auto& call = *static_cast<eqsat::NormalizationCall*>(data);
  eqsat::kernels()->normalize(call.normalization, call.rows, eqsat::kHere);
  return 0;
}

EQSAT_CALL void eqsat_free_normalization(void* data) {
  delete static_cast<eqsat::NormalizationCall*>(data);
}

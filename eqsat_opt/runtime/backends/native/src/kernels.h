// What all kernels share, and what a translation unit for one instruction set provides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "convolution.h"
#include "normalization.h"
#include "product.h"
#include "recurrence.h"
#include "sequence.h"

namespace eqsat {

// Calls task(data, i) for all i below n, in any order and on any thread.
struct Parallel {
  void (*run)(const void* self, void (*task)(void*, size_t), size_t n, void* data);
  const void* self;
};

// Memory on large pages: weights that stream through small ones lose a third of the bandwidth.
float* allocate_floats(size_t n);
void free_floats(float* memory);

struct Memory {
  float* data = nullptr;
  size_t size = 0;

  Memory() = default;
  Memory(const Memory&) = delete;
  ~Memory() { free_floats(data); }

  float* get(size_t n) {
    if (n > size) {
      free_floats(data);
      data = allocate_floats(n);
      size = data ? n : 0;
    }
    return data;
  }
};

// Memory of the calling thread, kept between runs; null if there is none.
enum class Scratch { kShared, kOwn, kTask };
float* scratch(Scratch which, size_t n);

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Kernels {
  const char* name;
  bool (*supports)(const Convolution&);
  void (*transform)(const Convolution&, const float* weights, float* transformed);
  bool (*run)(const Convolution&, const Sample&, const Parallel&);  // false: out of memory
  void (*normalize)(const Normalization&, const Rows&, const Parallel&);
  int64_t (*packed_floats)(const Product&);
  void (*pack_weights)(const Product&, const Weights&, float* packed);
  bool (*multiply)(const Product&, const Factors&, const Parallel&);  // false: out of memory
  bool (*supports_grouped)(const GroupedConvolution&);
  bool (*run_grouped)(const GroupedConvolution&, const Sample&, Plane out,
                      const Parallel&);  // false: out of memory
  int64_t (*recurrence_floats)(const Recurrence&);  // of one direction, packed
  void (*pack_recurrence)(const Recurrence&, const RecurrentWeights&, float* packed);
  bool (*recur)(const Recurrence&, const Sequences* directions, int64_t count,
                const Parallel&);  // false: out of memory
  bool (*convolve_sequence)(const SequenceConvolution&, const SequenceData&,
                            const Parallel&);  // false: out of memory
};

#if defined(__x86_64__)
extern const Kernels kAvx2;
extern const Kernels kAvx512;
#elif defined(__aarch64__)
extern const Kernels kNeon;
#endif

}  // namespace eqsat

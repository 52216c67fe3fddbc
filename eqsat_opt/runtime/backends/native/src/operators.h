// What operators of onnxruntime need to read their nodes and values, and to run in its threads.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels.h"
#include "onnxruntime_abi.h"

namespace eqsat {

const Kernels* kernels();  // null on processors without any

// Beside that of convolutions; they live as long as the process.
const CustomOp& normalization_operator();
const CustomOp& product_operator();
const CustomOp& grouped_convolution();
const CustomOp& recurrence_operator();
const CustomOp& sequence_convolution();

// On tensors of float32, but for the input `integers` of int32; those beyond the required ones may be
// missing.
struct Operator : CustomOp {
  using Create = Status* (*)(const CustomOp*, const void* api, const KernelInfo*, void** kernel);
  using Compute = Status* (*)(void* kernel, KernelContext*);

  const char* title;
  size_t inputs, required, outputs;
  size_t required_outputs = 1;
  size_t integers = SIZE_MAX;

  Operator(const char* title, size_t inputs, size_t required, size_t outputs, Create create,
           Compute compute, void (*destroy)(void*))
      : CustomOp{}, title(title), inputs(inputs), required(required), outputs(outputs) {
    version = kApiVersion;
    name = [](const CustomOp* op) { return of(op).title; };
    provider = [](const CustomOp*) -> const char* { return nullptr; };  // the CPU's
    input_type = [](const CustomOp* op, size_t i) { return i == of(op).integers ? kInt32 : kFloat; };
    input_type_count = [](const CustomOp* op) { return of(op).inputs; };
    output_type = [](const CustomOp*, size_t) { return kFloat; };
    output_type_count = [](const CustomOp* op) { return of(op).outputs; };
    input_kind = [](const CustomOp* op, size_t i) {
      return i < of(op).required ? kRequired : kOptional;
    };
    output_kind = [](const CustomOp* op, size_t i) {
      return i < of(op).required_outputs ? kRequired : kOptional;
    };
    input_memory = [](const CustomOp*, size_t) { return 0; };
    start_version = [](const CustomOp*) { return 1; };
    end_version = [](const CustomOp*) { return 1; };
    this->destroy = destroy;
    create_kernel_v2 = create;
    compute_v2 = compute;
  }

  static const Operator& of(const CustomOp* op) { return *static_cast<const Operator*>(op); }
};

// Leaves the function with a status of onnxruntime that is no success.
#define EQSAT_TRY(call)                         \
  do {                                          \
    if (Status* failed = (call)) return failed; \
  } while (0)

constexpr size_t kMaxRank = 8;

struct Dims {
  int64_t of[kMaxRank];
  size_t rank;

  int64_t size() const {
    int64_t product = 1;
    for (size_t i = 0; i < rank; i++) product *= of[i];
    return product;
  }
};

inline Status* dims_of(const Api& api, const Value* value, Dims* dims) {
  if (lends_shapes.load(std::memory_order_relaxed)) {
    const int64_t* lent = nullptr;
    EQSAT_TRY(api.lent_shape(value, &lent, &dims->rank));
    if (dims->rank > kMaxRank) return api.error("more than eight axes");
    std::copy(lent, lent + dims->rank, dims->of);
    return nullptr;
  }
  ShapeInfo* info = nullptr;
  EQSAT_TRY(api.shape_info(value, &info));
  Status* failed = api.rank(info, &dims->rank);
  if (!failed && dims->rank > kMaxRank) failed = api.error("more than eight axes");
  if (!failed) failed = api.dims(info, dims->of, dims->rank);
  api.release(info);
  return failed;
}

// Null where the node has no such input.
inline Status* optional_input(const Api& api, const KernelContext* context, size_t index,
                              const Value** value) {
  size_t count = 0;
  EQSAT_TRY(api.input_count(context, &count));
  *value = nullptr;
  return index < count ? api.input(context, index, value) : nullptr;
}

inline Status* data_of(const Api& api, const Value* value, const float** data) {
  void* pointer = nullptr;
  EQSAT_TRY(api.data(value, &pointer));
  *data = static_cast<const float*>(pointer);
  return nullptr;
}

inline Status* integers(const Api& api, const KernelInfo* info, const char* name, int64_t* values,
                        size_t n) {
  size_t found = 0;
  EQSAT_TRY(api.attribute(info, name, nullptr, &found));
  if (found != n) return api.error("an attribute has too many or too few integers");
  return api.attribute(info, name, values, &found);
}

inline Status* activation(const Api& api, const KernelInfo* info, const char* name, Activation* kind) {
  int64_t number = 0;
  EQSAT_TRY(api.attribute(info, name, &number));
  if (number < 0 || number >= static_cast<int64_t>(Activation::kCount)) {
    return api.error("an activation that this library does not know");
  }
  *kind = static_cast<Activation>(number);
  return nullptr;
}

inline Status* constant(const Api& api, const KernelInfo* info, size_t input, const Value** value) {
  int is_constant = 0;
  EQSAT_TRY(api.constant(info, input, &is_constant, value));
  if (!is_constant) *value = nullptr;
  return nullptr;
}

struct Pool {
  const Api* api;
  KernelContext* context;
  mutable Status* failed;
};

inline void run_in_pool(const void* self, void (*task)(void*, size_t), size_t n, void* data) {
  const Pool& pool = *static_cast<const Pool*>(self);
  Status* failed = pool.api->parallel_for(pool.context, task, n, data);
  if (!failed) return;
  if (pool.failed) {
    pool.api->release(failed);
  } else {
    pool.failed = failed;
  }
}

}  // namespace eqsat

// Operators of onnxruntime that compute regions: a table of kernels, each with the shapes that it
// was generated for, checked in every run.
#pragma once

#include <memory>
#include <new>

#include "functions.h"
#include "onnxruntime_abi.h"

namespace eqsat {

struct Shape {
  const int64_t* dims;
  size_t rank;
};

// Some iterations of the outermost loop of a nest.
using Loop = void (*)(const float* const* in, float* const* out, int64_t begin, int64_t end);

struct Nest {
  Loop run;
  int64_t extent;
  int64_t grain;  // iterations that are worth a thread
};

struct Region {
  const char* name;
  const Shape* inputs;
  const int64_t* reach;  // elements of each input behind which nothing is read
  size_t n_inputs;
  const Shape* outputs;
  size_t n_outputs;
  const Nest* nests;
  size_t n_nests;
};

struct Operator : CustomOp {
  const Region* region;
};

inline const Region& region_of(const CustomOp* op) {
  return *static_cast<const Operator*>(op)->region;
}

struct RegionNode {
  Api api;
  const Region& region;
  std::unique_ptr<int64_t[]> begins;  // where in each input the kernel's offsets count from
};

#define EQSAT_TRY(call)                         \
  do {                                          \
    if (Status* failed = (call)) return failed; \
  } while (0)

inline Status* other_shape(const Api& api) {
  return api.error("an input has another shape than the kernel was made for");
}

inline Status* check_shape(const Api& api, const Value* value, const Shape& expected) {
  if (lends_shapes.load(std::memory_order_relaxed)) {
    const int64_t* dims = nullptr;
    size_t rank = 0;
    EQSAT_TRY(api.lent_shape(value, &dims, &rank));
    bool same = rank == expected.rank;
    for (size_t i = 0; same && i < rank; i++) same = dims[i] == expected.dims[i];
    return same ? nullptr : other_shape(api);
  }
  ShapeInfo* info = nullptr;
  EQSAT_TRY(api.shape_info(value, &info));
  size_t rank = 0;
  int64_t dims[64];
  Status* failed = api.rank(info, &rank);
  bool same = !failed && rank == expected.rank && rank <= 64;
  if (same) failed = api.dims(info, dims, rank);
  for (size_t i = 0; same && !failed && i < rank; i++) same = dims[i] == expected.dims[i];
  api.release(info);
  return failed || same ? failed : other_shape(api);
}

struct Task {
  const Nest& nest;
  const float* const* in;
  float* const* out;
};

inline void run_task(void* data, size_t i) {
  const Task& task = *static_cast<Task*>(data);
  const int64_t begin = static_cast<int64_t>(i) * task.nest.grain;
  const int64_t end = begin + task.nest.grain;
  task.nest.run(task.in, task.out, begin, end < task.nest.extent ? end : task.nest.extent);
}

inline Status* read_begins(const Api& api, const KernelInfo* info, RegionNode* node) {
  const Region& region = node->region;
  size_t n = 0;
  EQSAT_TRY(api.attribute(info, "begins", nullptr, &n));
  if (n != region.n_inputs) return api.error("one begin per input");
  node->begins.reset(new (std::nothrow) int64_t[n]);
  if (!node->begins) return api.error("no memory");
  EQSAT_TRY(api.attribute(info, "begins", node->begins.get(), &n));
  for (size_t i = 0; i < n; i++) {
    int64_t size = 1;
    for (size_t k = 0; k < region.inputs[i].rank; k++) size *= region.inputs[i].dims[k];
    if (node->begins[i] < 0 || node->begins[i] > size - region.reach[i]) {
      return api.error("the kernel would read outside an input");
    }
  }
  return nullptr;
}

inline Status* compute_region(const RegionNode& node, KernelContext* context, const float** in,
                              float** out) {
  const Api& api = node.api;
  const Region& region = node.region;
  void* pointer = nullptr;
  for (size_t i = 0; i < region.n_inputs; i++) {
    const Value* value = nullptr;
    EQSAT_TRY(api.input(context, i, &value));
    EQSAT_TRY(check_shape(api, value, region.inputs[i]));
    EQSAT_TRY(api.data(value, &pointer));
    in[i] = static_cast<const float*>(pointer) + node.begins[i];
  }
  for (size_t i = 0; i < region.n_outputs; i++) {
    const Shape& shape = region.outputs[i];
    Value* value = nullptr;
    EQSAT_TRY(api.output(context, i, shape.dims, shape.rank, &value));
    EQSAT_TRY(api.data(value, &pointer));
    out[i] = static_cast<float*>(pointer);
  }
  for (size_t i = 0; i < region.n_nests; i++) {
    const Nest& nest = region.nests[i];
    if (nest.extent <= nest.grain) {
      nest.run(in, out, 0, nest.extent);
      continue;
    }
    Task task{nest, in, out};
    const int64_t tasks = (nest.extent + nest.grain - 1) / nest.grain;
    EQSAT_TRY(api.parallel_for(context, run_task, static_cast<size_t>(tasks), &task));
  }
  return nullptr;
}

template <size_t n_inputs, size_t n_outputs>
Status* compute(void* made, KernelContext* context) {
  const RegionNode& node = *static_cast<RegionNode*>(made);
  const float* in[n_inputs];
  float* out[n_outputs];
  return compute_region(node, context, in, out);
}

template <size_t n_inputs, size_t n_outputs>
Operator operator_of(const Region& region) {
  Operator o{};
  o.region = &region;
  o.version = kApiVersion;
  o.name = [](const CustomOp* op) { return region_of(op).name; };
  o.provider = [](const CustomOp*) -> const char* { return nullptr; };  // the CPU's
  o.input_type = [](const CustomOp*, size_t) { return kFloat; };
  o.input_type_count = [](const CustomOp* op) { return region_of(op).n_inputs; };
  o.output_type = [](const CustomOp*, size_t) { return kFloat; };
  o.output_type_count = [](const CustomOp* op) { return region_of(op).n_outputs; };
  o.destroy = [](void* node) { delete static_cast<RegionNode*>(node); };
  o.input_kind = [](const CustomOp*, size_t) { return kRequired; };
  o.output_kind = [](const CustomOp*, size_t) { return kRequired; };
  o.input_memory = [](const CustomOp*, size_t) { return 0; };
  o.create_kernel_v2 = [](const CustomOp* op, const void* table, const KernelInfo* info,
                          void** made) -> Status* {
    const Api api(table);
    std::unique_ptr<RegionNode> node(new (std::nothrow) RegionNode{api, region_of(op), {}});
    if (!node) return api.error("no memory");
    EQSAT_TRY(read_begins(api, info, node.get()));
    *made = node.release();
    return nullptr;
  };
  o.compute_v2 = compute<n_inputs, n_outputs>;
  o.start_version = [](const CustomOp*) { return 1; };
  o.end_version = [](const CustomOp*) { return 1; };
  return o;
}

inline Status* register_all(SessionOptions* options, const ApiBase* base, const char* name,
                            const Operator* operators, size_t n) {
  const void* table = base->get_api(kApiVersion);
  if (!table) return nullptr;  // onnxruntime has written why; a model that needs the operators fails
  base->note_version();
  const Api api(table);
  Domain* domain = nullptr;  // lives as long as the process, as sessions may use it
  EQSAT_TRY(api.new_domain(name, &domain));
  for (size_t i = 0; i < n; i++) EQSAT_TRY(api.add_operator(domain, &operators[i]));
  return api.add_domain(options, domain);
}

}  // namespace eqsat

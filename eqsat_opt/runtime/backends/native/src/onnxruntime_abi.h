// The part of onnxruntime's C interface that the kernels use.
//
// That interface is a table of function pointers which only grows: a slot keeps its place for ever.
// So nothing of onnxruntime is needed to build, and one library serves all later versions. The
// places are those of OrtApi in onnxruntime_c_api.h. All that is needed was there in version 17; what
// came later is used where it is.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace eqsat {

struct Status;  // null means success
struct Value;
struct ShapeInfo;
struct KernelInfo;
struct KernelContext;
struct Domain;
struct SessionOptions;

constexpr uint32_t kApiVersion = 17;
constexpr uint32_t kLendingVersion = 24;  // since then shapes are lent
constexpr int kInvalidArgument = 2;
constexpr int kFloat = 1;
constexpr int kInt32 = 6;
constexpr int kRequired = 0;
constexpr int kOptional = 1;

// Whether this process's onnxruntime lends shapes: `ApiBase::note_version` finds out.
inline std::atomic<bool> lends_shapes{false};

// OrtApi as what it is in memory; each accessor names the slot and its type.
class Api {
 public:
  explicit Api(const void* table) : table_(static_cast<void* const*>(table)) {}

  Status* error(const char* text) const {
    return slot<Status* (*)(int, const char*)>(0)(kInvalidArgument, text);
  }
  void release(Status* status) const { slot<void (*)(Status*)>(93)(status); }

  Status* new_domain(const char* name, Domain** made) const {
    return slot<Status* (*)(const char*, Domain**)>(26)(name, made);
  }
  Status* add_operator(Domain* domain, const struct CustomOp* op) const {
    return slot<Status* (*)(Domain*, const CustomOp*)>(27)(domain, op);
  }
  Status* add_domain(SessionOptions* options, Domain* domain) const {
    return slot<Status* (*)(SessionOptions*, Domain*)>(28)(options, domain);
  }

  Status* attribute(const KernelInfo* info, const char* name, float* value) const {
    return slot<Status* (*)(const KernelInfo*, const char*, float*)>(85)(info, name, value);
  }
  Status* attribute(const KernelInfo* info, const char* name, int64_t* value) const {
    return slot<Status* (*)(const KernelInfo*, const char*, int64_t*)>(86)(info, name, value);
  }
  Status* attribute(const KernelInfo* info, const char* name, int64_t* values, size_t* n) const {
    return slot<Status* (*)(const KernelInfo*, const char*, int64_t*, size_t*)>(163)(
        info, name, values, n);
  }
  Status* constant(const KernelInfo* info, size_t input, int* is_constant, const Value** v) const {
    return slot<Status* (*)(const KernelInfo*, size_t, int*, const Value**)>(249)(
        info, input, is_constant, v);
  }

  Status* input_count(const KernelContext* context, size_t* n) const {
    return slot<Status* (*)(const KernelContext*, size_t*)>(88)(context, n);
  }
  Status* output_count(const KernelContext* context, size_t* n) const {
    return slot<Status* (*)(const KernelContext*, size_t*)>(89)(context, n);
  }
  Status* input(const KernelContext* context, size_t index, const Value** value) const {
    return slot<Status* (*)(const KernelContext*, size_t, const Value**)>(90)(
        context, index, value);
  }
  Status* output(KernelContext* context, size_t index, const int64_t* dims, size_t rank,
                 Value** value) const {
    return slot<Status* (*)(KernelContext*, size_t, const int64_t*, size_t, Value**)>(91)(
        context, index, dims, rank, value);
  }
  Status* parallel_for(const KernelContext* context, void (*task)(void*, size_t), size_t total,
                       void* data) const {
    return slot<Status* (*)(const KernelContext*, void (*)(void*, size_t), size_t, size_t, void*)>(
        274)(context, task, total, 0, data);
  }

  Status* data(const Value* value, void** pointer) const {
    return slot<Status* (*)(const Value*, void**)>(51)(value, pointer);
  }
  Status* shape_info(const Value* value, ShapeInfo** info) const {
    return slot<Status* (*)(const Value*, ShapeInfo**)>(65)(value, info);
  }
  Status* rank(const ShapeInfo* info, size_t* n) const {
    return slot<Status* (*)(const ShapeInfo*, size_t*)>(61)(info, n);
  }
  Status* dims(const ShapeInfo* info, int64_t* dims, size_t n) const {
    return slot<Status* (*)(const ShapeInfo*, int64_t*, size_t)>(62)(info, dims, n);
  }
  void release(ShapeInfo* info) const { slot<void (*)(ShapeInfo*)>(99)(info); }
  // Only where `lends_shapes`: nothing is allocated, and `dims` lives as long as the value.
  Status* lent_shape(const Value* value, const int64_t** dims, size_t* rank) const {
    int type = 0;
    return slot<Status* (*)(const Value*, int*, const int64_t**, size_t*)>(414)(value, &type, dims, rank);
  }

 private:
  template <typename Function>
  Function slot(size_t index) const {
    return reinterpret_cast<Function>(table_[index]);
  }

  void* const* table_;
};

struct ApiBase {
  const void* (*get_api)(uint32_t version);
  const char* (*version)();

  // To be called before any kernel runs; onnxruntime's version is 1 and that of its interface.
  void note_version() const {
    const char* text = version();
    const bool is_one = text[0] == '1' && text[1] == '.';
    const long minor = is_one ? std::strtol(text + 2, nullptr, 10) : 0;
    if (minor >= static_cast<long>(kLendingVersion)) lends_shapes.store(true, std::memory_order_relaxed);
  }
};

// OrtCustomOp; the members are called by onnxruntime, those that may be null are.
struct CustomOp {
  uint32_t version;
  void* create_kernel;
  const char* (*name)(const CustomOp*);
  const char* (*provider)(const CustomOp*);
  int (*input_type)(const CustomOp*, size_t);
  size_t (*input_type_count)(const CustomOp*);
  int (*output_type)(const CustomOp*, size_t);
  size_t (*output_type_count)(const CustomOp*);
  void* compute;
  void (*destroy)(void* kernel);
  int (*input_kind)(const CustomOp*, size_t);
  int (*output_kind)(const CustomOp*, size_t);
  int (*input_memory)(const CustomOp*, size_t);
  void* variadic[4];
  Status* (*create_kernel_v2)(const CustomOp*, const void* api, const KernelInfo*, void** kernel);
  Status* (*compute_v2)(void* kernel, KernelContext*);
  void* infer_shape;
  int (*start_version)(const CustomOp*);
  int (*end_version)(const CustomOp*);
  void* aliases[4];
};

}  // namespace eqsat

// The operators of domain "eqsat_opt" for onnxruntime, and which instructions they use here.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "convolution.h"
#include "onnxruntime_abi.h"

#define EQSAT_EXPORT extern "C" __attribute__((visibility("default")))

namespace eqsat {

namespace {

constexpr size_t kLargePage = size_t{2} << 20;

struct Memory {
  float* data = nullptr;
  size_t size = 0;

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

// The widest instructions that are here, or those that EQSAT_OPT_INSTRUCTIONS names if they are;
// null on other processors.
const Kernels* chosen() {
  const char* wanted = std::getenv("EQSAT_OPT_INSTRUCTIONS");
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool is_avx2_wanted = wanted && !std::strcmp(wanted, kAvx2.name);
  if (has_avx512 && !is_avx2_wanted) return &kAvx512;
  if (has_avx2) return &kAvx2;
#elif defined(__aarch64__)
  static_cast<void>(wanted);
  return &kNeon;
#endif
  static_cast<void>(wanted);
  return nullptr;
}

const Kernels* kernels() {
  static const Kernels* const found = chosen();
  return found;
}

// Leaves the function with a status of onnxruntime that is no success.
#define EQSAT_TRY(call)                         \
  do {                                          \
    if (Status* failed = (call)) return failed; \
  } while (0)

constexpr size_t kMaxRank = 4;

struct Dims {
  int64_t of[kMaxRank];
  size_t rank;
};

Status* dims_of(const Api& api, const Value* value, Dims* dims) {
  ShapeInfo* info = nullptr;
  EQSAT_TRY(api.shape_info(value, &info));
  Status* failed = api.rank(info, &dims->rank);
  if (!failed && dims->rank > kMaxRank) failed = api.error("more than four axes");
  if (!failed) failed = api.dims(info, dims->of, dims->rank);
  api.release(info);
  return failed;
}

Status* data_of(const Api& api, const Value* value, const float** data) {
  void* pointer = nullptr;
  EQSAT_TRY(api.data(value, &pointer));
  *data = static_cast<const float*>(pointer);
  return nullptr;
}

struct Free {
  void operator()(float* memory) const { free_floats(memory); }
};

// One node: what it computes, and its weights as runs want them.
struct ConvolutionNode {
  Api api;
  Convolution convolution;
  const float* weights = nullptr;
  const float* bias = nullptr;
  std::unique_ptr<float, Free> transformed;
};

Status* integers(const Api& api, const KernelInfo* info, const char* name, int64_t* values,
                 size_t n) {
  size_t found = 0;
  EQSAT_TRY(api.attribute(info, name, nullptr, &found));
  if (found != n) return api.error("an attribute has too many or too few integers");
  return api.attribute(info, name, values, &found);
}

Status* constant(const Api& api, const KernelInfo* info, size_t input, const Value** value) {
  int is_constant = 0;
  EQSAT_TRY(api.constant(info, input, &is_constant, value));
  if (!is_constant) *value = nullptr;
  return nullptr;
}

Status* read_node(const Api& api, const KernelInfo* info, ConvolutionNode* node) {
  Convolution& c = node->convolution;
  int64_t activation = 0;
  EQSAT_TRY(api.attribute(info, "block", &c.block));
  EQSAT_TRY(integers(api, info, "pads", c.pads, 4));
  EQSAT_TRY(integers(api, info, "tile", c.tile, 2));
  EQSAT_TRY(api.attribute(info, "transform_in_run", &c.transform_in_run));
  EQSAT_TRY(api.attribute(info, "activation", &activation));
  EQSAT_TRY(api.attribute(info, "alpha", &c.alpha));
  EQSAT_TRY(api.attribute(info, "beta", &c.beta));
  if (activation < 0 || activation >= static_cast<int64_t>(Activation::kCount)) {
    return api.error("an activation that this library does not know");
  }
  c.activation = static_cast<Activation>(activation);
  for (int64_t pad : c.pads) {
    if (pad < 0) return api.error("a negative pad");
  }

  const Value* weights = nullptr;
  EQSAT_TRY(constant(api, info, 1, &weights));
  if (!weights) return api.error("the weights must be constant");
  Dims dims;
  EQSAT_TRY(dims_of(api, weights, &dims));
  if (dims.rank != 4) return api.error("the weights must have four axes");
  c.out = dims.of[0];
  c.in = dims.of[1];
  c.kernel[0] = dims.of[2];
  c.kernel[1] = dims.of[3];
  if (c.block < 1 || c.in < 1 || c.out < 1 || c.in % c.block || c.out % c.block) {
    return api.error("the channels must be multiples of the block");
  }
  if (!kernels() || !kernels()->supports(c)) return api.error("no kernel for this block, kernel and tile");
  EQSAT_TRY(data_of(api, weights, &node->weights));

  const Value* bias = nullptr;
  if (Status* absent = constant(api, info, 2, &bias)) {
    api.release(absent);  // the node has no third input
  } else if (bias) {
    EQSAT_TRY(dims_of(api, bias, &dims));
    if (dims.rank != 1 || dims.of[0] != c.out) return api.error("one bias per output channel");
    EQSAT_TRY(data_of(api, bias, &node->bias));
  }
  if (!c.transform_in_run) {
    node->transformed.reset(allocate_floats(transformed_floats(c)));
    if (!node->transformed) return api.error("no memory for the transformed weights");
    kernels()->transform(c, node->weights, node->transformed.get());
    node->weights = node->transformed.get();
  }
  return nullptr;
}

Status* create(const CustomOp*, const void* table, const KernelInfo* info, void** made) {
  const Api api(table);
  std::unique_ptr<ConvolutionNode> node(new (std::nothrow) ConvolutionNode{api, {}, nullptr, nullptr, {}});
  if (!node) return api.error("no memory");
  EQSAT_TRY(read_node(api, info, node.get()));
  *made = node.release();
  return nullptr;
}

struct Pool {
  const Api* api;
  KernelContext* context;
  mutable Status* failed;
};

void run_in_pool(const void* self, void (*task)(void*, size_t), size_t n, void* data) {
  const Pool& pool = *static_cast<const Pool*>(self);
  Status* failed = pool.api->parallel_for(pool.context, task, n, data);
  if (!failed) return;
  if (pool.failed) {
    pool.api->release(failed);
  } else {
    pool.failed = failed;
  }
}

Status* compute(void* made, KernelContext* context) {
  const ConvolutionNode& node = *static_cast<ConvolutionNode*>(made);
  const Api& api = node.api;
  const Convolution& c = node.convolution;

  const Value* input = nullptr;
  EQSAT_TRY(api.input(context, 0, &input));
  Dims in;
  EQSAT_TRY(dims_of(api, input, &in));
  if (in.rank != 4 || in.of[1] != c.in) return api.error("the data have other channels");
  Dims out{{in.of[0], c.out, in.of[2] + c.pads[0] + c.pads[2] - c.kernel[0] + 1,
            in.of[3] + c.pads[1] + c.pads[3] - c.kernel[1] + 1}, 4};
  if (out.of[2] < 0 || out.of[3] < 0) return api.error("the kernel is larger than the data");

  size_t n_inputs = 0;
  EQSAT_TRY(api.input_count(context, &n_inputs));
  const Value* residual = nullptr;
  if (n_inputs > 3) EQSAT_TRY(api.input(context, 3, &residual));
  Sample sample{nullptr, node.weights, node.bias, nullptr, nullptr, {in.of[2], in.of[3]}};
  if (residual) {
    Dims dims;
    EQSAT_TRY(dims_of(api, residual, &dims));
    if (dims.rank != 4 || std::memcmp(dims.of, out.of, sizeof dims.of)) {
      return api.error("what is added has another shape than the output");
    }
    EQSAT_TRY(data_of(api, residual, &sample.residual));
  }
  Value* output = nullptr;
  EQSAT_TRY(api.output(context, 0, out.of, 4, &output));
  void* pointer = nullptr;
  EQSAT_TRY(api.data(output, &pointer));
  sample.output = static_cast<float*>(pointer);
  EQSAT_TRY(data_of(api, input, &sample.input));

  const int64_t in_size = in.of[1] * in.of[2] * in.of[3];
  const int64_t out_size = out.of[1] * out.of[2] * out.of[3];
  if (!out_size) return nullptr;
  const Pool pool{&api, context, nullptr};
  const Parallel parallel{run_in_pool, &pool};
  for (int64_t n = 0; n < in.of[0]; n++) {
    const bool is_done = kernels()->run(c, sample, parallel);
    if (pool.failed) return pool.failed;
    if (!is_done) return api.error("no memory for a convolution");
    sample.input += in_size;
    sample.output += out_size;
    if (sample.residual) sample.residual += out_size;
  }
  return nullptr;
}

const CustomOp& winograd_convolution() {
  static const CustomOp op = [] {
    CustomOp o{};
    o.version = kApiVersion;
    o.name = [](const CustomOp*) { return "WinogradConv"; };
    o.provider = [](const CustomOp*) -> const char* { return nullptr; };  // the CPU's
    o.input_type = [](const CustomOp*, size_t) { return kFloat; };
    o.input_type_count = [](const CustomOp*) -> size_t { return 4; };
    o.output_type = [](const CustomOp*, size_t) { return kFloat; };
    o.output_type_count = [](const CustomOp*) -> size_t { return 1; };
    o.destroy = [](void* node) { delete static_cast<ConvolutionNode*>(node); };
    o.input_kind = [](const CustomOp*, size_t i) { return i < 2 ? kRequired : kOptional; };
    o.output_kind = [](const CustomOp*, size_t) { return kRequired; };
    o.input_memory = [](const CustomOp*, size_t) { return 0; };
    o.create_kernel_v2 = create;
    o.compute_v2 = compute;
    o.start_version = [](const CustomOp*) { return 1; };
    o.end_version = [](const CustomOp*) { return 1; };
    return o;
  }();
  return op;
}

}  // namespace

float* allocate_floats(size_t n) {
  const size_t bytes = (n * sizeof(float) + kLargePage - 1) / kLargePage * kLargePage;
  const bool is_small = n * sizeof(float) < kLargePage / 2;
  const size_t unit = is_small ? 64 : kLargePage;
  void* memory = std::aligned_alloc(unit, is_small ? (n * sizeof(float) + 63) / 64 * 64 : bytes);
#if defined(__linux__)
  if (memory && !is_small) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
  return static_cast<float*>(memory);
}

void free_floats(float* memory) { std::free(memory); }

float* scratch(Scratch which, size_t n) {
  static thread_local Memory memory[2];
  return memory[static_cast<int>(which)].get(n);
}

}  // namespace eqsat

// The name of the instructions in use; empty where there are no kernels for this processor.
EQSAT_EXPORT const char* eqsat_opt_instructions() {
  return eqsat::kernels() ? eqsat::kernels()->name : "";
}

// What onnxruntime calls to register the operators of a library.
EQSAT_EXPORT eqsat::Status* RegisterCustomOps(eqsat::SessionOptions* options,
                                              const eqsat::ApiBase* base) {
  const void* table = base->get_api(eqsat::kApiVersion);
  if (!table) return nullptr;  // onnxruntime has written why; a model that needs the operators fails
  const eqsat::Api api(table);
  eqsat::Domain* domain = nullptr;  // lives as long as the process, as sessions may use it
  if (eqsat::Status* failed = api.new_domain("eqsat_opt", &domain)) return failed;
  if (eqsat::Status* failed = api.add_operator(domain, &eqsat::winograd_convolution())) return failed;
  return api.add_domain(options, domain);
}

// The operators of domain "eqsat_opt" for onnxruntime, and which instructions they use here.
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "operators.h"
#include "samples.h"

#define EQSAT_EXPORT extern "C" __attribute__((visibility("default")))

namespace eqsat {

namespace {

constexpr size_t kLargePage = size_t{2} << 20;

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

// One node: what it computes, and its weights as runs want them.
struct ConvolutionNode {
  Api api;
  Convolution convolution;
  const float* weights = nullptr;
  const float* bias = nullptr;
  Memory transformed;
};

Status* read_node(const Api& api, const KernelInfo* info, ConvolutionNode* node) {
  Convolution& c = node->convolution;
  EQSAT_TRY(api.attribute(info, "block", &c.block));
  EQSAT_TRY(integers(api, info, "pads", c.pads, 4));
  EQSAT_TRY(integers(api, info, "tile", c.tile, 2));
  EQSAT_TRY(api.attribute(info, "transform_in_run", &c.transform_in_run));
  EQSAT_TRY(activation(api, info, "activation", &c.activation));
  EQSAT_TRY(api.attribute(info, "alpha", &c.alpha));
  EQSAT_TRY(api.attribute(info, "beta", &c.beta));
  EQSAT_TRY(check_pads(api, c.pads));

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

  EQSAT_TRY(bias_of(api, info, c.out, &node->bias));
  if (!c.transform_in_run) {
    float* transformed = node->transformed.get(transformed_floats(c));
    if (!transformed) return api.error("no memory for the transformed weights");
    kernels()->transform(c, node->weights, transformed);
    node->weights = transformed;
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

Status* compute(void* made, KernelContext* context) {
  const ConvolutionNode& node = *static_cast<ConvolutionNode*>(made);
  const Convolution& c = node.convolution;
  const Window window{c.in, c.out, {c.kernel[0], c.kernel[1]},
                      {c.pads[0], c.pads[1], c.pads[2], c.pads[3]}, {1, 1}};
  const Sample sample{nullptr, node.weights, node.bias, nullptr, nullptr, {}};
  return each_sample(node.api, context, window, sample, [&](const Sample& one, Plane, const Parallel& parallel) {
    return kernels()->run(c, one, parallel);
  });
}

const CustomOp& winograd_convolution() {
  static const Operator op("WinogradConv", 4, 2, 1, create, compute, [](void* node) {
    delete static_cast<ConvolutionNode*>(node);
  });
  return op;
}

}  // namespace

const Kernels* kernels() {
  static const Kernels* const found = chosen();
  return found;
}
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
  static thread_local Memory memory[3];
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
  base->note_version();
  const eqsat::Api api(table);
  eqsat::Domain* domain = nullptr;  // lives as long as the process, as sessions may use it
  if (eqsat::Status* failed = api.new_domain("eqsat_opt", &domain)) return failed;
  for (const eqsat::CustomOp* op : {&eqsat::winograd_convolution(), &eqsat::normalization_operator(),
                                    &eqsat::product_operator(), &eqsat::grouped_convolution(),
                                    &eqsat::recurrence_operator(), &eqsat::sequence_convolution()}) {
    if (eqsat::Status* failed = api.add_operator(domain, op)) return failed;
  }
  return api.add_domain(options, domain);
}

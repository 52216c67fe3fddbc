// The operator "GroupedConv" on blocked buffers: data, weights; bias and what is added may be missing.
#include <memory>
#include <new>

#include "operators.h"
#include "samples.h"

namespace eqsat {

namespace {

struct GroupedNode {
  Api api;
  GroupedConvolution convolution;
  const float* weights = nullptr;
  const float* bias = nullptr;
};

Status* read_node(const Api& api, const KernelInfo* info, GroupedNode* node) {
  GroupedConvolution& c = node->convolution;
  EQSAT_TRY(api.attribute(info, "block", &c.block));
  EQSAT_TRY(integers(api, info, "pads", c.pads, 4));
  EQSAT_TRY(integers(api, info, "strides", c.strides, 2));
  EQSAT_TRY(activation(api, info, "input_activation", &c.input_activation));
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
  c.channels = dims.of[0];
  c.per_group = dims.of[1];
  c.kernel[0] = dims.of[2];
  c.kernel[1] = dims.of[3];
  if (c.block < 1 || c.channels < 1 || c.kernel[0] < 1 || c.channels % c.block) {
    return api.error("the channels must be multiples of the block");
  }
  if (!kernels() || !kernels()->supports_grouped(c)) {
    return api.error("no kernel for this block, group and window");
  }
  EQSAT_TRY(data_of(api, weights, &node->weights));
  return bias_of(api, info, c.channels, &node->bias);
}

Status* create(const CustomOp*, const void* table, const KernelInfo* info, void** made) {
  const Api api(table);
  std::unique_ptr<GroupedNode> node(new (std::nothrow) GroupedNode{api, {}, nullptr, nullptr});
  if (!node) return api.error("no memory");
  EQSAT_TRY(read_node(api, info, node.get()));
  *made = node.release();
  return nullptr;
}

Status* compute(void* made, KernelContext* context) {
  const GroupedNode& node = *static_cast<GroupedNode*>(made);
  const GroupedConvolution& c = node.convolution;
  const Window window{c.channels, c.channels, {c.kernel[0], c.kernel[1]},
                      {c.pads[0], c.pads[1], c.pads[2], c.pads[3]}, {c.strides[0], c.strides[1]}};
  const Sample sample{nullptr, node.weights, node.bias, nullptr, nullptr, {}};
  return each_sample(node.api, context, window, sample,
                     [&](const Sample& one, Plane out, const Parallel& parallel) {
                       return kernels()->run_grouped(c, one, out, parallel);
                     });
}

}  // namespace

const CustomOp& grouped_convolution() {
  static const Operator op("GroupedConv", 4, 2, 1, create, compute, [](void* node) {
    delete static_cast<GroupedNode*>(node);
  });
  return op;
}

}  // namespace eqsat

// The operator "SequenceConv": data, weights; the bias may be missing. The weights are constant.
#include <memory>
#include <new>

#include "operators.h"

namespace eqsat {

namespace {

struct SequenceNode {
  Api api;
  SequenceConvolution convolution;
  const float* bias = nullptr;
  Memory packed;
};

Status* read_node(const Api& api, const KernelInfo* info, SequenceNode* node) {
  SequenceConvolution& c = node->convolution;
  Product& p = c.product;
  EQSAT_TRY(api.attribute(info, "stride", &c.stride));
  EQSAT_TRY(api.attribute(info, "dilation", &c.dilation));
  EQSAT_TRY(integers(api, info, "pads", c.pads, 2));
  EQSAT_TRY(activation(api, info, "activation", &p.activation));
  EQSAT_TRY(api.attribute(info, "alpha", &p.alpha));
  EQSAT_TRY(api.attribute(info, "beta", &p.beta));
  if (c.stride < 1 || c.dilation < 1 || c.pads[0] < 0 || c.pads[1] < 0) {
    return api.error("a stride or dilation below one, or a negative pad");
  }
  const Value* weights = nullptr;
  EQSAT_TRY(constant(api, info, 1, &weights));
  if (!weights) return api.error("the weights must be constant");
  Dims dims;
  EQSAT_TRY(dims_of(api, weights, &dims));
  if (dims.rank != 3 || dims.size() < 1) return api.error("the weights must have three axes, none of them empty");
  p.columns = dims.of[0];
  c.channels = dims.of[1];
  c.kernel = dims.of[2];
  p.depth = c.channels * c.kernel;
  const float* data = nullptr;
  EQSAT_TRY(data_of(api, weights, &data));
  Memory ordered;  // as the steps of a patch follow each other
  float* to = ordered.get(static_cast<size_t>(dims.size()));
  float* packed = node->packed.get(static_cast<size_t>(kernels()->packed_floats(p)));
  if (!to || !packed) return api.error("no memory for the packed weights");
  for (int64_t o = 0; o < p.columns; o++, data += p.depth) {
    for (int64_t k = 0; k < c.kernel; k++) {
      for (int64_t i = 0; i < c.channels; i++) *to++ = data[i * c.kernel + k];
    }
  }
  kernels()->pack_weights(p, {ordered.data, true, 1.0f}, packed);

  const Value* bias = nullptr;
  if (Status* absent = constant(api, info, 2, &bias)) {
    api.release(absent);  // the node has no third input
  } else if (bias) {
    EQSAT_TRY(dims_of(api, bias, &dims));
    if (dims.rank != 1 || dims.of[0] != p.columns) return api.error("one bias per output channel");
    EQSAT_TRY(data_of(api, bias, &node->bias));
  }
  return nullptr;
}

Status* create(const CustomOp*, const void* table, const KernelInfo* info, void** made) {
  const Api api(table);
  if (!kernels()) return api.error("no kernels for this processor");
  std::unique_ptr<SequenceNode> node(new (std::nothrow) SequenceNode{api, {}, nullptr, {}});
  if (!node) return api.error("no memory");
  EQSAT_TRY(read_node(api, info, node.get()));
  *made = node.release();
  return nullptr;
}

Status* compute(void* made, KernelContext* context) {
  const SequenceNode& node = *static_cast<SequenceNode*>(made);
  const Api& api = node.api;
  const SequenceConvolution& c = node.convolution;
  const Value* input = nullptr;
  EQSAT_TRY(api.input(context, 0, &input));
  Dims in;
  EQSAT_TRY(dims_of(api, input, &in));
  if (in.rank != 3 || in.of[1] != c.channels) return api.error("the data have other channels");
  if (c.room(in.of[2]) < -1) return api.error("the kernel is larger than the data");
  const int64_t dims[] = {in.of[0], c.product.columns, c.steps(in.of[2])};
  SequenceData data{nullptr, node.packed.data, node.bias, nullptr, in.of[0], in.of[2]};
  EQSAT_TRY(data_of(api, input, &data.input));
  Value* output = nullptr;
  EQSAT_TRY(api.output(context, 0, dims, 3, &output));
  void* pointer = nullptr;
  EQSAT_TRY(api.data(output, &pointer));
  data.output = static_cast<float*>(pointer);
  const Pool pool{&api, context, nullptr};
  const bool is_done = kernels()->convolve_sequence(c, data, {run_in_pool, &pool});
  if (pool.failed) return pool.failed;
  return is_done ? nullptr : api.error("no memory for a convolution");
}

}  // namespace

const CustomOp& sequence_convolution() {
  static const Operator op("SequenceConv", 3, 2, 1, create, compute, [](void* node) {
    delete static_cast<SequenceNode*>(node);
  });
  return op;
}

}  // namespace eqsat

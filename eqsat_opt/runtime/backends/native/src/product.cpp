// The operator "PackedProduct": input, weights; bias. The last two are constant.
#include <memory>
#include <new>

#include "operators.h"

namespace eqsat {

namespace {

struct ProductNode {
  Api api;
  Product product;
  Memory packed, bias;
};

Status* read_node(const Api& api, const KernelInfo* info, ProductNode* node) {
  Product& p = node->product;
  int64_t is_transposed = 0;
  float factor = 1.0f, bias_factor = 1.0f;
  EQSAT_TRY(api.attribute(info, "transposed", &is_transposed));
  EQSAT_TRY(api.attribute(info, "factor", &factor));
  EQSAT_TRY(api.attribute(info, "bias_factor", &bias_factor));
  EQSAT_TRY(activation(api, info, &p.activation));
  EQSAT_TRY(api.attribute(info, "alpha", &p.alpha));
  EQSAT_TRY(api.attribute(info, "beta", &p.beta));

  const Value* weights = nullptr;
  EQSAT_TRY(constant(api, info, 1, &weights));
  if (!weights) return api.error("the weights must be constant");
  Dims dims;
  EQSAT_TRY(dims_of(api, weights, &dims));
  if (dims.rank != 2 || dims.of[0] < 1 || dims.of[1] < 1) {
    return api.error("the weights must have two axes, none of them empty");
  }
  p.depth = dims.of[is_transposed ? 1 : 0];
  p.columns = dims.of[is_transposed ? 0 : 1];
  const float* data = nullptr;
  EQSAT_TRY(data_of(api, weights, &data));
  float* packed = node->packed.get(static_cast<size_t>(kernels()->packed_floats(p)));
  if (!packed) return api.error("no memory for the packed weights");
  kernels()->pack_weights(p, {data, is_transposed != 0, factor}, packed);

  const Value* bias = nullptr;
  if (Status* absent = constant(api, info, 2, &bias)) {
    api.release(absent);  // the node has no third input
  } else if (bias) {
    EQSAT_TRY(dims_of(api, bias, &dims));
    if (dims.rank < 1 || dims.of[dims.rank - 1] != p.columns || dims.size() != p.columns) {
      return api.error("one bias per column");
    }
    EQSAT_TRY(data_of(api, bias, &data));
    float* scaled = node->bias.get(static_cast<size_t>(p.columns));
    if (!scaled) return api.error("no memory for the bias");
    for (int64_t i = 0; i < p.columns; i++) scaled[i] = data[i] * bias_factor;
  }
  return nullptr;
}

Status* create(const CustomOp*, const void* table, const KernelInfo* info, void** made) {
  const Api api(table);
  if (!kernels()) return api.error("no kernels for this processor");
  std::unique_ptr<ProductNode> node(new (std::nothrow) ProductNode{api, {}, {}, {}});
  if (!node) return api.error("no memory");
  EQSAT_TRY(read_node(api, info, node.get()));
  *made = node.release();
  return nullptr;
}

Status* compute(void* made, KernelContext* context) {
  const ProductNode& node = *static_cast<ProductNode*>(made);
  const Api& api = node.api;
  const Value* input = nullptr;
  EQSAT_TRY(api.input(context, 0, &input));
  Dims dims;
  EQSAT_TRY(dims_of(api, input, &dims));
  if (!dims.rank || dims.of[dims.rank - 1] != node.product.depth) {
    return api.error("the rows of the input have another length than the columns of the weights");
  }
  Factors factors{nullptr, node.packed.data, node.bias.data, nullptr, dims.size() / node.product.depth};
  EQSAT_TRY(data_of(api, input, &factors.input));
  dims.of[dims.rank - 1] = node.product.columns;
  Value* output = nullptr;
  EQSAT_TRY(api.output(context, 0, dims.of, dims.rank, &output));
  if (!factors.rows) return nullptr;
  void* data = nullptr;
  EQSAT_TRY(api.data(output, &data));
  factors.output = static_cast<float*>(data);
  const Pool pool{&api, context, nullptr};
  const bool is_done = kernels()->multiply(node.product, factors, {run_in_pool, &pool});
  if (pool.failed) return pool.failed;
  return is_done ? nullptr : api.error("no memory for a product");
}

}  // namespace

const CustomOp& product_operator() {
  static const Operator op("PackedProduct", 3, 2, 1, create, compute, [](void* node) {
    delete static_cast<ProductNode*>(node);
  });
  return op;
}

}  // namespace eqsat

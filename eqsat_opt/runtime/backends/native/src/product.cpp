// The operator "PackedProduct": input, weights; bias. The weights are constant, and if the bias is not, it
// may have any shape that is broadcast to two axes.
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <tuple>

#include "operators.h"

namespace eqsat {

namespace {

struct ProductNode {
  Api api;
  Product product;
  std::shared_ptr<const Memory> packed;
  Memory bias;  // if it is constant
  float bias_factor = 1.0f;
};

// Packed weights, once for all nodes that read the same constant in the same way: copies would push
// each other out of the caches. A session keeps its constants where they are as long as it has nodes,
// so an address stands for one content while there is an entry. Null without memory.
std::shared_ptr<const Memory> packed_once(const Product& p, const Weights& weights) try {
  using Key = std::tuple<const float*, int64_t, int64_t, bool, bool, uint32_t>;
  static std::mutex mutex;
  static std::map<Key, std::weak_ptr<const Memory>> known;
  const std::lock_guard<std::mutex> lock(mutex);
  for (auto it = known.begin(); it != known.end();) it = it->second.expired() ? known.erase(it) : ++it;
  uint32_t factor = 0;  // as bits, since NaN equals nothing
  std::memcpy(&factor, &weights.factor, sizeof factor);
  auto& entry = known[Key{weights.data, p.depth, p.columns, p.is_halved, weights.is_transposed, factor}];
  std::shared_ptr<const Memory> found = entry.lock();
  if (found) return found;
  auto made = std::make_shared<Memory>();
  float* packed = made->get(static_cast<size_t>(kernels()->packed_floats(p)));
  if (!packed) return nullptr;
  kernels()->pack_weights(p, weights, packed);
  entry = made;
  return made;
} catch (const std::bad_alloc&) {
  return nullptr;
}

Status* read_node(const Api& api, const KernelInfo* info, ProductNode* node) {
  Product& p = node->product;
  int64_t is_transposed = 0, is_halved = 0;
  float factor = 1.0f;
  EQSAT_TRY(api.attribute(info, "transposed", &is_transposed));
  EQSAT_TRY(api.attribute(info, "halved", &is_halved));
  EQSAT_TRY(api.attribute(info, "factor", &factor));
  EQSAT_TRY(api.attribute(info, "bias_factor", &node->bias_factor));
  EQSAT_TRY(activation(api, info, "activation", &p.activation));
  p.is_halved = is_halved != 0;
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
  node->packed = packed_once(p, {data, is_transposed != 0, factor});
  if (!node->packed) return api.error("no memory for the packed weights");

  const Value* bias = nullptr;
  if (Status* absent = constant(api, info, 2, &bias)) {
    api.release(absent);  // the node has no third input
  } else if (bias) {
    EQSAT_TRY(dims_of(api, bias, &dims));
    const bool is_single = dims.size() == 1;  // for all columns
    if (!is_single && (dims.of[dims.rank - 1] != p.columns || dims.size() != p.columns)) {
      return api.error("one bias per column, or one for all");
    }
    EQSAT_TRY(data_of(api, bias, &data));
    float* scaled = node->bias.get(static_cast<size_t>(p.columns));
    if (!scaled) return api.error("no memory for the bias");
    for (int64_t i = 0; i < p.columns; i++) scaled[i] = data[is_single ? 0 : i] * node->bias_factor;
  }
  return nullptr;
}

Status* create(const CustomOp*, const void* table, const KernelInfo* info, void** made) {
  const Api api(table);
  if (!kernels()) return api.error("no kernels for this processor");
  std::unique_ptr<ProductNode> node(new (std::nothrow) ProductNode{api, {}, nullptr, {}, 1.0f});
  if (!node) return api.error("no memory");
  EQSAT_TRY(read_node(api, info, node.get()));
  *made = node.release();
  return nullptr;
}

// What is added, in all rows and columns of the output.
Status* spread(const Api& api, const Value* added, float factor, const Product& p, const Factors& factors) {
  Dims dims;
  EQSAT_TRY(dims_of(api, added, &dims));
  const int64_t columns = dims.rank ? dims.of[dims.rank - 1] : 1;
  const int64_t rows = dims.rank > 1 ? dims.of[dims.rank - 2] : 1;
  if (dims.rank > 2 || (columns != 1 && columns != p.columns) || (rows != 1 && rows != factors.rows)) {
    return api.error("what is added has another shape than the product");
  }
  const float* data = nullptr;
  EQSAT_TRY(data_of(api, added, &data));
  for (int64_t r = 0; r < factors.rows; r++) {
    const float* from = data + (rows > 1 ? r * columns : 0);
    float* to = factors.output + r * p.columns;
    if (columns == 1) {
      std::fill_n(to, p.columns, *from * factor);
    } else {
      for (int64_t i = 0; i < columns; i++) to[i] = from[i] * factor;
    }
  }
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
  Factors factors{nullptr, node.packed->data, node.bias.data, nullptr, dims.size() / node.product.depth};
  EQSAT_TRY(data_of(api, input, &factors.input));
  dims.of[dims.rank - 1] = node.product.columns;
  Value* output = nullptr;
  EQSAT_TRY(api.output(context, 0, dims.of, dims.rank, &output));
  if (!factors.rows) return nullptr;
  void* data = nullptr;
  EQSAT_TRY(api.data(output, &data));
  factors.output = static_cast<float*>(data);
  if (!node.bias.data) {
    const Value* added = nullptr;
    EQSAT_TRY(optional_input(api, context, 2, &added));
    if (added) EQSAT_TRY(spread(api, added, node.bias_factor, node.product, factors));
    factors.is_sum = added != nullptr;
  }
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

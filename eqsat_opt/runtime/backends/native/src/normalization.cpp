// The operator "Normalization": input, scale; shift, skip and bias may be missing, as may the second
// output, what was normalized.
#include <memory>
#include <new>

#include "operators.h"

namespace eqsat {

namespace {

struct NormalizationNode {
  Api api;
  bool is_centred;
  float epsilon;
};

Status* create(const CustomOp*, const void* table, const KernelInfo* info, void** made) {
  const Api api(table);
  if (!kernels()) return api.error("no kernels for this processor");
  int64_t is_centred = 0;
  float epsilon = 0.0f;
  EQSAT_TRY(api.attribute(info, "centred", &is_centred));
  EQSAT_TRY(api.attribute(info, "epsilon", &epsilon));
  auto* node = new (std::nothrow) NormalizationNode{api, is_centred != 0, epsilon};
  if (!node) return api.error("no memory");
  *made = node;
  return nullptr;
}

// One value per element of a row, or null.
Status* row_input(const Api& api, const KernelContext* context, size_t index, int64_t size,
                  const float** data) {
  const Value* value = nullptr;
  EQSAT_TRY(optional_input(api, context, index, &value));
  if (!value) return nullptr;
  Dims dims;
  EQSAT_TRY(dims_of(api, value, &dims));
  if (dims.rank != 1 || dims.of[0] != size) return api.error("one scale, shift and bias per element of a row");
  return data_of(api, value, data);
}

// The rows of `skip`, whose shape has to be that of the input without some of its first axes.
Status* skip_input(const Api& api, const KernelContext* context, const Dims& in, Rows* rows) {
  const Value* value = nullptr;
  EQSAT_TRY(optional_input(api, context, 3, &value));
  if (!value) return nullptr;
  Dims dims;
  EQSAT_TRY(dims_of(api, value, &dims));
  size_t first = 0;
  while (first + 1 < dims.rank && dims.of[first] == 1) first++;
  const size_t rank = dims.rank - first;
  bool fits = dims.rank > 0 && rank <= in.rank;
  rows->skip_count = 1;
  for (size_t i = 0; fits && i < rank; i++) {
    fits = dims.of[first + i] == in.of[in.rank - rank + i];
    if (i + 1 < rank) rows->skip_count *= dims.of[first + i];
  }
  if (!fits) return api.error("what is added has another shape than the input");
  return data_of(api, value, &rows->skip);
}

Status* compute(void* made, KernelContext* context) {
  const NormalizationNode& node = *static_cast<NormalizationNode*>(made);
  const Api& api = node.api;
  const Value* input = nullptr;
  EQSAT_TRY(api.input(context, 0, &input));
  Dims in;
  EQSAT_TRY(dims_of(api, input, &in));
  if (!in.rank) return api.error("the input has no axis");
  const int64_t size = in.of[in.rank - 1];
  Rows rows{};
  rows.count = 1;
  for (size_t i = 0; i + 1 < in.rank; i++) rows.count *= in.of[i];
  EQSAT_TRY(row_input(api, context, 1, size, &rows.scale));
  EQSAT_TRY(row_input(api, context, 2, size, &rows.shift));
  EQSAT_TRY(row_input(api, context, 4, size, &rows.bias));
  EQSAT_TRY(skip_input(api, context, in, &rows));
  EQSAT_TRY(data_of(api, input, &rows.input));

  size_t outputs = 0;
  EQSAT_TRY(api.output_count(context, &outputs));
  float** const to[] = {&rows.output, &rows.sum};
  for (size_t i = 0; i < outputs; i++) {
    Value* output = nullptr;
    void* data = nullptr;
    EQSAT_TRY(api.output(context, i, in.of, in.rank, &output));
    EQSAT_TRY(api.data(output, &data));
    *to[i] = static_cast<float*>(data);
  }
  if (!rows.count || !size) return nullptr;
  const Pool pool{&api, context, nullptr};
  kernels()->normalize({size, node.is_centred, node.epsilon}, rows, {run_in_pool, &pool});
  return pool.failed;
}

}  // namespace

const CustomOp& normalization_operator() {
  static const Operator op("Normalization", 5, 2, 2, create, compute, [](void* node) {
    delete static_cast<NormalizationNode*>(node);
  });
  return op;
}

}  // namespace eqsat

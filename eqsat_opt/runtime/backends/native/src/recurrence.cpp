// The operator "RecurrentLayer": data, weights, recurrent weights; biases, lengths, first states and first
// cells may be missing, as may each output: all states, the last states and the last cells.
#include <memory>
#include <new>

#include "operators.h"

namespace eqsat {

namespace {

constexpr int64_t kReverse = 1, kBoth = 2;

struct RecurrenceNode {
  Api api;
  Recurrence recurrence;
  int64_t directions, direction;
  int64_t packed_floats;  // of each direction
  Memory packed;
};

Status* read_node(const Api& api, const KernelInfo* info, RecurrenceNode* node) {
  int64_t is_lstm = 0;
  EQSAT_TRY(api.attribute(info, "lstm", &is_lstm));
  EQSAT_TRY(api.attribute(info, "direction", &node->direction));
  if (node->direction < 0 || node->direction > kBoth) return api.error("a direction is 0, 1 or 2");
  Recurrence& r = node->recurrence;
  r.is_lstm = is_lstm != 0;
  node->directions = node->direction == kBoth ? 2 : 1;

  const Value *input = nullptr, *recurrent = nullptr, *bias = nullptr;
  EQSAT_TRY(constant(api, info, 1, &input));
  EQSAT_TRY(constant(api, info, 2, &recurrent));
  if (!input || !recurrent) return api.error("the weights must be constant");
  Dims dims, others;
  EQSAT_TRY(dims_of(api, input, &dims));
  EQSAT_TRY(dims_of(api, recurrent, &others));
  if (dims.rank != 3 || others.rank != 3) return api.error("the weights must have three axes");
  r.features = dims.of[2];
  r.hidden = others.of[2];
  const int64_t rows = r.gates() * r.hidden;
  if (dims.of[0] != node->directions || others.of[0] != node->directions || dims.of[1] != rows ||
      others.of[1] != rows || r.features < 1 || r.hidden < 1) {
    return api.error("weights of another shape");
  }
  RecurrentWeights weights{};
  EQSAT_TRY(data_of(api, input, &weights.input));
  EQSAT_TRY(data_of(api, recurrent, &weights.recurrent));
  if (Status* absent = constant(api, info, 3, &bias)) {
    api.release(absent);  // the node has no fourth input
  } else if (bias) {
    EQSAT_TRY(dims_of(api, bias, &dims));
    if (dims.rank != 2 || dims.of[0] != node->directions || dims.of[1] != 2 * rows) {
      return api.error("biases of another shape");
    }
    EQSAT_TRY(data_of(api, bias, &weights.bias));
  }
  node->packed_floats = kernels()->recurrence_floats(r);
  float* packed = node->packed.get(static_cast<size_t>(node->directions * node->packed_floats));
  if (!packed) return api.error("no memory for the packed weights");
  for (int64_t i = 0; i < node->directions; i++) {
    kernels()->pack_recurrence(r, weights, packed + i * node->packed_floats);
    weights.input += rows * r.features;
    weights.recurrent += rows * r.hidden;
    if (weights.bias) weights.bias += 2 * rows;
  }
  return nullptr;
}

Status* create(const CustomOp*, const void* table, const KernelInfo* info, void** made) {
  const Api api(table);
  if (!kernels()) return api.error("no kernels for this processor");
  std::unique_ptr<RecurrenceNode> node(new (std::nothrow) RecurrenceNode{api, {}, 1, 0, 0, {}});
  if (!node) return api.error("no memory");
  EQSAT_TRY(read_node(api, info, node.get()));
  *made = node.release();
  return nullptr;
}

// The first states or cells, [directions][samples][hidden]; null where the node has none.
Status* first_input(const RecurrenceNode& node, const KernelContext* context, size_t index,
                    int64_t samples, const float** data) {
  const Api& api = node.api;
  const Value* value = nullptr;
  EQSAT_TRY(optional_input(api, context, index, &value));
  if (!value) return nullptr;
  Dims dims;
  EQSAT_TRY(dims_of(api, value, &dims));
  if (dims.rank != 3 || dims.of[0] != node.directions || dims.of[1] != samples ||
      dims.of[2] != node.recurrence.hidden) {
    return api.error("first states of another shape");
  }
  return data_of(api, value, data);
}

Status* lengths_input(const Api& api, const KernelContext* context, int64_t samples, int64_t steps,
                      const int32_t** lengths) {
  const Value* value = nullptr;
  EQSAT_TRY(optional_input(api, context, 4, &value));
  if (!value) return nullptr;
  Dims dims;
  EQSAT_TRY(dims_of(api, value, &dims));
  if (dims.rank != 1 || dims.of[0] != samples) return api.error("one length per sample");
  void* data = nullptr;
  EQSAT_TRY(api.data(value, &data));
  *lengths = static_cast<const int32_t*>(data);
  for (int64_t i = 0; i < samples; i++) {
    if ((*lengths)[i] < 0 || (*lengths)[i] > steps) {
      return api.error("a sequence is longer than the data, or its length is negative");
    }
  }
  return nullptr;
}

// Null where nobody reads the output.
Status* output_data(const Api& api, KernelContext* context, size_t index, const Dims& dims, float** data) {
  size_t count = 0;
  EQSAT_TRY(api.output_count(context, &count));
  if (index >= count) return nullptr;
  Value* output = nullptr;
  EQSAT_TRY(api.output(context, index, dims.of, dims.rank, &output));
  if (!output) return nullptr;
  void* pointer = nullptr;
  EQSAT_TRY(api.data(output, &pointer));
  *data = static_cast<float*>(pointer);
  return nullptr;
}

Status* compute(void* made, KernelContext* context) {
  const RecurrenceNode& node = *static_cast<RecurrenceNode*>(made);
  const Api& api = node.api;
  const Recurrence& r = node.recurrence;
  const Value* input = nullptr;
  EQSAT_TRY(api.input(context, 0, &input));
  Dims in;
  EQSAT_TRY(dims_of(api, input, &in));
  if (in.rank != 3 || in.of[2] != r.features) return api.error("the data have other features");
  const int64_t steps = in.of[0], samples = in.of[1], n = node.directions;

  Sequences all{};
  all.steps = steps;
  all.samples = samples;
  all.states_step = n * samples * r.hidden;
  EQSAT_TRY(data_of(api, input, &all.input));
  EQSAT_TRY(lengths_input(api, context, samples, steps, &all.lengths));
  EQSAT_TRY(first_input(node, context, 5, samples, &all.state));
  if (r.is_lstm) EQSAT_TRY(first_input(node, context, 6, samples, &all.cell));
  EQSAT_TRY(output_data(api, context, 0, {{steps, n, samples, r.hidden}, 4}, &all.states));
  EQSAT_TRY(output_data(api, context, 1, {{n, samples, r.hidden}, 3}, &all.last_state));
  if (r.is_lstm) EQSAT_TRY(output_data(api, context, 2, {{n, samples, r.hidden}, 3}, &all.last_cell));
  if (!samples) return nullptr;

  Sequences each[2] = {all, all};
  const int64_t size = samples * r.hidden;
  for (int64_t i = 0; i < n; i++) {
    Sequences& one = each[i];
    one.packed = node.packed.data + i * node.packed_floats;
    one.is_reverse = i == 1 || node.direction == kReverse;
    if (one.state) one.state += i * size;
    if (one.cell) one.cell += i * size;
    if (one.states) one.states += i * size;
    if (one.last_state) one.last_state += i * size;
    if (one.last_cell) one.last_cell += i * size;
  }
  const Pool pool{&api, context, nullptr};
  const bool is_done = kernels()->recur(r, each, n, {run_in_pool, &pool});
  if (pool.failed) return pool.failed;
  return is_done ? nullptr : api.error("no memory for a recurrent layer");
}

}  // namespace

const CustomOp& recurrence_operator() {
  static const Operator* const op = [] {
    static Operator made("RecurrentLayer", 7, 3, 3, create, compute, [](void* node) {
      delete static_cast<RecurrenceNode*>(node);
    });
    made.required_outputs = 0;
    made.integers = 4;
    return &made;
  }();
  return *op;
}

}  // namespace eqsat

// Recurrent layers over whole sequences: what all instruction sets share.
#pragma once

#include <cstdint>

namespace eqsat {

// One direction of an LSTM, or of a GRU whose reset gate multiplies the product with the state.
struct Recurrence {
  bool is_lstm;
  int64_t features, hidden;

  int64_t gates() const { return is_lstm ? 4 : 3; }
};

// As ONNX has them: gate after gate, [gates][hidden] rows of `features` and of `hidden`; the biases of
// the products with the data, then of those with the state, or null.
struct RecurrentWeights {
  const float *input, *recurrent, *bias;
};

// What one direction reads and writes. All but `input` may be null: then sequences have all steps,
// begin with zeros, and what they end with is not kept.
struct Sequences {
  const float* packed;
  const float* input;      // [steps][samples][features]
  const int32_t* lengths;  // [samples], each from 0 to `steps`
  const float *state, *cell;        // [samples][hidden]
  float *last_state, *last_cell;    // [samples][hidden]
  float* states;           // [steps][samples][hidden], where steps are `states_step` floats apart
  int64_t steps, samples, states_step;
  bool is_reverse;
};

}  // namespace eqsat

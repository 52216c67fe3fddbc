// What all convolutions on blocked buffers do around their kernels: shapes are checked, samples follow
// one another.
#pragma once

#include <cstring>

#include "operators.h"

namespace eqsat {

struct Window {
  int64_t in, out;     // channels
  int64_t kernel[2];   // height, width
  int64_t pads[4];     // top, left, bottom, right
  int64_t strides[2];  // of height and width
};

inline Status* check_pads(const Api& api, const int64_t (&pads)[4]) {
  for (int64_t pad : pads) {
    if (pad < 0) return api.error("a negative pad");
  }
  return nullptr;
}

// The third input, one value per output channel; null where there is none.
inline Status* bias_of(const Api& api, const KernelInfo* info, int64_t channels, const float** data) {
  const Value* bias = nullptr;
  if (Status* absent = constant(api, info, 2, &bias)) {
    api.release(absent);  // the node has no third input
  } else if (bias) {
    Dims dims;
    EQSAT_TRY(dims_of(api, bias, &dims));
    if (dims.rank != 1 || dims.of[0] != channels) return api.error("one bias per output channel");
    EQSAT_TRY(data_of(api, bias, data));
  }
  return nullptr;
}

// Calls run(sample, plane of the output, parallel) for each sample of the first input, with the
// fourth as residual if there is one; `sample` holds weights and bias. False means out of memory.
template <typename Run>
Status* each_sample(const Api& api, KernelContext* context, const Window& w, Sample sample, Run run) {
  const Value* input = nullptr;
  EQSAT_TRY(api.input(context, 0, &input));
  Dims in;
  EQSAT_TRY(dims_of(api, input, &in));
  if (in.rank != 4 || in.of[1] != w.in) return api.error("the data have other channels");
  Dims out{{in.of[0], w.out}, 4};
  for (int i = 0; i < 2; i++) {
    const int64_t room = in.of[2 + i] + w.pads[i] + w.pads[2 + i] - w.kernel[i];
    if (room < -1) return api.error("the kernel is larger than the data");
    out.of[2 + i] = room < 0 ? 0 : room / w.strides[i] + 1;
  }
  sample.plane = {in.of[2], in.of[3]};
  const Plane plane{out.of[2], out.of[3]};

  const Value* residual = nullptr;
  EQSAT_TRY(optional_input(api, context, 3, &residual));
  if (residual) {
    Dims dims;
    EQSAT_TRY(dims_of(api, residual, &dims));
    if (dims.rank != 4 || std::memcmp(dims.of, out.of, 4 * sizeof dims.of[0])) {
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
    const bool is_done = run(sample, plane, parallel);
    if (pool.failed) return pool.failed;
    if (!is_done) return api.error("no memory for a convolution");
    sample.input += in_size;
    sample.output += out_size;
    if (sample.residual) sample.residual += out_size;
  }
  return nullptr;
}

}  // namespace eqsat

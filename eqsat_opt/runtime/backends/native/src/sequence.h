// Convolutions of sequences: what all instruction sets share.
#pragma once

#include "product.h"

namespace eqsat {

// y = activation(w * x + bias) along the last axis, with one group. It is a product of patches, which
// have the `kernel` steps of the data one after another: the depth of `product` is kernel times
// channels, and its columns are the channels of the output.
struct SequenceConvolution {
  Product product;
  int64_t channels, kernel, stride, dilation, pads[2];

  // Steps that the kernel can move; below 0 where it is larger than the data.
  int64_t room(int64_t length) const { return length + pads[0] + pads[1] - (kernel - 1) * dilation - 1; }

  // Of the output.
  int64_t steps(int64_t length) const { return room(length) < 0 ? 0 : room(length) / stride + 1; }
};

// [samples][channels][length]; the weights are packed, and `bias` may be null.
struct SequenceData {
  const float *input, *packed, *bias;
  float* output;
  int64_t samples, length;
};

}  // namespace eqsat

// Normalization of rows, with what is added before it: what all instruction sets share.
#pragma once

#include <cstdint>

namespace eqsat {

// t = x + skip + bias; y = (t - mean(t)) / sqrt(variance(t) + epsilon) * scale + shift
struct Normalization {
  int64_t size;     // of a row
  bool is_centred;  // otherwise the mean is not subtracted, and the variance is the mean of squares
  float epsilon;
};

// `skip`, `bias`, `shift` and `sum`, to which t is written, may be null.
struct Rows {
  const float *input, *skip, *bias, *scale, *shift;
  float *output, *sum;
  int64_t count;
  int64_t skip_count;  // rows of `skip`, which repeat
};

}  // namespace eqsat

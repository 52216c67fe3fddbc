// Products of matrices with a constant right side: what all instruction sets share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "convolution.h"

namespace eqsat {

// y = activation(x w + bias), where w has `depth` rows and `columns` columns.
struct Product {
  int64_t depth, columns;
  Activation activation;
  float alpha, beta;  // of the activation
  bool is_halved = false;  // by Strassen's algorithm, once
};

// Rows of x times packed weights; `bias` may be null. With `is_sum` the output holds what is added.
struct Factors {
  const float *input, *packed, *bias;
  float* output;
  int64_t rows;
  bool is_sum = false;
};

// As given to be packed: row after row, or column after column; each is multiplied by `factor`.
struct Weights {
  const float* data;
  bool is_transposed;
  float factor;
};

}  // namespace eqsat

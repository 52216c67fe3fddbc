// Convolution by Winograd's minimal filtering, on blocked buffers: what all instruction sets share.
//
// Blocked means NCHWc: [n][channels / block][height][width][block]. Weights come as onnxruntime
// reorders them: [out / block][in / block][kernel height][kernel width][in % block][out % block].
#pragma once

#include <cstddef>
#include <cstdint>

namespace eqsat {

enum class Activation : int64_t {
  kNone = 0, kRelu, kLeakyRelu, kClip, kSigmoid, kHardSigmoid, kSilu, kHardSwish, kCount
};

// A convolution with stride 1, dilation 1 and one group.
struct Convolution {
  int64_t block;                   // channels per block
  int64_t in, out;                 // channels, multiples of the block
  int64_t kernel[2];               // height, width
  int64_t pads[4];                 // top, left, bottom, right
  int64_t tile[2];                 // outputs per tile: the m of F(m, r) along each axis
  int64_t transform_in_run;        // weights are transformed in each run and not once
  Activation activation;
  float alpha, beta;               // of LeakyRelu, Clip and HardSigmoid

  int64_t points() const { return (tile[0] + kernel[0] - 1) * (tile[1] + kernel[1] - 1); }
};

// A convolution with as many inputs as outputs in each group, of which several fill a block: depthwise
// where a group is one channel. Its weights: [channels / block][kernel height][kernel width]
// [per_group][block]. The activation of the input is one without parameters.
struct GroupedConvolution {
  int64_t block;       // channels per block
  int64_t channels;    // a multiple of the block
  int64_t per_group;   // channels of a group
  int64_t kernel[2];   // height, width
  int64_t pads[4];     // top, left, bottom, right
  int64_t strides[2];  // of height and width
  Activation input_activation, activation;
  float alpha, beta;   // of the activation
};

struct Plane {
  int64_t height, width;
};

// One sample. `residual` has the shape of the output and may be null, as may `bias`; `weights` are
// transformed ones unless the run transforms them.
struct Sample {
  const float *input, *weights, *bias, *residual;
  float* output;
  Plane plane;  // of the input
};

// Floats of all transformed weights, and of those of one group of output blocks.
inline size_t transformed_floats(const Convolution& c) {
  return static_cast<size_t>(c.points() * c.in * c.out);
}

}  // namespace eqsat

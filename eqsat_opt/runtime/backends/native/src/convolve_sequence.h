// Convolutions of sequences, as products of patches. The data are transposed first, so that channels are
// next to each other and a patch is copied in a few pieces: in one if it has no gaps.

namespace EQSAT_INSTRUCTIONS {

constexpr int64_t kPatchFloats = 1 << 16;  // that are made at a time
constexpr int64_t kMostPatches = 32 * kRows;

// [rows][columns] to [columns][rows], which are `from_step` and `to_step` floats apart.
static void transpose(const float* from, int64_t from_step, float* to, int64_t to_step, int64_t rows,
                      int64_t columns) {
  int64_t r = 0;
  for (; r + kLanes <= rows; r += kLanes) {
    for (int64_t c = 0; c < columns; c++) {
      Vec<kLanes> v;
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; i++) v[i] = from[(r + i) * from_step + c];
      store<kLanes>(to + c * to_step + r, v);
    }
  }
  for (; r < rows; r++) {
    for (int64_t c = 0; c < columns; c++) to[c * to_step + r] = from[r * from_step + c];
  }
}

// Meanwhile each thread has memory of its own for patches and their products.
struct SequenceRun {
  const SequenceConvolution& convolution;
  const SequenceData& data;
  const Parallel& inner;
  float* steps;                          // [samples][padded length][channels]
  int64_t padded_length, out, per_task;  // steps of the output, patches of a task
  bool failed;

  void prepare(int64_t sample) const {
    const SequenceConvolution& c = convolution;
    const size_t step = static_cast<size_t>(c.channels) * sizeof(float);
    float* to = steps + sample * padded_length * c.channels;
    __builtin_memset(to, 0, static_cast<size_t>(c.pads[0]) * step);
    to += c.pads[0] * c.channels;
    transpose(data.input + sample * c.channels * data.length, data.length, to, c.channels, c.channels,
              data.length);
    __builtin_memset(to + data.length * c.channels, 0, static_cast<size_t>(c.pads[1]) * step);
  }

  bool convolve(int64_t task) const {
    const SequenceConvolution& c = convolution;
    const int64_t all = data.samples * out, depth = c.product.depth, columns = c.product.columns;
    const int64_t first = task * per_task, last = first + per_task < all ? first + per_task : all;
    float* const patches = scratch(Scratch::kTask, static_cast<size_t>((last - first) * (depth + columns)));
    if (!patches) return false;
    float* const products = patches + (last - first) * depth;
    const int64_t pieces = c.dilation == 1 ? 1 : c.kernel, piece = depth / pieces;
    float* to = patches;
    for (int64_t i = first; i < last; i++) {
      const float* from = steps + (i / out * padded_length + i % out * c.stride) * c.channels;
      for (int64_t k = 0; k < pieces; k++, to += piece, from += c.dilation * c.channels) {
        __builtin_memcpy(to, from, static_cast<size_t>(piece) * sizeof(float));
      }
    }
    if (!multiply_plainly(c.product, {patches, data.packed, data.bias, products, last - first}, inner)) {
      return false;
    }
    for (int64_t i = first; i < last;) {
      const int64_t sample = i / out, left = (sample + 1) * out - i, n = left < last - i ? left : last - i;
      transpose_back(products + (i - first) * columns, data.output + sample * columns * out + i % out, n);
      i += n;
    }
    return true;
  }

  // Of n patches.
  void transpose_back(const float* from, float* to, int64_t n) const {
    transpose(from, convolution.product.columns, to, out, n, convolution.product.columns);
  }

  static void prepare_task(void* self, size_t i) {
    static_cast<const SequenceRun*>(self)->prepare(static_cast<int64_t>(i));
  }
  static void convolve_task(void* self, size_t i) {
    auto* run = static_cast<SequenceRun*>(self);
    if (!run->convolve(static_cast<int64_t>(i))) __atomic_store_n(&run->failed, true, __ATOMIC_RELAXED);
  }
};

static bool convolve_sequence(const SequenceConvolution& c, const SequenceData& data,
                              const Parallel& parallel) {
  const int64_t out = c.steps(data.length), all = data.samples * out;
  if (all < 1) return true;
  const int64_t padded_length = data.length + c.pads[0] + c.pads[1];
  const int64_t fitting = kPatchFloats / c.product.depth / kRows * kRows;
  const int64_t most = fitting < 2 * kRows ? 2 * kRows : fitting > kMostPatches ? kMostPatches : fitting;
  const int64_t tasks = ceil_div(all, most), per_task = ceil_div(all, tasks);
  float* const steps = scratch(Scratch::kOwn, static_cast<size_t>(data.samples * padded_length * c.channels));
  if (!steps) return false;
  const Parallel serial{in_turn, nullptr};
  SequenceRun run{c, data, tasks == 1 ? parallel : serial, steps, padded_length, out, per_task, false};
  parallel.run(parallel.self, SequenceRun::prepare_task, static_cast<size_t>(data.samples), &run);
  if (tasks == 1) {
    SequenceRun::convolve_task(&run, 0);
  } else {
    parallel.run(parallel.self, SequenceRun::convolve_task, static_cast<size_t>(tasks), &run);
  }
  return !run.failed;
}

}  // namespace EQSAT_INSTRUCTIONS

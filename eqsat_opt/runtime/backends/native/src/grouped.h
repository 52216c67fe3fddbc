// Convolutions whose groups have fewer channels than a block.
//
// A vector holds a block's channels at one pixel. The k-th channels of all its groups, each in the
// lanes of its whole group, are a permutation of it: one for all taps that read that pixel. So nothing
// is multiplied with what belongs to another group.
//
// The rows of data that a row of outputs reads lie in a ring of lines that stays in the first cache,
// with the zeros of the padding at both ends. Each row is copied, and activated, once.

namespace EQSAT_INSTRUCTIONS {

constexpr int kTapRows = 7;  // of a kernel, at most
template <int B, int G>
constexpr int kWide = G == 1 ? EQSAT_SINGLE_PIXELS(B) : EQSAT_PIXELS(B);  // outputs whose sums stay in registers

template <int B>
struct Indices {
  typedef int32_t Type __attribute__((vector_size(B * sizeof(int32_t))));
};

// In lane i the channel K of the group of i, where a group has G.
template <int B, int G, int K>
EQSAT_INLINE Vec<B> of_group(Vec<B> x) {
  if constexpr (G == 1) return x;
#if defined(__clang__)
  Vec<B> y;
  for (int i = 0; i < B; i++) y[i] = x[i / G * G + K];
  return y;
#else
  typename Indices<B>::Type from{};
#pragma GCC unroll 16
  for (int i = 0; i < B; i++) from[i] = i / G * G + K;
  return __builtin_shuffle(x, from);
#endif
}

// Outputs of a row that lie next to each other: T of them, with S taps D pixels apart from one to
// the next.
template <int B, int G, int S, int D, int T>
struct GroupedTile {
  static constexpr int kPixels = (T - 1) * D + S;

  template <int K>
  static EQSAT_INLINE void add(const float* pixels, const float* weights, Vec<B>* sums) {
    Vec<B> w[S];
#pragma GCC unroll 8
    for (int s = 0; s < S; s++) w[s] = load<B>(weights + (s * G + K) * B);
#pragma GCC unroll 32
    for (int i = 0; i < kPixels; i++) {
      const Vec<B> x = of_group<B, G, K>(load<B>(pixels + i * B));
#pragma GCC unroll 8
      for (int s = 0; s < S; s++) {
        if (i >= s && (i - s) % D == 0 && (i - s) / D < T) sums[(i - s) / D] += x * w[s];
      }
    }
    if constexpr (K + 1 < G) add<K + 1>(pixels, weights, sums);
  }

  // Some tiles of one row: `rows` of taps are added to the bias.
  static void run(const float* const* lines, int64_t at, int64_t rows, const float* weights, const float* bias,
                  float* output, int64_t tiles) {
    const Vec<B> first = bias ? load<B>(bias) : Vec<B>{};
    for (const int64_t end = at + tiles * T * D * B; at < end; at += T * D * B, output += T * B) {
      Vec<B> sums[T];
#pragma GCC unroll 16
      for (int t = 0; t < T; t++) sums[t] = first;
      for (int64_t r = 0; r < rows; r++) add<0>(lines[r] + at, weights + r * S * G * B, sums);
#pragma GCC unroll 16
      for (int t = 0; t < T; t++) store<B>(output + t * B, sums[t]);
    }
  }
};

// Of all pixels of a row; where nothing is activated it copies.
template <int B, Activation K>
static void activate_pixels(float alpha, float beta, const float* from, int64_t pixels, float* to) {
  int64_t i = 0;
  // By pairs, which the compiler does not take for a call of memcpy: rows are too short for one.
  for (; i + 2 * B <= pixels * B; i += 2 * B) {
    const Vec<B> x = activate<B>(K, alpha, beta, load<B>(from + i));
    const Vec<B> y = activate<B>(K, alpha, beta, load<B>(from + i + B));
    store<B>(to + i, x);
    store<B>(to + i + B, y);
  }
  if (i < pixels * B) store<B>(to + i, activate<B>(K, alpha, beta, load<B>(from + i)));
}

template <int B>
static void activate_row(Activation kind, float alpha, float beta, const float* from, int64_t pixels, float* to) {
#define EQSAT_KIND(K) \
  case Activation::K: return activate_pixels<B, Activation::K>(alpha, beta, from, pixels, to);
  switch (kind) {
    EQSAT_KIND(kRelu)
    EQSAT_KIND(kLeakyRelu)
    EQSAT_KIND(kClip)
    EQSAT_KIND(kSigmoid)
    EQSAT_KIND(kHardSigmoid)
    EQSAT_KIND(kSilu)
    EQSAT_KIND(kHardSwish)
    default: return activate_pixels<B, Activation::kNone>(alpha, beta, from, pixels, to);
  }
#undef EQSAT_KIND
}

template <int B, int G, int S, int D>
struct GroupedRows {
  using Run = void (*)(const float* const*, int64_t, int64_t, const float*, const float*, float*, int64_t);

  template <int T = kWide<B, G>>
  static Run tile_of(int64_t outputs) {
    if (outputs == T) return GroupedTile<B, G, S, D, T>::run;
    if constexpr (T > 1) return tile_of<T - 1>(outputs);
    return nullptr;
  }

  // Rows of outputs of one block; `ring` has a line for each row of taps.
  static void run(const GroupedConvolution& c, const Sample& sample, Plane out, int64_t block, int64_t from,
                  int64_t to, float* ring) {
    const int64_t width = sample.plane.width, height = sample.plane.height, pixels = (out.width - 1) * D + S;
    const float* plane = sample.input + block * height * width * B;
    const float* bias = sample.bias ? sample.bias + block * B : nullptr;
    // Tiles of a row differ in size by one at most.
    const int64_t parts = ceil_div(out.width, kWide<B, G>), least = out.width / parts, wider = out.width % parts;
    const Run narrow = tile_of(least), wide = tile_of(least + 1);
    // A line holds zeros, then a row of data, and zeros again.
    const int64_t left = c.pads[1] < pixels ? c.pads[1] : pixels;
    const int64_t inside = width < pixels - left ? width : pixels - left;
    for (int64_t r = 0; r < c.kernel[0]; r++) {
      float* line = ring + r * pixels * B;
      for (int64_t i = 0; i < left; i++) store<B>(line + i * B, Vec<B>{});
      for (int64_t i = left + inside; i < pixels; i++) store<B>(line + i * B, Vec<B>{});
    }
    int64_t copied = 0;   // rows of data before this one are in the ring, as far as they are needed,
    int64_t newest = 0;  // the last of them in this line of it
    for (int64_t y = from; y < to; y++) {
      const int64_t top = y * c.strides[0] - c.pads[0];
      const int64_t first = top > 0 ? top : 0, below = top + c.kernel[0];
      const int64_t last = below < height ? below : height;
      const int64_t rows = last > first ? last - first : 0;
      if (copied < first) copied = first;
      for (; copied < last; copied++) {
        newest = newest + 1 < c.kernel[0] ? newest + 1 : 0;
        activate_row<B>(c.input_activation, 0.0f, 0.0f, plane + copied * width * B, inside,
                        ring + (newest * pixels + left) * B);
      }
      const float* lines[kTapRows];
      for (int64_t r = rows, line = newest; r-- > 0; line = line ? line - 1 : c.kernel[0] - 1) {
        lines[r] = ring + line * pixels * B;
      }
      const float* weights =
          sample.weights + (block * c.kernel[0] + (rows ? first - top : 0)) * S * G * B;
      const int64_t at = (block * out.height + y) * out.width * B;
      float* output = sample.output + at;
      narrow(lines, 0, rows, weights, bias, output, parts - wider);
      if (wider) {
        const int64_t x = (parts - wider) * least;
        wide(lines, x * D * B, rows, weights, bias, output + x * B, wider);
      }
      if (sample.residual) {
        const float* residual = sample.residual + at;
        for (int64_t i = 0; i < out.width * B; i += B) {
          store<B>(output + i, load<B>(output + i) + load<B>(residual + i));
        }
      }
      if (c.activation != Activation::kNone) {
        activate_row<B>(c.activation, c.alpha, c.beta, output, out.width, output);
      }
    }
  }
};

// What computes rows; null if there is nothing for this convolution.
using GroupedRun = void (*)(const GroupedConvolution&, const Sample&, Plane, int64_t, int64_t, int64_t, float*);

template <int B>
static GroupedRun grouped_run_of(const GroupedConvolution& c) {
#define EQSAT_GROUPED(G, S)                                                        \
  if (c.per_group == G && c.kernel[1] == S) {                                      \
    return c.strides[1] == 1 ? GroupedRows<B, G, S, 1>::run : GroupedRows<B, G, S, 2>::run; \
  }
  EQSAT_GROUPED(1, 3)
  EQSAT_GROUPED(1, 5)
  EQSAT_GROUPED(1, 7)
  EQSAT_GROUPED(2, 3)
  EQSAT_GROUPED(4, 3)
  EQSAT_GROUPED(8, 3)
#undef EQSAT_GROUPED
  return nullptr;
}

static GroupedRun grouped_run(const GroupedConvolution& c) {
  if (c.kernel[0] > kTapRows || c.per_group >= c.block) return nullptr;
  for (int64_t stride : c.strides) {
    if (stride != 1 && stride != 2) return nullptr;
  }
#define EQSAT_BLOCK(B) \
  if (c.block == B) return grouped_run_of<B>(c);
  EQSAT_BLOCKS(EQSAT_BLOCK)
#undef EQSAT_BLOCK
  return nullptr;
}

struct GroupedTask {
  const GroupedConvolution& c;
  const Sample& sample;
  Plane out;
  GroupedRun run;
  int64_t parts, rows;  // of a block; rows of a part
  bool is_short;        // of memory

  static void compute(void* data, size_t index) {
    GroupedTask& task = *static_cast<GroupedTask*>(data);
    const GroupedConvolution& c = task.c;
    const int64_t pixels = (task.out.width - 1) * c.strides[1] + c.kernel[1];
    float* ring = scratch(Scratch::kTask, static_cast<size_t>(c.kernel[0] * pixels * c.block));
    if (!ring) {
      __atomic_store_n(&task.is_short, true, __ATOMIC_RELAXED);
      return;
    }
    const int64_t block = static_cast<int64_t>(index) / task.parts;
    const int64_t from = static_cast<int64_t>(index) % task.parts * task.rows;
    const int64_t to = from + task.rows < task.out.height ? from + task.rows : task.out.height;
    task.run(c, task.sample, task.out, block, from, to, ring);
  }
};

static bool supports_grouped(const GroupedConvolution& c) { return grouped_run(c) != nullptr; }

static bool run_grouped(const GroupedConvolution& c, const Sample& sample, Plane out,
                        const Parallel& parallel) {
  const int64_t blocks = c.channels / c.block, parts = blocks < 8 && out.height > 8 ? 4 : 1;
  GroupedTask task{c, sample, out, grouped_run(c), parts, ceil_div(out.height, parts), false};
  parallel.run(parallel.self, GroupedTask::compute, static_cast<size_t>(blocks * parts), &task);
  return !task.is_short;
}

}  // namespace EQSAT_INSTRUCTIONS

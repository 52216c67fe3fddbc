// Convolutions whose groups have fewer channels than a block.
//
// A vector holds a block's channels at one pixel. The k-th channels of all its groups, each in the
// lanes of its whole group, are a permutation of it: one for all taps that read that pixel. So nothing
// is multiplied with what belongs to another group.

namespace EQSAT_INSTRUCTIONS {

constexpr int kTapRows = 7;  // of a kernel, at most
template <int B>
constexpr int kWide = EQSAT_PIXELS(B);  // outputs whose sums stay in registers

template <int B>
struct Indices {
  typedef int32_t Type __attribute__((vector_size(B * sizeof(int32_t))));
};

// In lane i the channel K of the group of i, where a group has G.
template <int B, int G, int K>
EQSAT_INLINE Vec<B> of_group(Vec<B> x) {
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

  // `rows` of taps; pixels of one lie `step` behind those of the row above.
  static void run(const float* pixels, int64_t step, int64_t rows, const float* weights,
                  const GroupedConvolution& c, const float* bias, const float* residual, float* output) {
    Vec<B> sums[T];
    const Vec<B> first = bias ? load<B>(bias) : Vec<B>{};
#pragma GCC unroll 16
    for (int t = 0; t < T; t++) sums[t] = first;
    for (int64_t r = 0; r < rows; r++) add<0>(pixels + r * step, weights + r * S * G * B, sums);
#pragma GCC unroll 16
    for (int t = 0; t < T; t++) store<B>(output + t * B, sums[t]);
    if (!residual && c.activation == Activation::kNone) return;
    // Apart, so that the code of all activations is there once.
#pragma GCC unroll 1
    for (int t = 0; t < T; t++) {
      Vec<B> v = load<B>(output + t * B);
      if (residual) v += load<B>(residual + t * B);
      store<B>(output + t * B, activate<B>(c.activation, c.alpha, c.beta, v));
    }
  }
};

template <int B, int G, int S, int D>
struct GroupedRows {
  using Run = void (*)(const float*, int64_t, int64_t, const float*, const GroupedConvolution&,
                       const float*, const float*, float*);

  template <int T = kWide<B>>
  static Run tile_of(int64_t outputs) {
    if (outputs == T) return GroupedTile<B, G, S, D, T>::run;
    if constexpr (T > 1) return tile_of<T - 1>(outputs);
    return nullptr;
  }

  // Pixels from `left` on of some rows, with zeros outside.
  static void copy(const float* rows, int64_t n_rows, int64_t width, int64_t left, int64_t pixels,
                   float* to) {
    for (int64_t r = 0; r < n_rows; r++, rows += width * B) {
      for (int64_t i = left; i < left + pixels; i++, to += B) {
        store<B>(to, i >= 0 && i < width ? load<B>(rows + i * B) : Vec<B>{});
      }
    }
  }

  // One row of outputs of one block.
  static void run(const GroupedConvolution& c, const Sample& sample, Plane out, int64_t block,
                  int64_t y) {
    const int64_t width = sample.plane.width, top = y * c.strides[0] - c.pads[0];
    const int64_t first = top < 0 ? -top : 0;
    const int64_t below = sample.plane.height - top;
    int64_t rows = (below < c.kernel[0] ? below : c.kernel[0]) - first;
    if (rows < 0) rows = 0;
    const float* plane = sample.input + block * sample.plane.height * width * B;
    const float* from = rows ? plane + (top + first) * width * B : plane;
    const float* weights = sample.weights + (block * c.kernel[0] + first) * S * G * B;
    const float* bias = sample.bias ? sample.bias + block * B : nullptr;
    const int64_t parts = ceil_div(out.width, kWide<B>);
    float border[kTapRows * ((kWide<B> - 1) * D + S) * B];
    for (int64_t part = 0, x = 0; part < parts; part++) {
      const int64_t now = (out.width - x) / (parts - part);
      const int64_t left = x * D - c.pads[1], pixels = (now - 1) * D + S;
      const int64_t at = ((block * out.height + y) * out.width + x) * B;
      const bool is_inside = left >= 0 && left + pixels <= width;
      if (!is_inside) copy(from, rows, width, left, pixels, border);
      tile_of(now)(is_inside ? from + left * B : border, (is_inside ? width : pixels) * B, rows,
                   weights, c, bias, sample.residual ? sample.residual + at : nullptr,
                   sample.output + at);
      x += now;
    }
  }
};

// What computes a row; null if there is nothing for this convolution.
using GroupedRow = void (*)(const GroupedConvolution&, const Sample&, Plane, int64_t, int64_t);

template <int B>
static GroupedRow grouped_row_of(const GroupedConvolution& c) {
#define EQSAT_GROUPED(G)                                                    \
  if (c.per_group == G) {                                                   \
    return c.strides[1] == 1 ? GroupedRows<B, G, 3, 1>::run                 \
                             : GroupedRows<B, G, 3, 2>::run;                \
  }
  EQSAT_GROUPED(2)
  EQSAT_GROUPED(4)
  EQSAT_GROUPED(8)
#undef EQSAT_GROUPED
  return nullptr;
}

static GroupedRow grouped_row(const GroupedConvolution& c) {
  if (c.kernel[0] > kTapRows || c.kernel[1] != 3 || c.per_group >= c.block) return nullptr;
  for (int64_t stride : c.strides) {
    if (stride != 1 && stride != 2) return nullptr;
  }
#define EQSAT_BLOCK(B) \
  if (c.block == B) return grouped_row_of<B>(c);
  EQSAT_BLOCKS(EQSAT_BLOCK)
#undef EQSAT_BLOCK
  return nullptr;
}

struct GroupedTask {
  const GroupedConvolution& c;
  const Sample& sample;
  Plane out;
  GroupedRow row;
  int64_t parts, rows;  // of a block; rows of a part
};

static void grouped_task(void* data, size_t index) {
  const GroupedTask& task = *static_cast<GroupedTask*>(data);
  const int64_t block = static_cast<int64_t>(index) / task.parts;
  const int64_t from = static_cast<int64_t>(index) % task.parts * task.rows;
  const int64_t to = from + task.rows < task.out.height ? from + task.rows : task.out.height;
  for (int64_t y = from; y < to; y++) task.row(task.c, task.sample, task.out, block, y);
}

static bool supports_grouped(const GroupedConvolution& c) { return grouped_row(c) != nullptr; }

static void run_grouped(const GroupedConvolution& c, const Sample& sample, Plane out,
                        const Parallel& parallel) {
  const int64_t blocks = c.channels / c.block, parts = blocks < 8 && out.height > 8 ? 4 : 1;
  GroupedTask task{c, sample, out, grouped_row(c), parts, ceil_div(out.height, parts)};
  parallel.run(parallel.self, grouped_task, static_cast<size_t>(blocks * parts), &task);
}

}  // namespace EQSAT_INSTRUCTIONS

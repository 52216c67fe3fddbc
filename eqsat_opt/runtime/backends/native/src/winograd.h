// Convolutions by Winograd's minimal filtering.
//
// F(m, r) computes m outputs of a filter of r taps with n = m + r - 1 products. The filter is the
// polynomial evaluated at n - 1 points and at infinity; points come in pairs +p and -p, of which the
// even and the odd parts are shared. Winograd 1980; Lavin and Gray 2016, section 4.

namespace EQSAT_INSTRUCTIONS {

constexpr int kTiles = EQSAT_TILES;
constexpr int64_t kChunk = 4;      // blocks of channels whose weights a run transforms at a time
constexpr int64_t kManyParts = 8;  // from here on the parts are tasks, below it what is in a part

// Transforms ------------------------------------------------------------------------------------

constexpr double kPoints[] = {1.0, 2.0, 0.5};  // of the pairs, in order

// Coefficients of F(n - r + 1, r), exact in double.
template <int N>
struct Transform {
  static constexpr int kPairs = (N - 2) / 2;
  double data[N][N] = {};  // row of a point: coefficients of the product over all other points
  double scale[N] = {};    // of a point in the weights: 1 / the product of its distances

  constexpr Transform() {
    double points[N] = {};
    for (int k = 0; k < kPairs; k++) {
      points[1 + 2 * k] = kPoints[k];
      points[2 + 2 * k] = -kPoints[k];
    }
    for (int i = 0; i < N; i++) {  // the last is the point at infinity
      double product[N + 1] = {1.0};
      int degree = 0;
      double distance = 1.0;
      for (int j = 0; j < N - 1; j++) {
        if (j == i) continue;
        for (int d = ++degree; d > 0; d--) product[d] = product[d - 1] - points[j] * product[d];
        product[0] *= -points[j];
        if (i < N - 1) distance *= points[i] - points[j];
      }
      for (int d = 0; d <= degree; d++) data[i][d] = product[d];
      scale[i] = i < N - 1 ? 1.0 / distance : 1.0;
    }
  }
};
template <int N>
constexpr Transform<N> kTransform{};

// sum over i = parity, parity + 2, ... of c[i] d[i]
template <int B, int N>
EQSAT_INLINE Vec<B> half(const double (&c)[N], const Vec<B>* d, int parity) {
  Vec<B> sum{};
  bool is_first = true;
#pragma GCC unroll 8
  for (int i = parity; i < N; i += 2) {
    if (c[i] == 0.0) continue;
    const Vec<B> term = c[i] == 1.0 ? d[i] : c[i] == -1.0 ? -d[i] : static_cast<float>(c[i]) * d[i];
    sum = is_first ? term : sum + term;
    is_first = false;
  }
  return sum;
}

// Data to points, in place.
template <int B, int N>
EQSAT_INLINE void to_points(Vec<B>* d) {
  if constexpr (N > 1) {
    constexpr auto& t = kTransform<N>;
    Vec<B> out[N];
    out[0] = half<B>(t.data[0], d, 0);
    out[N - 1] = half<B>(t.data[N - 1], d, 1);
#pragma GCC unroll 4
    for (int k = 0; k < t.kPairs; k++) {
      const Vec<B> even = half<B>(t.data[1 + 2 * k], d, 0), odd = half<B>(t.data[1 + 2 * k], d, 1);
      out[1 + 2 * k] = even + odd;
      out[2 + 2 * k] = even - odd;
    }
#pragma GCC unroll 8
    for (int i = 0; i < N; i++) d[i] = out[i];
  }
}

// Weights to points.
template <int B, int N, int R>
EQSAT_INLINE void weights_to_points(const Vec<B>* g, Vec<B>* u) {
  if constexpr (N == 1) {
    u[0] = g[0];
  } else {
    constexpr auto& t = kTransform<N>;
    u[0] = static_cast<float>(t.scale[0]) * g[0];
    u[N - 1] = g[R - 1];
#pragma GCC unroll 4
    for (int k = 0; k < t.kPairs; k++) {
      double power = t.scale[1 + 2 * k];  // that of -p has the same size: see below
      const bool is_odd = t.scale[2 + 2 * k] == -power;
      Vec<B> even = Vec<B>{}, odd = Vec<B>{};
#pragma GCC unroll 8
      for (int j = 0; j < R; j++) {
        (j % 2 ? odd : even) += static_cast<float>(power) * g[j];
        power *= kPoints[k];
      }
      // Points lie symmetrically, so the distances of -p multiply to plus or minus those of p.
      u[1 + 2 * k] = even + odd;
      u[2 + 2 * k] = is_odd ? odd - even : even - odd;
    }
  }
}

// Products at points to outputs.
template <int B, int N, int M>
EQSAT_INLINE void to_outputs(const Vec<B>* x, Vec<B>* y) {
  if constexpr (N == 1) {
    y[0] = x[0];
  } else {
    constexpr int kPairs = Transform<N>::kPairs;
    Vec<B> sum[kPairs], difference[kPairs];
    double power[kPairs];
#pragma GCC unroll 4
    for (int k = 0; k < kPairs; k++) {
      sum[k] = x[1 + 2 * k] + x[2 + 2 * k];
      difference[k] = x[1 + 2 * k] - x[2 + 2 * k];
      power[k] = 1.0;
    }
#pragma GCC unroll 8
    for (int j = 0; j < M; j++) {
      Vec<B> r = j % 2 ? difference[0] : sum[0];
#pragma GCC unroll 4
      for (int k = 1; k < kPairs; k++) {
        power[k] *= j ? kPoints[k] : 1.0;
        r += static_cast<float>(power[k]) * (j % 2 ? difference[k] : sum[k]);
      }
      if (j == 0) r += x[0];
      if (j == M - 1) r += x[N - 1];
      y[j] = r;
    }
  }
}

// Products --------------------------------------------------------------------------------------

// out[o][t] (+)= sum over c of data[c / B][t][c % B] weights[c][o]: T tiles and O blocks of outputs
// stay in registers.
template <int B, int T, int O>
static void multiply(const float* data, int64_t data_step, const float* weights, int64_t blocks,
                     float* out, int64_t out_step, bool is_more) {
  Vec<B> sums[T][O];
#pragma GCC unroll 16
  for (int t = 0; t < T; t++) {
#pragma GCC unroll 2
    for (int o = 0; o < O; o++) {
      sums[t][o] = is_more ? load<B>(out + o * out_step + t * B) : Vec<B>{};
    }
  }
  for (int64_t cb = 0; cb < blocks; cb++, data += data_step) {
    for (int c = 0; c < B; c++, weights += O * B) {
      Vec<B> w[O];
#pragma GCC unroll 2
      for (int o = 0; o < O; o++) {
        w[o] = load<B>(weights + o * B);
        __builtin_prefetch(weights + (EQSAT_AHEAD * O + o) * B);
      }
#pragma GCC unroll 16
      for (int t = 0; t < T; t++) {
        const Vec<B> x = all<B>(data[t * B + c]);
#pragma GCC unroll 2
        for (int o = 0; o < O; o++) sums[t][o] += x * w[o];
      }
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < T; t++) {
#pragma GCC unroll 2
    for (int o = 0; o < O; o++) store<B>(out + o * out_step + t * B, sums[t][o]);
  }
}

using Multiply = void (*)(const float*, int64_t, const float*, int64_t, float*, int64_t, bool);

template <int B, int O, int T>
struct MultiplyOf {
  static Multiply of(int64_t tiles) {
    if (tiles == T) return multiply<B, T, O>;
    if constexpr (T > 1) return MultiplyOf<B, O, T - 1>::of(tiles);
    return nullptr;
  }
};

template <int B>
EQSAT_INLINE Multiply multiply_of(int64_t tiles, int64_t blocks) {
  return blocks == 2 ? MultiplyOf<B, 2, kTiles>::of(tiles) : MultiplyOf<B, 1, kTiles>::of(tiles);
}

// The convolution -------------------------------------------------------------------------------

template <int B, int H, int W, int R, int S>  // outputs of a tile, taps of the kernel
struct Winograd {
  static constexpr int kHeight = H + R - 1, kWidth = W + S - 1, kPointCount = kHeight * kWidth;
  static constexpr int64_t kPad = 16;  // keeps planes of a power of two off one set of the cache

  const Convolution& c;
  const Sample& sample;
  int64_t in_blocks, out_blocks, out_height, out_width, columns, tiles, per_part;

  Winograd(const Convolution& c, const Sample& sample) : c(c), sample(sample) {
    in_blocks = c.in / B;
    out_blocks = c.out / B;
    out_height = sample.plane.height + c.pads[0] + c.pads[2] - R + 1;
    out_width = sample.plane.width + c.pads[1] + c.pads[3] - S + 1;
    columns = ceil_div(out_width, W);
    tiles = ceil_div(out_height, H) * columns;
    per_part = tiles;
    if (!c.transform_in_run && tiles > 0) {
      // Points of data and products stay in the second level cache, unless weights stream past
      // them from further away: then fewer passes over the weights count for more.
      const int64_t bytes = kPointCount * static_cast<int64_t>(sizeof(float));
      const int64_t room = bytes * c.in * c.out > (1 << 20) ? 3 << 20 : 1 << 20;
      int64_t most = room / (bytes * (c.in + 2 * B)) / kTiles * kTiles;
      if (most < kTiles) most = kTiles;
      per_part = ceil_div(tiles, ceil_div(tiles, most));
    }
  }

  int64_t data_floats(int64_t n) const { return kPointCount * (c.in * n + kPad); }
  int64_t product_floats(int64_t n) const { return kPointCount * (2 * B * n + kPad); }
  // Transformed weights that a run holds at a time.
  int64_t chunk_blocks() const { return in_blocks < kChunk ? in_blocks : kChunk; }
  int64_t chunk_floats() const {
    return c.transform_in_run ? kPointCount * (chunk_blocks() * B * 2 * B + kPad) : 0;
  }
  int64_t groups() const { return ceil_div(out_blocks, 2); }
  int64_t blocks_of(int64_t group) const { return out_blocks - 2 * group < 2 ? 1 : 2; }

  void data_to_points(float* points, int64_t first, int64_t n, int64_t cb) const {
    const int64_t step = c.in * n + kPad, height = sample.plane.height, width = sample.plane.width;
    const float* plane = sample.input + cb * height * width * B;
    float* to = points + cb * n * B;
    for (int64_t t = 0; t < n; t++, to += B) {
      const int64_t top = (first + t) / columns * H - c.pads[0];
      const int64_t left = (first + t) % columns * W - c.pads[1];
      const bool is_inside = top >= 0 && left >= 0 && top + kHeight <= height &&
                             left + kWidth <= width;
      Vec<B> rows[kHeight][kWidth];
#pragma GCC unroll 1
      for (int x = 0; x < kWidth; x++) {
        Vec<B> d[kHeight];
        if (is_inside) {
#pragma GCC unroll 8
          for (int y = 0; y < kHeight; y++) {
            d[y] = load<B>(plane + ((top + y) * width + left + x) * B);
          }
        } else {
          const bool is_column = left + x >= 0 && left + x < width;
#pragma GCC unroll 8
          for (int y = 0; y < kHeight; y++) {
            const bool is_pixel = is_column && top + y >= 0 && top + y < height;
            d[y] = is_pixel ? load<B>(plane + ((top + y) * width + left + x) * B) : Vec<B>{};
          }
        }
        to_points<B, kHeight>(d);
#pragma GCC unroll 8
        for (int y = 0; y < kHeight; y++) rows[y][x] = d[y];
      }
#pragma GCC unroll 1
      for (int y = 0; y < kHeight; y++) {
        to_points<B, kWidth>(rows[y]);
#pragma GCC unroll 8
        for (int x = 0; x < kWidth; x++) store<B>(to + (y * kWidth + x) * step, rows[y][x]);
      }
    }
  }

  // [point][channel][block of outputs][B] of `n` input blocks from `cb`, for one group of outputs.
  void weights_to(const float* weights, float* to, int64_t step, int64_t group, int64_t cb,
                  int64_t n) const {
    const int64_t blocks = blocks_of(group);
    for (int64_t o = 0; o < blocks; o++) {
      for (int64_t channel = 0; channel < n * B; channel++) {
        const float* from = weights + (((2 * group + o) * in_blocks + cb + channel / B) * R * S * B +
                                       channel % B) * B;
        float* at = to + (channel * blocks + o) * B;
        Vec<B> rows[kHeight][S];
#pragma GCC unroll 1
        for (int x = 0; x < S; x++) {
          Vec<B> g[R], u[kHeight];
#pragma GCC unroll 8
          for (int y = 0; y < R; y++) g[y] = load<B>(from + (y * S + x) * B * B);
          weights_to_points<B, kHeight, R>(g, u);
#pragma GCC unroll 8
          for (int y = 0; y < kHeight; y++) rows[y][x] = u[y];
        }
#pragma GCC unroll 1
        for (int y = 0; y < kHeight; y++) {
          Vec<B> u[kWidth];
          weights_to_points<B, kWidth, S>(rows[y], u);
#pragma GCC unroll 8
          for (int x = 0; x < kWidth; x++) store<B>(at + (y * kWidth + x) * step, u[x]);
        }
      }
    }
  }

  void outputs(const float* products, int64_t first, int64_t n, int64_t ob, int64_t o,
               int64_t blocks) const {
    const int64_t step = blocks * B * n + kPad;
    const float* from = products + o * n * B;
    const int64_t offset = ob * out_height * out_width * B;
    const Vec<B> bias = sample.bias ? load<B>(sample.bias + ob * B) : Vec<B>{};
    for (int64_t t = 0; t < n; t++, from += B) {
      const int64_t top = (first + t) / columns * H, left = (first + t) % columns * W;
      Vec<B> rows[kHeight][W];
#pragma GCC unroll 1
      for (int y = 0; y < kHeight; y++) {
        Vec<B> m[kWidth];
#pragma GCC unroll 8
        for (int x = 0; x < kWidth; x++) m[x] = load<B>(from + (y * kWidth + x) * step);
        to_outputs<B, kWidth, W>(m, rows[y]);
      }
      const int64_t height = out_height - top < H ? out_height - top : H;
      const int64_t width = out_width - left < W ? out_width - left : W;
#pragma GCC unroll 1
      for (int64_t x = 0; x < width; x++) {
        Vec<B> m[kHeight], r[H];
#pragma GCC unroll 8
        for (int y = 0; y < kHeight; y++) m[y] = rows[y][x];
        to_outputs<B, kHeight, H>(m, r);
#pragma GCC unroll 8
        for (int y = 0; y < H; y++) {
          if (y >= height) continue;
          const int64_t at = offset + ((top + y) * out_width + left + x) * B;
          Vec<B> v = r[y] + bias;
          if (sample.residual) v += load<B>(sample.residual + at);
          store<B>(sample.output + at, activate<B>(c.activation, c.alpha, c.beta, v));
        }
      }
    }
  }

  // Two blocks of outputs for `n` tiles: products at every point, then outputs.
  void group_outputs(const float* points, float* own, int64_t first, int64_t n,
                     int64_t group) const {
    const int64_t blocks = blocks_of(group), step = c.in * n + kPad, out_step = blocks * B * n + kPad;
    float* products = own;
    float* chunk = own + product_floats(n);
    const int64_t at_once = c.transform_in_run ? chunk_blocks() : in_blocks;
    for (int64_t cb = 0; cb < in_blocks; cb += at_once) {
      const int64_t some = in_blocks - cb < at_once ? in_blocks - cb : at_once;
      int64_t weights_step = c.in * blocks * B;
      const float* weights = sample.weights + kPointCount * c.in * 2 * B * group;
      if (c.transform_in_run) {
        weights_step = some * B * blocks * B + kPad;
        weights_to(sample.weights, chunk, weights_step, group, cb, some);
        weights = chunk;
      }
      const int64_t parts = ceil_div(n, kTiles);
      for (int point = 0; point < kPointCount; point++) {
        for (int64_t part = 0, t = 0; part < parts; part++) {
          const int64_t now = (n - t) / (parts - part);
          multiply_of<B>(now, blocks)(points + point * step + (cb * n + t) * B, n * B,
                                      weights + point * weights_step, some,
                                      products + point * out_step + t * B, n * B, cb > 0);
          t += now;
        }
      }
    }
    for (int64_t o = 0; o < blocks; o++) outputs(products, first, n, 2 * group + o, o, blocks);
  }

  struct Task {
    const Winograd* self;
    float* points;
    int64_t first, n;
    bool is_short;  // of memory
  };

  static void transform_task(void* data, size_t cb) {
    const Task& task = *static_cast<Task*>(data);
    task.self->data_to_points(task.points, task.first, task.n, static_cast<int64_t>(cb));
  }
  static void group_task(void* data, size_t group) {
    Task& task = *static_cast<Task*>(data);
    const Winograd& w = *task.self;
    float* own = scratch(Scratch::kOwn, w.product_floats(task.n) + w.chunk_floats());
    if (!own) {
      __atomic_store_n(&task.is_short, true, __ATOMIC_RELAXED);
      return;
    }
    w.group_outputs(task.points, own, task.first, task.n, static_cast<int64_t>(group));
  }
  static void part_task(void* data, size_t part) {
    Task& task = *static_cast<Task*>(data);
    const Winograd& w = *task.self;
    const int64_t first = static_cast<int64_t>(part) * w.per_part;
    const int64_t n = w.tiles - first < w.per_part ? w.tiles - first : w.per_part;
    float* points = scratch(Scratch::kShared, w.data_floats(n));
    float* own = scratch(Scratch::kOwn, w.product_floats(n) + w.chunk_floats());
    if (!points || !own) {
      __atomic_store_n(&task.is_short, true, __ATOMIC_RELAXED);
      return;
    }
    for (int64_t cb = 0; cb < w.in_blocks; cb++) w.data_to_points(points, first, n, cb);
    for (int64_t g = 0; g < w.groups(); g++) w.group_outputs(points, own, first, n, g);
  }

  bool run(const Parallel& parallel) const {
    if (tiles <= 0) return true;
    const int64_t parts = ceil_div(tiles, per_part);
    Task task{this, nullptr, 0, 0, false};
    if (parts >= kManyParts) {
      parallel.run(parallel.self, part_task, static_cast<size_t>(parts), &task);
      return !task.is_short;
    }
    task.points = scratch(Scratch::kShared, data_floats(per_part));
    if (!task.points) return false;
    for (; task.first < tiles; task.first += per_part) {
      task.n = tiles - task.first < per_part ? tiles - task.first : per_part;
      parallel.run(parallel.self, transform_task, static_cast<size_t>(in_blocks), &task);
      parallel.run(parallel.self, group_task, static_cast<size_t>(groups()), &task);
    }
    return !task.is_short;
  }

  void transform(const float* weights, float* to) const {
    for (int64_t group = 0; group < groups(); group++) {
      float* at = to + kPointCount * c.in * 2 * B * group;
      weights_to(weights, at, c.in * blocks_of(group) * B, group, 0, in_blocks);
    }
  }
};

// Calls use(Winograd<...>) for the algorithm that `c` names; false if there is none.
template <int B, typename Use>
static bool with_algorithm(const Convolution& c, const Sample& sample, Use use) {
#define EQSAT_ALGORITHM(H, W, R, S)                                                            \
  if (c.tile[0] == H && c.tile[1] == W && c.kernel[0] == R && c.kernel[1] == S) {              \
    return use(Winograd<B, H, W, R, S>(c, sample));                                            \
  }
  EQSAT_ALGORITHM(2, 2, 3, 3)
  EQSAT_ALGORITHM(4, 4, 3, 3)
  EQSAT_ALGORITHM(6, 6, 3, 3)
  EQSAT_ALGORITHM(2, 2, 5, 5)
  EQSAT_ALGORITHM(4, 4, 5, 5)
  EQSAT_ALGORITHM(1, 4, 1, 3)
  EQSAT_ALGORITHM(4, 1, 3, 1)
  EQSAT_ALGORITHM(1, 2, 1, 5)
  EQSAT_ALGORITHM(2, 1, 5, 1)
  EQSAT_ALGORITHM(1, 4, 1, 5)
  EQSAT_ALGORITHM(4, 1, 5, 1)
  EQSAT_ALGORITHM(1, 2, 1, 7)
  EQSAT_ALGORITHM(2, 1, 7, 1)
#undef EQSAT_ALGORITHM
  return false;
}

template <typename Use>
static bool with_block(const Convolution& c, const Sample& sample, Use use) {
#define EQSAT_BLOCK(B) \
  if (c.block == B) return with_algorithm<B>(c, sample, use);
  EQSAT_BLOCKS(EQSAT_BLOCK)
#undef EQSAT_BLOCK
  return false;
}

static bool supports(const Convolution& c) {
  return with_block(c, Sample{}, [](const auto&) { return true; });
}
static void transform(const Convolution& c, const float* weights, float* to) {
  with_block(c, Sample{}, [&](const auto& w) {
    w.transform(weights, to);
    return true;
  });
}
static bool run(const Convolution& c, const Sample& sample, const Parallel& parallel) {
  return with_block(c, sample, [&](const auto& w) { return w.run(parallel); });
}

}  // namespace EQSAT_INSTRUCTIONS

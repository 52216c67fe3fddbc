// Products by Strassen's algorithm, applied once: rows, depth and columns are halved, and of the eight
// products of halves seven are left, between sums of halves. V. Strassen, "Gaussian elimination is not
// optimal", 1969. Sums of weights are packed, [panel][product][depth][column], and so are those of the
// data, [product][part][depth / lanes][row][depth % lanes]; a product goes to where it is added as soon
// as it leaves the registers, as in J. Huang et al., "Strassen's algorithm reloaded", 2016. What is
// left over in a half is filled with zeros.

namespace EQSAT_INSTRUCTIONS {

constexpr int kProducts = 7;
constexpr int64_t kMostSums = 5 << 16;  // floats of the data that are packed at a time
constexpr int64_t kLeastHalvedTasks = 8;

// Which quarters of the weights make a factor, and to which of the output its product is added; the
// quarters are those of the first half of the rows, and then of the second.
struct Seventh {
  int8_t weights[4], output[4];
};
constexpr Seventh kSevenths[kProducts] = {
    {{1, 0, 0, 1}, {1, 0, 0, 1}},   // x11 + x22
    {{1, 0, 0, 0}, {0, 0, 1, -1}},  // x21 + x22
    {{0, 1, 0, -1}, {0, 1, 0, 1}},  // x11
    {{-1, 0, 1, 0}, {1, 0, 1, 0}},  // x22
    {{0, 0, 0, 1}, {-1, 1, 0, 0}},  // x11 + x12
    {{1, 1, 0, 0}, {0, 0, 0, 1}},   // x21 - x11
    {{0, 0, 1, 1}, {1, 0, 0, 0}},   // x12 - x22
};

// Where a product is added; what was there counts unless it is the first.
struct Target {
  float* output;
  float sign;
  bool is_first;
};

template <int T, int O>
static void spread_tile(const Tile& tile, const Target* targets, int n) {
  constexpr int B = kLanes;
  Sums<T, O> sums = {};
  add_products<T, O>(tile, sums);
  for (int i = 0; i < n; i++) {
    float* to = targets[i].output;
    const Vec<B> sign = all<B>(targets[i].sign);
#pragma GCC unroll 16
    for (int t = 0; t < T; t++) {
#pragma GCC unroll 4
      for (int o = 0; o < O; o++) {
        float* at = to + (t * O + o) * B;
        store<B>(at, targets[i].is_first ? sign * sums[t][o] : load<B>(at) + sign * sums[t][o]);
      }
    }
  }
}

using SpreadTile = void (*)(const Tile&, const Target*, int);

template <int T = kRows, int O = kVectors>
static SpreadTile spread_tile_of(int64_t rows, int64_t vectors) {
  if constexpr (O > 1) {
    if (vectors < O) return spread_tile_of<T, O - 1>(rows, vectors);
  }
  if constexpr (T > 1) {
    if (rows < T) return spread_tile_of<T - 1, O>(rows, O);
  }
  return spread_tile<T, O>;
}

EQSAT_INLINE int64_t half_of(int64_t n) { return padded(ceil_div(n, 2)); }

struct HalvedRun {
  const Product& product;
  const Factors& factors;
  float* data;  // packed
  int64_t half_depth, half_columns;
  int64_t panels, groups;                // of a half of the columns; groups of parts are its tasks
  int64_t first_row, rows, half_rows;    // of those that are packed
  int64_t parts;                         // of a half of the rows
  int64_t first_depth, depth;            // of a half, padded
  mutable bool failed;

  int64_t row_of(int64_t part) const { return half_rows * part / parts; }

  EQSAT_INLINE Vec<kLanes> given(int64_t row, int64_t k) const {
    const int64_t left = product.depth - k;
    if (row >= rows || left <= 0) return Vec<kLanes>{};
    const float* at = factors.input + (first_row + row) * product.depth + k;
    return left >= kLanes ? load<kLanes>(at) : load_some<kLanes>(at, left, 0.0f);
  }

  // Meanwhile the first weights come from memory.
  void pack(int64_t part) const {
    const int64_t from = row_of(part), n = row_of(part + 1) - from;
    const int64_t width = half_columns < kPanel ? half_columns : kPanel, all = depth * width;
    const float* first = factors.packed + first_depth * width;
    for (int64_t i = all * part / parts; i < all * (part + 1) / parts; i += 16) {
      __builtin_prefetch(first + i, 0, 2);
    }
    float* to = data + from * depth;
    const int64_t step = half_rows * depth;
    for (int64_t k = first_depth; k < first_depth + depth; k += kLanes) {
      for (int64_t r = from; r < from + n; r++, to += kLanes) {
        const Vec<kLanes> x11 = given(r, k), x12 = given(r, k + half_depth);
        const Vec<kLanes> x21 = given(r + half_rows, k), x22 = given(r + half_rows, k + half_depth);
        store<kLanes>(to, x11 + x22);
        store<kLanes>(to + step, x21 + x22);
        store<kLanes>(to + 2 * step, x11);
        store<kLanes>(to + 3 * step, x22);
        store<kLanes>(to + 4 * step, x11 + x12);
        store<kLanes>(to + 5 * step, x21 - x11);
        store<kLanes>(to + 6 * step, x12 - x22);
      }
    }
  }

  void multiply(int64_t task) const {
    const int64_t panel = task / groups, group = task % groups, column = panel * kPanel;
    const int64_t left = half_columns - column, width = left < kPanel ? left : kPanel;
    const int64_t begin = parts * group / groups, end = parts * (group + 1) / groups;
    const int64_t n_rows = row_of(end) - row_of(begin), quarter = n_rows * width;
    float* sums = scratch(Scratch::kOwn, static_cast<size_t>(4 * quarter));
    if (!sums) {
      __atomic_store_n(&failed, true, __ATOMIC_RELAXED);
      return;
    }
    const int64_t blocks = depth / kLanes;
    // While weights are multiplied, the next come from memory.
    const int64_t ahead_step = ceil_div(kLanes * width, (end - begin) * 16) * 16;
    const float* weights = factors.packed + kProducts * column * half_depth + first_depth * width;
    bool is_written[4] = {};
    for (int i = 0; i < kProducts; i++, weights += half_depth * width) {
      const bool is_end = i + 1 == kProducts && panel + 1 == panels;
      const float* ahead = weights + half_depth * width;
      for (int64_t part = begin; part < end; part++, ahead += ahead_step * blocks) {
        const int64_t from = row_of(part), n = row_of(part + 1) - from;
        Target targets[4];
        int n_targets = 0;
        for (int q = 0; q < 4; q++) {
          if (const int sign = kSevenths[i].output[q]) {
            targets[n_targets++] = {sums + q * quarter + (from - row_of(begin)) * width,
                                    static_cast<float>(sign), !is_written[q]};
          }
        }
        const Tile tile{data + (i * half_rows + from) * depth, weights, nullptr, ahead, nullptr, blocks,
                        is_end ? 0 : ahead_step, 0};
        spread_tile_of(n, width / kLanes)(tile, targets, n_targets);
      }
      for (int q = 0; q < 4; q++) is_written[q] |= kSevenths[i].output[q] != 0;
    }
    for (int q = 0; q < 4; q++) {
      finish(sums + q * quarter, q / 2 * half_rows + row_of(begin), n_rows,
             q % 2 * half_columns + column, width);
    }
  }

  // A quarter of the output, of which what exceeds the whole is left out.
  void finish(const float* sums, int64_t row, int64_t n, int64_t column, int64_t width) const {
    const bool is_first = first_depth == 0, is_last = first_depth + depth == half_depth;
    const int64_t columns = product.columns;
    for (int64_t i = 0; i < width && column + i < columns; i += kLanes) {
      const int64_t at = column + i, left = columns - at;
      const Vec<kLanes> bias = !factors.bias    ? Vec<kLanes>{}
                               : left >= kLanes ? load<kLanes>(factors.bias + at)
                                                : load_some<kLanes>(factors.bias + at, left, 0.0f);
      for (int64_t r = 0; r < n && row + r < rows; r++) {
        float* to = factors.output + (first_row + row + r) * columns + at;
        Vec<kLanes> v = bias;
        if (!is_first || factors.is_sum) {
          v = left >= kLanes ? load<kLanes>(to) : load_some<kLanes>(to, left, 0.0f);
        }
        v += load<kLanes>(sums + r * width + i);
        if (is_last) v = activate<kLanes>(product.activation, product.alpha, product.beta, v);
        left >= kLanes ? store<kLanes>(to, v) : store_some<kLanes>(to, v, left);
      }
    }
  }

  static void pack_task(void* self, size_t part) {
    static_cast<const HalvedRun*>(self)->pack(static_cast<int64_t>(part));
  }
  static void multiply_task(void* self, size_t task) {
    static_cast<const HalvedRun*>(self)->multiply(static_cast<int64_t>(task));
  }
};

static bool multiply_halved(const Product& p, const Factors& f, const Parallel& parallel) {
  if (f.rows < 1) return true;
  const int64_t at_once = ceil_div(f.rows, ceil_div(f.rows, kMostRows)), most_rows = ceil_div(at_once, 2);
  const int64_t half_depth = half_of(p.depth), half_columns = half_of(p.columns);
  const int64_t depth = padded(ceil_div(half_depth, ceil_div(half_depth * kProducts * most_rows, kMostSums)));
  HalvedRun run{p, f, scratch(Scratch::kShared, static_cast<size_t>(kProducts * most_rows * depth)),
                half_depth, half_columns, ceil_div(half_columns, kPanel), 1, 0, 0, 0, 0, 0, 0, false};
  if (!run.data) return false;
  for (; run.first_row < f.rows; run.first_row += run.rows) {
    run.rows = f.rows - run.first_row < at_once ? f.rows - run.first_row : at_once;
    run.half_rows = ceil_div(run.rows, 2);
    run.parts = ceil_div(run.half_rows, kRows);
    const int64_t groups = ceil_div(kLeastHalvedTasks, run.panels);
    run.groups = groups < run.parts ? groups : run.parts;
    for (run.first_depth = 0; run.first_depth < half_depth; run.first_depth += run.depth) {
      run.depth = half_depth - run.first_depth < depth ? half_depth - run.first_depth : depth;
      parallel.run(parallel.self, HalvedRun::pack_task, static_cast<size_t>(run.parts), &run);
      parallel.run(parallel.self, HalvedRun::multiply_task,
                   static_cast<size_t>(run.panels * run.groups), &run);
    }
  }
  return !run.failed;
}

static void pack_halved(const Product& p, const Weights& w, float* packed) {
  const int64_t half_depth = half_of(p.depth), half_columns = half_of(p.columns);
  for (int64_t column = 0; column < half_columns; column += kPanel) {
    const int64_t left = half_columns - column, width = left < kPanel ? left : kPanel;
    for (const Seventh& seventh : kSevenths) {
      for (int64_t k = 0; k < half_depth; k++) {
        for (int64_t c = column; c < column + width; c++) {
          float sum = 0.0f;
          for (int q = 0; q < 4; q++) {
            const int64_t row = q / 2 * half_depth + k, at = q % 2 * half_columns + c;
            if (!seventh.weights[q] || row >= p.depth || at >= p.columns) continue;
            sum += static_cast<float>(seventh.weights[q]) * w.factor *
                   w.data[w.is_transposed ? at * p.depth + row : row * p.columns + at];
          }
          *packed++ = sum;
        }
      }
    }
  }
}

// Either way ------------------------------------------------------------------------------------

static int64_t packed_floats(const Product& p) {
  return p.is_halved ? kProducts * half_of(p.depth) * half_of(p.columns)
                     : padded(p.depth) * padded(p.columns);
}

static void pack_weights(const Product& p, const Weights& w, float* packed) {
  p.is_halved ? pack_halved(p, w, packed) : pack_plainly(p, w, packed);
}

static bool multiply_rows(const Product& p, const Factors& f, const Parallel& parallel) {
  return p.is_halved ? multiply_halved(p, f, parallel) : multiply_plainly(p, f, parallel);
}

}  // namespace EQSAT_INSTRUCTIONS

// Products with packed weights. They lie in panels of a few vectors of columns, [panel][depth][column],
// so that a sum over the depth reads them in one stream; rows of the data lie in parts of as many as
// have their sums in registers, [part][depth / lanes][row][depth % lanes]. What is left over in a
// panel and in the depth is filled with zeros.

namespace EQSAT_INSTRUCTIONS {

constexpr int kRows = EQSAT_ROWS;
constexpr int kVectors = EQSAT_VECTORS;
constexpr int64_t kPanel = kVectors * kLanes;  // columns
constexpr int64_t kMostRows = 32 * kRows;  // that are packed at a time
constexpr int64_t kMostPacked = 1 << 18;   // floats that are packed at a time
constexpr int64_t kDepth = 384;            // to sum before what comes next, where there are more
constexpr int64_t kSerial = 1 << 17;       // products for which no other thread is woken
constexpr int64_t kLeastTasks = 16;

EQSAT_INLINE int64_t padded(int64_t n) { return ceil_div(n, kLanes) * kLanes; }

struct Tile {
  const float *data, *weights, *bias, *ahead;  // `ahead`: what will be read next from memory
  float* output;
  int64_t blocks, ahead_step, step;  // of the depth; floats to fetch per block; between rows
};

template <int T, int O>
using Sums = Vec<kLanes>[T][O];

template <int T, int O>
EQSAT_INLINE void add_products(const Tile& tile, Sums<T, O>& sums) {
  constexpr int B = kLanes;
  const float *data = tile.data, *weights = tile.weights, *ahead = tile.ahead;
  for (int64_t block = 0; block < tile.blocks; block++, data += T * B) {
    for (const float* end = ahead + tile.ahead_step; ahead < end; ahead += 16) {
      __builtin_prefetch(ahead, 0, 2);
    }
    for (int c = 0; c < B; c++, weights += O * B) {
      Vec<B> w[O];
#pragma GCC unroll 4
      for (int o = 0; o < O; o++) {
        w[o] = load<B>(weights + o * B);
        __builtin_prefetch(weights + (EQSAT_AHEAD * O + o) * B);
      }
#pragma GCC unroll 16
      for (int t = 0; t < T; t++) {
        const Vec<B> x = all<B>(data[t * B + c]);
#pragma GCC unroll 4
        for (int o = 0; o < O; o++) sums[t][o] += x * w[o];
      }
    }
  }
}

// Adds to what the output holds, unless `is_first`.
template <int T, int O>
static void multiply_tile(const Tile& tile, bool is_first) {
  constexpr int B = kLanes;
  Sums<T, O> sums;
#pragma GCC unroll 16
  for (int t = 0; t < T; t++) {
#pragma GCC unroll 4
    for (int o = 0; o < O; o++) {
      sums[t][o] = !is_first ? load<B>(tile.output + t * tile.step + o * B)
                   : tile.bias ? load<B>(tile.bias + o * B) : Vec<B>{};
    }
  }
  add_products<T, O>(tile, sums);
#pragma GCC unroll 16
  for (int t = 0; t < T; t++) {
#pragma GCC unroll 4
    for (int o = 0; o < O; o++) store<B>(tile.output + t * tile.step + o * B, sums[t][o]);
  }
}

using MultiplyTile = void (*)(const Tile&, bool);

template <int T = kRows, int O = kVectors>
static MultiplyTile multiply_tile_of(int64_t rows, int64_t vectors) {
  if constexpr (O > 1) {
    if (vectors < O) return multiply_tile_of<T, O - 1>(rows, vectors);
  }
  if constexpr (T > 1) {
    if (rows < T) return multiply_tile_of<T - 1, O>(rows, O);
  }
  return multiply_tile<T, O>;
}

struct ProductRun {
  const Product& product;
  const Factors& factors;
  float* data;                     // packed
  int64_t panels, groups, parts;   // groups of parts are the tasks of a panel
  int64_t first_row, rows;         // of those that are packed
  int64_t first_depth, depth;      // padded

  int64_t row_of(int64_t part) const { return rows * part / parts; }

  // Meanwhile the first panel comes from memory.
  void pack(int64_t part) const {
    const int64_t from = row_of(part), n = row_of(part + 1) - from, size = product.depth;
    const int64_t left = padded(product.columns), width = left < kPanel ? left : kPanel;
    const float* first = factors.packed + first_depth * width;
    for (int64_t i = depth * width * part / parts; i < depth * width * (part + 1) / parts; i += 16) {
      __builtin_prefetch(first + i, 0, 2);
    }
    float* to = data + from * depth;
    for (int64_t k = first_depth; k < first_depth + depth; k += kLanes) {
      const float* at = factors.input + (first_row + from) * size + k;
      for (int64_t r = 0; r < n; r++, at += size, to += kLanes) {
        store<kLanes>(to, k + kLanes <= size ? load<kLanes>(at)
                                             : load_some<kLanes>(at, size - k, 0.0f));
      }
    }
  }

  void multiply(int64_t task) const {
    const int64_t panel = task / groups, group = task % groups;
    const int64_t column = panel * kPanel, left = product.columns - column;
    const int64_t vectors = left < kPanel ? ceil_div(left, kLanes) : kVectors, width = vectors * kLanes;
    const int64_t all_depth = padded(product.depth);
    const float* weights = factors.packed + column * all_depth + first_depth * width;
    const bool is_first = first_depth == 0 && !factors.is_sum, is_last = first_depth + depth == all_depth;
    const int64_t begin = parts * group / groups, end = parts * (group + 1) / groups;
    // While a panel is multiplied more than once, the next comes from memory.
    const int64_t blocks = depth / kLanes;
    const bool is_ahead = panel + 1 < panels && end - begin > 1;
    const int64_t ahead_step = is_ahead ? ceil_div(kLanes * kPanel, (end - begin) * 16) * 16 : 0;
    const float* ahead = factors.packed + (column + kPanel) * all_depth + first_depth * kPanel;
    alignas(64) float bias[kPanel] = {};
    if (factors.bias) {
      __builtin_memcpy(bias, factors.bias + column,
                       static_cast<size_t>(left < width ? left : width) * sizeof(float));
    }
    for (int64_t part = begin; part < end; part++, ahead += ahead_step * blocks) {
      const int64_t from = row_of(part), n = row_of(part + 1) - from;
      float* output = factors.output + (first_row + from) * product.columns + column;
      Tile tile{data + from * depth, weights, bias, ahead, output, blocks, ahead_step,
                product.columns};
      alignas(64) float edge[kRows * kPanel];
      if (left < width) {  // the columns of the padding have no place in the output
        tile.output = edge;
        tile.step = kPanel;
        if (!is_first) copy_columns(output, product.columns, edge, kPanel, n, left);
      }
      multiply_tile_of(n, vectors)(tile, is_first);
      if (is_last && product.activation != Activation::kNone) {
        for (int64_t r = 0; r < n; r++) {
          for (int64_t i = 0; i < width; i += kLanes) {
            float* at = tile.output + r * tile.step + i;
            store<kLanes>(at, activate<kLanes>(product.activation, product.alpha, product.beta,
                                               load<kLanes>(at)));
          }
        }
      }
      if (left < width) copy_columns(edge, kPanel, output, product.columns, n, left);
    }
  }

  static void copy_columns(const float* from, int64_t from_step, float* to, int64_t to_step,
                           int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; r++) {
      __builtin_memcpy(to + r * to_step, from + r * from_step,
                       static_cast<size_t>(columns) * sizeof(float));
    }
  }

  static void pack_task(void* self, size_t part) {
    static_cast<const ProductRun*>(self)->pack(static_cast<int64_t>(part));
  }
  static void multiply_task(void* self, size_t task) {
    static_cast<const ProductRun*>(self)->multiply(static_cast<int64_t>(task));
  }
};

static void in_turn(const void*, void (*task)(void*, size_t), size_t n, void* data) {
  for (size_t i = 0; i < n; i++) task(data, i);
}

static bool multiply_plainly(const Product& p, const Factors& f, const Parallel& given) {
  if (f.rows < 1) return true;
  const int64_t all_depth = padded(p.depth);
  const Parallel parallel = f.rows * all_depth * p.columns < kSerial ? Parallel{in_turn, nullptr} : given;
  const int64_t at_once = ceil_div(f.rows, ceil_div(f.rows, kMostRows));
  const int64_t most = at_once * all_depth <= kMostPacked ? all_depth : kDepth;
  const int64_t depth = padded(ceil_div(all_depth, ceil_div(all_depth, most)));
  ProductRun run{p, f, scratch(Scratch::kShared, static_cast<size_t>(at_once * depth)),
                 ceil_div(p.columns, kPanel), 1, 1, 0, 0, 0, 0};
  if (!run.data) return false;
  for (; run.first_row < f.rows; run.first_row += run.rows) {
    run.rows = f.rows - run.first_row < at_once ? f.rows - run.first_row : at_once;
    run.parts = ceil_div(run.rows, kRows);
    run.groups = ceil_div(kLeastTasks, run.panels) < run.parts ? ceil_div(kLeastTasks, run.panels) : run.parts;
    for (run.first_depth = 0; run.first_depth < all_depth; run.first_depth += run.depth) {
      run.depth = all_depth - run.first_depth < depth ? all_depth - run.first_depth : depth;
      parallel.run(parallel.self, ProductRun::pack_task, static_cast<size_t>(run.parts), &run);
      parallel.run(parallel.self, ProductRun::multiply_task,
                   static_cast<size_t>(run.panels * run.groups), &run);
    }
  }
  return true;
}

static void pack_plainly(const Product& p, const Weights& w, float* packed) {
  const int64_t depth = padded(p.depth);
  for (int64_t column = 0; column < p.columns; column += kPanel) {
    const int64_t left = padded(p.columns - column), width = left < kPanel ? left : kPanel;
    for (int64_t k = 0; k < depth; k++) {
      for (int64_t i = 0; i < width; i++) {
        const int64_t c = column + i;
        const bool is_inside = k < p.depth && c < p.columns;
        const int64_t at = w.is_transposed ? c * p.depth + k : k * p.columns + c;
        *packed++ = is_inside ? w.data[at] * w.factor : 0.0f;
      }
    }
  }
}

}  // namespace EQSAT_INSTRUCTIONS

// Recurrent layers. Of each gate as many units as a vector has lanes form a block, and all gates of a
// block lie together, [block][depth][gate][lane], so that one stream of weights gives everything that
// the new states of a block need. Products of many steps with the data come first, since they read
// their weights once; then step follows step. Units beyond the last have zeros for weights.

namespace EQSAT_INSTRUCTIONS {

constexpr int kMostTogether = EQSAT_ROWS * EQSAT_VECTORS / 4;  // rows whose gates stay in registers
constexpr int64_t kRowsAtOnce = 96;       // of the data that are multiplied before the steps
constexpr int64_t kSamplesOfTask = 12;
static_assert(kSamplesOfTask <= kRowsAtOnce, "a step fits");

template <int G, int T, int V>
using GateSums = Vec<kLanes>[T][V][G];

// Of T rows with V blocks, whose weights are `block_step` floats apart.
template <int G, int T, int V>
EQSAT_INLINE void add_gates(const float* const* rows, int64_t depth, const float* weights,
                            int64_t block_step, GateSums<G, T, V>& sums) {
  const float* row[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; t++) row[t] = rows[t];
  for (int64_t k = 0; k < depth; k++, weights += G * kLanes) {
    Vec<kLanes> x[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) x[t] = all<kLanes>(row[t][k]);
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
#pragma GCC unroll 4
      for (int g = 0; g < G; g++) {
        const Vec<kLanes> w = load<kLanes>(weights + v * block_step + g * kLanes);
#pragma GCC unroll 8
        for (int t = 0; t < T; t++) sums[t][v][g] += x[t] * w;
      }
    }
  }
}

// The weights and biases of one direction within its packed ones.
struct PackedRecurrence {
  int64_t gates, blocks, width;  // floats of all gates of all blocks
  const float *input, *recurrent, *bias, *own_bias;

  PackedRecurrence(const Recurrence& r, const float* packed)
      : gates(r.gates()), blocks(ceil_div(r.hidden, kLanes)), width(blocks * gates * kLanes),
        input(packed), recurrent(input + r.features * width),
        bias(recurrent + r.hidden * width), own_bias(bias + width) {}

  int64_t floats() const { return own_bias - input + blocks * kLanes; }
};

static int64_t recurrence_floats(const Recurrence& r) {
  return (r.features + r.hidden + 2) * ceil_div(r.hidden, kLanes) * kLanes * r.gates();
}

static void pack_recurrence(const Recurrence& r, const RecurrentWeights& w, float* packed) {
  const PackedRecurrence p(r, packed);
  const int64_t gates = p.gates;
  const auto each = [&](float* to, int64_t depth, auto value) {
    for (int64_t block = 0; block < p.blocks; block++) {
      for (int64_t k = 0; k < depth; k++) {
        for (int64_t g = 0; g < gates; g++) {
          for (int64_t i = 0; i < kLanes; i++) {
            const int64_t unit = block * kLanes + i;
            *to++ = unit < r.hidden ? value(g * r.hidden + unit, k) : 0.0f;
          }
        }
      }
    }
    return to;
  };
  float* to = each(packed, r.features, [&](int64_t row, int64_t k) { return w.input[row * r.features + k]; });
  to = each(to, r.hidden, [&](int64_t row, int64_t k) { return w.recurrent[row * r.hidden + k]; });
  // The last gate of a GRU takes the bias of its product with the state before the reset.
  const int64_t own_from = r.is_lstm ? gates * r.hidden : (gates - 1) * r.hidden;
  to = each(to, 1, [&](int64_t row, int64_t) {
    if (!w.bias) return 0.0f;
    return w.bias[row] + (row < own_from ? w.bias[gates * r.hidden + row] : 0.0f);
  });
  for (int64_t unit = 0; unit < p.blocks * kLanes; unit++) {
    *to++ = w.bias && !r.is_lstm && unit < r.hidden ? w.bias[gates * r.hidden + own_from + unit] : 0.0f;
  }
}

// Rows of the data whose products with the weights of one block after another are made.
struct GateProducts {
  const PackedRecurrence& weights;
  const float* const* rows;
  int64_t count, depth;
  float* to;  // [row][block][gate][lane]
};

template <int G, int T, int V>
static void multiply_gates(const GateProducts& p, int64_t first, int64_t block) {
  GateSums<G, T, V> sums;
  const int64_t block_step = p.depth * G * kLanes;
  const float* bias = p.weights.bias + block * G * kLanes;
#pragma GCC unroll 8
  for (int t = 0; t < T; t++) {
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
#pragma GCC unroll 4
      for (int g = 0; g < G; g++) sums[t][v][g] = load<kLanes>(bias + (v * G + g) * kLanes);
    }
  }
  add_gates<G, T, V>(p.rows + first, p.depth, p.weights.input + block * block_step, block_step, sums);
#pragma GCC unroll 8
  for (int t = 0; t < T; t++) {
    float* to = p.to + (first + t) * p.weights.width + block * G * kLanes;
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
#pragma GCC unroll 4
      for (int g = 0; g < G; g++) store<kLanes>(to + (v * G + g) * kLanes, sums[t][v][g]);
    }
  }
}

// One step of some samples.
struct Step {
  const PackedRecurrence& weights;
  int64_t hidden;
  const float* const* states;  // before the step, by sample
  float* const* next;          // and after it
  float* const* cells;
  const float* products;       // with the data, [sample][block][gate][lane]
};

// With T samples and V blocks, whose new states are written.
template <int G, int T, int V>
static void step_blocks(const Step& s, int64_t first, int64_t block) {
  constexpr bool kIsLstm = G == 4;
  GateSums<G, T, V> sums;
  const int64_t block_step = s.hidden * G * kLanes;
  const auto product = [&](int t, int v, int g) {
    return load<kLanes>(s.products + (first + t) * s.weights.width + ((block + v) * G + g) * kLanes);
  };
#pragma GCC unroll 8
  for (int t = 0; t < T; t++) {
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) {
#pragma GCC unroll 4
      for (int g = 0; g < G; g++) {
        sums[t][v][g] = kIsLstm || g + 1 < G ? product(t, v, g)
                                             : load<kLanes>(s.weights.own_bias + (block + v) * kLanes);
      }
    }
  }
  add_gates<G, T, V>(s.states + first, s.hidden, s.weights.recurrent + block * block_step, block_step, sums);
  for (int t = 0; t < T; t++) {
    for (int v = 0; v < V; v++) {
      const int64_t at = (block + v) * kLanes;
      const auto& gate = sums[t][v];
      Vec<kLanes> state;
      if constexpr (kIsLstm) {  // input, output, forget, cell
        float* const cell = s.cells[first + t] + at;
        const Vec<kLanes> c = sigmoid<kLanes>(gate[2]) * load<kLanes>(cell) +
                              sigmoid<kLanes>(gate[0]) * hyperbolic_tangent<kLanes>(gate[3]);
        store<kLanes>(cell, c);
        state = sigmoid<kLanes>(gate[1]) * hyperbolic_tangent<kLanes>(c);
      } else {  // update, reset, hidden
        const Vec<kLanes> z = sigmoid<kLanes>(gate[0]);
        const Vec<kLanes> n =
            hyperbolic_tangent<kLanes>(product(t, v, 2) + sigmoid<kLanes>(gate[1]) * gate[2]);
        state = (1.0f - z) * n + z * load<kLanes>(s.states[first + t] + at);
      }
      store<kLanes>(s.next[first + t] + at, state);
    }
  }
}

struct StepBlocks {
  template <int G, int T, int V>
  static void run(const Step& s, int64_t first, int64_t block) {
    step_blocks<G, T, V>(s, first, block);
  }
};
struct MultiplyGates {
  template <int G, int T, int V>
  static void run(const GateProducts& p, int64_t first, int64_t block) {
    multiply_gates<G, T, V>(p, first, block);
  }
};

template <typename Use, int G, int T, typename Job>
EQSAT_INLINE void use_rows(const Job& job, int64_t rows, int64_t first, int64_t block) {
  if constexpr (T > 1) {
    if (rows < T) {
      use_rows<Use, G, T - 1>(job, rows, first, block);
      return;
    }
  }
  Use::template run<G, T, 1>(job, first, block);
}

// All rows with the blocks from one to another. A single row takes two blocks at once, since sums
// have to be as many as the processor adds at a time.
template <typename Use, int G, typename Job>
static void use_blocks(const Job& job, int64_t rows, int64_t from, int64_t to) {
  const int64_t parts = ceil_div(rows, kMostTogether);
  int64_t block = from;
  if (rows == 1) {
    for (; block + 2 <= to; block += 2) Use::template run<G, 1, 2>(job, 0, block);
  }
  for (; block < to; block++) {
    for (int64_t part = 0; part < parts; part++) {
      const int64_t first = rows * part / parts;
      use_rows<Use, G, kMostTogether>(job, rows * (part + 1) / parts - first, first, block);
    }
  }
}

struct ProductTask {
  const GateProducts& products;
  int64_t parts;
};

template <int G>
static void product_task(void* data, size_t part) {
  const ProductTask& task = *static_cast<ProductTask*>(data);
  const int64_t blocks = task.products.weights.blocks, i = static_cast<int64_t>(part);
  use_blocks<MultiplyGates, G>(task.products, task.products.count, blocks * i / task.parts,
                               blocks * (i + 1) / task.parts);
}

// Some samples of one direction. False: out of memory.
template <int G>
static bool run_samples(const Recurrence& r, const Sequences& q, int64_t from, int64_t to,
                        const Parallel& parallel) {
  const PackedRecurrence weights(r, q.packed);
  const int64_t samples = to - from, hidden = r.hidden, size = weights.blocks * kLanes;
  const int64_t at_once = kRowsAtOnce / samples;  // steps
  const int64_t rows_at_once = (at_once < q.steps ? at_once : q.steps) * samples;
  float* const memory =
      scratch(Scratch::kOwn, static_cast<size_t>(samples * 3 * size + rows_at_once * weights.width));
  if (!memory) return false;
  float* const products = memory + samples * 3 * size;
  float *state[kSamplesOfTask], *next[kSamplesOfTask], *cell[kSamplesOfTask];
  int64_t length[kSamplesOfTask], longest = 0;
  const size_t bytes = static_cast<size_t>(hidden) * sizeof(float);
  __builtin_memset(memory, 0, static_cast<size_t>(samples * 3 * size) * sizeof(float));
  for (int64_t i = 0; i < samples; i++) {
    state[i] = memory + 3 * i * size;
    next[i] = state[i] + size;
    cell[i] = next[i] + size;
    if (q.state) __builtin_memcpy(state[i], q.state + (from + i) * hidden, bytes);
    if (q.cell) __builtin_memcpy(cell[i], q.cell + (from + i) * hidden, bytes);
    length[i] = q.lengths ? q.lengths[from + i] : q.steps;
    if (length[i] > longest) longest = length[i];
    for (int64_t step = length[i]; q.states && step < q.steps; step++) {
      __builtin_memset(q.states + step * q.states_step + (from + i) * hidden, 0, bytes);
    }
  }
  const auto place = [&](int64_t i, int64_t step) { return q.is_reverse ? length[i] - 1 - step : step; };
  for (int64_t begin = 0; begin < longest; begin += at_once) {
    const int64_t end = begin + at_once < longest ? begin + at_once : longest;
    const float* rows[kRowsAtOnce];
    int64_t count = 0;
    for (int64_t step = begin; step < end; step++) {
      for (int64_t i = 0; i < samples; i++) {
        if (step < length[i]) {
          rows[count++] = q.input + (place(i, step) * q.samples + from + i) * r.features;
        }
      }
    }
    const GateProducts all_products{weights, rows, count, r.features, products};
    ProductTask task{all_products, weights.blocks < 16 ? weights.blocks : 16};
    parallel.run(parallel.self, product_task<G>, static_cast<size_t>(task.parts), &task);
    const float* at = products;
    for (int64_t step = begin; step < end; step++) {
      const float* old[kSamplesOfTask];
      float *made[kSamplesOfTask], *kept[kSamplesOfTask];
      int64_t active = 0;
      for (int64_t i = 0; i < samples; i++) {
        if (step < length[i]) {
          old[active] = state[i];
          made[active] = next[i];
          kept[active++] = cell[i];
        }
      }
      use_blocks<StepBlocks, G>(Step{weights, hidden, old, made, kept, at}, active, 0, weights.blocks);
      at += active * weights.width;
      for (int64_t i = 0; i < samples; i++) {
        if (step >= length[i]) continue;
        float* const old_state = state[i];
        state[i] = next[i];
        next[i] = old_state;
        if (q.states) {
          __builtin_memcpy(q.states + place(i, step) * q.states_step + (from + i) * hidden, state[i], bytes);
        }
      }
    }
  }
  for (int64_t i = 0; i < samples; i++) {
    if (q.last_state) __builtin_memcpy(q.last_state + (from + i) * hidden, state[i], bytes);
    if (q.last_cell) __builtin_memcpy(q.last_cell + (from + i) * hidden, cell[i], bytes);
  }
  return true;
}

struct RecurrenceTask {
  const Recurrence& recurrence;
  const Sequences* directions;
  int64_t parts;  // of the samples
  const Parallel& inner;
  bool failed;

  void run(size_t index) {
    const int64_t i = static_cast<int64_t>(index);
    const Sequences& q = directions[i / parts];
    const int64_t part = i % parts, from = q.samples * part / parts, to = q.samples * (part + 1) / parts;
    const bool is_done = recurrence.is_lstm ? run_samples<4>(recurrence, q, from, to, inner)
                                            : run_samples<3>(recurrence, q, from, to, inner);
    if (!is_done) __atomic_store_n(&failed, true, __ATOMIC_RELAXED);
  }
};

static bool recur(const Recurrence& r, const Sequences* directions, int64_t count,
                  const Parallel& parallel) {
  const int64_t parts = ceil_div(directions[0].samples, kSamplesOfTask);
  const bool is_one = parts * count == 1;
  const Parallel serial{in_turn, nullptr};
  RecurrenceTask task{r, directions, parts, is_one ? parallel : serial, false};
  if (is_one) {
    task.run(0);
  } else {
    parallel.run(parallel.self, [](void* data, size_t i) { static_cast<RecurrenceTask*>(data)->run(i); },
                 static_cast<size_t>(parts * count), &task);
  }
  return !task.failed;
}

}  // namespace EQSAT_INSTRUCTIONS

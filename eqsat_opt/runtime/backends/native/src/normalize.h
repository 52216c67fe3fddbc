// Normalization of rows, in float32 with totals in double; in double throughout for a row that is
// nearly constant, whose squares leave the range of float32, or that holds what is no number.

namespace EQSAT_INSTRUCTIONS {

constexpr int64_t kRun = 4096;          // floats that are added up in float32
constexpr int64_t kTaskFloats = 16384;  // of the rows of one task
constexpr double kLeastVariance = 1e-30;   // below it squares that count may be denormal
constexpr double kMostSquares = 3e38;
constexpr double kMostOffset = 1e-4;       // squared, of the variance: of rows nearly constant

template <int B>
EQSAT_INLINE double total(const Vec<B>& v) {
  double sum = 0.0;
  for (int i = 0; i < B; i++) sum += static_cast<double>(v[i]);
  return sum;
}

template <int K>
struct Index {
  static constexpr int value = K;
};

// Calls use(k, load, store) for the vectors of a range, k running through 0 to 3, which keeps four
// sums in registers. Both take an array; what `load` finds beyond the range is `rest`.
template <int B, typename Use>
EQSAT_INLINE void for_vectors(int64_t from, int64_t to, Use use) {
  int64_t i = from;
  const auto whole = [&](auto k) {
    use(k, [i](const float* at, float) { return load<B>(at + i); },
        [i](float* at, const Vec<B>& v) { store<B>(at + i, v); });
    i += B;
  };
  while (i + 4 * B <= to) {
    whole(Index<0>{});
    whole(Index<1>{});
    whole(Index<2>{});
    whole(Index<3>{});
  }
  while (i + B <= to) whole(Index<0>{});
  if (i < to) {
    use(Index<0>{},
        [i, to](const float* at, float rest) { return load_some<B>(at + i, to - i, rest); },
        [i, to](float* at, const Vec<B>& v) { store_some<B>(at + i, v, to - i); });
  }
}

struct Row {
  const float *input, *skip, *bias;
  float *output, *sum;
};

// t, in `row.sum` where that is wanted, else where the output will be.
template <int B>
EQSAT_INLINE const float* added(const Row& row, int64_t n) {
  if (!row.skip && !row.bias && !row.sum) return row.input;
  float* const to = row.sum ? row.sum : row.output;
  for_vectors<B>(0, n, [&](auto, auto load, auto store) {
    Vec<B> t = load(row.input, 0.0f);
    if (row.skip) t += load(row.skip, 0.0f);
    if (row.bias) t += load(row.bias, 0.0f);
    store(to, t);
  });
  return to;
}

static void normalize_in_double(const Normalization& norm, const Rows& rows, const float* t,
                                float* y) {
  const double n = static_cast<double>(norm.size);
  double mean = 0.0, squares = 0.0;
  if (norm.is_centred) {
    for (int64_t i = 0; i < norm.size; i++) mean += static_cast<double>(t[i]);
    mean /= n;
  }
  for (int64_t i = 0; i < norm.size; i++) {
    const double d = static_cast<double>(t[i]) - mean;
    squares += d * d;
  }
  const double scale = 1.0 / __builtin_sqrt(squares / n + static_cast<double>(norm.epsilon));
  for (int64_t i = 0; i < norm.size; i++) {
    double v = (static_cast<double>(t[i]) - mean) * scale * static_cast<double>(rows.scale[i]);
    if (rows.shift) v += static_cast<double>(rows.shift[i]);
    y[i] = static_cast<float>(v);
  }
}

template <int B>
EQSAT_INLINE void normalize_row(const Normalization& norm, const Rows& rows, const Row& row) {
  const int64_t size = norm.size;
  const double n = static_cast<double>(size);
  const float* t = added<B>(row, size);
  double sum = 0.0, squares = 0.0;
  float mean = 0.0f;
  if (norm.is_centred) {
    for (int64_t from = 0; from < size; from += kRun) {
      Vec<B> sums[4] = {};
      const int64_t to = from + kRun < size ? from + kRun : size;
      for_vectors<B>(from, to, [&](auto k, auto load, auto) {
        sums[k.value] += load(t, 0.0f);
      });
      sum += total<B>((sums[0] + sums[1]) + (sums[2] + sums[3]));
    }
    mean = static_cast<float>(sum / n);
  }
  // The mean in float32 is not exact; what the differences add up to tells by how much.
  sum = 0.0;
  for (int64_t from = 0; from < size; from += kRun) {
    Vec<B> sums[4] = {}, products[4] = {};
    const int64_t to = from + kRun < size ? from + kRun : size;
    for_vectors<B>(from, to, [&](auto k, auto load, auto) {
      const Vec<B> d = load(t, mean) - mean;
      sums[k.value] += d;
      products[k.value] += d * d;
    });
    if (norm.is_centred) sum += total<B>((sums[0] + sums[1]) + (sums[2] + sums[3]));
    squares += total<B>((products[0] + products[1]) + (products[2] + products[3]));
  }
  const double offset = sum / n;
  const double variance = squares / n - offset * offset + static_cast<double>(norm.epsilon);
  if (!(variance >= kLeastVariance && squares <= kMostSquares &&
        offset * offset <= kMostOffset * squares / n)) {
    normalize_in_double(norm, rows, t, row.output);
    return;
  }
  const float scale = static_cast<float>(1.0 / __builtin_sqrt(variance));
  const float rest = static_cast<float>(offset);
  for_vectors<B>(0, size, [&](auto, auto load, auto store) {
    Vec<B> v = ((load(t, 0.0f) - mean) - rest) * scale * load(rows.scale, 0.0f);
    if (rows.shift) v += load(rows.shift, 0.0f);
    store(row.output, v);
  });
}

struct NormalizeTask {
  const Normalization& norm;
  const Rows& rows;
  int64_t per_task;
};

static void normalize_task(void* data, size_t index) {
  const NormalizeTask& task = *static_cast<NormalizeTask*>(data);
  const Rows& rows = task.rows;
  const int64_t size = task.norm.size, from = static_cast<int64_t>(index) * task.per_task;
  const int64_t to = from + task.per_task < rows.count ? from + task.per_task : rows.count;
  for (int64_t r = from; r < to; r++) {
    normalize_row<kLanes>(task.norm, rows,
                          {rows.input + r * size,
                           rows.skip ? rows.skip + r % rows.skip_count * size : nullptr, rows.bias,
                           rows.output + r * size, rows.sum ? rows.sum + r * size : nullptr});
  }
}

static void normalize(const Normalization& norm, const Rows& rows, const Parallel& parallel) {
  if (!rows.count || !norm.size) return;
  const int64_t per_task = kTaskFloats > norm.size ? kTaskFloats / norm.size : 1;
  NormalizeTask task{norm, rows, per_task};
  const int64_t tasks = ceil_div(rows.count, per_task);
  parallel.run(parallel.self, normalize_task, static_cast<size_t>(tasks), &task);
}

}  // namespace EQSAT_INSTRUCTIONS

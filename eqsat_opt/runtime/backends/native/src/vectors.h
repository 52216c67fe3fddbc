// Vectors of any length, for all kernels. This and what uses it is included once per instruction set,
// into a namespace of its own, after a pragma that says which instructions may be used; so nothing
// here may be shared, and nothing of the standard library is instantiated. Whoever includes it
// defines
//
//   EQSAT_INSTRUCTIONS  the namespace
//   EQSAT_LANES         floats per register
//   EQSAT_BLOCKS        the lengths of blocks
//   EQSAT_TILES         tiles whose sums stay in registers, for two blocks of outputs
//   EQSAT_PIXELS, EQSAT_SINGLE_PIXELS  of a length of blocks: outputs whose sums stay in registers, of narrow
//                       groups and of groups of one channel
//   EQSAT_ROWS, EQSAT_VECTORS  rows, and registers of columns, of products whose sums stay in registers
//   EQSAT_AHEAD         channels whose weights are fetched before they are used

namespace EQSAT_INSTRUCTIONS {

#define EQSAT_INLINE __attribute__((always_inline)) inline

constexpr int kLanes = EQSAT_LANES;

template <int B>
struct Vector {
  typedef float Type __attribute__((vector_size(B * sizeof(float))));
};
template <int B>
using Vec = typename Vector<B>::Type;

template <int B>
EQSAT_INLINE Vec<B> load(const float* from) {
  Vec<B> v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
template <int B>
EQSAT_INLINE void store(float* to, const Vec<B>& v) {
  __builtin_memcpy(to, &v, sizeof v);
}
template <int B>
EQSAT_INLINE Vec<B> all(float x) {
  return x - Vec<B>{};  // x + 0 would be another number where x is -0, and so be an addition
}

// Of the first n lanes; the others are `rest`.
template <int B>
EQSAT_INLINE Vec<B> load_some(const float* from, int64_t n, float rest) {
  Vec<B> v = all<B>(rest);
  __builtin_memcpy(&v, from, static_cast<size_t>(n) * sizeof(float));
  return v;
}
template <int B>
EQSAT_INLINE void store_some(float* to, const Vec<B>& v, int64_t n) {
  __builtin_memcpy(to, &v, static_cast<size_t>(n) * sizeof(float));
}

// Activations -----------------------------------------------------------------------------------

template <int B>
EQSAT_INLINE Vec<B> at_least(Vec<B> x, float low) {
  const Vec<B> v = all<B>(low);
  return v > x ? v : x;  // NaN stays
}
template <int B>
EQSAT_INLINE Vec<B> at_most(Vec<B> x, float high) {
  const Vec<B> v = all<B>(high);
  return v < x ? v : x;
}

// exp for x in [-87, 87]: 2^k times a polynomial on [-ln 2 / 2, ln 2 / 2]; relative error 2e-7.
template <int B>
EQSAT_INLINE Vec<B> exp_of(Vec<B> x) {
  typedef int32_t Int __attribute__((vector_size(B * sizeof(int32_t))));
  const Vec<B> shifter = all<B>(12582912.0f);  // 1.5 * 2^23: the sum is rounded to an integer
  const Vec<B> shifted = x * 1.44269504f + shifter;
  const Vec<B> k = shifted - shifter;
  const Vec<B> r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
  Vec<B> p = all<B>(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  Int bits;
  __builtin_memcpy(&bits, &shifted, sizeof bits);
  bits = (bits - 0x4b400000 + 127) << 23;
  Vec<B> scale;
  __builtin_memcpy(&scale, &bits, sizeof scale);
  return p * scale;
}

// 1 + exp(-x): 2^k times a polynomial on [-1/2, 1/2]. The error is 3e-7 of the value near 0 and 4e-6 of it far
// away, so that of a sigmoid is 1e-7 everywhere.
template <int B>
EQSAT_INLINE Vec<B> one_and_exp(Vec<B> x) {
  typedef int32_t Int __attribute__((vector_size(B * sizeof(int32_t))));
  const float base = -1.44269504f;
  const Vec<B> bounded = at_least<B>(at_most<B>(x, 87.0f), -87.0f);
  const Vec<B> shifter = all<B>(12582912.0f);  // 1.5 * 2^23: the sum is rounded to an integer
  const Vec<B> shifted = bounded * base + shifter;
  const Vec<B> r = bounded * base - (shifted - shifter);
  Vec<B> p = all<B>(1.3400432654e-3f);
  p = p * r + 9.6760373563e-3f;
  p = p * r + 5.5503271520e-2f;
  p = p * r + 2.4022106826e-1f;
  p = p * r + 6.9314718246e-1f;
  p = p * r + 1.0f;
  Int bits;
  __builtin_memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23) + 0x3f800000;
  Vec<B> scale;
  __builtin_memcpy(&scale, &bits, sizeof scale);
  return p * scale + 1.0f;
}

template <int B>
EQSAT_INLINE Vec<B> sigmoid(Vec<B> x) {
  return 1.0f / one_and_exp<B>(x);
}

// A polynomial of x^2 near 0 (Cephes, tanhf), 1 - 2 e / (1 + e) with e = exp(-2 |x|) elsewhere.
template <int B>
EQSAT_INLINE Vec<B> hyperbolic_tangent(Vec<B> x) {
  const Vec<B> z = x * x;
  Vec<B> p = z * -5.70498872745e-3f + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const Vec<B> near = p * z * x + x;
  const Vec<B> size = x < 0.0f ? x : -x;  // NaN stays
  const Vec<B> e = exp_of<B>(at_least<B>(size + size, -87.0f));
  const Vec<B> far = 1.0f - 2.0f * e / (1.0f + e);
  return size > -0.625f ? near : x < 0.0f ? -far : far;
}

template <int B>
EQSAT_INLINE Vec<B> activate(Activation kind, float alpha, float beta, Vec<B> x) {
  switch (kind) {
    case Activation::kRelu: return at_least<B>(x, 0.0f);
    case Activation::kLeakyRelu: return x >= 0.0f ? x : x * alpha;
    case Activation::kClip: return at_most<B>(at_least<B>(x, alpha), beta);
    case Activation::kSigmoid: return sigmoid<B>(x);
    case Activation::kHardSigmoid:
      return at_most<B>(at_least<B>(x * alpha + beta, 0.0f), 1.0f);
    case Activation::kSilu: return x / one_and_exp<B>(x);
    case Activation::kHardSwish:
      return x * at_most<B>(at_least<B>(x * (1.0f / 6.0f) + 0.5f, 0.0f), 1.0f);
    default: return x;
  }
}

}  // namespace EQSAT_INSTRUCTIONS

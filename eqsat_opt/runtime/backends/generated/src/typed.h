// Functions of one element of any type, beside those of float32: what overloads and templates make
// of one name. Whole numbers wrap around, as those of NumPy do; types of two bytes are float32 in
// registers.
#pragma once

#include "functions.h"

namespace eqsat {

typedef long long Index;

template <class T> struct Of { static constexpr bool is_float = false; };
template <> struct Of<float> { static constexpr bool is_float = true; };
template <> struct Of<double> { static constexpr bool is_float = true; };

struct Half { unsigned short bits; };
struct Brain { unsigned short bits; };

// Round to nearest, ties to even; NaN keeps its sign and stays NaN.
EQSAT_INLINE unsigned short brain_bits(float x) {
  const uint32_t bits = to_bits(x);
  if (x != x) return static_cast<unsigned short>(bits >> 16 | 64);
  return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

#ifdef __CUDACC__
EQSAT_INLINE float half_value(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
EQSAT_INLINE unsigned short half_bits(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#else
// A product with a power of two moves the exponent to where it belongs, of denormals too.
EQSAT_INLINE float half_value(unsigned short bits) {
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fff) << 13;
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  float value = from_bits(magnitude) * from_bits(0x77800000u);  // 2^112
  if (magnitude >= 0x0f800000u) value = from_bits(magnitude | 0x7f800000u);
  return from_bits(to_bits(value) | sign);
}
// Adding a number whose last place is that of the result rounds as IEEE 754 does.
EQSAT_INLINE unsigned short half_bits(float x) {
  const uint32_t sign = to_bits(x) >> 16 & 0x8000;
  const float a = fabsf(x);
  if (x != x) return static_cast<unsigned short>(sign | 0x7e00);
  if (a >= 65520.0f) return static_cast<unsigned short>(sign | 0x7c00);
  if (a < 6.103515625e-5f)
    return static_cast<unsigned short>(sign | (to_bits(a + 0.5f) - 0x3f000000u));
  const uint32_t bits = to_bits(a), rounded = bits + 0xfffu + (bits >> 13 & 1);
  return static_cast<unsigned short>(sign | (rounded - 0x38000000u) >> 13);
}
#endif

template <class T> EQSAT_INLINE T load(const T* p) { return *p; }
EQSAT_INLINE float load(const Half* p) { return half_value(p->bits); }
EQSAT_INLINE float load(const Brain* p) {
  return from_bits(static_cast<uint32_t>(p->bits) << 16);
}
template <class T> EQSAT_INLINE void store(T* p, T value) { *p = value; }
EQSAT_INLINE void store(Half* p, float value) { p->bits = half_bits(value); }
EQSAT_INLINE void store(Brain* p, float value) { p->bits = brain_bits(value); }
EQSAT_INLINE float RoundHalf(float x) { return half_value(half_bits(x)); }
EQSAT_INLINE float RoundBrain(float x) {
  return from_bits(static_cast<uint32_t>(brain_bits(x)) << 16);
}

template <class A, class B> EQSAT_INLINE A floor_div(A a, B b) { return a / b - (a % b < 0); }
EQSAT_INLINE Index Modulo(Index a, Index extent) { return a % extent + (a % extent < 0) * extent; }

template <class T, class S> EQSAT_INLINE T Cast(S x) { return static_cast<T>(x); }
template <class T> EQSAT_INLINE T Where(bool condition, T a, T b) { return condition ? a : b; }
template <class T> EQSAT_INLINE bool Equal(T a, T b) { return a == b; }
template <class T> EQSAT_INLINE bool Greater(T a, T b) { return a > b; }
template <class T> EQSAT_INLINE bool Less(T a, T b) { return a < b; }
template <class T> EQSAT_INLINE bool GreaterOrEqual(T a, T b) { return a >= b; }
template <class T> EQSAT_INLINE bool LessOrEqual(T a, T b) { return a <= b; }
template <class T> EQSAT_INLINE bool IsNaN(T x) { return x != x; }
EQSAT_INLINE bool And(bool a, bool b) { return a && b; }
EQSAT_INLINE bool Or(bool a, bool b) { return a || b; }
EQSAT_INLINE bool Xor(bool a, bool b) { return a != b; }
EQSAT_INLINE bool Not(bool x) { return !x; }

// Products of small types would overflow int, so all go through 64 bits without a sign.
typedef unsigned long long Wide;
template <class T> EQSAT_INLINE T Add(T a, T b) {
  if constexpr (Of<T>::is_float) return a + b;
  else return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
}
template <class T> EQSAT_INLINE T Sub(T a, T b) {
  if constexpr (Of<T>::is_float) return a - b;
  else return static_cast<T>(static_cast<Wide>(a) - static_cast<Wide>(b));
}
template <class T> EQSAT_INLINE T Mul(T a, T b) {
  if constexpr (Of<T>::is_float) return a * b;
  else return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
}
template <class T> EQSAT_INLINE T Neg(T x) {
  if constexpr (Of<T>::is_float) return -x;
  else return static_cast<T>(0 - static_cast<Wide>(x));
}
// Whole numbers round towards 0; by 0 the quotient is 0.
template <class T> EQSAT_INLINE T Div(T a, T b) {
  if constexpr (Of<T>::is_float) return a / b;
  else if (b == 0) return 0;
  else if (static_cast<T>(-1) < 0 && b == static_cast<T>(-1)) return Neg(a);
  else return static_cast<T>(a / b);
}
template <class T> EQSAT_INLINE T Max(T a, T b) { return a != a || a > b ? a : b; }
template <class T> EQSAT_INLINE T Min(T a, T b) { return a != a || a < b ? a : b; }
template <class T> EQSAT_INLINE T Abs(T x) { return x < 0 ? Neg(x) : x; }
EQSAT_INLINE double Abs(double x) { return fabs(x); }
template <class T> EQSAT_INLINE T Relu(T x) { return x < 0 ? 0 : x; }
template <class T> EQSAT_INLINE T Sign(T x) {
  return x != x ? x : static_cast<T>((x > 0) - (x < 0));
}
template <class T> EQSAT_INLINE T Clip(T x, T high, T low) {
  x = x < low ? low : x;
  return x > high ? high : x;
}
template <class T> EQSAT_INLINE T PRelu(T x, T slope) { return x < 0 ? Mul(slope, x) : x; }
EQSAT_INLINE double Pow(double a, double b) { return pow(a, b); }
// A negative power is 0 unless the base is 1 or -1.
template <class T> EQSAT_INLINE T Pow(T base, Index exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (static_cast<T>(-1) < 0 && base == static_cast<T>(-1)) return exponent % 2 ? base : 1;
    return 0;
  }
  T result = 1;
  for (; exponent; exponent >>= 1, base = Mul(base, base)) {
    if (exponent & 1) result = Mul(result, base);
  }
  return result;
}

EQSAT_INLINE double Sqrt(double x) { return sqrt(x); }
EQSAT_INLINE double Floor(double x) { return floor(x); }
EQSAT_INLINE double Ceil(double x) { return ceil(x); }
EQSAT_INLINE double Round(double x) { return rint(x); }
EQSAT_INLINE double Exp(double x) { return exp(x); }
EQSAT_INLINE double Log(double x) { return log(x); }
EQSAT_INLINE double Sin(double x) { return sin(x); }
EQSAT_INLINE double Cos(double x) { return cos(x); }
EQSAT_INLINE double Tanh(double x) { return tanh(x); }
template <class T> EQSAT_INLINE T Erf(T x) { return static_cast<T>(erf(static_cast<double>(x))); }
EQSAT_INLINE double Sigmoid(double x) {
  const double small = exp(-fabs(x));
  return (x < 0 ? small : 1.0) / (1.0 + small);
}
EQSAT_INLINE double LeakyRelu(double x, double alpha) { return x < 0 ? alpha * x : x; }
EQSAT_INLINE double ThresholdedRelu(double x, double alpha) { return x > alpha || x != x ? x : 0; }
EQSAT_INLINE double HardSigmoid(double x, double alpha, double beta) {
  return Clip(alpha * x + beta, 1.0, 0.0);
}
EQSAT_INLINE double HardSwish(double x) { return x * (Clip(x + 3.0, 6.0, 0.0) / 6.0); }
EQSAT_INLINE double Softsign(double x) { return x / (1.0 + fabs(x)); }
EQSAT_INLINE double Swish(double x, double alpha) { return x * Sigmoid(alpha * x); }
EQSAT_INLINE double GeluTanh(double x) {
  return x * Sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x));
}
EQSAT_INLINE double GeluNone(double x) { return 0.5 * x * erfc(x * -0.7071067811865476); }
EQSAT_INLINE double Softplus(double x) { return (x > 0 ? x : 0 * x) + log1p(exp(-fabs(x))); }
EQSAT_INLINE double Mish(double x) { return x * tanh(Softplus(x)); }
EQSAT_INLINE double Elu(double x, double alpha) { return x < 0 ? alpha * expm1(x) : x; }
EQSAT_INLINE double Celu(double x, double alpha) {
  return Max(x, 0.0) + Min(alpha * expm1(x / alpha), 0.0);
}
EQSAT_INLINE double Selu(double x, double alpha, double gamma) {
  return gamma * (x > 0 ? x : alpha * expm1(x));
}

}  // namespace eqsat

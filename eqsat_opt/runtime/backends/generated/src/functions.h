// Functions of one element, written so that loops of them become vector instructions: no branch, no
// call, no table. They are right for infinities, NaN, zeros of either sign and denormals, and none
// relies on contraction or on flags that relax IEEE 754. Of a GPU, whose compiler has no headers, too.
#pragma once

#ifdef __CUDACC__
#define EQSAT_INLINE static __device__ __forceinline__
#else
#include <cmath>
#include <cstdint>
#include <cstring>
#define EQSAT_INLINE static inline __attribute__((always_inline))
#endif

namespace eqsat {

#ifdef __CUDACC__
typedef int int32_t;
typedef unsigned int uint32_t;

EQSAT_INLINE float from_bits(uint32_t bits) { return __uint_as_float(bits); }
EQSAT_INLINE uint32_t to_bits(float value) { return __float_as_uint(value); }
#else

EQSAT_INLINE float from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

EQSAT_INLINE uint32_t to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
#endif

EQSAT_INLINE float fma_(float a, float b, float c) { return fmaf(a, b, c); }

// e^x. x = k ln 2 + r with |r| <= ln 2 / 2, the two parts of ln 2 as in Cody and Waite (1980); a
// polynomial of e^r, whose coefficients minimise the relative error; 2^k in two factors, so that
// results may be denormal. Beyond the ends all results are 0 or infinite.
EQSAT_INLINE float Exp(float x) {
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  const float shifted = fma_(x, 1.44269504f, 12582912.0f);  // 1.5 * 2^23: k stands in the low bits
  const float k = shifted - 12582912.0f;
  const uint32_t whole = to_bits(shifted) - 0x4B400000u;
  const float r = fma_(k, -1.42860677e-6f, fma_(k, -0.693145752f, x));
  float p = 1.9875691500e-4f;
  p = fma_(p, r, 1.3981999507e-3f);
  p = fma_(p, r, 8.3334519073e-3f);
  p = fma_(p, r, 4.1665795894e-2f);
  p = fma_(p, r, 1.6666665459e-1f);
  p = fma_(p, r, 5.0000001201e-1f);
  p = fma_(p * r, r, r) + 1.0f;
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(whole) >> 1);
  return p * from_bits((half + 127u) << 23) * from_bits((whole - half + 127u) << 23);
}

// Neither end overflows, and small results keep their digits.
EQSAT_INLINE float Sigmoid(float x) {
  const float small = Exp(-fabsf(x));
  return (x < 0.0f ? small : 1.0f) / (1.0f + small);
}

// A polynomial of x^2 near 0 (Cephes, tanhf), 1 - 2 / (e^2|x| + 1) elsewhere.
EQSAT_INLINE float Tanh(float x) {
  const float a = fabsf(x), z = x * x;
  float p = fma_(z, -5.70498872745e-3f, 2.06390887954e-2f);
  p = fma_(p, z, -5.37397155531e-2f);
  p = fma_(p, z, 1.33314422036e-1f);
  p = fma_(p, z, -3.33332819422e-1f);
  const float near = fma_(p * z, x, x);
  const float far = 1.0f - 2.0f / (Exp(a + a) + 1.0f);
  return a < 0.625f ? near : copysignf(far, x);
}

// x P(x^2) near 0, 1 - e^Q(|x|) elsewhere; the coefficients minimise the relative error of the
// result, below 2e-8 before rounding. From 4 on it is 1 to the last bit.
EQSAT_INLINE float Erf(float x) {
  const float a = fabsf(x), z = x * x;
  float p = fma_(z, -6.0903578e-4f, 5.0119623e-3f);
  p = fma_(p, z, -2.6778908e-2f);
  p = fma_(p, z, 1.1282141e-1f);
  p = fma_(p, z, -3.7612525e-1f);
  p = fma_(p, z, 1.1283791f);
  const float b = a > 4.0f ? 4.0f : a;
  float q = fma_(b, 1.9822070e-4f, -3.0654997e-3f);
  q = fma_(q, b, 2.2315249e-2f);
  q = fma_(q, b, -1.0411375e-1f);
  q = fma_(q, b, -6.3697600e-1f);
  q = fma_(q, b, -1.1277972f);
  q = fma_(q, b, -1.6643909e-4f);
  return a < 0.9f ? x * p : copysignf(1.0f - Exp(q), x);
}

EQSAT_INLINE float Add(float a, float b) { return a + b; }
EQSAT_INLINE float Sub(float a, float b) { return a - b; }
EQSAT_INLINE float Mul(float a, float b) { return a * b; }
EQSAT_INLINE float Div(float a, float b) { return a / b; }
EQSAT_INLINE float Neg(float x) { return -x; }
EQSAT_INLINE float Abs(float x) { return fabsf(x); }
EQSAT_INLINE float Sqrt(float x) { return sqrtf(x); }
EQSAT_INLINE float Floor(float x) { return floorf(x); }
EQSAT_INLINE float Ceil(float x) { return ceilf(x); }
EQSAT_INLINE float Round(float x) { return rintf(x); }
EQSAT_INLINE float Sign(float x) { return x != x ? x : x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f; }

// NaN of either operand is the result.
EQSAT_INLINE float Max(float a, float b) { return a != a || a > b ? a : b; }
EQSAT_INLINE float Min(float a, float b) { return a != a || a < b ? a : b; }
EQSAT_INLINE float Relu(float x) { return x < 0.0f ? 0.0f : x; }
EQSAT_INLINE float Clip(float x, float high, float low) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

EQSAT_INLINE float LeakyRelu(float x, float alpha) { return x < 0.0f ? alpha * x : x; }
EQSAT_INLINE float PRelu(float x, float slope) { return x < 0.0f ? slope * x : x; }
EQSAT_INLINE float ThresholdedRelu(float x, float alpha) {
  return x > alpha || x != x ? x : 0.0f;
}
EQSAT_INLINE float HardSigmoid(float x, float alpha, float beta) {
  return Clip(alpha * x + beta, 1.0f, 0.0f);
}
EQSAT_INLINE float HardSwish(float x) { return x * (Clip(x + 3.0f, 6.0f, 0.0f) / 6.0f); }
EQSAT_INLINE float Softsign(float x) { return x / (1.0f + fabsf(x)); }
EQSAT_INLINE float Swish(float x, float alpha) { return x * Sigmoid(alpha * x); }
EQSAT_INLINE float GeluTanh(float x) {
  return x * Sigmoid(1.59576912f * fma_(x * x, 0.044715f * x, x));
}
EQSAT_INLINE float GeluNone(float x) {
  return 0.5f * x * (1.0f + Erf(x * 0.707106781f));
}

// Calls of the system's library, which round well and take longer.
EQSAT_INLINE float Log(float x) { return logf(x); }
EQSAT_INLINE float Sin(float x) { return sinf(x); }
EQSAT_INLINE float Cos(float x) { return cosf(x); }
EQSAT_INLINE float Pow(float a, float b) { return powf(a, b); }
EQSAT_INLINE float Softplus(float x) {
  return (x > 0.0f ? x : 0.0f * x) + log1pf(Exp(-fabsf(x)));
}
EQSAT_INLINE float Mish(float x) { return x * Tanh(Softplus(x)); }
EQSAT_INLINE float Elu(float x, float alpha) { return x < 0.0f ? alpha * expm1f(x) : x; }
EQSAT_INLINE float Celu(float x, float alpha) {
  return Max(x, 0.0f) + Min(alpha * expm1f(x / alpha), 0.0f);
}
EQSAT_INLINE float Selu(float x, float alpha, float gamma) {
  return gamma * (x > 0.0f ? x : alpha * expm1f(x));
}

}  // namespace eqsat

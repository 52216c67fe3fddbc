// The kernels for processors with AVX2, where onnxruntime's blocks have 8 channels. Those of 16 serve
// to try these instructions on a processor with wider ones.
#if defined(__x86_64__)
#include "convolution.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma")

#define EQSAT_INSTRUCTIONS avx2
#define EQSAT_BLOCKS(use) use(8) use(16)
#define EQSAT_TILES 6  // with two blocks of outputs 12 of the 16 registers hold sums
#define EQSAT_AHEAD 16
namespace eqsat {
#include "winograd.h"

#pragma GCC pop_options

const Kernels kAvx2{"avx2", avx2::supports, avx2::transform, avx2::run};
}  // namespace eqsat
#endif

// The kernels for processors with AVX2, where onnxruntime's blocks have 8 channels. Those of 16 serve
// to try these instructions on a processor with wider ones.
#if defined(__x86_64__)
#include "kernels.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma")

#define EQSAT_INSTRUCTIONS avx2
#define EQSAT_LANES 8
#define EQSAT_BLOCKS(use) use(8) use(16)
#define EQSAT_TILES 6  // with two blocks of outputs 12 of the 16 registers hold sums
// Permutations of 16 channels take much code here, and blocks of 16 only serve to try.
#define EQSAT_PIXELS(block) ((block) == 8 ? 6 : 1)
#define EQSAT_SINGLE_PIXELS(block) ((block) == 8 ? 8 : 3)
#define EQSAT_ROWS 6
#define EQSAT_VECTORS 2
#define EQSAT_AHEAD 16
namespace eqsat {
#include "vectors.h"
#include "winograd.h"
#include "grouped.h"
#include "normalize.h"
#include "multiply.h"
#include "strassen.h"
#include "recur.h"
#include "convolve_sequence.h"

#pragma GCC pop_options

const Kernels kAvx2{"avx2", avx2::supports, avx2::transform, avx2::run, avx2::normalize, avx2::packed_floats,
                      avx2::pack_weights, avx2::multiply_rows,
                      avx2::supports_grouped, avx2::run_grouped, avx2::recurrence_floats,
                      avx2::pack_recurrence, avx2::recur, avx2::convolve_sequence};
}  // namespace eqsat
#endif

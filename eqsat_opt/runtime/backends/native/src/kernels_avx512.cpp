// The kernels for processors with AVX-512, where onnxruntime's blocks have 16 channels.
#if defined(__x86_64__)
#include "kernels.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")

#define EQSAT_INSTRUCTIONS avx512
#define EQSAT_LANES 16
#define EQSAT_BLOCKS(use) use(16)
#define EQSAT_TILES 14  // with two blocks of outputs 28 of the 32 registers hold sums
#define EQSAT_PIXELS(block) 7
#define EQSAT_SINGLE_PIXELS(block) 14
#define EQSAT_ROWS 8
#define EQSAT_VECTORS 3
#define EQSAT_AHEAD 24
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

const Kernels kAvx512{"avx512", avx512::supports, avx512::transform, avx512::run, avx512::normalize, avx512::packed_floats,
                      avx512::pack_weights, avx512::multiply_rows,
                      avx512::supports_grouped, avx512::run_grouped, avx512::recurrence_floats,
                      avx512::pack_recurrence, avx512::recur, avx512::convolve_sequence};
}  // namespace eqsat
#endif

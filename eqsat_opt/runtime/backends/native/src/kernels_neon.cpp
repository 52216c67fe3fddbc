// The kernels for 64-bit ARM, whose vectors of four the compiler makes of longer ones.
#if defined(__aarch64__)
#include "kernels.h"

#define EQSAT_INSTRUCTIONS neon
#define EQSAT_LANES 4
#define EQSAT_BLOCKS(use) use(8) use(16)
#define EQSAT_TILES 3
#define EQSAT_PIXELS(block) 6
#define EQSAT_SINGLE_PIXELS(block) ((block) == 8 ? 8 : 4)
#define EQSAT_ROWS 12
#define EQSAT_VECTORS 2
#define EQSAT_AHEAD 8
namespace eqsat {
#include "vectors.h"
#include "winograd.h"
#include "grouped.h"
#include "normalize.h"
#include "multiply.h"
#include "strassen.h"
#include "recur.h"
#include "convolve_sequence.h"

const Kernels kNeon{"neon", neon::supports, neon::transform, neon::run, neon::normalize, neon::packed_floats,
                      neon::pack_weights, neon::multiply_rows,
                      neon::supports_grouped, neon::run_grouped, neon::recurrence_floats,
                      neon::pack_recurrence, neon::recur, neon::convolve_sequence};
}  // namespace eqsat
#endif

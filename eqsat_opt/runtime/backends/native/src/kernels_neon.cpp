// The kernels for 64-bit ARM, whose vectors of four the compiler makes of longer ones.
#if defined(__aarch64__)
#include "convolution.h"

#define EQSAT_INSTRUCTIONS neon
#define EQSAT_BLOCKS(use) use(8) use(16)
#define EQSAT_TILES 3
#define EQSAT_AHEAD 8
namespace eqsat {
#include "winograd.h"

const Kernels kNeon{"neon", neon::supports, neon::transform, neon::run};
}  // namespace eqsat
#endif

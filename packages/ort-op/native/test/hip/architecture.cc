// The kernels of one architecture: -DMXATTN_ARCHITECTURE="gfx950" and -DMXATTN_GFX950. Each has its own copy of everything.
#include <cmath>
#include <cstring>

#include "test/hip/workgroup.h"

#define MXATTN_EMULATED 1

namespace {
#include "test/hip/device.h"
#include "test/hip/intrinsics.h"
#include "hip/kernels/kernels.h"
}  // namespace

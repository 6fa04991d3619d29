#pragma once

namespace mxattn::hip {

// The kernels with all they include; made by embed.mjs.
extern const char kKernelSource[];

}  // namespace mxattn::hip

// The GPU kernels on the CPU, lane by lane: the sources of hip/kernels/ compiled once for each architecture, its matrix
// instructions included. Device addresses are host pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace mxattn::hip::emulated {

// Runs a kernel of the build for `architecture` ("gfx950", "gfx942", "gfx90a", "gfx1100", "gfx1201", "generic") as a GPU
// would; false if there is no such kernel.
bool run(const std::string& architecture, const std::string& kernel, const uint32_t groups[3], uint32_t threads,
         uint32_t sharedBytes, const void* arguments, size_t argumentBytes);

}  // namespace mxattn::hip::emulated

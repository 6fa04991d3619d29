// Machine code that was compiled before, on disk: compiling takes seconds. In $XDG_CACHE_HOME/mxattn, ~/.cache/mxattn or
// %LOCALAPPDATA%\mxattn; where that cannot be read or written, code is compiled anew.
#pragma once

#include <string>
#include <vector>

#include "hip/driver/device.h"

namespace mxattn::hip {

std::vector<char> compiledCode(Device& device, const std::string& source, const std::vector<std::string>& defines);

}  // namespace mxattn::hip

// measurePeaks(threads) -> Promise<{ float32, int8 }>: 10^9 operations a second on that many threads.
#pragma once

#include <napi.h>

namespace mxattn::addon {

Napi::Value measurePeaks(const Napi::CallbackInfo& info);

}  // namespace mxattn::addon

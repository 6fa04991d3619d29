// The ONNX Runtime library of an installed onnxruntime-node, opened by path.
#pragma once

#include <memory>
#include <string>

#include "ort/api.h"

namespace mxattn::ort {

struct Library {
  std::string path;
  std::string version;
  const ApiBase* base;
  const Api* api;
  Functions functions;
  Env* env;
  MemoryInfo* cpuMemory;
};

// Opens the library, or returns the one opened from this path before. onnxruntime-node loads the same file, so
// the process holds one copy of it and one environment. Never closed: sessions and tensors may outlive any owner.
// Throws std::runtime_error when the file cannot be loaded or is older than API version kApiVersion.
const Library& openLibrary(const std::string& path);

}  // namespace mxattn::ort

// What a tensor of ONNX Runtime is and where its elements lie.
#pragma once

#include <vector>

#include "ort/api.h"

namespace mxattn::ort {

struct Tensor {
  ElementType type;
  std::vector<int64_t> dims;
  void* data;
  size_t bytes;
};

// The description of a tensor in CPU memory, which it does not own.
// Throws std::runtime_error for a value that is no tensor, and std::invalid_argument for one of an element type without a
// fixed size, as strings.
Tensor describe(const Functions& ort, Value* value);

}  // namespace mxattn::ort

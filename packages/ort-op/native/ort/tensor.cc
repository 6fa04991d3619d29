#include "ort/tensor.h"

#include <memory>
#include <stdexcept>

namespace mxattn::ort {
namespace {

size_t elementSize(ElementType type) {
  switch (type) {
    case kUint8:
    case kInt8:
    case kBool:
      return 1;
    case kUint16:
    case kInt16:
    case kFloat16:
      return 2;
    case kFloat32:
    case kInt32:
    case kUint32:
      return 4;
    case kInt64:
    case kUint64:
    case kFloat64:
      return 8;
    default:
      throw std::invalid_argument("element type " + std::to_string(type) + " is not supported");
  }
}

}  // namespace

Tensor describe(const Functions& ort, Value* value) {
  TensorInfo* raw;
  ort.check(ort.GetTensorTypeAndShape(value, &raw));
  std::unique_ptr<TensorInfo, void (*)(TensorInfo*)> info(raw, ort.ReleaseTensorTypeAndShapeInfo);
  Tensor tensor;
  size_t rank, count;
  ort.check(ort.GetTensorElementType(raw, &tensor.type));
  ort.check(ort.GetDimensionsCount(raw, &rank));
  ort.check(ort.GetTensorShapeElementCount(raw, &count));
  tensor.dims.resize(rank);
  ort.check(ort.GetDimensions(raw, tensor.dims.data(), rank));
  tensor.bytes = count * elementSize(tensor.type);
  ort.check(ort.GetTensorMutableData(value, &tensor.data));
  return tensor;
}

}  // namespace mxattn::ort

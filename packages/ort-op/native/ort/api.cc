#include "ort/api.h"

#include <stdexcept>

namespace mxattn::ort {

Functions bind(const Api* api) {
  auto table = reinterpret_cast<void* const*>(api);
  Functions functions;
#define MXATTN_ORT_BIND(name, index, result, parameters) \
  functions.name = reinterpret_cast<result(*) parameters>(table[index]);
  MXATTN_ORT_FUNCTIONS(MXATTN_ORT_BIND)
#undef MXATTN_ORT_BIND
  return functions;
}

CreateStatusFunction createStatusOf(const Api* api) {
  return reinterpret_cast<CreateStatusFunction>(*reinterpret_cast<void* const*>(api));
}

void Functions::check(Status* status) const {
  if (!status) return;
  std::string message = GetErrorMessage(status);
  ReleaseStatus(status);
  throw std::runtime_error(message);
}

}  // namespace mxattn::ort

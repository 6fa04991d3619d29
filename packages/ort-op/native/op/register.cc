// The operator as a library of its own, libmxattn_ort, for whatever program runs ONNX Runtime: it is given to
// register_custom_ops_library (Python), RegisterCustomOpsLibrary (C, C++, C#) or op_library_filename (Triton).
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "cpu/dispatch.h"
#include "op/fused_attention.h"
#include "ort/api.h"

#ifdef _WIN32
#define MXATTN_EXPORT __declspec(dllexport)
#else
#define MXATTN_EXPORT __attribute__((visibility("default")))
#endif

namespace mxattn::op {
namespace {

// The operator for both element types, in its domain.
struct Registration {
  Registration(const ort::Functions& ort, cpu::Build build)
      : floatOp(ort, build, ort::kFloat32), halfOp(ort, build, ort::kFloat16) {
    ort.check(ort.CreateCustomOpDomain(kDomain, &domain));
    ort.check(ort.CustomOpDomain_Add(domain, &floatOp));
    ort.check(ort.CustomOpDomain_Add(domain, &halfOp));
  }

  FusedAttention floatOp;
  FusedAttention halfOp;
  ort::CustomOpDomain* domain;
};

// MXATTN_ISA names a build of the kernel; default the fastest.
cpu::Build chosenBuild() {
  const char* isa = std::getenv("MXATTN_ISA");
  return cpu::chooseBuild(isa ? isa : "");
}

// One for each copy of ONNX Runtime in the process. Never freed: sessions call back into it to their end, and nobody says
// when the last has come to it.
const Registration& registration(const ort::ApiBase* base, const ort::Functions& ort) {
  static std::mutex mutex;
  static auto& all = *new std::map<const ort::ApiBase*, std::unique_ptr<Registration>>();
  std::lock_guard<std::mutex> lock(mutex);
  auto& known = all[base];
  if (!known) known = std::make_unique<Registration>(ort, chosenBuild());
  return *known;
}

}  // namespace
}  // namespace mxattn::op

extern "C" MXATTN_EXPORT mxattn::ort::Status* RegisterCustomOps(mxattn::ort::SessionOptions* options,
                                                                const mxattn::ort::ApiBase* base) {
  using namespace mxattn;
  const ort::Api* api = base->GetApi(ort::kApiVersion);
  if (!api) {
    // Version 1 exists in every ONNX Runtime, and CreateStatus is its first function.
    auto createStatus = ort::createStatusOf(base->GetApi(1));
    std::string message = "mxattn needs ONNX Runtime 1." + std::to_string(ort::kApiVersion) +
                          " or newer; this is " + base->GetVersionString();
    return createStatus(ort::kNotImplemented, message.c_str());
  }
  ort::Functions ort = ort::bind(api);
  try {
    ort.check(ort.AddCustomOpDomain(options, op::registration(base, ort).domain));
    return nullptr;
  } catch (const std::invalid_argument& error) {
    return ort.CreateStatus(ort::kInvalidArgument, error.what());
  } catch (const std::exception& error) {
    return ort.CreateStatus(ort::kFail, error.what());
  }
}

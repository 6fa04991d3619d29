// The operator as a library of its own, libmxattn_ort, for whatever program runs ONNX Runtime: it is given to
// register_custom_ops_library (Python), RegisterCustomOpsLibrary (C, C++, C#) or op_library_filename (Triton).
#include <cctype>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "cpu/dispatch.h"
#include "hip/driver/shared_library.h"
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
  Registration(const ort::Functions& ort, cpu::Build build, std::shared_ptr<GpuUse> use)
      : gpu(std::move(use)), floatOp(ort, build, ort::kFloat32, gpu), halfOp(ort, build, ort::kFloat16, gpu) {
    ort.check(ort.CreateCustomOpDomain(kDomain, &domain));
    ort.check(ort.CustomOpDomain_Add(domain, &floatOp));
    ort.check(ort.CustomOpDomain_Add(domain, &halfOp));
  }

  std::shared_ptr<GpuUse> gpu;
  FusedAttention floatOp;
  FusedAttention halfOp;
  ort::CustomOpDomain* domain;
};

// MXATTN_ISA names a build of the kernel; default the fastest.
cpu::Build chosenBuild() { return cpu::chooseBuild(hip::environment("MXATTN_ISA")); }

// MXATTN_DEVICE is cpu (the default), gpu, or gpu: and the index of one; what a GPU cannot do is an error.
std::shared_ptr<GpuUse> chosenGpu() {
  std::string device = hip::environment("MXATTN_DEVICE");
  if (device.empty() || device == "cpu") return nullptr;
  if (device == "gpu") device = "gpu:0";
  size_t end = 0;
  std::string index = device.rfind("gpu:", 0) == 0 ? device.substr(4) : "";
  int number = index.empty() || !std::isdigit(static_cast<unsigned char>(index[0])) ? -1 : std::stoi(index, &end);
  if (number < 0 || end != index.size()) {
    throw std::invalid_argument("MXATTN_DEVICE is \"" + device + "\"; it may be cpu, gpu, or gpu:1 and so on");
  }
  return std::make_shared<GpuUse>(number, true);
}

// One for each copy of ONNX Runtime in the process. Never freed: sessions call back into it to their end, and nobody says
// when the last has come to it.
const Registration& registration(const ort::ApiBase* base, const ort::Functions& ort) {
  static std::mutex mutex;
  static auto& all = *new std::map<const ort::ApiBase*, std::unique_ptr<Registration>>();
  std::lock_guard<std::mutex> lock(mutex);
  auto& known = all[base];
  if (!known) known = std::make_unique<Registration>(ort, chosenBuild(), chosenGpu());
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

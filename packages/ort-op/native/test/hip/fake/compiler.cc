// A libhiprtc whose code objects name their architecture and hold nothing.
#include <cstring>
#include <string>

#include "test/hip/fake/faults.h"

using namespace mxattn::hip::fake;

namespace {

Counts counts("compiler.json");

constexpr int kCompilationError = 6;
constexpr char kLog[] = "mxattn.hip:12:3: error: unknown type name 'wave'";

struct Program {
  std::string source;
  std::string architecture;
};

}  // namespace

#define HIPRTC extern "C" __attribute__((visibility("default")))

HIPRTC int hiprtcVersion(int* major, int* minor) {
  *major = std::stoi(variable("MXATTN_FAKE_HIP_COMPILER", "6"));
  *minor = 0;
  return 0;
}

HIPRTC const char* hiprtcGetErrorString(int code) {
  return code == kCompilationError ? "HIPRTC_ERROR_COMPILATION" : "HIPRTC_SUCCESS";
}

HIPRTC int hiprtcCreateProgram(void** program, const char* source, const char*, int, const char* const*,
                               const char* const*) {
  *program = new Program{source, ""};
  counts.add("programs", 1);
  return 0;
}

HIPRTC int hiprtcCompileProgram(void* program, int options, const char* const* option) {
  counts.add("compilations", 1);
  auto self = static_cast<Program*>(program);
  for (int i = 0; i < options; i++) {
    constexpr char kTarget[] = "--offload-arch=";
    if (std::strncmp(option[i], kTarget, sizeof kTarget - 1) == 0) self->architecture = option[i] + sizeof kTarget - 1;
  }
  bool whole = self->source.find("#include") == std::string::npos;
  return fails("compile") || self->architecture.empty() || !whole ? kCompilationError : 0;
}

HIPRTC int hiprtcGetProgramLogSize(void*, size_t* size) {
  *size = sizeof kLog;
  return 0;
}

HIPRTC int hiprtcGetProgramLog(void*, char* log) {
  std::memcpy(log, kLog, sizeof kLog);
  return 0;
}

HIPRTC int hiprtcGetCodeSize(void* program, size_t* size) {
  *size = static_cast<Program*>(program)->architecture.size() + 1;
  return 0;
}

HIPRTC int hiprtcGetCode(void* program, char* code) {
  std::strcpy(code, static_cast<Program*>(program)->architecture.c_str());
  return 0;
}

HIPRTC int hiprtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  counts.add("programs", -1);
  return 0;
}

#include "ort/library.h"

#include <map>
#include <mutex>
#include <stdexcept>

#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

namespace mxattn::ort {
namespace {

void* openFile(const std::string& path, const char* symbol) {
#ifdef _WIN32
  HMODULE handle = LoadLibraryExA(path.c_str(), nullptr, LOAD_WITH_ALTERED_SEARCH_PATH);
  if (!handle) throw std::runtime_error("cannot load " + path + ": error " + std::to_string(GetLastError()));
  void* found = reinterpret_cast<void*>(GetProcAddress(handle, symbol));
#else
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) throw std::runtime_error("cannot load " + path + ": " + dlerror());
  void* found = dlsym(handle, symbol);
#endif
  if (!found) throw std::runtime_error(path + " is not an ONNX Runtime library: it has no " + symbol);
  return found;
}

std::unique_ptr<Library> load(const std::string& path) {
  auto library = std::make_unique<Library>();
  library->path = path;
  library->base = reinterpret_cast<const ApiBase* (*)()>(openFile(path, "OrtGetApiBase"))();
  library->version = library->base->GetVersionString();
  library->api = library->base->GetApi(kApiVersion);
  if (!library->api) {
    throw std::runtime_error("ONNX Runtime " + library->version + " in " + path +
                             " is too old: version 1." + std::to_string(kApiVersion) + " or newer is needed");
  }
  library->functions = bind(library->api);
  const Functions& functions = library->functions;
  functions.check(functions.CreateEnv(kWarning, "mxattn", &library->env));
  functions.check(functions.CreateCpuMemoryInfo(kDeviceAllocator, kMemoryDefault, &library->cpuMemory));
  return library;
}

}  // namespace

const Library& openLibrary(const std::string& path) {
  static std::mutex mutex;
  static auto& libraries = *new std::map<std::string, std::unique_ptr<Library>>();
  std::lock_guard<std::mutex> lock(mutex);
  auto& library = libraries[path];
  if (!library) library = load(path);
  return *library;
}

}  // namespace mxattn::ort

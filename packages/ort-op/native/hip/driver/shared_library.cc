#include "hip/driver/shared_library.h"

#include <cstdlib>
#include <filesystem>

#include "hip/driver/device.h"

#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

namespace mxattn::hip {
namespace {

// An empty `why` is a file that does not exist.
void* open(const std::string& file, std::string& why) {
#ifdef _WIN32
  void* handle = LoadLibraryA(file.c_str());
  DWORD error = handle ? ERROR_SUCCESS : GetLastError();
  if (error != ERROR_SUCCESS && error != ERROR_MOD_NOT_FOUND) why = "error " + std::to_string(error);
  return handle;
#else
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    std::string message = dlerror();
    // A library that is broken, or needs one that is missing, is worth telling.
    bool missing = message.compare(0, file.size() + 1, file + ":") == 0 &&
                   message.find("cannot open shared object file") != std::string::npos;
    if (!missing) why = message;
  }
  return handle;
#endif
}

}  // namespace

SharedLibrary::SharedLibrary(const std::vector<std::string>& files, const std::string& remedy) {
  std::string tried, broken;
  for (const std::string& file : files) {
    std::string why;
    handle_ = open(file, why);
    path_ = file;
    if (handle_) return;
    tried += (tried.empty() ? "" : ", ") + file;
    if (broken.empty()) broken = why;
  }
  throw DeviceError((broken.empty() ? "none of " + tried + " is there" : broken) + "; " + remedy);
}

void* SharedLibrary::symbol(const char* name) const {
#ifdef _WIN32
  auto found = reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(handle_), name));
#else
  void* found = dlsym(handle_, name);
#endif
  if (!found) throw DeviceError(path_ + " has no " + name + "; update the GPU's driver");
  return found;
}

std::vector<std::string> libraryFiles(const char* variable, const std::vector<std::string>& names,
                                      const std::vector<std::string>& folders) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  auto inFolder = [&](const fs::path& folder) {
    for (const std::string& name : names) files.push_back((folder / name).string());
  };
  std::string given = environment(variable);
  std::error_code ignored;
  if (!given.empty()) {
    if (fs::is_directory(given, ignored)) inFolder(given);
    else files.push_back(given);
    return files;
  }
  files = names;
  for (const std::string& folder : folders) {
    if (!folder.empty()) inFolder(folder);
  }
  return files;
}

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

}  // namespace mxattn::hip

// A library of a driver, loaded at run time and never unloaded: drivers have threads of their own.
#pragma once

#include <string>
#include <vector>

namespace mxattn::hip {

class SharedLibrary {
 public:
  // The first of the files that loads: names are looked up by the system, paths are taken as they are. Throws DeviceError
  // that says what was tried and ends with `remedy`.
  SharedLibrary(const std::vector<std::string>& files, const std::string& remedy);

  const std::string& path() const { return path_; }

  // Sets a pointer to the function of that name. Throws DeviceError if there is none.
  template <typename Function>
  void bind(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;

  void* handle_;
  std::string path_;
};

// The files that stand for a library: what an environment variable points to (a file, or a folder with one of the names)
// alone if it is set, else the names themselves, then the names in each folder.
std::vector<std::string> libraryFiles(const char* variable, const std::vector<std::string>& names,
                                      const std::vector<std::string>& folders);

// The value of an environment variable, empty if there is none.
std::string environment(const char* variable);

}  // namespace mxattn::hip

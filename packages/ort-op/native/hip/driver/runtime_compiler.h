// hiprtc or NVRTC, which are alike but for names.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "hip/driver/shared_library.h"

namespace mxattn::hip {

class RuntimeCompiler {
 public:
  struct Dialect {
    std::string prefix;  // of its functions: "hiprtc" or "nvrtc"
    std::string code;    // what machine code is called: "Code" or "CUBIN"
    // Before the name of the architecture.
    std::string architectureOption;
    std::vector<std::string> options;
  };

  RuntimeCompiler(SharedLibrary library, Dialect dialect);

  // Name and version.
  std::string describe() const;

  // Throws DeviceError with the first lines of the compiler's log.
  std::vector<char> compile(const std::string& source, const std::string& architecture,
                            const std::vector<std::string>& defines);

 private:
  using Program = void*;
  struct Owned;

  void check(int code, const std::string& call) const;
  std::string log(Program program) const;

  SharedLibrary library_;
  Dialect dialect_;
  int (*version_)(int* major, int* minor);
  const char* (*errorString_)(int);
  int (*createProgram_)(Program*, const char* source, const char* name, int headers, const char* const*,
                        const char* const*);
  int (*compileProgram_)(Program, int options, const char* const*);
  int (*logSize_)(Program, size_t*);
  int (*log_)(Program, char*);
  int (*codeSize_)(Program, size_t*);
  int (*code_)(Program, char*);
  int (*destroyProgram_)(Program*);
};

}  // namespace mxattn::hip

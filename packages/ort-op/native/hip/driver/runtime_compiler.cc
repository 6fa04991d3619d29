#include "hip/driver/runtime_compiler.h"

#include "hip/driver/device.h"

namespace mxattn::hip {

struct RuntimeCompiler::Owned {
  ~Owned() { compiler.destroyProgram_(&program); }
  const RuntimeCompiler& compiler;
  Program program;
};

RuntimeCompiler::RuntimeCompiler(SharedLibrary library, Dialect dialect)
    : library_(std::move(library)), dialect_(std::move(dialect)) {
  auto bind = [&](auto*& function, const std::string& name) {
    library_.bind(function, (dialect_.prefix + name).c_str());
  };
  bind(version_, "Version");
  bind(errorString_, "GetErrorString");
  bind(createProgram_, "CreateProgram");
  bind(compileProgram_, "CompileProgram");
  bind(logSize_, "GetProgramLogSize");
  bind(log_, "GetProgramLog");
  bind(codeSize_, "Get" + dialect_.code + "Size");
  bind(code_, "Get" + dialect_.code);
  bind(destroyProgram_, "DestroyProgram");
}

std::string RuntimeCompiler::describe() const {
  int major = 0, minor = 0;
  check(version_(&major, &minor), "Version");
  return dialect_.prefix + " " + std::to_string(major) + "." + std::to_string(minor);
}

void RuntimeCompiler::check(int code, const std::string& call) const {
  if (code == 0) return;
  throw DeviceError(dialect_.prefix + call + " of " + library_.path() + " failed: " + errorString_(code) + " (" +
                    std::to_string(code) + "); reinstall or update it");
}

std::string RuntimeCompiler::log(Program program) const {
  constexpr size_t kShown = 2000;
  size_t size = 0;
  if (logSize_(program, &size) != 0 || size <= 1) return "it says nothing more";
  std::string text(size, '\0');
  if (log_(program, text.data()) != 0) return "its log cannot be read";
  text.resize(text.find_last_not_of(std::string("\0\n ", 3)) + 1);
  return text.size() > kShown ? text.substr(0, kShown) + "..." : text;
}

std::vector<char> RuntimeCompiler::compile(const std::string& source, const std::string& architecture,
                                           const std::vector<std::string>& defines) {
  Owned owned{*this, nullptr};
  check(createProgram_(&owned.program, source.c_str(), "mxattn.hip", 0, nullptr, nullptr), "CreateProgram");
  std::string target = dialect_.architectureOption + architecture;
  std::vector<const char*> options{target.c_str()};
  for (const std::string& option : dialect_.options) options.push_back(option.c_str());
  for (const std::string& define : defines) options.push_back(define.c_str());
  int code = compileProgram_(owned.program, static_cast<int>(options.size()), options.data());
  if (code != 0) {
    throw DeviceError(describe() + " does not compile the kernels for " + architecture + " (" + errorString_(code) +
                      ", " + std::to_string(code) + "); it may be too old for this GPU. It says: " + log(owned.program));
  }
  size_t size = 0;
  check(codeSize_(owned.program, &size), "Get" + dialect_.code + "Size");
  std::vector<char> machineCode(size);
  check(code_(owned.program, machineCode.data()), "Get" + dialect_.code);
  return machineCode;
}

}  // namespace mxattn::hip

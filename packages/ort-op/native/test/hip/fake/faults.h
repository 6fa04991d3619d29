// What goes wrong, and what is alive, in the libraries that stand for AMD's in tests.
//
// MXATTN_FAKE_HIP_FAULT: "CALL", "CALL:N" or "CALL:N+", the name of what fails: always, the Nth time, or from then on, counted
// from when the variable was given this value; "#" and anything after it makes a new value. MXATTN_FAKE_HIP_COUNTS: a folder, where each library keeps its counts as JSON.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace mxattn::hip::fake {

inline std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

// Whether this call of `what` is the one to fail.
inline bool fails(const std::string& what) {
  static std::mutex mutex;
  static std::string current;
  static int calls = 0;
  std::lock_guard<std::mutex> lock(mutex);
  std::string fault = variable("MXATTN_FAKE_HIP_FAULT", "");
  if (fault != current) {
    current = fault;
    calls = 0;
  }
  fault = fault.substr(0, fault.find('#'));
  size_t colon = fault.find(':');
  if (fault.substr(0, colon) != what) return false;
  if (colon == std::string::npos) return true;
  int first = std::stoi(fault.substr(colon + 1));
  return ++calls == first || (fault.back() == '+' && calls > first);
}

class Counts {
 public:
  explicit Counts(const char* file) : file_(file) {}

  void add(const char* what, int number) {
    std::lock_guard<std::mutex> lock(mutex_);
    counts_[what] += number;
    std::string folder = variable("MXATTN_FAKE_HIP_COUNTS", "");
    if (folder.empty()) return;
    FILE* file = std::fopen((folder + "/" + file_).c_str(), "w");
    if (!file) return;
    const char* separator = "{";
    for (const auto& [name, count] : counts_) {
      std::fprintf(file, "%s\"%s\":%d", separator, name.c_str(), count);
      separator = ",";
    }
    std::fputs("}", file);
    std::fclose(file);
  }

 private:
  const char* file_;
  std::mutex mutex_;
  std::map<std::string, int> counts_;
};

}  // namespace mxattn::hip::fake

#include "hip/engine/code_cache.h"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "hip/driver/shared_library.h"

namespace mxattn::hip {
namespace {

namespace fs = std::filesystem;

// FNV-1a
uint64_t hash(const void* data, size_t size, uint64_t value = 0xcbf29ce484222325u) {
  auto bytes = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < size; i++) value = (value ^ bytes[i]) * 0x100000001b3u;
  return value;
}

// Empty if there is none.
fs::path folder() {
#ifdef _WIN32
  std::string local = environment("LOCALAPPDATA");
  return local.empty() ? fs::path() : fs::path(local) / "mxattn";
#else
  std::string xdg = environment("XDG_CACHE_HOME"), home = environment("HOME");
  if (!xdg.empty()) return fs::path(xdg) / "mxattn";
  return home.empty() ? fs::path() : fs::path(home) / ".cache" / "mxattn";
#endif
}

// A file begins with this, then what the code was made of, its length and its hash: two keys may share a name, and a disk may
// have been full.
constexpr char kMagic[] = "mxattn kernels 1\n";

std::string header(const std::string& key, const std::vector<char>& code) {
  return kMagic + std::to_string(hash(key.data(), key.size(), 1)) + " " + std::to_string(code.size()) + " " +
         std::to_string(hash(code.data(), code.size())) + "\n";
}

// Empty if there is none, or it is damaged.
std::vector<char> read(const fs::path& file, const std::string& key) {
  std::ifstream stream(file, std::ios::binary);
  std::string magic, sizes;
  if (!std::getline(stream, magic) || !std::getline(stream, sizes)) return {};
  std::vector<char> code{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  return magic + "\n" + sizes + "\n" == header(key, code) ? code : std::vector<char>();
}

// Another process sees all of the file or none.
void write(const fs::path& file, const std::string& key, const std::vector<char>& code) {
  std::error_code ignored;
  fs::create_directories(file.parent_path(), ignored);
  fs::path draft = file;
  draft += "." + std::to_string(std::random_device()()) + ".tmp";
  {
    std::ofstream stream(draft, std::ios::binary);
    stream << header(key, code);
    stream.write(code.data(), static_cast<std::streamsize>(code.size()));
    if (!stream.flush()) {
      stream.close();
      fs::remove(draft, ignored);
      return;
    }
  }
  std::error_code failed;
  fs::rename(draft, file, failed);
  if (failed) fs::remove(draft, ignored);
}

}  // namespace

std::vector<char> compiledCode(Device& device, const std::string& source, const std::vector<std::string>& defines) {
  std::string key = device.facts().target.architecture + "\n" + device.compiler() + "\n";
  for (const std::string& define : defines) key += define + "\n";
  key += source;
  fs::path place = folder();
  char name[32];
  std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(hash(key.data(), key.size())));
  fs::path file = place / (device.facts().target.architecture + "-" + name);
  if (!place.empty()) {
    std::vector<char> known = read(file, key);
    if (!known.empty()) return known;
  }
  std::vector<char> code = device.compile(source, defines);
  if (!place.empty()) write(file, key, code);
  return code;
}

}  // namespace mxattn::hip

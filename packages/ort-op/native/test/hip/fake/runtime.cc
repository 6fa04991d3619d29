// A libamdhip64 without a GPU. Its memory is the host's; what is queued on a stream is done when somebody waits for it, as late
// as a GPU may. MXATTN_FAKE_HIP_GPUS are the architectures of the GPUs that it shows, separated by commas.
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "test/hip/emulated.h"
#include "test/hip/fake/faults.h"

using namespace mxattn::hip;
using fake::fails;
using fake::variable;

namespace {

enum Code : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kNoBinary = 209,
  kNotFound = 500,
  kLaunchOutOfResources = 701,
  kLaunchFailure = 719,
};

fake::Counts counts("runtime.json");
std::recursive_mutex mutex;
// Every call fails.
bool lost = false;

struct Stream {
  std::deque<std::function<void()>> queue;
  size_t queued = 0, done = 0;

  void push(std::function<void()> task) {
    queue.push_back(std::move(task));
    queued++;
  }
  void runTo(size_t end) {
    for (; done < end; done++) {
      queue.front()();
      queue.pop_front();
    }
  }
};

struct Event {
  Stream* stream = nullptr;
  size_t position = 0;
};

struct Module {
  std::string architecture;
};

struct Function {
  std::string architecture;
  std::string name;
};

std::map<Stream*, std::unique_ptr<Stream>> streams;
std::map<std::pair<Module*, std::string>, std::unique_ptr<Function>> functions;
// Begin and length of what is allocated on the GPU.
std::map<char*, size_t> memory;

bool onGpu(const void* pointer, size_t bytes) {
  auto address = static_cast<const char*>(pointer);
  auto after = memory.upper_bound(const_cast<char*>(address));
  if (after == memory.begin()) return false;
  auto& [begin, length] = *std::prev(after);
  return address + bytes <= begin + length;
}

void finishAll() {
  for (auto& [stream, owned] : streams) stream->runTo(stream->queued);
}

std::vector<std::string> gpus() {
  std::vector<std::string> all;
  std::istringstream list(variable("MXATTN_FAKE_HIP_GPUS", "gfx942:sramecc+:xnack-"));
  for (std::string each; std::getline(list, each, ',');) all.push_back(each);
  return all;
}

int devices() { return static_cast<int>(gpus().size()); }

thread_local int current = 0;

std::string architecture(int device) {
  std::string name = gpus().at(device);
  return name.substr(0, name.find(':'));
}

}  // namespace

#define HIP extern "C" __attribute__((visibility("default")))
#define LOCKED                                        \
  std::lock_guard<std::recursive_mutex> lock(mutex); \
  if (lost) return kLaunchFailure

HIP const char* hipGetErrorString(int code) {
  switch (code) {
    case kSuccess: return "no error";
    case kInvalidValue: return "invalid argument";
    case kOutOfMemory: return "out of memory";
    case kNoDevice: return "no ROCm-capable device is detected";
    case kInvalidDevice: return "invalid device ordinal";
    case kNoBinary: return "no kernel image is available for execution on the device";
    case kNotFound: return "named symbol not found";
    case kLaunchOutOfResources: return "out of resources";
    case kLaunchFailure: return "unspecified launch failure";
    default: return "unknown error";
  }
}

HIP int hipInit(unsigned) {
  lost = false;
  return fails("init") ? kNoDevice : kSuccess;
}

HIP int hipGetDeviceCount(int* count) {
  *count = fails("count") ? 0 : devices();
  return kSuccess;
}

HIP int hipSetDevice(int device) {
  LOCKED;
  if (device >= devices()) return kInvalidDevice;
  current = device;
  return kSuccess;
}

HIP int hipGetDevicePropertiesR0600(void* properties, int device) {
  if (device >= devices()) return kInvalidDevice;
  auto bytes = static_cast<char*>(properties);
  std::memset(bytes, 0, 1472);
  std::strcpy(bytes, "Emulated GPU");
  std::strcpy(bytes + 1160, gpus()[device].c_str());
  size_t total = size_t{1} << 30, shared = 64 << 10;
  std::string family = gpus()[device].substr(0, 5);
  int waveSize = family == "gfx11" || family == "gfx12" ? 32 : 64, multiprocessors = 4;
  std::memcpy(bytes + 288, &total, sizeof total);
  std::memcpy(bytes + 296, &shared, sizeof shared);
  std::memcpy(bytes + 308, &waveSize, sizeof waveSize);
  std::memcpy(bytes + 388, &multiprocessors, sizeof multiprocessors);
  return kSuccess;
}

HIP int hipMalloc(void** pointer, size_t bytes) {
  LOCKED;
  if (fails("allocation")) return kOutOfMemory;
  auto address = static_cast<char*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  // NaNs, so that what is read before it is written shows.
  std::memset(address, 0xff, bytes);
  memory[address] = bytes;
  *pointer = address;
  counts.add("memory", 1);
  counts.add("allocations", 1);
  return kSuccess;
}

HIP int hipFree(void* pointer) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (!pointer) return kSuccess;
  finishAll();
  if (memory.erase(static_cast<char*>(pointer)) == 0) return kInvalidValue;
  std::free(pointer);
  counts.add("memory", -1);
  return kSuccess;
}

HIP int hipHostMalloc(void** pointer, size_t bytes, unsigned) {
  LOCKED;
  if (fails("pinned")) return kOutOfMemory;
  *pointer = std::malloc(bytes);
  std::memset(*pointer, 0xff, bytes);
  counts.add("pinned", 1);
  return kSuccess;
}

HIP int hipHostFree(void* pointer) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  finishAll();
  std::free(pointer);
  counts.add("pinned", -1);
  return kSuccess;
}

HIP int hipStreamCreateWithFlags(void** stream, unsigned) {
  LOCKED;
  if (fails("stream")) return kOutOfMemory;
  auto owned = std::make_unique<Stream>();
  *stream = owned.get();
  streams[owned.get()] = std::move(owned);
  counts.add("streams", 1);
  return kSuccess;
}

HIP int hipStreamDestroy(void* stream) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  finishAll();
  streams.erase(static_cast<Stream*>(stream));
  counts.add("streams", -1);
  return kSuccess;
}

HIP int hipStreamSynchronize(void* stream) {
  LOCKED;
  auto self = static_cast<Stream*>(stream);
  self->runTo(self->queued);
  return lost ? kLaunchFailure : kSuccess;
}

HIP int hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
  LOCKED;
  if (fails("copy")) return kInvalidValue;
  if (kind != 1 && !onGpu(from, bytes)) return kInvalidValue;
  if (kind != 2 && !onGpu(to, bytes)) return kInvalidValue;
  static_cast<Stream*>(stream)->push([=] {
    if (!lost) std::memcpy(to, from, bytes);
  });
  return kSuccess;
}

HIP int hipEventCreateWithFlags(void** event, unsigned) {
  LOCKED;
  if (fails("event")) return kOutOfMemory;
  *event = new Event();
  counts.add("events", 1);
  return kSuccess;
}

HIP int hipEventDestroy(void* event) {
  delete static_cast<Event*>(event);
  counts.add("events", -1);
  return kSuccess;
}

HIP int hipEventRecord(void* event, void* stream) {
  LOCKED;
  auto self = static_cast<Event*>(event);
  self->stream = static_cast<Stream*>(stream);
  self->position = self->stream->queued;
  return kSuccess;
}

HIP int hipEventSynchronize(void* event) {
  LOCKED;
  auto self = static_cast<Event*>(event);
  if (self->stream) self->stream->runTo(self->position);
  return lost ? kLaunchFailure : kSuccess;
}

// A code object is the name of its architecture, as the fake compiler makes it.
HIP int hipModuleLoadData(void** module, const void* code) {
  LOCKED;
  std::string compiledFor = static_cast<const char*>(code);
  if (fails("load") || compiledFor != architecture(current)) return kNoBinary;
  *module = new Module{compiledFor};
  counts.add("modules", 1);
  return kSuccess;
}

HIP int hipModuleUnload(void* module) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  finishAll();
  delete static_cast<Module*>(module);
  counts.add("modules", -1);
  return kSuccess;
}

HIP int hipModuleGetFunction(void** function, void* module, const char* name) {
  LOCKED;
  if (fails("function")) return kNotFound;
  auto self = static_cast<Module*>(module);
  auto& known = functions[{self, name}];
  known.reset(new Function{self->architecture, name});
  *function = known.get();
  return kSuccess;
}

HIP int hipModuleLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned, unsigned,
                              unsigned sharedBytes, void* stream, void**, void** packed) {
  LOCKED;
  if (fails("launch")) return kLaunchOutOfResources;
  bool breaks = fails("lost");
  auto self = *static_cast<Function*>(function);
  auto arguments = static_cast<const uint8_t*>(packed[1]);
  std::vector<uint8_t> copy(arguments, arguments + *static_cast<size_t*>(packed[3]));
  counts.add("launches", 1);
  static_cast<Stream*>(stream)->push([=] {
    if (breaks) lost = true;
    if (lost) return;
    // Any other GPU runs what is written for all.
    std::string emulatedAs = self.architecture;
    bool known = false;
    for (const char* each : {"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"}) known |= emulatedAs == each;
    const uint32_t groups[] = {x, y, z};
    if (!emulated::run(known ? emulatedAs : "generic", self.name, groups, threads, sharedBytes, copy.data(), copy.size())) {
      std::fprintf(stderr, "no emulated kernel %s for %s\n", self.name.c_str(), emulatedAs.c_str());
      lost = true;
    }
  });
  return kSuccess;
}

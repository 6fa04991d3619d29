// AMD's runtime: libamdhip64 and, for the kernels, libhiprtc.
#include <cstring>

#include "hip/driver/gpu.h"
#include "hip/driver/shared_library.h"

namespace mxattn::hip {
namespace {

// The part of hipDeviceProp_t (R0600) that is read. Its size and offsets are of ROCm 6 and 7.
struct DeviceProperties {
  static constexpr size_t kSize = 4096;  // more than any version's
  static constexpr size_t kName = 0, kTotalMemory = 288, kSharedMemory = 296, kWaveSize = 308, kMultiprocessors = 388,
                          kArchitecture = 1160;
  alignas(16) char bytes[kSize] = {};

  template <typename T>
  T at(size_t offset) const {
    T value;
    std::memcpy(&value, bytes + offset, sizeof value);
    return value;
  }
};

// A folder in MXATTN_HIP, else the system's, else ROCm's own.
std::vector<std::string> files(const std::vector<std::string>& names) {
  std::string rocm = environment("ROCM_PATH");
  return libraryFiles("MXATTN_HIP", names, {rocm.empty() ? "" : rocm + "/lib", "/opt/rocm/lib"});
}

std::vector<std::string> runtimeFiles() {
#ifdef _WIN32
  return files({"amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"});
#else
  return files({"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"});
#endif
}

std::vector<std::string> compilerFiles() {
#ifdef _WIN32
  return files({"hiprtc0701.dll", "hiprtc0700.dll", "hiprtc0604.dll", "hiprtc0603.dll", "hiprtc0602.dll"});
#else
  return files({"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so"});
#endif
}

constexpr const char* kRemedy =
    "install ROCm 6 or newer (or AMD's driver on Windows), or name the folder of its libraries in MXATTN_HIP";

class HipApi : public DriverApi {
 public:
  HipApi() : library_(runtimeFiles(), kRemedy) {
#define MXATTN_BIND(name) library_.bind(name##_, "hip" #name)
    MXATTN_BIND(Init);
    MXATTN_BIND(GetDeviceCount);
    MXATTN_BIND(SetDevice);
    MXATTN_BIND(GetErrorString);
    MXATTN_BIND(Malloc);
    MXATTN_BIND(Free);
    MXATTN_BIND(HostMalloc);
    MXATTN_BIND(HostFree);
    MXATTN_BIND(StreamCreateWithFlags);
    MXATTN_BIND(StreamDestroy);
    MXATTN_BIND(StreamSynchronize);
    MXATTN_BIND(MemcpyAsync);
    MXATTN_BIND(EventCreateWithFlags);
    MXATTN_BIND(EventDestroy);
    MXATTN_BIND(EventRecord);
    MXATTN_BIND(EventSynchronize);
    MXATTN_BIND(ModuleLoadData);
    MXATTN_BIND(ModuleUnload);
    MXATTN_BIND(ModuleGetFunction);
    MXATTN_BIND(ModuleLaunchKernel);
#undef MXATTN_BIND
    // The name without a suffix is that of an older layout.
    library_.bind(GetDeviceProperties_, "hipGetDevicePropertiesR0600");
  }

  std::vector<DeviceFacts> devices() override {
    check(Init_(0), "hipInit");
    int count = 0;
    check(GetDeviceCount_(&count), "hipGetDeviceCount");
    std::vector<DeviceFacts> all;
    for (int i = 0; i < count; i++) {
      DeviceProperties properties;
      check(GetDeviceProperties_(properties.bytes, i), "hipGetDeviceProperties");
      // "gfx942:sramecc+:xnack-"
      std::string architecture = properties.bytes + DeviceProperties::kArchitecture;
      architecture = architecture.substr(0, architecture.find(':'));
      DeviceFacts facts{"HIP", i, properties.bytes + DeviceProperties::kName, {}, 0};
      facts.target = {architecture, properties.at<int>(DeviceProperties::kWaveSize),
                      properties.at<int>(DeviceProperties::kMultiprocessors),
                      properties.at<size_t>(DeviceProperties::kSharedMemory)};
      facts.totalMemory = properties.at<size_t>(DeviceProperties::kTotalMemory);
      all.push_back(std::move(facts));
    }
    if (all.empty()) throw DeviceError("no GPU; does HIP_VISIBLE_DEVICES hide it?");
    return all;
  }

  std::string describe(int code) override { return GetErrorString_(code); }
  int open(int) override { return kSuccess; }
  void close(int) noexcept override {}
  int makeCurrent(int ordinal) override { return SetDevice_(ordinal); }
  int allocate(Address* memory, size_t bytes) override { return Malloc_(reinterpret_cast<void**>(memory), bytes); }
  int free(Address memory) override { return Free_(pointer(memory)); }
  int allocatePinned(void** memory, size_t bytes) override { return HostMalloc_(memory, bytes, 0); }
  int freePinned(void* memory) override { return HostFree_(memory); }
  int createStream(Stream* stream) override { return StreamCreateWithFlags_(stream, kNonBlocking); }
  int destroyStream(Stream stream) override { return StreamDestroy_(stream); }
  int synchronize(Stream stream) override { return StreamSynchronize_(stream); }
  int copyIn(Address to, const void* from, size_t bytes, Stream stream) override {
    return MemcpyAsync_(pointer(to), from, bytes, kHostToDevice, stream);
  }
  int copyOut(void* to, Address from, size_t bytes, Stream stream) override {
    return MemcpyAsync_(to, pointer(from), bytes, kDeviceToHost, stream);
  }
  int copyWithin(Address to, Address from, size_t bytes, Stream stream) override {
    return MemcpyAsync_(pointer(to), pointer(from), bytes, kDeviceToDevice, stream);
  }
  int createEvent(void** event) override { return EventCreateWithFlags_(event, kNoTiming); }
  int destroyEvent(void* event) override { return EventDestroy_(event); }
  int record(void* event, Stream stream) override { return EventRecord_(event, stream); }
  int wait(void* event) override { return EventSynchronize_(event); }
  int loadModule(void** module, const void* code) override { return ModuleLoadData_(module, code); }
  int unloadModule(void* module) override { return ModuleUnload_(module); }
  int function(void** function, void* module, const char* name) override {
    return ModuleGetFunction_(function, module, name);
  }
  int allowSharedMemory(void*, uint32_t) override { return kSuccess; }  // all of it is
  int launch(void* function, const Launch& launch, Stream stream) override {
    size_t size = launch.arguments.size();
    void* packed[] = {reinterpret_cast<void*>(1), const_cast<uint8_t*>(launch.arguments.data()),
                      reinterpret_cast<void*>(2), &size, reinterpret_cast<void*>(3)};
    const uint32_t* groups = launch.groups;
    return ModuleLaunchKernel_(function, groups[0], groups[1], groups[2], launch.threads, 1, 1, launch.sharedBytes,
                               stream, nullptr, packed);
  }
  RuntimeCompiler openCompiler() override {
    return {SharedLibrary(compilerFiles(), kRemedy), {"hiprtc", "Code", "--offload-arch=", {"-std=c++17", "-O3"}}};
  }

 private:
  static constexpr unsigned kNonBlocking = 1, kNoTiming = 2;
  static constexpr int kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3;

  static void* pointer(Address memory) { return reinterpret_cast<void*>(memory); }

  void check(int code, const std::string& call) {
    if (code == kSuccess) return;
    throw DeviceError(call + " of " + library_.path() + " failed: " + GetErrorString_(code) + " (" +
                      std::to_string(code) +
                      "); is there an AMD GPU that ROCm supports, is this user in the groups render and video, and does "
                      "HIP_VISIBLE_DEVICES not hide it?");
  }

  SharedLibrary library_;
  int (*Init_)(unsigned);
  int (*GetDeviceCount_)(int*);
  int (*GetDeviceProperties_)(void*, int);
  int (*SetDevice_)(int);
  const char* (*GetErrorString_)(int);
  int (*Malloc_)(void**, size_t);
  int (*Free_)(void*);
  int (*HostMalloc_)(void**, size_t, unsigned);
  int (*HostFree_)(void*);
  int (*StreamCreateWithFlags_)(void**, unsigned);
  int (*StreamDestroy_)(void*);
  int (*StreamSynchronize_)(void*);
  int (*MemcpyAsync_)(void*, const void*, size_t, int, void*);
  int (*EventCreateWithFlags_)(void**, unsigned);
  int (*EventDestroy_)(void*);
  int (*EventRecord_)(void*, void*);
  int (*EventSynchronize_)(void*);
  int (*ModuleLoadData_)(void**, const void*);
  int (*ModuleUnload_)(void*);
  int (*ModuleGetFunction_)(void**, void*, const char*);
  int (*ModuleLaunchKernel_)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                             void**);
};

}  // namespace

std::shared_ptr<DriverApi> openHip() { return std::make_shared<HipApi>(); }

}  // namespace mxattn::hip

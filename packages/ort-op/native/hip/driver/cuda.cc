// NVIDIA's driver: libcuda and, for the kernels, libnvrtc.
#include <map>

#include "hip/driver/gpu.h"
#include "hip/driver/shared_library.h"

namespace mxattn::hip {
namespace {

std::vector<std::string> driverFiles() {
#ifdef _WIN32
  return {"nvcuda.dll"};
#else
  return {"libcuda.so.1", "libcuda.so"};
#endif
}

// A file or folder in MXATTN_NVRTC, else the system's, else the toolkit's.
std::vector<std::string> compilerFiles() {
  std::string cuda = environment("CUDA_PATH");
#ifdef _WIN32
  return libraryFiles("MXATTN_NVRTC", {"nvrtc64_130_0.dll", "nvrtc64_120_0.dll"}, {cuda.empty() ? "" : cuda + "/bin"});
#else
  return libraryFiles("MXATTN_NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"},
                      {cuda.empty() ? "" : cuda + "/lib64", "/usr/local/cuda/lib64"});
#endif
}

class CudaApi : public DriverApi {
 public:
  CudaApi() : library_(driverFiles(), "install NVIDIA's driver") {
#define MXATTN_BIND(name, symbol) library_.bind(name##_, "cu" symbol)
    MXATTN_BIND(Init, "Init");
    MXATTN_BIND(GetErrorString, "GetErrorString");
    MXATTN_BIND(DeviceGetCount, "DeviceGetCount");
    MXATTN_BIND(DeviceGet, "DeviceGet");
    MXATTN_BIND(DeviceGetName, "DeviceGetName");
    MXATTN_BIND(DeviceTotalMem, "DeviceTotalMem_v2");
    MXATTN_BIND(DeviceGetAttribute, "DeviceGetAttribute");
    MXATTN_BIND(PrimaryContextRetain, "DevicePrimaryCtxRetain");
    MXATTN_BIND(PrimaryContextRelease, "DevicePrimaryCtxRelease_v2");
    MXATTN_BIND(CtxSetCurrent, "CtxSetCurrent");
    MXATTN_BIND(MemAlloc, "MemAlloc_v2");
    MXATTN_BIND(MemFree, "MemFree_v2");
    MXATTN_BIND(MemHostAlloc, "MemHostAlloc");
    MXATTN_BIND(MemFreeHost, "MemFreeHost");
    MXATTN_BIND(StreamCreate, "StreamCreate");
    MXATTN_BIND(StreamDestroy, "StreamDestroy_v2");
    MXATTN_BIND(StreamSynchronize, "StreamSynchronize");
    MXATTN_BIND(MemcpyHtoDAsync, "MemcpyHtoDAsync_v2");
    MXATTN_BIND(MemcpyDtoHAsync, "MemcpyDtoHAsync_v2");
    MXATTN_BIND(MemcpyDtoDAsync, "MemcpyDtoDAsync_v2");
    MXATTN_BIND(EventCreate, "EventCreate");
    MXATTN_BIND(EventDestroy, "EventDestroy_v2");
    MXATTN_BIND(EventRecord, "EventRecord");
    MXATTN_BIND(EventSynchronize, "EventSynchronize");
    MXATTN_BIND(ModuleLoadData, "ModuleLoadData");
    MXATTN_BIND(ModuleUnload, "ModuleUnload");
    MXATTN_BIND(ModuleGetFunction, "ModuleGetFunction");
    MXATTN_BIND(FuncSetAttribute, "FuncSetAttribute");
    MXATTN_BIND(LaunchKernel, "LaunchKernel");
#undef MXATTN_BIND
  }

  std::vector<DeviceFacts> devices() override {
    check(Init_(0), "cuInit");
    int count = 0;
    check(DeviceGetCount_(&count), "cuDeviceGetCount");
    std::vector<DeviceFacts> all;
    for (int i = 0; i < count; i++) {
      int device = 0;
      char name[256] = {};
      size_t memory = 0;
      check(DeviceGet_(&device, i), "cuDeviceGet");
      check(DeviceGetName_(name, sizeof name, device), "cuDeviceGetName");
      check(DeviceTotalMem_(&memory, device), "cuDeviceTotalMem");
      auto attribute = [&](int which) {
        int value = 0;
        check(DeviceGetAttribute_(&value, which, device), "cuDeviceGetAttribute");
        return value;
      };
      std::string architecture =
          "sm_" + std::to_string(attribute(kComputeMajor)) + std::to_string(attribute(kComputeMinor));
      Target target{architecture, attribute(kWarpSize), attribute(kMultiprocessors),
                    static_cast<size_t>(attribute(kSharedMemoryOptIn))};
      all.push_back({"CUDA", i, name, target, memory});
    }
    if (all.empty()) throw DeviceError("no GPU; does CUDA_VISIBLE_DEVICES hide it?");
    return all;
  }

  std::string describe(int code) override {
    const char* text = nullptr;
    return GetErrorString_(code, &text) == kSuccess && text ? text : "error";
  }
  int open(int ordinal) override {
    int device = 0, code = DeviceGet_(&device, ordinal);
    return code == kSuccess ? PrimaryContextRetain_(&contexts_[ordinal], device) : code;
  }
  int makeCurrent(int ordinal) override { return CtxSetCurrent_(contexts_.at(ordinal)); }
  void close(int ordinal) noexcept override {
    int device = 0;
    if (DeviceGet_(&device, ordinal) == kSuccess) PrimaryContextRelease_(device);
  }
  int allocate(Address* memory, size_t bytes) override { return MemAlloc_(memory, bytes); }
  int free(Address memory) override { return MemFree_(memory); }
  int allocatePinned(void** memory, size_t bytes) override { return MemHostAlloc_(memory, bytes, 0); }
  int freePinned(void* memory) override { return MemFreeHost_(memory); }
  int createStream(Stream* stream) override { return StreamCreate_(stream, kNonBlocking); }
  int destroyStream(Stream stream) override { return StreamDestroy_(stream); }
  int synchronize(Stream stream) override { return StreamSynchronize_(stream); }
  int copyIn(Address to, const void* from, size_t bytes, Stream stream) override {
    return MemcpyHtoDAsync_(to, from, bytes, stream);
  }
  int copyOut(void* to, Address from, size_t bytes, Stream stream) override {
    return MemcpyDtoHAsync_(to, from, bytes, stream);
  }
  int copyWithin(Address to, Address from, size_t bytes, Stream stream) override {
    return MemcpyDtoDAsync_(to, from, bytes, stream);
  }
  int createEvent(void** event) override { return EventCreate_(event, kNoTiming); }
  int destroyEvent(void* event) override { return EventDestroy_(event); }
  int record(void* event, Stream stream) override { return EventRecord_(event, stream); }
  int wait(void* event) override { return EventSynchronize_(event); }
  int loadModule(void** module, const void* code) override { return ModuleLoadData_(module, code); }
  int unloadModule(void* module) override { return ModuleUnload_(module); }
  int function(void** function, void* module, const char* name) override {
    return ModuleGetFunction_(function, module, name);
  }
  int allowSharedMemory(void* function, uint32_t bytes) override {
    constexpr uint32_t kAlwaysAllowed = 48 << 10;
    return bytes <= kAlwaysAllowed ? kSuccess : FuncSetAttribute_(function, kMaxDynamicSharedMemory, bytes);
  }
  int launch(void* function, const Launch& launch, Stream stream) override {
    size_t size = launch.arguments.size();
    void* packed[] = {reinterpret_cast<void*>(1), const_cast<uint8_t*>(launch.arguments.data()),
                      reinterpret_cast<void*>(2), &size, nullptr};
    const uint32_t* groups = launch.groups;
    return LaunchKernel_(function, groups[0], groups[1], groups[2], launch.threads, 1, 1, launch.sharedBytes, stream,
                         nullptr, packed);
  }
  RuntimeCompiler openCompiler() override {
    return {SharedLibrary(compilerFiles(),
                          "install the CUDA toolkit, or name libnvrtc.so.12 or .13 in MXATTN_NVRTC, e.g. that of PyPI's "
                          "nvidia-cuda-nvrtc"),
            {"nvrtc", "CUBIN", "--gpu-architecture=", {"--std=c++17"}}};
  }

 private:
  static constexpr unsigned kNonBlocking = 1, kNoTiming = 2;
  static constexpr int kMaxDynamicSharedMemory = 8;
  static constexpr int kWarpSize = 10, kMultiprocessors = 16, kComputeMajor = 75, kComputeMinor = 76,
                       kSharedMemoryOptIn = 97;

  void check(int code, const std::string& call) {
    if (code == kSuccess) return;
    throw DeviceError(call + " failed: " + describe(code) + " (" + std::to_string(code) +
                      "); is there an NVIDIA GPU, and does CUDA_VISIBLE_DEVICES not hide it?");
  }

  SharedLibrary library_;
  std::map<int, void*> contexts_;
  int (*Init_)(unsigned);
  int (*GetErrorString_)(int, const char**);
  int (*DeviceGetCount_)(int*);
  int (*DeviceGet_)(int*, int);
  int (*DeviceGetName_)(char*, int, int);
  int (*DeviceTotalMem_)(size_t*, int);
  int (*DeviceGetAttribute_)(int*, int, int);
  int (*PrimaryContextRetain_)(void**, int);
  int (*PrimaryContextRelease_)(int);
  int (*CtxSetCurrent_)(void*);
  int (*MemAlloc_)(Address*, size_t);
  int (*MemFree_)(Address);
  int (*MemHostAlloc_)(void**, size_t, unsigned);
  int (*MemFreeHost_)(void*);
  int (*StreamCreate_)(void**, unsigned);
  int (*StreamDestroy_)(void*);
  int (*StreamSynchronize_)(void*);
  int (*MemcpyHtoDAsync_)(Address, const void*, size_t, void*);
  int (*MemcpyDtoHAsync_)(void*, Address, size_t, void*);
  int (*MemcpyDtoDAsync_)(Address, Address, size_t, void*);
  int (*EventCreate_)(void**, unsigned);
  int (*EventDestroy_)(void*);
  int (*EventRecord_)(void*, void*);
  int (*EventSynchronize_)(void*);
  int (*ModuleLoadData_)(void**, const void*);
  int (*ModuleUnload_)(void*);
  int (*ModuleGetFunction_)(void**, void*, const char*);
  int (*FuncSetAttribute_)(void*, int, int);
  int (*LaunchKernel_)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                       void**);
};

}  // namespace

std::shared_ptr<DriverApi> openCuda() { return std::make_shared<CudaApi>(); }

}  // namespace mxattn::hip

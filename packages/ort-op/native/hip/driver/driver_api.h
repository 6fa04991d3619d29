// What HIP and CUDA call by different names. Functions give the driver's error code, 0 for success; the codes of both
// drivers mean the same, as far as they are used here.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "hip/driver/device.h"
#include "hip/driver/runtime_compiler.h"

namespace mxattn::hip {

enum DriverCode : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfDeviceMemory = 2,
  kDeinitialized = 4,
  kUnavailable = 46,
  kNoDevice = 100,
  kUncorrectableMemory = 214,
  kNoBinary = 209,
  kNotFound = 500,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kLaunchTimeout = 702,
  kContextDestroyed = 709,
  kHardwareStack = 714,
  kLaunchFailure = 719,
};

using Stream = void*;

class DriverApi {
 public:
  virtual ~DriverApi() = default;
  // Throws DeviceError.
  virtual std::vector<DeviceFacts> devices() = 0;
  virtual std::string describe(int code) = 0;
  // Whatever a GPU needs before it is made current, and the opposite.
  virtual int open(int ordinal) = 0;
  virtual void close(int ordinal) noexcept = 0;
  // Makes an opened GPU the calling thread's.
  virtual int makeCurrent(int ordinal) = 0;

  virtual int allocate(Address* memory, size_t bytes) = 0;
  virtual int free(Address memory) = 0;
  virtual int allocatePinned(void** memory, size_t bytes) = 0;
  virtual int freePinned(void* memory) = 0;

  virtual int createStream(Stream* stream) = 0;
  virtual int destroyStream(Stream stream) = 0;
  virtual int synchronize(Stream stream) = 0;
  virtual int copyIn(Address to, const void* from, size_t bytes, Stream stream) = 0;
  virtual int copyOut(void* to, Address from, size_t bytes, Stream stream) = 0;
  virtual int copyWithin(Address to, Address from, size_t bytes, Stream stream) = 0;

  virtual int createEvent(void** event) = 0;
  virtual int destroyEvent(void* event) = 0;
  virtual int record(void* event, Stream stream) = 0;
  virtual int wait(void* event) = 0;

  virtual int loadModule(void** module, const void* code) = 0;
  virtual int unloadModule(void* module) = 0;
  virtual int function(void** function, void* module, const char* name) = 0;
  // To be called before the first launch with so much shared memory.
  virtual int allowSharedMemory(void* function, uint32_t bytes) = 0;
  virtual int launch(void* function, const Launch& launch, Stream stream) = 0;

  virtual RuntimeCompiler openCompiler() = 0;
};

// Throw DeviceError where the driver is missing.
std::shared_ptr<DriverApi> openHip();
std::shared_ptr<DriverApi> openCuda();

}  // namespace mxattn::hip

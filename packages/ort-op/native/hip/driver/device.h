// One GPU behind a driver: HIP (libamdhip64, libhiprtc) or CUDA (libcuda, libnvrtc), both loaded at run time. Every call
// throws DeviceError, whose message names what failed and the remedy.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "hip/plan.h"

namespace mxattn::hip {

class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct DeviceFacts {
  std::string driver;  // "HIP" or "CUDA"
  std::string name;
  Target target;
  size_t totalMemory;
};

// A loaded code object.
class Module {
 public:
  virtual ~Module() = default;
};

// Calls are queued in order on the device's own stream unless they say otherwise.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceFacts& facts() const = 0;

  virtual Address allocate(size_t bytes) = 0;
  virtual void free(Address memory) noexcept = 0;
  // Page-locked memory of the host, from and to which copies overlap with kernels.
  virtual void* allocatePinned(size_t bytes) = 0;
  virtual void freePinned(void* memory) noexcept = 0;

  virtual void copyIn(Address to, const void* from, size_t bytes) = 0;
  virtual void copyOut(void* to, Address from, size_t bytes) = 0;
  virtual void copyWithin(Address to, Address from, size_t bytes) = 0;
  virtual void synchronize() = 0;

  // Machine code of a source for this GPU.
  virtual std::vector<char> compile(const std::string& source, const std::vector<std::string>& defines) = 0;
  virtual std::unique_ptr<Module> load(const std::vector<char>& code) = 0;
  virtual void launch(Module& module, const Launch& launch) = 0;
};

// All GPUs, HIP's first; an empty list with the reasons in `why` if there are none.
std::vector<std::shared_ptr<Device>> openDevices(std::string& why);

}  // namespace mxattn::hip

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

enum class Trouble {
  // This call failed; others may succeed.
  kFailed,
  kOutOfMemory,
  // Every further call will fail.
  kLost,
};

class DeviceError : public std::runtime_error {
 public:
  explicit DeviceError(const std::string& message, Trouble kind = Trouble::kFailed)
      : std::runtime_error(message), trouble(kind) {}

  const Trouble trouble;
};

struct DeviceFacts {
  std::string driver;  // "HIP" or "CUDA"
  int ordinal;         // the driver's
  std::string name;
  Target target;
  size_t totalMemory;
};

// A loaded code object.
class Module {
 public:
  virtual ~Module() = default;
};

// A point in the device's queue that the host can wait for.
class Event {
 public:
  virtual ~Event() = default;
};

// Calls are queued in order on the device's own stream unless they say otherwise. From any thread, but one at a time.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceFacts& facts() const = 0;

  virtual Address allocate(size_t bytes) = 0;
  virtual void free(Address memory) noexcept = 0;
  // Page-locked memory of the host, from and to which copies overlap with kernels.
  virtual void* allocatePinned(size_t bytes) = 0;
  virtual void freePinned(void* memory) noexcept = 0;

  // Host memory is to stay as it is until the copy is done.
  virtual void copyIn(Address to, const void* from, size_t bytes) = 0;
  virtual void copyOut(void* to, Address from, size_t bytes) = 0;
  virtual void copyWithin(Address to, Address from, size_t bytes) = 0;
  // Waits until all that was queued is done.
  virtual void synchronize() = 0;

  virtual std::unique_ptr<Event> createEvent() = 0;
  virtual void record(Event& event) = 0;
  // Waits until all that was queued before the event was last recorded is done; not at all if it never was.
  virtual void wait(Event& event) = 0;

  // Name and version of the compiler, as part of a key to what it makes.
  virtual std::string compiler() = 0;
  // Machine code of a source for this GPU. Not queued.
  virtual std::vector<char> compile(const std::string& source, const std::vector<std::string>& defines) = 0;
  virtual std::unique_ptr<Module> load(const std::vector<char>& code) = 0;
  virtual void launch(Module& module, const Launch& launch) = 0;
};

struct DeviceList {
  // HIP's first.
  std::vector<DeviceFacts> devices;
  // Of each driver that gave none, the reason.
  std::string why;
};

// All GPUs, without taking memory on any. The variable MXATTN_GPU_DRIVER, hip or cuda, keeps it to one driver.
DeviceList listDevices();

// The GPU of that index in the list.
std::shared_ptr<Device> openDevice(size_t index);

}  // namespace mxattn::hip

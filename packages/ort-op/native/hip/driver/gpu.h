// A device of either driver.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hip/driver/device.h"
#include "hip/driver/driver_api.h"

namespace mxattn::hip {

class Gpu : public Device {
 public:
  Gpu(std::shared_ptr<DriverApi> api, DeviceFacts facts);
  ~Gpu() override;

  const DeviceFacts& facts() const override { return facts_; }
  Address allocate(size_t bytes) override;
  void free(Address memory) noexcept override;
  void* allocatePinned(size_t bytes) override;
  void freePinned(void* memory) noexcept override;
  void copyIn(Address to, const void* from, size_t bytes) override;
  void copyOut(void* to, Address from, size_t bytes) override;
  void copyWithin(Address to, Address from, size_t bytes) override;
  void synchronize() override;
  std::unique_ptr<Event> createEvent() override;
  void record(Event& event) override;
  void wait(Event& event) override;
  std::string compiler() override;
  std::vector<char> compile(const std::string& source, const std::vector<std::string>& defines) override;
  std::unique_ptr<Module> load(const std::vector<char>& code) override;
  void launch(Module& module, const Launch& launch) override;

 private:
  class LoadedModule;
  class QueuedEvent;

  // Throws what went wrong while doing `what`.
  void check(int code, const std::string& what) const;
  void makeCurrent() const;
  RuntimeCompiler& openCompiler();

  std::shared_ptr<DriverApi> api_;
  const DeviceFacts facts_;
  Stream stream_ = nullptr;
  std::optional<RuntimeCompiler> compiler_;
};

}  // namespace mxattn::hip

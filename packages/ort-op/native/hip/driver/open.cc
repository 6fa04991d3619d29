#include "hip/driver/gpu.h"
#include "hip/driver/shared_library.h"

namespace mxattn::hip {
namespace {

struct Found {
  std::shared_ptr<DriverApi> api;
  DeviceFacts facts;
};

std::vector<Found> find(std::string& why) {
  struct Driver {
    const char* name;
    const char* choice;
    std::shared_ptr<DriverApi> (*open)();
  };
  constexpr Driver kDrivers[] = {{"HIP", "hip", openHip}, {"CUDA", "cuda", openCuda}};
  std::string only = environment("MXATTN_GPU_DRIVER");
  std::vector<Found> all;
  for (const Driver& driver : kDrivers) {
    if (!only.empty() && only != driver.choice) continue;
    try {
      std::shared_ptr<DriverApi> api = driver.open();
      for (DeviceFacts& facts : api->devices()) all.push_back({api, std::move(facts)});
    } catch (const DeviceError& error) {
      why += (why.empty() ? "" : ". ") + std::string(driver.name) + ": " + error.what();
    }
  }
  if (why.empty() && all.empty()) why = "MXATTN_GPU_DRIVER is \"" + only + "\"; it may be hip or cuda";
  return all;
}

}  // namespace

DeviceList listDevices() {
  DeviceList list;
  for (Found& found : find(list.why)) list.devices.push_back(std::move(found.facts));
  return list;
}

std::shared_ptr<Device> openDevice(size_t index) {
  std::string why;
  std::vector<Found> all = find(why);
  if (all.empty()) throw DeviceError("there is no GPU to use. " + why);
  if (index >= all.size()) {
    throw DeviceError("there is no GPU " + std::to_string(index) + "; the last is GPU " + std::to_string(all.size() - 1));
  }
  return std::make_shared<Gpu>(std::move(all[index].api), std::move(all[index].facts));
}

}  // namespace mxattn::hip

// Mesa's Vulkan driver in software (lavapipe), as Dawn takes it. Dawn wants to index arrays of images by variables, which
// Mesa 22 does not claim and compute never does; everything else is there, float16 arithmetic included. This driver
// claims the two features, takes them out of requests again, and hands all else on.
//
// LAVAPIPE is the path of Mesa's library. Vulkan's headers need not be there: what is used of them is below.
#include <dlfcn.h>

#include <cstdint>
#include <cstring>

namespace {

using Function = void (*)();
using Handle = void*;

struct Features {
  uint32_t flags[55];  // VkPhysicalDeviceFeatures
};
constexpr int kSampledImageArrayDynamicIndexing = 34;
constexpr int kStorageImageArrayDynamicIndexing = 36;

struct Structure {
  int32_t type;
  Structure* next;
};

struct Features2 : Structure {
  Features features;
};
constexpr int32_t kFeatures2Type = 1000059000;

struct DeviceCreateInfo : Structure {
  uint32_t flags;
  uint32_t queueCount;
  const void* queues;
  uint32_t layerCount;
  const char* const* layers;
  uint32_t extensionCount;
  const char* const* extensions;
  const Features* features;
};

Function driver(const char* name) {
  static void* library = dlopen(LAVAPIPE, RTLD_NOW | RTLD_LOCAL);
  return library ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}

template <typename F>
F as(Function function) {
  return reinterpret_cast<F>(function);
}

void claim(Features& features, uint32_t value) {
  features.flags[kSampledImageArrayDynamicIndexing] = value;
  features.flags[kStorageImageArrayDynamicIndexing] = value;
}

// The driver's functions, as of the latest instance that asked for them: they are the same for all.
Function getFeatures, getFeatures2, createDevice;

void features(Handle device, Features* out) {
  as<void (*)(Handle, Features*)>(getFeatures)(device, out);
  claim(*out, 1);
}

void features2(Handle device, Features2* out) {
  as<void (*)(Handle, Features2*)>(getFeatures2)(device, out);
  claim(out->features, 1);
}

int32_t create(Handle physical, const DeviceCreateInfo* info, const void* allocator, Handle* device) {
  DeviceCreateInfo copy = *info;
  Features plain;
  if (info->features) {
    plain = *info->features;
    claim(plain, 0);
    copy.features = &plain;
  }
  // The list is the caller's, who does not read it again.
  for (Structure* each = copy.next; each; each = each->next) {
    if (each->type == kFeatures2Type) claim(static_cast<Features2*>(each)->features, 0);
  }
  using Create = int32_t (*)(Handle, const DeviceCreateInfo*, const void*, Handle*);
  return as<Create>(createDevice)(physical, &copy, allocator, device);
}

Function replaced(const char* name, Function original) {
  const auto instead = [&](Function& kept, Function ours) {
    kept = original;
    return ours;
  };
  if (!original) return nullptr;
  if (!strcmp(name, "vkGetPhysicalDeviceFeatures")) return instead(getFeatures, (Function)features);
  if (!strcmp(name, "vkGetPhysicalDeviceFeatures2") || !strcmp(name, "vkGetPhysicalDeviceFeatures2KHR")) {
    return instead(getFeatures2, (Function)features2);
  }
  if (!strcmp(name, "vkCreateDevice")) return instead(createDevice, (Function)create);
  return original;
}

Function lookUp(const char* through, Handle instance, const char* name) {
  const auto get = as<Function (*)(Handle, const char*)>(driver(through));
  return get ? replaced(name, get(instance, name)) : nullptr;
}

}  // namespace

// What the Vulkan loader asks a driver for.
extern "C" {

Function vk_icdGetInstanceProcAddr(Handle instance, const char* name) {
  return lookUp("vk_icdGetInstanceProcAddr", instance, name);
}

Function vk_icdGetPhysicalDeviceProcAddr(Handle instance, const char* name) {
  return lookUp("vk_icdGetPhysicalDeviceProcAddr", instance, name);
}

int32_t vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t* version) {
  const auto negotiate = as<int32_t (*)(uint32_t*)>(driver("vk_icdNegotiateLoaderICDInterfaceVersion"));
  constexpr int32_t kIncompatibleDriver = -9;
  return negotiate ? negotiate(version) : kIncompatibleDriver;
}
}

#include "hip/driver/gpu.h"

#include <cstdio>

namespace mxattn::hip {
namespace {

std::string mebibytes(size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", bytes / 1048576.0);
  return text;
}

Trouble troubleOf(int code) {
  switch (code) {
    case kOutOfDeviceMemory:
      return Trouble::kOutOfMemory;
    // A context that has met one of these gives it to every later call.
    case kDeinitialized:
    case kUnavailable:
    case kUncorrectableMemory:
    case kIllegalAddress:
    case kLaunchTimeout:
    case kContextDestroyed:
    case kHardwareStack:
    case kLaunchFailure:
      return Trouble::kLost;
    default:
      return code >= kHardwareStack && code <= kLaunchFailure ? Trouble::kLost : Trouble::kFailed;
  }
}

const char* remedyOf(int code) {
  switch (code) {
    case kOutOfDeviceMemory:
      return "use a shorter context, a smaller batch or precision mxfp4, or end what else uses the GPU";
    case kNoBinary:
      return "the driver and its compiler do not fit each other; update both";
    case kLaunchOutOfResources:
      return "the kernel does not fit this GPU; use the CPU kernel and report this";
    default:
      return troubleOf(code) == Trouble::kLost
                 ? "the GPU is lost to this process; restart it, and see the system's log for the cause"
                 : "update the GPU's driver, or use the CPU kernel";
  }
}

}  // namespace

class Gpu::LoadedModule : public Module {
 public:
  LoadedModule(const Gpu& gpu, void* module) : gpu_(gpu), module_(module) {}
  ~LoadedModule() override {
    gpu_.api_->makeCurrent(gpu_.facts_.ordinal);
    gpu_.api_->unloadModule(module_);
  }

  void* function(const Launch& launch) {
    Function& known = functions_[launch.kernel];
    if (!known.handle) {
      gpu_.check(gpu_.api_->function(&known.handle, module_, launch.kernel.c_str()), "finding kernel " + launch.kernel);
    }
    if (launch.sharedBytes > known.sharedBytes) {
      gpu_.check(gpu_.api_->allowSharedMemory(known.handle, launch.sharedBytes),
                 "giving kernel " + launch.kernel + " " + std::to_string(launch.sharedBytes) + " bytes of shared memory");
      known.sharedBytes = launch.sharedBytes;
    }
    return known.handle;
  }

 private:
  struct Function {
    void* handle = nullptr;
    uint32_t sharedBytes = 0;
  };

  const Gpu& gpu_;
  void* module_;
  std::map<std::string, Function> functions_;
};

class Gpu::QueuedEvent : public Event {
 public:
  QueuedEvent(const Gpu& gpu, void* event) : handle(event), gpu_(gpu) {}
  ~QueuedEvent() override {
    gpu_.api_->makeCurrent(gpu_.facts_.ordinal);
    gpu_.api_->destroyEvent(handle);
  }

  void* const handle;

 private:
  const Gpu& gpu_;
};

Gpu::Gpu(std::shared_ptr<DriverApi> api, DeviceFacts facts) : api_(std::move(api)), facts_(std::move(facts)) {
  check(api_->open(facts_.ordinal), "opening the GPU");
  int code = api_->makeCurrent(facts_.ordinal);
  if (code == kSuccess) code = api_->createStream(&stream_);
  if (code != kSuccess) api_->close(facts_.ordinal);
  check(code, "creating a stream");
}

Gpu::~Gpu() {
  api_->makeCurrent(facts_.ordinal);
  api_->destroyStream(stream_);
  api_->close(facts_.ordinal);
}

void Gpu::check(int code, const std::string& what) const {
  if (code == kSuccess) return;
  throw DeviceError("GPU " + std::to_string(facts_.ordinal) + " (" + facts_.name + "): " + what + " failed: " +
                        facts_.driver + " says " + api_->describe(code) + " (" + std::to_string(code) + "); " +
                        remedyOf(code),
                    troubleOf(code));
}

void Gpu::makeCurrent() const { check(api_->makeCurrent(facts_.ordinal), "selecting the GPU"); }

Address Gpu::allocate(size_t bytes) {
  makeCurrent();
  Address memory = 0;
  check(api_->allocate(&memory, bytes), "allocating " + mebibytes(bytes) + " of " + mebibytes(facts_.totalMemory));
  return memory;
}

void Gpu::free(Address memory) noexcept {
  api_->makeCurrent(facts_.ordinal);
  api_->free(memory);
}

void* Gpu::allocatePinned(size_t bytes) {
  makeCurrent();
  void* memory = nullptr;
  check(api_->allocatePinned(&memory, bytes), "allocating " + mebibytes(bytes) + " of page-locked host memory");
  return memory;
}

void Gpu::freePinned(void* memory) noexcept {
  api_->makeCurrent(facts_.ordinal);
  api_->freePinned(memory);
}

void Gpu::copyIn(Address to, const void* from, size_t bytes) {
  makeCurrent();
  check(api_->copyIn(to, from, bytes, stream_), "copying to the GPU");
}

void Gpu::copyOut(void* to, Address from, size_t bytes) {
  makeCurrent();
  check(api_->copyOut(to, from, bytes, stream_), "copying from the GPU");
}

void Gpu::copyWithin(Address to, Address from, size_t bytes) {
  makeCurrent();
  check(api_->copyWithin(to, from, bytes, stream_), "copying within the GPU");
}

void Gpu::synchronize() {
  makeCurrent();
  check(api_->synchronize(stream_), "waiting for the GPU");
}

std::unique_ptr<Event> Gpu::createEvent() {
  makeCurrent();
  void* event = nullptr;
  check(api_->createEvent(&event), "creating an event");
  return std::make_unique<QueuedEvent>(*this, event);
}

void Gpu::record(Event& event) {
  makeCurrent();
  check(api_->record(static_cast<QueuedEvent&>(event).handle, stream_), "recording an event");
}

void Gpu::wait(Event& event) {
  makeCurrent();
  check(api_->wait(static_cast<QueuedEvent&>(event).handle), "waiting for the GPU");
}

RuntimeCompiler& Gpu::openCompiler() {
  if (!compiler_) compiler_.emplace(api_->openCompiler());
  return *compiler_;
}

std::string Gpu::compiler() { return openCompiler().describe(); }

std::vector<char> Gpu::compile(const std::string& source, const std::vector<std::string>& defines) {
  return openCompiler().compile(source, facts_.target.architecture, defines);
}

std::unique_ptr<Module> Gpu::load(const std::vector<char>& code) {
  makeCurrent();
  void* module = nullptr;
  check(api_->loadModule(&module, code.data()), "loading the kernels for " + facts_.target.architecture);
  return std::make_unique<LoadedModule>(*this, module);
}

void Gpu::launch(Module& module, const Launch& launch) {
  makeCurrent();
  void* function = static_cast<LoadedModule&>(module).function(launch);
  check(api_->launch(function, launch, stream_), "launching kernel " + launch.kernel);
}

}  // namespace mxattn::hip

#include "addon/peaks.h"

#include <chrono>
#include <thread>
#include <vector>

#include "cpu/dispatch.h"

namespace mxattn::addon {
namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class PeakWorker : public Napi::AsyncWorker {
 public:
  PeakWorker(Napi::Env env, int threads)
      : Napi::AsyncWorker(env), deferred(Napi::Promise::Deferred::New(env)), threads_(threads) {}

  void Execute() override {
    cpu::Build build = cpu::chooseBuild("");
    float32_ = onThreads(build.floatPeak);
    int8_ = onThreads(build.bytePeak);
  }

  void OnOK() override {
    Napi::HandleScope scope(Env());
    Napi::Object result = Napi::Object::New(Env());
    result.Set("float32", float32_ * 1e-9);
    result.Set("int8", int8_ * 1e-9);
    deferred.Resolve(result);
  }

  void OnError(const Napi::Error& error) override { deferred.Reject(error.Value()); }

  Napi::Promise::Deferred deferred;

 private:
  double onThreads(cpu::Peak peak) const {
    std::vector<double> rates(threads_);
    std::vector<std::thread> threads;
    for (double& rate : rates) threads.emplace_back([&rate, peak] { rate = peak(seconds); });
    for (std::thread& thread : threads) thread.join();
    double sum = 0;
    for (double rate : rates) sum += rate;
    return sum;
  }

  int threads_;
  double float32_ = 0;
  double int8_ = 0;
};

}  // namespace

Napi::Value measurePeaks(const Napi::CallbackInfo& info) {
  auto* worker = new PeakWorker(info.Env(), info[0].As<Napi::Number>().Int32Value());
  Napi::Promise promise = worker->deferred.Promise();
  worker->Queue();
  return promise;
}

}  // namespace mxattn::addon

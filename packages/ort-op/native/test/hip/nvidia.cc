// run() of emulated.h on an NVIDIA GPU, so that check.cc checks the kernels there: compiled by NVRTC, on memory that host and
// GPU share, which is all that `new` gives here. The folder of the headers is MXATTN_NATIVE.
#include <cuda.h>
#include <cuda_runtime.h>
#include <nvrtc.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <stdexcept>
#include <vector>

#include "test/hip/emulated.h"

void* operator new(size_t size) {
  void* memory = nullptr;
  if (cudaMallocManaged(&memory, size ? size : 1) != cudaSuccess) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { cudaFree(memory); }
void operator delete(void* memory, size_t) noexcept { cudaFree(memory); }

namespace mxattn::hip::emulated {

namespace {

void must(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s failed\n", what);
  std::exit(1);
}

CUmodule build() {
  cudaFree(nullptr);
  cudaDeviceProp facts;
  must(cudaGetDeviceProperties(&facts, 0) == cudaSuccess, "cudaGetDeviceProperties");
  std::string architecture = "--gpu-architecture=sm_" + std::to_string(facts.major) + std::to_string(facts.minor);
  std::string include = std::string("-I") + MXATTN_NATIVE;
  const char* options[] = {architecture.c_str(), include.c_str(), "-std=c++17"};
  nvrtcProgram program;
  must(nvrtcCreateProgram(&program, "#include \"hip/kernels/kernels.h\"\n", "kernels.cu", 0, nullptr, nullptr) ==
           NVRTC_SUCCESS, "nvrtcCreateProgram");
  bool good = nvrtcCompileProgram(program, 3, options) == NVRTC_SUCCESS;
  size_t size = 0;
  nvrtcGetProgramLogSize(program, &size);
  std::vector<char> log(size);
  nvrtcGetProgramLog(program, log.data());
  if (size > 1) std::printf("%s\n", log.data());
  must(good, "nvrtcCompileProgram");
  nvrtcGetCUBINSize(program, &size);
  std::vector<char> code(size);
  nvrtcGetCUBIN(program, code.data());
  CUmodule module;
  must(cuModuleLoadData(&module, code.data()) == CUDA_SUCCESS, "cuModuleLoadData");
  return module;
}

}  // namespace

bool run(const std::string&, const std::string& kernel, const uint32_t groups[3], uint32_t threads, uint32_t sharedBytes,
         const void* arguments, size_t argumentBytes) {
  static CUmodule module = build();
  CUfunction function;
  if (cuModuleGetFunction(&function, module, kernel.c_str()) != CUDA_SUCCESS) return false;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<void*>(arguments), CU_LAUNCH_PARAM_BUFFER_SIZE, &argumentBytes,
                   CU_LAUNCH_PARAM_END};
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  cudaEventRecord(begin);
  must(cuLaunchKernel(function, groups[0], groups[1], groups[2], threads, 1, 1, sharedBytes, nullptr, nullptr, extra) ==
           CUDA_SUCCESS, kernel.c_str());
  cudaEventRecord(end);
  must(cudaDeviceSynchronize() == cudaSuccess, kernel.c_str());
  float milliseconds = 0;
  cudaEventElapsedTime(&milliseconds, begin, end);
  if (std::getenv("MXATTN_TIMES")) std::printf("%-24s %8.3f ms\n", kernel.c_str(), milliseconds);
  return true;
}

}  // namespace mxattn::hip::emulated

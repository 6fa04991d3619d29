#!/bin/sh
# check.cc on an NVIDIA GPU: needs the CUDA toolkit and a compiler for C++20. check_nvidia.sh [build folder]
set -e
cd "$(dirname "$0")/../.."
build=${1:-/tmp/mxattn-nvidia-check}
mkdir -p "$build"
cuda=${CUDA_HOME:-/usr/local/cuda}
g++ -std=c++20 -O2 -Wno-psabi -I. -I"$cuda/include" "-DMXATTN_NATIVE=\"$PWD\"" -o "$build/check" test/hip/check.cc \
  test/hip/nvidia.cc hip/plan.cc cpu/portable.cc cpu/scratch.cc -L"$cuda/lib64" -L"$cuda/lib64/stubs" -lcudart -lnvrtc -lcuda
LD_LIBRARY_PATH="$cuda/lib64:$LD_LIBRARY_PATH" "$build/check" generic

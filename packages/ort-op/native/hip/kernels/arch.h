// What compilers and architectures call the same things: AMD's by clang or hiprtc, NVIDIA's by NVRTC. The emulation on the
// CPU brings its own (test/hip/device.h).
#pragma once

#if defined(__CUDACC__) && !defined(__HIP__)
#define MXATTN_NVIDIA 1
#endif

#ifndef MXATTN_EMULATED

#if defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
#define MXATTN_RDNA 1
#endif
#if defined(__gfx950__)
#define MXATTN_GFX950 1
#elif defined(__gfx942__)
#define MXATTN_GFX942 1
#elif defined(__gfx90a__)
#define MXATTN_GFX90A 1
#elif defined(__GFX11__)
#define MXATTN_GFX11 1
#elif defined(__GFX12__)
#define MXATTN_GFX12 1
#endif

#if defined(MXATTN_NVIDIA)
#define MXATTN_INLINE __device__ __forceinline__
#define MXATTN_SHARED __shared__
#define MXATTN_UNROLL _Pragma("unroll")
#define MXATTN_ROLLED _Pragma("unroll 1")
#else
#define MXATTN_INLINE __attribute__((device)) inline __attribute__((always_inline))
#define MXATTN_SHARED __attribute__((shared))
#define MXATTN_UNROLL _Pragma("clang loop unroll(full)")
#define MXATTN_ROLLED _Pragma("clang loop unroll(disable)")
#endif

// A kernel of workgroups of `threads`, with one argument.
#if defined(MXATTN_NVIDIA)
#define MXATTN_KERNEL(name, threads, Arguments) \
  extern "C" __global__ void __launch_bounds__(threads) name(const Arguments a)
#else
#define MXATTN_KERNEL(name, threads, Arguments)                               \
  extern "C" __attribute__((global, amdgpu_flat_work_group_size(threads, threads))) void name(const Arguments a)
#endif

namespace mxattn::hip::kernels {

#if defined(MXATTN_NVIDIA)

MXATTN_INLINE int threadIndex() { return threadIdx.x; }
MXATTN_INLINE int groupX() { return blockIdx.x; }
MXATTN_INLINE int groupY() { return blockIdx.y; }
MXATTN_INLINE int groupZ() { return blockIdx.z; }
MXATTN_INLINE void barrier() { __syncthreads(); }

MXATTN_INLINE float exp2(float x) { return exp2f(x); }
MXATTN_INLINE unsigned bitsOf(float x) { return __float_as_uint(x); }
MXATTN_INLINE float fromBits(unsigned x) { return __uint_as_float(x); }
MXATTN_INLINE float fma(float a, float b, float c) { return fmaf(a, b, c); }
MXATTN_INLINE float maximum(float a, float b) { return fmaxf(a, b); }
MXATTN_INLINE float minimum(float a, float b) { return fminf(a, b); }
// c + a . b of four signed bytes each.
MXATTN_INLINE int dot4(int a, int b, int c) { return __dp4a(a, b, c); }

#else

MXATTN_INLINE int threadIndex() { return __builtin_amdgcn_workitem_id_x(); }
MXATTN_INLINE int groupX() { return __builtin_amdgcn_workgroup_id_x(); }
MXATTN_INLINE int groupY() { return __builtin_amdgcn_workgroup_id_y(); }
MXATTN_INLINE int groupZ() { return __builtin_amdgcn_workgroup_id_z(); }
MXATTN_INLINE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
MXATTN_INLINE float exp2(float x) { return __builtin_amdgcn_exp2f(x); }
MXATTN_INLINE unsigned bitsOf(float x) { return __builtin_bit_cast(unsigned, x); }
MXATTN_INLINE float fromBits(unsigned x) { return __builtin_bit_cast(float, x); }
MXATTN_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MXATTN_INLINE float maximum(float a, float b) { return __builtin_fmaxf(a, b); }
MXATTN_INLINE float minimum(float a, float b) { return __builtin_fminf(a, b); }

MXATTN_INLINE int dot4(int a, int b, int c) {
#if defined(__GFX11__) || defined(__GFX12__)
  return __builtin_amdgcn_sudot4(true, a, true, b, c, false);
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__) || \
    defined(__gfx950__) || defined(__gfx1030__) || defined(__gfx1031__) || defined(__gfx1032__)
  return __builtin_amdgcn_sdot4(a, b, c, false);
#else
  for (int shift = 0; shift < 32; shift += 8) {
    c += static_cast<signed char>(a >> shift) * static_cast<signed char>(b >> shift);
  }
  return c;
#endif
}

#if defined(__gfx950__)
// NaN if either is.
MXATTN_INLINE float larger(float a, float b) { return __builtin_elementwise_maximum(a, b); }
#endif

// The first and the third byte of two words in one, those of the first below.
MXATTN_INLINE unsigned evenBytes(unsigned first, unsigned second) {
  return __builtin_amdgcn_perm(second, first, 0x06040200u);
}

// The value of lane ^ mask of the wave.
MXATTN_INLINE int exchanged(int x, int mask) {
  int lane = static_cast<int>(__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)));
  return __builtin_amdgcn_ds_bpermute((lane ^ mask) * 4, x);
}

// Whether it holds in any lane of the wave.
MXATTN_INLINE bool anyLane(bool x) {
#if defined(__GFX11__) || defined(__GFX12__)
  return __builtin_amdgcn_ballot_w32(x) != 0;
#else
  return __builtin_amdgcn_ballot_w64(x) != 0;
#endif
}

#endif

// What was computed of `done` comes before what is computed with `next`. Loops are unrolled, and compilers begin as many
// iterations at once as there are, although registers do not suffice. A uniform value is the same for all lanes.
#if defined(MXATTN_NVIDIA)
MXATTN_INLINE void finish(float& done) { asm volatile("" : "+f"(done)); }
MXATTN_INLINE void finish(unsigned& done) { asm volatile("" : "+r"(done)); }
MXATTN_INLINE void begin(int& next) { asm volatile("" : "+r"(next)); }
MXATTN_INLINE void beginUniform(int& next) { asm volatile("" : "+r"(next)); }
#else
MXATTN_INLINE void finish(float& done) { asm volatile("" : "+v"(done)); }
MXATTN_INLINE void finish(unsigned& done) { asm volatile("" : "+v"(done)); }
MXATTN_INLINE void begin(int& next) { asm volatile("" : "+v"(next)); }
MXATTN_INLINE void beginUniform(int& next) { asm volatile("" : "+s"(next)); }
#endif

}  // namespace mxattn::hip::kernels

#endif

namespace mxattn::hip::kernels {

using Byte = unsigned char;

struct alignas(16) Words4 {
  unsigned word[4];
};

struct alignas(16) Floats4 {
  float x[4];
};

// An address in the GPU's memory. Saying so spares loads that might as well be of shared memory.
template <typename T>
MXATTN_INLINE T* at(unsigned long long address) {
#if defined(MXATTN_EMULATED) || defined(MXATTN_NVIDIA)
  return reinterpret_cast<T*>(address);
#else
  return (T*)(__attribute__((address_space(1))) T*)address;
#endif
}

MXATTN_INLINE Words4 words(const Byte* from) { return *reinterpret_cast<const Words4*>(from); }

MXATTN_INLINE bool isNaN(float x) { return x != x; }
MXATTN_INLINE float infinity() { return fromBits(0x7f800000u); }
MXATTN_INLINE float notANumber() { return fromBits(0x7fc00000u); }
MXATTN_INLINE int larger(int a, int b) { return a > b ? a : b; }
MXATTN_INLINE int smaller(int a, int b) { return a < b ? a : b; }
MXATTN_INLINE unsigned larger(unsigned a, unsigned b) { return a > b ? a : b; }

}  // namespace mxattn::hip::kernels

// What hip/kernels/arch.h says for compilers of GPUs, for a lane on the CPU. Included inside the unnamed namespace of an
// architecture's build.

#define MXATTN_INLINE inline
#define MXATTN_SHARED static thread_local
#define MXATTN_UNROLL
#define MXATTN_ROLLED
#define MXATTN_KERNEL(name, threads, Arguments)                                                                      \
  void name(const Arguments& a);                                                                                    \
  const ::mxattn::hip::emulated::Registration name##_registered(                                                    \
      MXATTN_ARCHITECTURE, #name, kWaveSize, sizeof(Arguments),                                                      \
      [](const void* arguments) { name(*static_cast<const Arguments*>(arguments)); });                              \
  void name(const Arguments& a)

#if defined(MXATTN_GFX11) || defined(MXATTN_GFX12)
#define MXATTN_RDNA 1
constexpr int kWaveSize = 32;
#else
constexpr int kWaveSize = 64;
#endif

namespace mxattn::hip::kernels {

namespace emulated = ::mxattn::hip::emulated;

inline int threadIndex() { return emulated::threadIndex(); }
inline int groupX() { return emulated::groupIndex(0); }
inline int groupY() { return emulated::groupIndex(1); }
inline int groupZ() { return emulated::groupIndex(2); }
inline void barrier() { emulated::barrier(); }
template <typename T>
void finish(T&) {}
inline void begin(int&) {}
inline void beginUniform(int&) {}
inline float exp2(float x) { return ::exp2f(x); }
inline float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
inline float maximum(float a, float b) { return ::fmaxf(a, b); }
inline float minimum(float a, float b) { return ::fminf(a, b); }

inline unsigned bitsOf(float x) {
  unsigned bits;
  ::memcpy(&bits, &x, 4);
  return bits;
}

inline float fromBits(unsigned bits) {
  float x;
  ::memcpy(&x, &bits, 4);
  return x;
}

inline int dot4(int a, int b, int c) {
  for (int shift = 0; shift < 32; shift += 8) {
    c += static_cast<signed char>(a >> shift) * static_cast<signed char>(b >> shift);
  }
  return c;
}

inline float larger(float a, float b) { return a != a || a > b ? a : b; }

inline unsigned evenBytes(unsigned first, unsigned second) {
  return (first & 255u) | (first >> 8 & 0xff00u) | (second << 16 & 0xff0000u) | (second << 8 & 0xff000000u);
}

inline int exchanged(int x, int mask) {
  return emulated::together<int>(x, [mask](const int* const* in, int* const* out, int lanes) {
    for (int lane = 0; lane < lanes; lane++) *out[lane] = *in[lane ^ mask];
  });
}

inline bool anyLane(bool x) {
  return emulated::together<bool>(x, [](const bool* const* in, bool* const* out, int lanes) {
    bool any = false;
    for (int lane = 0; lane < lanes; lane++) any |= *in[lane];
    for (int lane = 0; lane < lanes; lane++) *out[lane] = any;
  });
}

}  // namespace mxattn::hip::kernels

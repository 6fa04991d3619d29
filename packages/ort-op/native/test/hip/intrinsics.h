// AMD's matrix and cross-lane instructions under their compilers' names, lane by lane. Where a lane's registers are in a matrix
// is documented by AMD ("Matrix Core Programming", the matrix instruction calculator) and read off composable_kernel's tests
// for scaled blocks. Included inside the unnamed namespace of an architecture's build, after device.h.

// Results of all lanes from the operands of all lanes: D[row][column] = sum over k of A[row][k] * B[k][column] + C.
template <typename Vector, typename Operands, typename Dot>
Vector product(const Operands& mine, int rows, int results, int (*rowOf)(int result, int half), const Dot& dot) {
  return ::mxattn::hip::emulated::together<Vector>(
      mine, [&](const Operands* const* in, Vector* const* out, int lanes) {
        for (int lane = 0; lane < lanes; lane++) {
          for (int i = 0; i < results; i++) (*out[lane])[i] = dot(in, rowOf(i, lane / rows), lane % rows, in[lane]->c[i]);
        }
      });
}

inline int rowOf32(int result, int half) { return 8 * (result / 4) + 4 * half + result % 4; }

inline signed char byteOf(unsigned long long x, int byte) { return static_cast<signed char>(x >> (8 * byte)); }

#if defined(MXATTN_GFX942) || defined(MXATTN_GFX90A)

typedef int Ints16 __attribute__((vector_size(64)));

struct BytesOf32 {
  unsigned long long a, b;
  Ints16 c;
};

// A row's k = kBytes * (lane / 32) + byte.
template <int kBytes>
Ints16 mfma32(unsigned long long a, unsigned long long b, Ints16 c) {
  return product<Ints16>(BytesOf32{a, b, c}, 32, 16, rowOf32,
                         [](const BytesOf32* const* in, int row, int column, int sum) {
                           for (int k = 0; k < 2 * kBytes; k++) {
                             int other = k / kBytes * 32;
                             sum += byteOf(in[other + row]->a, k % kBytes) * byteOf(in[other + column]->b, k % kBytes);
                           }
                           return sum;
                         });
}

inline Ints16 __builtin_amdgcn_mfma_i32_32x32x16_i8(long a, long b, Ints16 c, int, int, int) {
  return mfma32<8>(static_cast<unsigned long long>(a), static_cast<unsigned long long>(b), c);
}

inline Ints16 __builtin_amdgcn_mfma_i32_32x32x8i8(int a, int b, Ints16 c, int, int, int) {
  return mfma32<4>(static_cast<unsigned>(a), static_cast<unsigned>(b), c);
}

#elif defined(MXATTN_GFX11)

typedef int Ints4 __attribute__((vector_size(16)));
typedef int Ints8 __attribute__((vector_size(32)));

struct BytesOf16 {
  Ints4 a, b;
  Ints8 c;
};

// k = 4 * register + byte; lanes 16 to 31 must have what lanes 0 to 15 have, and are poisoned if not.
inline Ints8 __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(bool, Ints4 a, bool, Ints4 b, Ints8 c, bool) {
  return product<Ints8>(BytesOf16{a, b, c}, 16, 8, [](int result, int half) { return 2 * result + half; },
                        [](const BytesOf16* const* in, int row, int column, int sum) {
                          for (int k = 0; k < 16; k++) {
                            int left = in[row]->a[k / 4], right = in[column]->b[k / 4];
                            if (left != in[row + 16]->a[k / 4] || right != in[column + 16]->b[k / 4]) return 1 << 30;
                            sum += byteOf(static_cast<unsigned>(left), k % 4) * byteOf(static_cast<unsigned>(right), k % 4);
                          }
                          return sum;
                        });
}

#elif defined(MXATTN_GFX12)

typedef int Ints2 __attribute__((vector_size(8)));
typedef int Ints8 __attribute__((vector_size(32)));

struct BytesOf16 {
  Ints2 a, b;
  Ints8 c;
};

// k = 8 * (lane / 16) + 4 * register + byte.
inline Ints8 __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(bool, Ints2 a, bool, Ints2 b, Ints8 c, bool) {
  return product<Ints8>(BytesOf16{a, b, c}, 16, 8, [](int result, int half) { return 8 * half + result; },
                        [](const BytesOf16* const* in, int row, int column, int sum) {
                          for (int k = 0; k < 16; k++) {
                            int other = k / 8 * 16, word = k % 8 / 4;
                            sum += byteOf(static_cast<unsigned>(in[other + row]->a[word]), k % 4) *
                                   byteOf(static_cast<unsigned>(in[other + column]->b[word]), k % 4);
                          }
                          return sum;
                        });
}

#elif defined(MXATTN_GFX950)

typedef int Ints8 __attribute__((vector_size(32)));
typedef float Floats16 __attribute__((vector_size(64)));
typedef unsigned Unsigned2 __attribute__((vector_size(8)));
typedef unsigned Unsigned8 __attribute__((vector_size(32)));
typedef short Bf16x2 __attribute__((vector_size(4)));
typedef short Bf16x32 __attribute__((vector_size(64)));
typedef short Int16x2 __attribute__((vector_size(4)));

// Value of a code of E4M3 (0), E2M3 (2) or E2M1 (4).
inline float valueOfCode(unsigned code, int format) {
  int mantissaBits = format == 4 ? 1 : 3, bias = format == 0 ? 7 : 1, bits = format == 0 ? 8 : format == 2 ? 6 : 4;
  unsigned magnitude = code & ((1u << (bits - 1)) - 1), mantissa = magnitude & ((1u << mantissaBits) - 1);
  int exponent = static_cast<int>(magnitude >> mantissaBits);
  if (format == 0 && magnitude == 0x7f) return NAN;
  float steps = static_cast<float>(exponent == 0 ? mantissa : mantissa + (1u << mantissaBits));
  float value = ldexpf(steps, (exponent == 0 ? 1 : exponent) - bias - mantissaBits);
  return code >> (bits - 1) & 1 ? -value : value;
}

inline float scaleOfCode(int code) { return code == 255 ? NAN : ldexpf(1.f, code - 127); }

struct ScaledOperands {
  Ints8 a, b;
  Floats16 c;
  int scaleA, scaleB;
};

// Element k of a row, without its scale. 6- and 4-bit codes: k = 32 * (lane / 32) + index. 8-bit codes: registers 0 to 3 have
// k = 16 * (lane / 32) + byte, registers 4 to 7 the same from 32 on.
template <bool kIsA>
float elementOf(const ScaledOperands* const* in, int row, int k, int format) {
  int bits = format == 0 ? 8 : format == 2 ? 6 : 4;
  int half = format == 0 ? k % 32 / 16 : k / 32, index = format == 0 ? k / 32 * 16 + k % 16 : k % 32;
  const Ints8& codes = kIsA ? in[half * 32 + row]->a : in[half * 32 + row]->b;
  int first = index * bits / 32, shift = index * bits % 32;
  unsigned long long two = static_cast<unsigned>(codes[first]);
  if (first < 7) two |= static_cast<unsigned long long>(static_cast<unsigned>(codes[first + 1])) << 32;
  return valueOfCode(static_cast<unsigned>(two >> shift) & ((1u << bits) - 1), format);
}

// The scale of block b of a row is that of lane 32 * b + row. NaNs come out positive.
inline Floats16 __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(Ints8 a, Ints8 b, Floats16 c, int formatA, int formatB, int,
                                                                int scaleA, int, int scaleB) {
  using Operands = ScaledOperands;
  return ::mxattn::hip::emulated::together<Floats16>(
      Operands{a, b, c, scaleA & 255, scaleB & 255}, [=](const Operands* const* in, Floats16* const* out, int lanes) {
        static thread_local float left[32][64], right[32][64];
        for (int row = 0; row < 32; row++) {
          for (int k = 0; k < 64; k++) {
            int scales = k / 32 * 32 + row;
            left[row][k] = elementOf<true>(in, row, k, formatA) * scaleOfCode(in[scales]->scaleA);
            right[row][k] = elementOf<false>(in, row, k, formatB) * scaleOfCode(in[scales]->scaleB);
          }
        }
        for (int lane = 0; lane < lanes; lane++) {
          for (int i = 0; i < 16; i++) {
            int row = rowOf32(i, lane / 32);
            double sum = 0;
            for (int k = 0; k < 64; k++) sum += static_cast<double>(left[row][k]) * right[lane % 32][k];
            auto total = static_cast<float>(sum + in[lane]->c[i]);
            (*out[lane])[i] = total != total ? NAN : total;
          }
        }
      });
}

// Lanes 32 to 63 of the first and lanes 0 to 31 of the second change places.
inline Unsigned2 __builtin_amdgcn_permlane32_swap(unsigned first, unsigned second, bool, bool) {
  return ::mxattn::hip::emulated::together<Unsigned2>(
      Unsigned2{first, second}, [](const Unsigned2* const* in, Unsigned2* const* out, int) {
        for (int lane = 0; lane < 32; lane++) {
          *out[lane] = Unsigned2{(*in[lane])[0], (*in[lane + 32])[0]};
          *out[lane + 32] = Unsigned2{(*in[lane])[1], (*in[lane + 32])[1]};
        }
      });
}

// The code nearest to a magnitude, ties to the even code, saturated: codes of positive values are in order.
inline unsigned nearestCode(float x, int format, unsigned largest) {
  unsigned code = 0;
  while (code < largest && valueOfCode(code + 1, format) <= x) code++;
  if (code == largest) return code;
  float below = x - valueOfCode(code, format), above = valueOfCode(code + 1, format) - x;
  return below > above || (below == above && code % 2 == 1) ? code + 1 : code;
}

inline float floatOfBf16(short bits) {
  unsigned wide = static_cast<unsigned>(static_cast<unsigned short>(bits)) << 16;
  float x;
  ::memcpy(&x, &wide, 4);
  return x;
}

// Saturated.
inline Int16x2 __builtin_amdgcn_cvt_pk_i16(int first, int second) {
  auto of = [](int x) { return static_cast<short>(x < -32768 ? -32768 : x > 32767 ? 32767 : x); };
  return Int16x2{of(first), of(second)};
}

// 32 bf16, none below zero, over the power of two in the scale, as E2M3 codes in order. Six words are written.
inline Unsigned8 __builtin_amdgcn_cvt_scalef32_pk32_fp6_bf16(Bf16x32 from, float scale) {
  Unsigned8 packed{};
  int exponent;
  frexpf(scale, &exponent);
  for (int i = 0; i < 32; i++) {
    unsigned long long code = nearestCode(ldexpf(floatOfBf16(from[i]), 1 - exponent), 2, 0x1f);
    int first = i * 6 / 32, shift = i * 6 % 32;
    packed[first] |= static_cast<unsigned>(code << shift);
    if (shift > 26) packed[first + 1] |= static_cast<unsigned>(code >> (32 - shift));
  }
  return packed;
}

// Two bf16, none below zero, as E4M3 codes, to the low or the high half of what was there.
inline Int16x2 __builtin_amdgcn_cvt_scalef32_pk_fp8_bf16(Int16x2 old, Bf16x2 from, float scale, bool high) {
  unsigned low = nearestCode(floatOfBf16(from[0]) / scale, 0, 0x7e), next = nearestCode(floatOfBf16(from[1]) / scale, 0, 0x7e);
  old[high] = static_cast<short>(low | next << 8);
  return old;
}

#endif

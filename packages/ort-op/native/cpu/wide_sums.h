// Sums of products have 32 bits from the start.
constexpr bool kNarrowSums = false;
typedef Ints Sums;
MXATTN_INLINE Sums multiplyAdd(Sums sums, Ints u, Ints s) { return dot4(sums, u, s); }
MXATTN_INLINE Ints widen(Sums sums, Ints) { return sums; }

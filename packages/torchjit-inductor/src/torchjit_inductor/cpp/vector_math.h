// Mathematical functions. Scalars are libm's; vectors are SLEEF's out of libtorch where it has them, else lane by lane.
#if defined(__AVX512F__)
enum { CALL_BYTES = 64 };  // the widest vector that this machine passes in a register
#elif defined(__AVX__)
enum { CALL_BYTES = 32 };
#else
enum { CALL_BYTES = 16 };
#endif
constexpr unsigned math_slot(unsigned op, unsigned element, unsigned bytes) {
  return op * 6 + (element == 8 ? 3 : 0) + (bytes == 16 ? 0 : bytes == 32 ? 1 : 2); }
template <unsigned Op, class V, class F> INLINE V call_vector(F scalar, V x) {
  typedef decltype(x[0] + 0) T; constexpr unsigned N = sizeof(x) / sizeof(T);
  if constexpr (sizeof(x) > CALL_BYTES && N > 1) {
    typedef typename lanes_of<T, N / 2>::type H; H h[2]; V r; __builtin_memcpy(h, &x, sizeof(x));
    h[0] = call_vector<Op>(scalar, h[0]); h[1] = call_vector<Op>(scalar, h[1]);
    __builtin_memcpy(&r, h, sizeof(r)); return r;
  } else {
    if constexpr (sizeof(x) >= 16) if (void* f = tj_math[math_slot(Op, sizeof(T), sizeof(x))]) return ((V (*)(V))f)(x);
    V r; for (unsigned k = 0; k < N; k++) r[k] = scalar(x[k]); return r; } }
template <unsigned Op, class V, class F> INLINE V call_vector(F scalar, V x, V y) {
  typedef decltype(x[0] + 0) T; constexpr unsigned N = sizeof(x) / sizeof(T);
  if constexpr (sizeof(x) > CALL_BYTES && N > 1) {
    typedef typename lanes_of<T, N / 2>::type H; H a[2], b[2]; V r; __builtin_memcpy(a, &x, sizeof(x)); __builtin_memcpy(b, &y, sizeof(y));
    a[0] = call_vector<Op>(scalar, a[0], b[0]); a[1] = call_vector<Op>(scalar, a[1], b[1]);
    __builtin_memcpy(&r, a, sizeof(r)); return r;
  } else {
    if constexpr (sizeof(x) >= 16) if (void* f = tj_math[math_slot(Op, sizeof(T), sizeof(x))]) return ((V (*)(V, V))f)(x, y);
    V r; for (unsigned k = 0; k < N; k++) r[k] = scalar(x[k], y[k]); return r; } }
#define SCALAR(name) \
  INLINE f32 op_##name(f32 x) { return __builtin_##name##f(x); } \
  INLINE f64 op_##name(f64 x) { return __builtin_##name(x); }
#define MATH(name) SCALAR(name) template <class V> INLINE V op_##name(V x) { \
  return call_vector<MATH_##name>([](auto a) __attribute__((always_inline)) { return op_##name(a); }, x); }
#define SCALAR2(name) \
  INLINE f32 op_##name(f32 x, f32 y) { return __builtin_##name##f(x, y); } \
  INLINE f64 op_##name(f64 x, f64 y) { return __builtin_##name(x, y); }
#define MATH2(name) SCALAR2(name) template <class V> INLINE V op_##name(V x, V y) { \
  return call_vector<MATH_##name>([](auto a, auto b) __attribute__((always_inline)) { return op_##name(a, b); }, x, y); }
// Those that have a polynomial below for floats; doubles are SLEEF's.
#define MATH_POLYNOMIAL(name) SCALAR(name) template <class V> INLINE V op_##name(V x) { \
  if constexpr (sizeof(x[0]) == 4) return name##_f32v(x); \
  else return call_vector<MATH_##name>([](auto a) __attribute__((always_inline)) { return op_##name(a); }, x); }
#define LANES(name, f32fn, f64fn) \
  INLINE f32 op_##name(f32 x) { return f32fn(x); } \
  INLINE f64 op_##name(f64 x) { return f64fn(x); } \
  template <class V> INLINE V op_##name(V x) { V r; for (unsigned k = 0; k < sizeof(x) / sizeof(x[0]); k++) r[k] = op_##name(x[k]); return r; }
MATH(exp2) MATH(expm1) MATH(log2) MATH(log10) MATH(log1p) MATH(sin) MATH(cos) MATH(tan) MATH(asin) MATH(acos) MATH(atan)
MATH(atanh) MATH(erfc) MATH(lgamma)
MATH2(pow) MATH2(atan2) MATH2(hypot) MATH2(nextafter)
// SLEEF's remainder is not a number where the quotient overflows; there is one.
SCALAR2(fmod) template <class V> INLINE V op_fmod(V x, V y) {
  V r = call_vector<MATH_fmod>([](auto a, auto b) __attribute__((always_inline)) { return op_fmod(a, b); }, x, y);
  for (unsigned k = 0; k < sizeof(x) / sizeof(x[0]); k++) if (__builtin_expect(r[k] != r[k], 0)) r[k] = op_fmod(x[k], y[k]);
  return r; }
LANES(sinh, __builtin_sinhf, __builtin_sinh) LANES(cosh, __builtin_coshf, __builtin_cosh)
LANES(asinh, __builtin_asinhf, __builtin_asinh) LANES(acosh, __builtin_acoshf, __builtin_acosh)
LANES(sqrt, __builtin_sqrtf, __builtin_sqrt) LANES(floor, __builtin_floorf, __builtin_floor)
LANES(ceil, __builtin_ceilf, __builtin_ceil) LANES(trunc, __builtin_truncf, __builtin_trunc)
LANES(round, __builtin_rintf, __builtin_rint)
INLINE f32 op_copysign(f32 x, f32 y) { return __builtin_copysignf(x, y); }
INLINE f64 op_copysign(f64 x, f64 y) { return __builtin_copysign(x, y); }
template <class V> INLINE V op_copysign(V x, V y) {
  typedef decltype(x < x) I; I top = {}; top = ~top; top = top << (sizeof(x[0]) * 8 - 1);
  return (V)(((I)x & ~top) | ((I)y & top)); }
template <class T> INLINE T op_rsqrt(T x) { T one = {}; return (one + 1) / op_sqrt(x); }
// The remainder with the divisor's sign.
template <class T> INLINE T op_remainder(T a, T b) {
  T r = op_fmod(a, b), zero = {};
  return ((r != zero) & ((b < zero) ^ (r < zero))) ? r + b : r; }
template <class T> INLINE T op_truncdiv(T a, T b) { return op_trunc(a / b); }

// a * b + c in one rounding where the machine can: for polynomials only, user arithmetic is never contracted.
template <class V> INLINE V mad(V a, V b, V c) { return a * b + c; }
#if defined(__clang__) && __has_builtin(__builtin_elementwise_fma)
#define MAD(V, ...) template <> INLINED V mad(V a, V b, V c) { return __builtin_elementwise_fma(a, b, c); }
#else
#define MAD(V, ...) template <> INLINED V mad(V a, V b, V c) { return (V)__builtin_ia32_##__VA_ARGS__; }
#endif
#ifdef __AVX512F__
MAD(f32x16, vfmaddps512_mask(a, b, c, (u16)-1, 4))
#endif
#ifdef __FMA__
MAD(f32x8, vfmaddps256(a, b, c))
#endif
#undef MAD
template <class V> INLINE V mad(V a, V b, f32 c) { V v = {}; return mad(a, b, v + c); }
// x between two numbers; NaN stays.
template <class V> INLINE V between(V x, f32 low, f32 high) {
  V zero = {}; return (x > high) ? zero + high : ((x < low) ? zero + low : x); }

// p * 2^k in one rounding: infinite and denormal results come out right.
template <class V> INLINE V scale(V p, V k) {
  typedef decltype(k < k) I; I n = __builtin_convertvector(k, I); I h = n >> 1; I g = n - h;
  return p * (V)((h + 127) << 23) * (V)((g + 127) << 23); }
// GCC does not see the processor's minimum and maximum in it, clang does.
#if defined(__AVX512F__) && !defined(__clang__)
template <> INLINED f32x16 between(f32x16 x, f32 low, f32 high) {
  f32x16 zero = {}; x = (f32x16)__builtin_ia32_minps512_mask(zero + high, x, x, (u16)-1, 4);  // of a NaN the second is taken
  return (f32x16)__builtin_ia32_maxps512_mask(zero + low, x, x, (u16)-1, 4); }
#endif
#ifdef __AVX512F__
template <> INLINED f32x16 scale(f32x16 p, f32x16 k) { return (f32x16)__builtin_ia32_scalefps512_mask(p, k, p, (u16)-1, 4); }
#endif
#if defined(__AVX__) && !defined(__clang__)
template <> INLINED f32x8 between(f32x8 x, f32 low, f32 high) {
  f32x8 zero = {}; return __builtin_ia32_maxps256(zero + low, __builtin_ia32_minps256(zero + high, x)); }
#endif

// exp for float vectors, within about 1 ulp: 2^k * e^r with |r| <= ln2/2, degree 7 in r; results may be denormal.
template <class V> INLINE V exp_f32v(V x) {
  V zero = {}; V c = between(x, -104.0f, 89.0f);
  V magic = zero + 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  V k = mad(c, zero + 1.44269504f, magic) - magic;
  V r = mad(k, zero - 0.693145752f, c); r = mad(k, zero - 1.42860677e-6f, r);
  V p = zero + 1.98412698e-4f;
  p = mad(p, r, 1.38888889e-3f); p = mad(p, r, 8.33333333e-3f); p = mad(p, r, 4.16666667e-2f);
  p = mad(p, r, 1.66666667e-1f); p = mad(p, r, 0.5f);
  p = mad(p, r * r, r); p = p + 1.0f;
  return scale(p, k); }
MATH_POLYNOMIAL(exp)

// log for float vectors: m * 2^e with m in [sqrt(1/2), sqrt(2)), a polynomial in m - 1 (Cephes logf).
template <class V> INLINE V log_f32v(V x) {
  typedef decltype(x < x) I; V zero = {}; I izero = {};
  I tiny = x < 1.17549435e-38f;
  V s = tiny ? x * 8388608.0f : x;
  I bits = (I)s;
  I e = ((bits >> 23) & 255) - 126;
  V m = (V)((bits & 0x007fffff) | 0x3f000000);
  I small = m < 0.707106781f;
  e = small ? e - 1 : e;
  V f = (small ? m + m : m) - 1.0f;
  e = e - (tiny ? izero + 23 : izero);
  V z = f * f;
  V p = zero + 7.0376836292e-2f;
  p = mad(p, f, -1.1514610310e-1f); p = mad(p, f, 1.1676998740e-1f); p = mad(p, f, -1.2420140846e-1f);
  p = mad(p, f, 1.4249322787e-1f); p = mad(p, f, -1.6668057665e-1f); p = mad(p, f, 2.0000714765e-1f);
  p = mad(p, f, -2.4999993993e-1f); p = mad(p, f, 3.3333331174e-1f);
  V ef = __builtin_convertvector(e, V);
  V y = f * z * p; y = y + ef * -2.12194440e-4f; y = y - z * 0.5f;
  V r = f + y; r = r + ef * 0.693359375f;
  r = (x == __builtin_inff()) ? x : r;
  r = (x == 0.0f) ? zero - __builtin_inff() : r;
  r = (x < 0.0f) ? zero + __builtin_nanf("") : r;
  return (x != x) ? x : r; }
MATH_POLYNOMIAL(log)

// tanh for float vectors, within 4 ulp: x * P(x^2) / Q(x^2), fitted up to 9.1. Beyond, it passes 1 before the bound that x is
// kept in, so that large arguments give exactly 1 in any rounding.
template <class V> INLINE V tanh_f32v(V x) {
  V zero = {}; x = between(x, -10.2f, 10.2f); V z = x * x;
  V p = zero + 1.3177738e-8f; p = mad(p, z, 2.04813823e-5f); p = mad(p, z, 3.4878247e-3f); p = mad(p, z, 1.33744881e-1f);
  p = mad(p, z, 1.0f);
  V q = zero + 7.70414545e-7f; q = mad(q, z, 3.2729411e-4f); q = mad(q, z, 2.58474424e-2f); q = mad(q, z, 4.67078e-1f);
  q = mad(q, z, 1.0f);
  return between(p * x / q, -1.0f, 1.0f); }
MATH_POLYNOMIAL(tanh)
template <class T> INLINE T op_sigmoid(T x) { T one = {}; one = one + 1; return one / (one + op_exp(-x)); }

// erf for float vectors, within 5 ulp: as tanh, fitted up to 3.95.
template <class V> INLINE V erf_f32v(V x) {
  V zero = {}; x = between(x, -4.2f, 4.2f); V z = x * x;
  V p = zero + 1.960235e-8f; p = mad(p, z, -1.95073812e-6f); p = mad(p, z, 1.43792917e-4f); p = mad(p, z, 3.80737009e-3f);
  p = mad(p, z, 5.09219579e-2f); p = mad(p, z, 2.02573389e-1f); p = mad(p, z, 1.12837911f);
  V q = zero + 9.79714561e-4f; q = mad(q, z, 1.45748761e-2f); q = mad(q, z, 1.16090521e-1f); q = mad(q, z, 5.12857497e-1f);
  q = mad(q, z, 1.0f);
  return between(p * x / q, -1.0f, 1.0f); }
MATH_POLYNOMIAL(erf)

// Square roots and rounding have instructions.
#ifdef __clang__
#if __has_builtin(__builtin_elementwise_sqrt)
#define ROOT(V) INLINE V op_sqrt(V x) { return __builtin_elementwise_sqrt(x); }
ROOT(f32x16) ROOT(f64x8) ROOT(f32x8) ROOT(f64x4) ROOT(f32x4) ROOT(f64x2)
#undef ROOT
#endif
#elif defined(__AVX512F__)
INLINE f32x16 op_sqrt(f32x16 x) { return (f32x16)__builtin_ia32_sqrtps512_mask(x, x, (u16)-1, 4); }
INLINE f64x8 op_sqrt(f64x8 x) { return (f64x8)__builtin_ia32_sqrtpd512_mask(x, x, (u8)-1, 4); }
#endif
#ifdef __AVX512F__
#define ROUNDING(name, mode) \
  INLINE f32x16 op_##name(f32x16 x) { return (f32x16)__builtin_ia32_rndscaleps_mask(x, mode, x, (u16)-1, 4); } \
  INLINE f64x8 op_##name(f64x8 x) { return (f64x8)__builtin_ia32_rndscalepd_mask(x, mode, x, (u8)-1, 4); }
ROUNDING(round, 8) ROUNDING(floor, 9) ROUNDING(ceil, 10) ROUNDING(trunc, 11)
#undef ROUNDING
#endif
#ifdef __AVX__
#ifndef __clang__
INLINE f32x8 op_sqrt(f32x8 x) { return (f32x8)__builtin_ia32_sqrtps256(x); }
INLINE f64x4 op_sqrt(f64x4 x) { return (f64x4)__builtin_ia32_sqrtpd256(x); }
#endif
#define ROUNDING(name, mode) \
  INLINE f32x8 op_##name(f32x8 x) { return (f32x8)__builtin_ia32_roundps256(x, mode); } \
  INLINE f64x4 op_##name(f64x4 x) { return (f64x4)__builtin_ia32_roundpd256(x, mode); }
ROUNDING(round, 8) ROUNDING(floor, 9) ROUNDING(ceil, 10) ROUNDING(trunc, 11)
#endif
// Floor division of floats as Python and torch do it.
template <class T> INLINE T op_floordiv(T a, T b) {
  T zero = {}, m = op_fmod(a, b), d = a / b;
  T q = (a - m) / b;
  q = ((m != zero) & ((b < zero) ^ (m < zero))) ? q - 1 : q;
  T f = op_floor(q);
  f = (q - f > (zero + 1) / 2) ? f + 1 : f;
  f = (q != zero) ? f : op_copysign(zero, d);
  return (b == zero) ? d : f; }

// Types and functions that every generated file starts with. No header is included: that keeps compile times low.
typedef unsigned char u8; typedef signed char i8; typedef short i16; typedef unsigned short u16;
typedef int i32; typedef unsigned u32; typedef long i64; typedef unsigned long u64;
typedef float f32; typedef double f64;
#define INLINED inline __attribute__((always_inline, unused))
#define INLINE static INLINED
// GCC 12 takes some functions whose stores go through vectors in memory for such as store nothing, and leaves out their calls.
#define APART static __attribute__((noipa))
struct Full {}; struct Part {};
// float16 as it is stored. Not every compiler has the type in C++: GCC from 12 on (ARM: 13), clang from 15 on (ARM: always).
#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 15 : __GNUC__ >= 12)
typedef _Float16 f16;
#elif defined(__aarch64__) && (defined(__clang__) || __GNUC__ >= 13)
typedef _Float16 f16;
#elif defined(__aarch64__)
typedef __fp16 f16;
#else
struct f16 {
  u16 bits;
  f16() = default;
  INLINED f16(f32 x) {
#ifdef __F16C__
    typedef f32 V __attribute__((vector_size(16))); V v = {x}; bits = (u16)__builtin_ia32_vcvtps2ph(v, 0)[0];
#else
    u32 u; __builtin_memcpy(&u, &x, 4);
    const u32 sign = u >> 16 & 0x8000; u &= 0x7fffffff;
    if (u >= 0x47800000) bits = sign | (u > 0x7f800000 ? 0x7e00 : 0x7c00);  // NaN; 65536 and more
    else if (u < 0x38800000) {  // denormal: the addition shifts and rounds
      f32 f; __builtin_memcpy(&f, &u, 4); f += 0.5f; __builtin_memcpy(&u, &f, 4); bits = sign | (u - 0x3f000000); }
    else bits = sign | ((u - 0x38000000 + 0xfff + (u >> 13 & 1)) >> 13);
#endif
  }
  INLINED operator f32() const {
#ifdef __F16C__
    typedef short V __attribute__((vector_size(16))); V v = {(short)bits}; return __builtin_ia32_vcvtph2ps(v)[0];
#else
    u32 u = (u32)(bits & 0x7fff) << 13; f32 f;
    if (u >= 0x0f800000) u += 0x70000000; else u += 0x38000000;  // infinite and NaN, or not
    if (u < 0x38800000) { u += 0x00800000; __builtin_memcpy(&f, &u, 4); f -= 6.103515625e-05f; }  // denormal: f has 2^-14 too much
    else __builtin_memcpy(&f, &u, 4);
    return bits & 0x8000 ? -f : f;
#endif
  }
};
#endif

// The process gives these addresses when it loads the file (see loader.py).
static void (*tj_parallel)(i64, i64, i64, void (*)(i64, i64, void*), void*);
static i64 (*py_int)(void*); static void* (*py_save)(void); static void (*py_restore)(void*);
static void (*py_incref)(void*); static void* py_none;
static void* (*py_format)(void*, const char*, ...); static void *py_index_error, *py_runtime_error;
static void* (*tj_malloc)(u64); static void (*tj_free)(void*);
static void* const* tj_math;  // vector functions by operation and type; null where there is none (vector_math.py)


// Vector types of W lanes. A bool is a mask of 32-bit lanes, 0 or -1.
#define WRITTEN_OUT _Pragma("GCC unroll 8")  // for loops over few vectors, which then are in registers
#define VECTOR_TYPES(N) \
  enum { W = N }; \
  typedef f32 vf32 __attribute__((vector_size(4 * N))); typedef f64 vf64 __attribute__((vector_size(8 * N))); \
  typedef i8 vi8 __attribute__((vector_size(N))); typedef u8 vu8 __attribute__((vector_size(N))); \
  typedef i16 vi16 __attribute__((vector_size(2 * N))); typedef u16 vu16 __attribute__((vector_size(2 * N))); \
  typedef i32 vi32 __attribute__((vector_size(4 * N))); typedef u32 vu32 __attribute__((vector_size(4 * N))); \
  typedef i64 vi64 __attribute__((vector_size(8 * N))); typedef vi32 vmask;

template <class V, class T> INLINE V splat(T x) { V zero = {}; return x - zero; }  // 0 + x would lose the sign of -0
template <class V> INLINE V splat_mask(bool x) { V v = {}; return x ? ~v : v; }
template <class T, unsigned N> struct lanes_of { typedef T type __attribute__((vector_size(N * sizeof(T)))); };
// Small integers as 32 bits and back. GCC 12 does so by halves, which it takes apart and puts together; the processor has an
// instruction for all lanes.
#if defined(__AVX2__) && !defined(__clang__)
typedef char bytes16 __attribute__((vector_size(16))); typedef short short8 __attribute__((vector_size(16)));
typedef short short16 __attribute__((vector_size(32))); typedef i32 i32x8 __attribute__((vector_size(32)));
INLINE i32x8 widened(lanes_of<i16, 8>::type v) { return __builtin_ia32_pmovsxwd256((short8)v); }
INLINE i32x8 widened(lanes_of<u16, 8>::type v) { return __builtin_ia32_pmovzxwd256((short8)v); }
#ifdef __AVX512F__
typedef i32 i32x16 __attribute__((vector_size(64)));
INLINE i32x16 widened(lanes_of<i8, 16>::type v) { i32x16 z = {}; return __builtin_ia32_pmovsxbd512_mask((bytes16)v, z, (u16)-1); }
INLINE i32x16 widened(lanes_of<u8, 16>::type v) { i32x16 z = {}; return __builtin_ia32_pmovzxbd512_mask((bytes16)v, z, (u16)-1); }
INLINE i32x16 widened(lanes_of<i16, 16>::type v) { i32x16 z = {}; return __builtin_ia32_pmovsxwd512_mask((short16)v, z, (u16)-1); }
INLINE i32x16 widened(lanes_of<u16, 16>::type v) { i32x16 z = {}; return __builtin_ia32_pmovzxwd512_mask((short16)v, z, (u16)-1); }
INLINE short16 narrowed(i32x16 v, short16 z) { return __builtin_ia32_pmovdw512_mask(v, z, (u16)-1); }
INLINE bytes16 narrowed(i32x16 v, bytes16 z) { return __builtin_ia32_pmovdb512_mask(v, z, (u16)-1); }
#define WIDENS(N, from) (N == 16 || (N == 8 && from == 2))
#define NARROWS
#else
#define WIDENS(N, from) (N == 8 && from == 2)
#endif
#else
#define WIDENS(N, from) false
#endif
// GCC widens and narrows vectors by factors of two; a wider step it does lane by lane. So go by way of the sizes between.
template <class V, class A> INLINE V convert(A a) {
  constexpr unsigned N = sizeof(a) / sizeof(a[0]), from = sizeof(a[0]), to = sizeof(V) / N;
  constexpr bool float_in = decltype(a[0] + 0)(0.5) != 0, float_out = decltype(V()[0] + 0)(0.5) != 0;
  typedef typename lanes_of<i16, N>::type M16; typedef typename lanes_of<i32, N>::type M32;
  if constexpr (from < 4 && to == 4 && WIDENS(N, from)) {
    if constexpr (float_out) return __builtin_convertvector(widened(a), V); else return (V)widened(a); }
#ifdef NARROWS
  else if constexpr (N == 16 && from == 4 && to == 2 && !float_in) return (V)narrowed((M32)a, short16());
  else if constexpr (N == 16 && from == 4 && to == 1 && !float_in) return (V)narrowed((M32)a, bytes16());
#endif
  else if constexpr (from == 1 && to > 2) return convert<V>(__builtin_convertvector(a, M16));
  else if constexpr (from == 2 && (to == 8 || float_out)) return convert<V>(__builtin_convertvector(a, M32));
  else if constexpr (to == 1 && from == 4) return convert<V>(convert<M16>(a));
  else if constexpr (to < 4 && (from == 8 || (to == 2 && float_in))) return convert<V>(__builtin_convertvector(a, M32));
  else return __builtin_convertvector(a, V); }
template <class V> INLINE V iota() { V v; for (unsigned k = 0; k < sizeof(v) / sizeof(v[0]); k++) v[k] = k; return v; }

// Loads and stores of consecutive elements; a Part touches only the first n lanes.
template <class V, class T> INLINE V ld(Full, const T* p, int) { V v; __builtin_memcpy(&v, p, sizeof(v)); return v; }
#if defined(__AVX512VL__) && defined(__AVX512BW__) && !defined(__clang__)
#define MASKED_PARTS
#define MASKED(bytes, element, lane, mask, name) \
  if constexpr (sizeof(V) == bytes && sizeof(T) == element) { \
    typedef lane M __attribute__((vector_size(bytes))); M zero = {}; \
    return (V)__builtin_ia32_load##name##_mask((const lane*)p, zero, (mask)((1ull << n) - 1)); }
#define MASKED_STORE(bytes, element, lane, mask, name) \
  if constexpr (sizeof(V) == bytes && sizeof(T) == element) { \
    typedef lane M __attribute__((vector_size(bytes))); \
    return __builtin_ia32_store##name##_mask((lane*)p, (M)v, (mask)((1ull << n) - 1)); }
#else
#define MASKED(...)
#define MASKED_STORE(...)
#endif
template <class V, class T> INLINE V ld(Part, const T* p, int n) {
  MASKED(64, 4, f32, u16, ups512) MASKED(64, 8, f64, u8, upd512) MASKED(32, 4, f32, u8, ups256) MASKED(32, 8, f64, u8, upd256)
  MASKED(32, 2, short, u16, dquhi256) MASKED(16, 2, short, u8, dquhi128)
  V v = {}; for (int k = 0; k < n; k++) v[k] = p[k]; return v; }
template <class V, class T> INLINE void st(Full, T* p, V v, int) { __builtin_memcpy(p, &v, sizeof(v)); }
template <class V, class T> INLINE void st(Part, T* p, V v, int n) {
  MASKED_STORE(64, 4, f32, u16, ups512) MASKED_STORE(64, 8, f64, u8, upd512)
  MASKED_STORE(32, 4, f32, u8, ups256) MASKED_STORE(32, 8, f64, u8, upd256)
  MASKED_STORE(32, 2, short, u16, dquhi256) MASKED_STORE(16, 2, short, u8, dquhi128)
  for (int k = 0; k < n; k++) p[k] = v[k]; }
#undef MASKED
#undef MASKED_STORE

INLINE f32 from_bf16(u16 x) { u32 u = (u32)x << 16; f32 f; __builtin_memcpy(&f, &u, 4); return f; }
INLINE u16 to_bf16(f32 x) {
  u32 u; __builtin_memcpy(&u, &x, 4);
  return x != x ? (u16)0x7fc0 : (u16)((u + 0x7fff + ((u >> 16) & 1)) >> 16); }
template <class F, class U, class H> INLINE F from_bf16v(H h) { return (F)(convert<U>(h) << 16); }
template <class U, class H, class F> INLINE H to_bf16v(F x) {
  U u = (U)x; U r = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  U nan = {}; nan = nan + 0x7fc0; return convert<H>((x != x) ? nan : r); }

// Rounded to bfloat16, as a float.
template <class U, class F> INLINE F round_bf16v(F x) {
  U u = (U)x; U nan = {}; nan = nan + 0x7fc00000;
  return (F)((x != x) ? nan : ((u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000)); }

// Floats of 8 bits with M bits of mantissa, 3 (e4m3fn, without infinity) or 2 (e5m2). Those below the normal ones are multiples of the
// least one: no float32 is denormal on the way, so that a mode that flushes them changes nothing.
template <unsigned M> struct F8 {
  static constexpr i32 SHIFT = 23 - M, BIAS = (M == 3 ? 120 : 112) << 23, SPECIAL = M == 3 ? 0x7f : 0x7c;
  static constexpr f32 least = M == 3 ? 0x1p-9f : 0x1p-16f; };
template <unsigned M> INLINE f32 from_f8(u8 x) {
  const i32 m = x & 0x7f; i32 u = (m << F8<M>::SHIFT) + (m >= F8<M>::SPECIAL ? 2 * F8<M>::BIAS : F8<M>::BIAS);
  f32 f = m * F8<M>::least; if (m >> M) __builtin_memcpy(&f, &u, 4);
  return x & 0x80 ? -f : f; }
template <unsigned M, class F, class I, class H> INLINE F from_f8v(H h) {
  const I w = convert<I>(h), m = w & 0x7f, bias = splat<I>(F8<M>::BIAS);
  const I u = (m << F8<M>::SHIFT) + bias + ((m >= F8<M>::SPECIAL) & bias);
  return (F)(((m >> M) == 0 ? (I)(convert<F>(m) * F8<M>::least) : u) | ((w & 0x80) << 24)); }

INLINE i64 floor_div(i64 a, i64 b) { i64 q = a / b; return q - ((a % b != 0) & ((a < 0) != (b < 0))); }
INLINE i64 floor_mod(i64 a, i64 b) { i64 r = a % b; return r + ((r != 0) & ((r < 0) != (b < 0))) * b; }
INLINE i64 imax(i64 a, i64 b) { return a > b ? a : b; }
INLINE i64 imin(i64 a, i64 b) { return a < b ? a : b; }

// A computed position, checked. One that lies outside is noted in `fault` (which error, position, dimension, size); the
// kernel goes on with 0 and its entry raises. Any of several faults may win.
INLINE i64 bounded(i64 i, i64 size, bool wrap, i64 dim, i64 error, i64* fault) {
  i64 j = wrap && i < 0 ? i + size : i;
  if (__builtin_expect((u64)j < (u64)size, 1)) return j;
  fault[1] = i; fault[2] = dim; fault[3] = size; __atomic_store_n(&fault[0], error, __ATOMIC_RELEASE);
  return 0; }
// Are all 64-bit lanes of a comparison 0?
template <class V> INLINE bool no_lane(V v) {
  if constexpr (sizeof(v) == 8) return !v[0];
  else {
    typename lanes_of<i64, sizeof(v) / 16>::type h[2]; __builtin_memcpy(h, &v, sizeof(v)); return no_lane(h[0] | h[1]); } }
template <class V> INLINE V bounded_lanes(V v, int n, i64 size, bool wrap, i64 dim, i64 error, i64* fault) {
  V zero = {}, top = zero + (size - 1), r = v;
  if (wrap) r = (v < zero) ? v + size : v;
  if (__builtin_expect(no_lane((r < zero) | (r > top)), 1)) return r;  // lanes behind the last one may be anything
  r = zero; for (int k = 0; k < n; k++) r[k] = bounded(v[k], size, wrap, dim, error, fault); return r; }
static void* raise_fault(const i64* f) {
  if (f[0] == 4) return py_format(py_runtime_error, "not enough memory to sort rows of %ld elements", f[3]);
  if (f[0] == 5) return py_format(py_runtime_error, "all elements of input and target should be between 0 and 1");
  const char* text = f[0] == 3 ? "index out of range in self" : "index %ld is out of bounds for dimension %ld with size %ld";
  return py_format(f[0] == 2 ? py_runtime_error : py_index_error, text, f[1], f[2], f[3]); }

// The processor's own minimum and maximum: of two that do not compare the second.
template <class T> INLINE T op_least(T a, T b) { return a < b ? a : b; }
template <class T> INLINE T op_greatest(T a, T b) { return a > b ? a : b; }
typedef f32 f32x16 __attribute__((vector_size(64))); typedef f64 f64x8 __attribute__((vector_size(64)));
typedef f32 f32x8 __attribute__((vector_size(32))); typedef f64 f64x4 __attribute__((vector_size(32)));
typedef f32 f32x4 __attribute__((vector_size(16))); typedef f64 f64x2 __attribute__((vector_size(16)));
// GCC does not see the processor's minimum and maximum in `a < b ? a : b` of vectors.
#if defined(__SSE2__) && !defined(__clang__)
#define EXTREME(op, name) \
  INLINE f32x4 op(f32x4 a, f32x4 b) { return __builtin_ia32_##name##ps(a, b); } \
  INLINE f64x2 op(f64x2 a, f64x2 b) { return __builtin_ia32_##name##pd(a, b); }
EXTREME(op_least, min) EXTREME(op_greatest, max)
#undef EXTREME
#ifdef __AVX__
#define EXTREME(op, name) \
  INLINE f32x8 op(f32x8 a, f32x8 b) { return __builtin_ia32_##name##ps256(a, b); } \
  INLINE f64x4 op(f64x4 a, f64x4 b) { return __builtin_ia32_##name##pd256(a, b); }
EXTREME(op_least, min) EXTREME(op_greatest, max)
#undef EXTREME
#endif
#ifdef __AVX512F__
#define EXTREME(op, name) \
  INLINE f32x16 op(f32x16 a, f32x16 b) { return __builtin_ia32_##name##ps512_mask(a, b, a, (u16)-1, 4); } \
  INLINE f64x8 op(f64x8 a, f64x8 b) { return __builtin_ia32_##name##pd512_mask(a, b, a, (u8)-1, 4); }
EXTREME(op_least, min) EXTREME(op_greatest, max)
#undef EXTREME
#endif
#endif

// Operations that read alike for scalars and vectors.
template <class T> INLINE T op_maximum(T a, T b) { return (a != a) ? a : op_greatest(a, b); }
template <class T> INLINE T op_minimum(T a, T b) { return (a != a) ? a : op_least(a, b); }
template <class T> INLINE T op_fmax(T a, T b) { return (b != b) ? a : ((a >= b) ? a : b); }
template <class T> INLINE T op_fmin(T a, T b) { return (b != b) ? a : ((a <= b) ? a : b); }
template <class T> INLINE T op_abs_int(T a) { return (a < 0) ? -a : a; }
INLINE f32 op_abs(f32 a) { return __builtin_fabsf(a); }
INLINE f64 op_abs(f64 a) { return __builtin_fabs(a); }
template <class V> INLINE V op_abs(V a) {
  typedef decltype(a < a) I; I top = {}; top = ~top; 
  return (V)((I)a & ~(top << (sizeof(a[0]) * 8 - 1))); }
// Division of integers by a positive number, rounded down; the remainder has the divisor's sign.
template <class T> INLINE T op_floordiv_int(T a, T b) { T zero = {}; T q = a / b; return (a % b < zero) ? q - 1 : q; }
template <class T> INLINE T op_remainder_int(T a, T b) { T zero = {}; T r = a % b; return (r < zero) ? r + b : r; }
template <class T> INLINE T op_sign(T a) { T zero = {}; T one = zero + 1; return (a > zero) ? one : ((a < zero) ? -one : zero); }
template <class T> INLINE T op_reciprocal(T a) { T one = {}; return (one + 1) / a; }

// Lane k of the result is lane F::at(k) of the two vectors put together.
template <unsigned Bytes> struct bits_of { typedef u8 type; }; template <> struct bits_of<2> { typedef u16 type; };
template <> struct bits_of<4> { typedef u32 type; }; template <> struct bits_of<8> { typedef u64 type; };
template <class T, unsigned N> struct bit_lanes { typedef typename lanes_of<typename bits_of<sizeof(T)>::type, N>::type type; };
#if defined(__clang__) || __GNUC__ >= 12
#define PICK(...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(...) __builtin_shuffle(a, b, (V){__VA_ARGS__})
#endif
#define FOUR(k) F::at(k), F::at(k + 1), F::at(k + 2), F::at(k + 3)
template <class F, class V> INLINE V picked(V a, V b) {
  constexpr unsigned N = sizeof(a) / sizeof(a[0]);
  if constexpr (N == 16) return PICK(FOUR(0), FOUR(4), FOUR(8), FOUR(12));
  else if constexpr (N == 8) return PICK(FOUR(0), FOUR(4));
  else if constexpr (N == 4) return PICK(FOUR(0));
  else return PICK(F::at(0), F::at(1)); }
#undef PICK
#undef FOUR
// Two vectors interleaved: the first halves, the second halves.
template <unsigned N, unsigned From> struct Zip { static constexpr int at(int k) { return From + k / 2 + k % 2 * N; } };
template <class V> INLINE V zip_low(V a, V b) { return picked<Zip<sizeof(a) / sizeof(a[0]), 0>>(a, b); }
template <class V> INLINE V zip_high(V a, V b) {
  constexpr unsigned N = sizeof(a) / sizeof(a[0]); return picked<Zip<N, N / 2>>(a, b); }
// Every S-th element of S vectors: vector J joins what was picked from those before it.
template <unsigned N, unsigned S, unsigned J> struct Comb {
  static constexpr int at(int k) { return k * S / N == J ? N + k * S % N : J > 1 ? k : k * S % N; } };
template <unsigned S, unsigned J, class V> INLINE V combed(const V* v) {
  constexpr unsigned N = sizeof(v[0]) / sizeof(v[0][0]);
  if constexpr (J == 0) return v[0]; else return picked<Comb<N, S, J>>(combed<S, J - 1>(v), v[J]); }
template <unsigned S, class V, class M, class T> INLINE V ld_strided(M, const T* p, int n) {
  constexpr unsigned N = sizeof(V) / sizeof(T);
#ifdef MASKED_PARTS
  constexpr bool whole = true;
#else
  constexpr bool whole = __is_same(M, Full);
#endif
  if constexpr (S > N || !whole) { V v = {}; for (int k = 0; k < n; k++) v[k] = p[k * S]; return v; }
  else {
    typedef typename bit_lanes<T, N>::type B;
    B v[S]; V part; const int last = __is_same(M, Full) ? N * S - S + 1 : n * S - S + 1;
#pragma GCC unroll 8
    for (unsigned k = 0; k < S; k++) {  // no element behind the last one is touched
      if (__is_same(M, Full) && k + 1 < S) part = ld<V>(Full(), p + k * N, N);
      else part = ld<V>(Part(), p + k * N, last < (int)(k * N) ? 0 : last < (int)(k * N + N) ? last - k * N : N);
      v[k] = (B)part; }
    return (V)combed<S, S - 1>(v); } }
template <class F, class V> INLINE V rearranged(V v) {
  typedef __typeof__(v[0]) T; typedef typename bit_lanes<T, sizeof(v) / sizeof(T)>::type B; return (V)picked<F>((B)v, (B)v); }
template <unsigned N, unsigned S> struct Turned { static constexpr int at(int k) { return (k + S) % N; } };
template <unsigned N> struct Reversed { static constexpr int at(int k) { return N - 1 - k; } };
// The elements at an address and before it.
template <class V, class T> INLINE V ld_reversed(Part, const T* p, int n) { V v = {}; for (int k = 0; k < n; k++) v[k] = p[-k]; return v; }
template <class V, class T> INLINE V ld_reversed(Full, const T* p, int) {
  constexpr int N = sizeof(V) / sizeof(T); return rearranged<Reversed<N>>(ld<V>(Full(), p - (N - 1), N)); }
// 64-bit integers as 32 bits, the nearest where they do not fit.
INLINE i32 saturated(i64 x) { return (i32)imin(imax(x, -2147483648l), 2147483647l); }
template <class V, class M> INLINE V ld_saturated(M, const i64* p, int n) {
  constexpr int N = sizeof(V) / sizeof(i32), H = N / 2;
  typedef typename lanes_of<i64, H>::type L; V part[2]; L zero = {}, least = zero - 2147483648l, most = zero + 2147483647l;
#pragma GCC unroll 2
  for (int k = 0; k < 2; k++) {
    L v; const int rest = n - k * H;
    if (__is_same(M, Full)) v = ld<L>(Full(), p + k * H, H);
    else v = ld<L>(Part(), p + k * H, rest < 0 ? 0 : rest < H ? rest : H);
    v = (v < least) ? least : v; v = (v > most) ? most : v; part[k] = (V)v; }
  return combed<2, 1>(part); }  // the lower halves
template <class V> INLINE void st_widened(Full, i64* p, V v, int) {
  constexpr int H = sizeof(V) / sizeof(i32) / 2; typename lanes_of<i32, H>::type part[2]; __builtin_memcpy(part, &v, sizeof(v));
#pragma GCC unroll 2
  for (int k = 0; k < 2; k++) st(Full(), p + k * H, __builtin_convertvector(part[k], typename lanes_of<i64, H>::type), H); }
template <class V> INLINE void st_widened(Part, i64* p, V v, int n) { for (int k = 0; k < n; k++) p[k] = v[k]; }
// The elements of P vectors in turns: a power of two in rounds of interleaving vector k with vector k + P/2.
template <unsigned N, unsigned P, unsigned J, unsigned Q> struct Weave {
  static constexpr int at(int k) {
    unsigned r = (J * N + k) % P, g = (J * N + k) / P;
    return r == Q ? N + g : Q > 1 ? k : r == 0 ? g : 0; } };
template <unsigned P, unsigned J, unsigned Q, class V> INLINE V woven(const V* v) {
  constexpr unsigned N = sizeof(v[0]) / sizeof(v[0][0]);
  if constexpr (Q == 0) return v[0]; else return picked<Weave<N, P, J, Q>>(woven<P, J, Q - 1>(v), v[Q]); }
template <unsigned P, unsigned J, class V> INLINE void weave(V* out, const V* v) {
  if constexpr (J < P) { out[J] = woven<P, J, P - 1>(v); weave<P, J + 1>(out, v); } }
template <class M, class T, class V, unsigned P> INLINE void st_interleaved(M, T* p, const V (&v)[P], int n) {
  constexpr unsigned N = sizeof(V) / sizeof(T);
  typedef typename bit_lanes<T, N>::type B;
  B a[P], b[P];
#pragma GCC unroll 8
  for (unsigned k = 0; k < P; k++) a[k] = (B)v[k];
  if constexpr ((P & (P - 1)) != 0) { weave<P, 0>(b, a); }
  else {
#pragma GCC unroll 3
    for (unsigned step = 1; step < P; step *= 2) {
#pragma GCC unroll 4
      for (unsigned k = 0; k < P / 2; k++) { b[2 * k] = zip_low(a[k], a[k + P / 2]); b[2 * k + 1] = zip_high(a[k], a[k + P / 2]); }
#pragma GCC unroll 8
      for (unsigned k = 0; k < P; k++) a[k] = b[k]; } }
#pragma GCC unroll 8
  for (unsigned k = 0; k < P; k++) {
    const int left = n * P - k * N;
    if (__is_same(M, Full)) st(Full(), p + k * N, (V)b[k], N);
    else if (left > 0) st(Part(), p + k * N, (V)b[k], left < (int)N ? left : N); } }
// N x N elements transposed: after log2(N) rounds of interleaving vector k with vector k + N/2 rows are columns.
template <unsigned N, class T> INLINE void transpose_square(T* to, const T* from, i64 stride) {
  typedef typename lanes_of<typename bits_of<sizeof(T)>::type, N>::type V;
  V v[N], w[N];
#pragma GCC unroll 16
  for (unsigned k = 0; k < N; k++) __builtin_memcpy(&v[k], from + k * stride, sizeof(V));
#pragma GCC unroll 4
  for (unsigned step = 1; step < N; step *= 2) {
#pragma GCC unroll 8
    for (unsigned k = 0; k < N / 2; k++) { w[2 * k] = zip_low(v[k], v[k + N / 2]); w[2 * k + 1] = zip_high(v[k], v[k + N / 2]); }
#pragma GCC unroll 16
    for (unsigned k = 0; k < N; k++) v[k] = w[k]; }
#pragma GCC unroll 16
  for (unsigned k = 0; k < N; k++) __builtin_memcpy(to + k * N, &v[k], sizeof(V)); }
// Rows of N lanes, one for each of `count` neighbouring elements at `from`; lane k comes from `from + k * stride`.
template <unsigned N, class T> INLINE void transpose_tile(Part, T* to, const T* from, i64 stride, i64 count, int n) {
  for (int k = 0; k < n; k++) for (i64 r = 0; r < count; r++) to[r * N + k] = from[k * stride + r]; }
template <unsigned N, class T> INLINE void transpose_tile(Full, T* to, const T* from, i64 stride, i64 count, int) {
  i64 r = 0;
  for (; r + N <= count; r += N) transpose_square<N>(to + r * N, from + r, stride);
  if (r < count) transpose_tile<N>(Part(), to + r * N, from + r, stride, count - r, N); }

// Lanes computed one by one; a function of the lane number.
// All of a vector are written out: elements that a loop counts through are in memory, and their vector waits for the last one.
#define FOUR(k) (T)f(k), (T)f(k + 1), (T)f(k + 2), (T)f(k + 3)
template <class V, class F> INLINE V lanes(Part, F f, int n) { V v = {}; for (int k = 0; k < n; k++) v[k] = f(k); return v; }
template <class V, class F> INLINE V lanes(Full, F f, int) {
  V v = {}; constexpr unsigned N = sizeof(v) / sizeof(v[0]);
  typedef __typeof__(v[0]) T;
  if constexpr (N == 16) return V{FOUR(0), FOUR(4), FOUR(8), FOUR(12)};
  else if constexpr (N == 8) return V{FOUR(0), FOUR(4)};
  else if constexpr (N == 4) return V{FOUR(0)};
  else { for (unsigned k = 0; k < N; k++) v[k] = f(k); return v; } }
#undef FOUR
template <unsigned N, class F> INLINE void each_lane(Part, int n, F f) { for (int k = 0; k < n; k++) f(k); }
template <unsigned N, unsigned K = 0, class F> INLINE void each_lane(Full, int n, F f) {
  if constexpr (K < N) { f(K); each_lane<N, K + 1>(Full(), n, f); } }
// Each lane combined with all before it, and with what came before this vector (which it updates).
template <class V, class T, class F> INLINE V scan_lanes(Part, V v, T& before, int n, F combine) {
  for (int k = 0; k < n; k++) { before = combine(before, v[k]); v[k] = before; } return v; }
template <class V, class T, class F> INLINE V scan_lanes(Full, V v, T& before, int n, F combine) {
  return lanes<V>(Full(), [&](int k) __attribute__((always_inline)) { return before = combine(before, v[k]); }, n); }
// Sums in log2(N) steps: each lane with the one 1, 2, 4 ... before it.
template <unsigned N, unsigned S> struct Behind { static constexpr int at(int k) { return k < (int)S ? N + k : k - S; } };
template <class V, class T> INLINE V add_lanes(Part, V v, T& before, int n) {
  return scan_lanes(Part(), v, before, n, [](T a, T b) { return (T)(a + b); }); }
template <class V, class T> INLINE V add_lanes(Full, V v, T& before, int) {
  constexpr unsigned N = sizeof(v) / sizeof(v[0]);
  const V zero = {}, old = splat<V>(before);
  if constexpr (N > 1) v += picked<Behind<N, 1>>(v, zero);
  if constexpr (N > 2) v += picked<Behind<N, 2>>(v, zero);
  if constexpr (N > 4) v += picked<Behind<N, 4>>(v, zero);
  if constexpr (N > 8) v += picked<Behind<N, 8>>(v, zero);
  before += v[N - 1];
  return old + v; }
// In a partial vector only the first n lanes take the new value.
template <class M, class V> INLINE V select_lanes(Full, int, V now, V) { return now; }
template <class M, class V> INLINE V select_lanes(Part, int n, V now, V old) {
  if constexpr (sizeof(now[0]) >= 4) {
    typedef decltype(now < now) I; I lane = iota<I>(); decltype(lane[0] + 0) count = n;
    return (lane < count) ? now : old; }
  for (unsigned k = 0; k < sizeof(now) / sizeof(now[0]); k++) if ((int)k >= n) now[k] = old[k];
  return now; }
// The lanes combined, one half of them with the other.
template <class V, class F> INLINE auto fold_lanes(V v, F combine) {
  enum { N = sizeof(v) / sizeof(v[0]) };
  if constexpr (N == 1) return v[0];
  else if constexpr (sizeof(v) == 16 && N <= 4) {  // to the end in vectors: comparing two numbers would be a branch that nobody foresees
    if constexpr (N == 4) v = combine(v, rearranged<Turned<4, 2>>(v));
    v = combine(v, rearranged<Turned<N, 1>>(v)); return v[0]; }
  else {
    typedef typename lanes_of<__typeof__(v[0] + v[0]), N / 2>::type Sum;
    if constexpr (sizeof(Sum) * 2 == sizeof(V)) {
      Sum h[2]; __builtin_memcpy(h, &v, sizeof(v)); return fold_lanes(combine(h[0], h[1]), combine);
    } else {  // small integers, which C widens
      auto x = v[0]; for (unsigned k = 1; k < N; k++) x = combine(x, v[k]);
      return x; } } }
// Where the largest (or smallest) element is: the first of equals, and the first NaN before all numbers. Lane by lane,
// for positions that grow from call to call; then the lanes as one.
template <bool Most, class S, class V, class P> INLINE void keep_better(S, int n, V x, P at, V& best, P& where) {
  typedef decltype(x < x) I; I better = Most ? x > best : x < best;
  if constexpr (decltype(x[0] + 0)(0.5) != 0) better |= (x != x) & (best == best);
  if constexpr (__is_same(S, Part)) { decltype(better[0] + 0) count = n; better &= iota<I>() < (__typeof__(better[0]))count; }
  best = better ? x : best; where = convert<decltype(at < at)>(better) ? at : where; }
template <bool Most, class T> INLINE void keep_better(T x, i64 at, T& best, i64& where) {
  bool better = x != x ? best == best : (Most ? x > best : x < best), same = x == best || (x != x && best != best);
  if (where < 0 || better || (same && at < where)) { best = x; where = at; } }
template <bool Most, class V, class P, class T> INLINE void fold_better(V best, P where, T& s, i64& at) {
  for (unsigned k = 0; k < sizeof(best) / sizeof(best[0]); k++) keep_better<Most, T>(best[k], where[k], s, at); }
template <class V> INLINE V half_load(const f16* p, int n) { V v = {}; for (int k = 0; k < n; k++) v[k] = (f32)p[k]; return v; }
template <class M, class V> INLINE void half_store(M, f16* p, V v, int n) { for (int k = 0; k < n; k++) p[k] = (f16)v[k]; }
template <class V> INLINE V half_round(V v) { for (unsigned k = 0; k < sizeof(v) / sizeof(v[0]); k++) v[k] = (f32)(f16)v[k]; return v; }
// One pass of a reduction that is cut into parts.
template <class A> static void share(i64 total, i64 work, void (*pass)(i64, i64, void*), A& args) {
  const i64 grain = 1 + 65536 / (work + 1);
  if (total <= grain) pass(0, total, &args); else tj_parallel(0, total, grain, pass, &args); }
static void run_serially(i64 lo, i64 hi, i64, void (*f)(i64, i64, void*), void* data) { f(lo, hi, data); }


// Rows are sorted as integers of 64 bits that are all different, so that whatever algorithm sorts them is stable. Above is the
// element as an integer of 32 bits of the same order (NaN last, -0 as 0; all bits turned for the descending order), below its
// position, and bit 0 tells -0 from 0: the element can be told from it again. Elements of 64 bits are words of their own, and
// what is below them lies in a second array, two arrays behind.
template <bool Down, class V> INLINE V sort_word(V b) { return Down ? ~b : b; }
INLINE i32 magnitude_bits(i32) { return 0x7fffffff; }
INLINE i64 magnitude_bits(i64) { return 0x7fffffffffffffffl; }
// A float's bits as an integer of the same order, or that integer as the bits: the transformation is its own inverse.
template <class I> INLINE I flip_negative(I b) {
  const auto all = magnitude_bits(b[0]); return b ^ ((b >> (int)(sizeof(all) * 8 - 1)) & all); }
template <bool Down, class I, class V> INLINE I float_word(V x) {
  const auto all = magnitude_bits(I()[0]); I b = (I)x, zero = {}, top = zero + all;
  b = (x == (V)zero) ? zero : flip_negative(b);
  return sort_word<Down>((x != x) ? top : b); }
template <class I, class V> INLINE I is_negative_zero(V x) { I least = {}; least = ~(least + magnitude_bits(least[0])); return (I)x == least; }
template <bool Down, class V, class I> INLINE V float_of(I word, I negative) {
  return (V)(flip_negative(sort_word<Down>(word)) | (negative << (int)(sizeof(word[0]) * 8 - 1))); }

#if defined(__AVX512F__)
enum { SORT_LANES = 8 };
#elif defined(__AVX2__)
enum { SORT_LANES = 4 };
#else
enum { SORT_LANES = 2 };
#endif
typedef lanes_of<i64, SORT_LANES>::type sort_lanes;
enum { SORT_SLACK = 4 * SORT_LANES };  // elements behind a row that may be written
// By counting, for each element, those that come before it: for short rows. Wide: `low` decides between equals.
template <bool Wide, int Vectors> INLINE void rank_lanes(const i64* a, const i64* low, i64 from, i64 n, i64* rank) {
  sort_lanes x[Vectors], at[Vectors], r[Vectors] = {};
#pragma GCC unroll 4
  for (int k = 0; k < Vectors; k++) {
    __builtin_memcpy(&x[k], a + from + k * SORT_LANES, sizeof(x[k]));
    if (Wide) __builtin_memcpy(&at[k], low + from + k * SORT_LANES, sizeof(at[k])); }
  for (i64 j = 0; j < n; j++) {
    const sort_lanes y = splat<sort_lanes>(a[j]), before = Wide ? splat<sort_lanes>(low[j]) : y;
#pragma GCC unroll 4
    for (int k = 0; k < Vectors; k++) r[k] -= Wide ? (y < x[k]) | ((y == x[k]) & (before < at[k])) : (sort_lanes)(y < x[k]); }
#pragma GCC unroll 4
  for (int k = 0; k < Vectors; k++) __builtin_memcpy(rank + k * SORT_LANES, &r[k], sizeof(r[k])); }
template <bool Wide> static void sort_by_rank(const i64* a, i64* b, i64 n, i64 part) {
  i64 rank[4 * SORT_LANES];
  for (i64 i = 0; i < n;) {
    i64 many = 4 * SORT_LANES;
    if (n - i > SORT_LANES) rank_lanes<Wide, 4>(a, a + 2 * part, i, n, rank);
    else { rank_lanes<Wide, 1>(a, a + 2 * part, i, n, rank); many = SORT_LANES; }
    for (i64 k = 0; k < many && i < n; k++, i++) {
      b[rank[k]] = a[i];
      if (Wide) b[rank[k] + 2 * part] = a[i + 2 * part]; } } }
// Digit by digit, the lowest first, without the digits that are the same in all elements.
template <bool Wide, int Bits> static const i64* sort_by_digits(i64* a, i64* b, i64 n, i64 part) {
  enum { first = Wide ? 0 : 32, digits = (64 - first + Bits - 1) / Bits, many = 1 << Bits };
  u32 counts[digits][many];
  for (int d = 0; d < digits; d++) for (int k = 0; k < many; k++) counts[d][k] = 0;
  for (i64 i = 0; i < n; i++) {
    const u64 x = (u64)a[i] ^ 1ul << 63;
#pragma GCC unroll 8
    for (int d = 0; d < digits; d++) counts[d][x >> (first + d * Bits) & (many - 1)]++; }
  for (int d = 0; d < digits; d++) {
    u32* at = counts[d]; const int shift = first + d * Bits;
    if (at[((u64)a[0] ^ 1ul << 63) >> shift & (many - 1)] == n) continue;
    u32 total = 0;
    for (int k = 0; k < many; k++) { const u32 c = at[k]; at[k] = total; total += c; }
    for (i64 i = 0; i < n; i++) {
      const i64 x = a[i]; const u32 to = at[((u64)x ^ 1ul << 63) >> shift & (many - 1)]++;
      b[to] = x;
      if (Wide) b[to + 2 * part] = a[i + 2 * part]; }
    i64* other = a; a = b; b = other; }
  return a; }
enum { SORT_RANKED = 16 * SORT_LANES };  // so many elements are sorted by rank; half as many of 64 bits
// The row at `a`, of which `part` elements lie apart from what comes behind; it ends up there or in the array behind.
template <bool Wide> static const i64* sort_row(i64* a, i64 n, i64 part) {
  if (n > SORT_RANKED / (Wide ? 2 : 1)) return sort_by_digits<Wide, 8>(a, a + part, n, part);
  sort_by_rank<Wide>(a, a + part, n, part);
  return a + part; }
// Memory for rows of n elements, or null (and a fault) if there is none, or positions and counts do not go so far.
static i64* sort_memory(i64 n, i64 part, bool wide, i64* fault) {
  i64* row = n < 1l << 31 ? (i64*)tj_malloc((wide ? 4 : 2) * 8 * part) : 0;
  if (!row) { fault[3] = n; __atomic_store_n(&fault[0], 4, __ATOMIC_RELEASE); }
  return row; }

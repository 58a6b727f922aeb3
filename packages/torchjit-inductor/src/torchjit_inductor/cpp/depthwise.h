// Gradients of a depthwise convolution's weights (KH x KW taps, DW apart along a row) and of its bias; T is how elements are stored.
//
// Work is shared by vectors of W channels, and images where there are few of those. A strip of an image is walked row by row of the
// result's gradient; the rows of the image that a row of the gradient meets are kept in a ring, as floats, with the padding as zeros and the
// channels of the vector innermost, whatever the image's layout. A block of R x S taps has its sums in registers along a row.
struct Args {
  const T *image, *gradient; f32 *sums; T *weight, *bias;  // sums: parts x (channels x taps, then channels); bias may be null
  i64 images, channels, height, width, rows, columns;      // rows and columns of the gradient
  i64 down, right, above, left, apart;                     // strides, padding, distance of taps in a column
  i64 image_at[4], gradient_at[4];                         // strides of memory
  i64 parts;
};

template <class M> INLINE vf32 floats(M m, const f32* p, int n) { return ld<vf32>(m, p, n); }
template <class M> INLINE vf32 floats(M m, const u16* p, int n) { return from_bf16v<vf32, vu32>(ld<vu16>(m, p, n)); }
template <class M> INLINE vf32 floats(M, const f16* p, int n) { return half_load<vf32>(p, n); }
INLINE f32 as_float(f32 x) { return x; }
INLINE f32 as_float(u16 x) { return from_bf16(x); }
INLINE f32 as_float(f16 x) { return (f32)x; }
INLINE void rounded(f32 x, f32* to) { *to = x; }
INLINE void rounded(f32 x, u16* to) { *to = to_bf16(x); }
INLINE void rounded(f32 x, f16* to) { *to = (f16)x; }

// `count` pixels of n channels each, as vectors; the other lanes of `to` stay as they are.
template <class E> static void fetch(f32* to, const E* from, i64 channel, i64 pixel, i64 count, int n) {
  if (channel == 1 && n == W) { for (i64 k = 0; k < count; k++) st(Full(), to + k * W, floats(Full(), from + k * pixel, W), W); return; }
  if (channel == 1) { for (i64 k = 0; k < count; k++) st(Part(), to + k * W, floats(Part(), from + k * pixel, n), n); return; }
  if constexpr (__is_same(E, f32)) {
    if (pixel == 1 && n == W) return transpose_tile<W>(Full(), to, from, channel, count, W);
    if (pixel == 1) return transpose_tile<W>(Part(), to, from, channel, count, n);
  }
  for (int c = 0; c < n; c++) for (i64 k = 0; k < count; k++) to[k * W + c] = as_float(from[c * channel + k * pixel]);
}

// Taps (0..R, first..first+S) of the given rows.
template <int R, int S> INLINE void block(f32* sums, const f32* const* rows, i64 first, const f32* gradient, i64 count, i64 right) {
  vf32 total[R][S];
#pragma GCC unroll 32
  for (int r = 0; r < R; r++)
#pragma GCC unroll 32
    for (int s = 0; s < S; s++) total[r][s] = splat<vf32>(0.0f);
  for (i64 o = 0; o < count; o++) {
    const vf32 g = ld<vf32>(Full(), gradient + o * W, W);
#pragma GCC unroll 32
    for (int r = 0; r < R; r++) {
      const f32* const at = rows[r] + (o * right + first * DW) * W;
#pragma GCC unroll 32
      for (int s = 0; s < S; s++) total[r][s] += g * ld<vf32>(Full(), at + s * DW * W, W);
    }
  }
#pragma GCC unroll 32
  for (int r = 0; r < R; r++)
#pragma GCC unroll 32
    for (int s = 0; s < S; s++) {
      f32* const at = sums + (r * KW + first + s) * W;
      st(Full(), at, ld<vf32>(Full(), at, W) + total[r][s], W);
    }
}
template <int R> INLINE void line(f32* sums, const f32* const* rows, const f32* gradient, i64 count, i64 right) {
  for (i64 first = 0; first + S_AT_ONCE <= KW; first += S_AT_ONCE) block<R, S_AT_ONCE>(sums, rows, first, gradient, count, right);
  if constexpr (KW % S_AT_ONCE != 0) block<R, KW % S_AT_ONCE>(sums, rows, KW - KW % S_AT_ONCE, gradient, count, right);
}

// How many columns of the gradient a strip has at most.
static i64 strip_columns(const Args& a) {
  const i64 held = RING / (((KH - 1) * a.apart + 1) * W);
  return imin(imin(COLUMNS, a.columns), (held - (KW - 1) * DW - 1) / a.right + 1);
}

static void range(i64 lo, i64 hi, void* data) {
  const Args& a = *(const Args*)data;
  const i64 held = (KH - 1) * a.apart + 1, columns = strip_columns(a), strips = (a.columns + columns - 1) / columns;
  const i64 line_width = ((columns - 1) * a.right + (KW - 1) * DW + 1) * W;
  f32 ring[RING], line_of[COLUMNS * W], sums[(KH * KW + 1) * W];
  for (i64 unit = lo; unit < hi; unit++) {
    const i64 c = unit / a.parts * W, part = unit % a.parts;
    const int n = imin(W, a.channels - c);
    for (i64 k = 0; k < (KH * KW + 1) * W; k++) sums[k] = 0;
    if (n < W) { for (i64 k = 0; k < held * line_width; k++) ring[k] = 0; for (i64 k = 0; k < columns * W; k++) line_of[k] = 0; }
    const i64 all = a.images * strips;
    for (i64 strip = part * all / a.parts; strip < (part + 1) * all / a.parts; strip++) {
      const T* const image = a.image + strip / strips * a.image_at[0] + c * a.image_at[1];
      const T* const gradient = a.gradient + strip / strips * a.gradient_at[0] + c * a.gradient_at[1];
      const i64 from = strip % strips * columns, count = imin(columns, a.columns - from);
      const i64 x = from * a.right - a.left, wide = (count - 1) * a.right + (KW - 1) * DW + 1;  // columns of the image from x on
      const i64 before = imin(imax(-x, 0), wide), inside = imax(imin(a.width - x, wide) - before, 0);
      i64 next = -a.above;
      for (i64 y = 0; y < a.rows; y++) {
        const i64 top = y * a.down - a.above;
        for (next = imax(next, top); next < top + held; next++) {
          f32* const to = ring + (next + a.above) % held * line_width;
          const bool there = next >= 0 && next < a.height;
          const i64 zeros = there ? before : wide;
          for (i64 k = 0; k < zeros * W; k++) to[k] = 0;
          if (!there) continue;
          fetch(to + before * W, image + next * a.image_at[2] + (x + before) * a.image_at[3], a.image_at[1], a.image_at[3], inside, n);
          for (i64 k = (before + inside) * W; k < wide * W; k++) to[k] = 0;
        }
        const f32* rows[KH];
        for (i64 r = 0; r < KH; r++) rows[r] = ring + (top + r * a.apart + a.above) % held * line_width;
        fetch(line_of, gradient + y * a.gradient_at[2] + from * a.gradient_at[3], a.gradient_at[1], a.gradient_at[3], count, n);
        int r = 0;
        for (; r + R_AT_ONCE <= KH; r += R_AT_ONCE) line<R_AT_ONCE>(sums + r * KW * W, rows + r, line_of, count, a.right);
        if constexpr (KH % R_AT_ONCE != 0) line<KH % R_AT_ONCE>(sums + r * KW * W, rows + r, line_of, count, a.right);
        if (a.bias) {
          vf32 total = splat<vf32>(0.0f);
          for (i64 o = 0; o < count; o++) total += ld<vf32>(Full(), line_of + o * W, W);
          f32* const at = sums + KH * KW * W;
          st(Full(), at, ld<vf32>(Full(), at, W) + total, W);
        }
      }
    }
    f32* const own = a.sums + part * a.channels * (KH * KW + 1);
    for (int k = 0; k < n; k++) {
      for (i64 tap = 0; tap < KH * KW; tap++) own[(c + k) * KH * KW + tap] = sums[tap * W + k];
      own[a.channels * KH * KW + c + k] = sums[KH * KW * W + k];
    }
  }
}

static void run(Args a) {
  const i64 units = (a.channels + W - 1) / W * a.parts, size = a.channels * (KH * KW + 1), taps = a.channels * KH * KW;
  share(units, a.images * a.rows * a.columns * KH * KW / a.parts, range, a);
  for (i64 k = 0; k < (a.bias ? size : taps); k++) {
    f32 total = a.sums[k];
    for (i64 part = 1; part < a.parts; part++) total += a.sums[part * size + k];
    rounded(total, k < taps ? a.weight + k : a.bias + (k - taps));
  }
}

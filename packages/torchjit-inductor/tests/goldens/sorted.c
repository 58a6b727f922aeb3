// mul = mul.Tensor
// sort = sort.stable
namespace fused_mul_sort_0 {
VECTOR_TYPES(4)
struct Args { f32* p0; f32* p1; f32* p2; i64* p3; };
APART void range(i64 lo, i64 hi, void* data) {
  const Args& args = *(const Args*)data;
  const f32* p0 = args.p0;  // x_1
  const f32* p1 = args.p1;  // w_1
  f32* p2 = args.p2;  // sort_0
  i64* p3 = args.p3;  // sort_1
  const i64 length = 40; enum { part = 40 + SORT_SLACK };
  i64 row0[2 * part] __attribute__((aligned(64)));  // sorted down
  for (i64 x0 = lo; x0 < hi; x0++) {
     {
      auto body = [&](auto full, const i64 r0, const int n) __attribute__((always_inline)) {
        const vf32 t1 = ld<vf32>(full, p0 + r0 + 40*x0, n);
        const vf32 t2 = ld<vf32>(full, p1 + r0, n);
        const vf32 t3 = t1 * t2;
        st(full, row0 + r0, convert<vi64>(float_word<true, vi32>(t3)) << 32 | (splat<vi64>((i64)r0) + iota<vi64>()) << 1 | (convert<vi64>(is_negative_zero<vi32>(t3)) & 1), n);
      };
      i64 r0 = 0; const i64 end = 40;
      for (; r0 + W <= end; r0 += W) body(Full(), r0, W);
    }
    const i64* const row0sorted = sort_row<false>(row0, length, part);
     {
      auto body = [&](auto full, const i64 r0, const int n) __attribute__((always_inline)) {
        const vf32 t4 = float_of<true, vf32>(convert<vi32>(ld<vi64>(full, row0sorted + r0, n) >> 32), convert<vi32>(ld<vi64>(full, row0sorted + r0, n) & 1));
        const vi64 t5 = (ld<vi64>(full, row0sorted + r0, n) & 0xffffffffl) >> 1;
        st(full, p2 + r0 + 40*x0, t4, n);
        st(full, p3 + r0 + 40*x0, t5, n);
      };
      i64 r0 = 0; const i64 end = 40;
      for (; r0 + W <= end; r0 += W) body(Full(), r0, W);
    }
  }
}
static void run(Args args) {
  const i64 total = (6); const i64 work = (40) * 53;
  const i64 grain = 1 + 65536 / (work + 1);
  if (total <= grain) { if (total > 0) range(0, total, &args); }
  else tj_parallel(0, total, grain, range, &args);
}
}
extern "C" void* py_fused_mul_sort_0(void*, void* const* args, i64) {
  fused_mul_sort_0::Args a = {(f32*)py_int(args[0]), (f32*)py_int(args[1]), (f32*)py_int(args[2]), (i64*)py_int(args[3])};
  void* thread = py_save(); fused_mul_sort_0::run(a); py_restore(thread);
  py_incref(py_none); return py_none;
}

/* host program
# g: 1 kernels, 0 aten calls
def call(x_1, w_1):
    grad = is_grad()
    try:
        no_grad(False)
        sort_0 = empty_cpu((6, 40), (40, 1), torch.float32)
        sort_1 = empty_cpu((6, 40), (40, 1), torch.int64)
        x_1__at = x_1.data_ptr()
        w_1__at = w_1.data_ptr()
        sort_0__at = sort_0.data_ptr()
        sort_1__at = sort_1.data_ptr()
        fused_mul_sort_0(x_1__at, w_1__at, sort_0__at, sort_1__at)
        return [sort_0, sort_1]
    finally:
        no_grad(grad)
*/

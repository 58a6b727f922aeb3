// mul = mul.Tensor
// cat = cat.default
// view = view.default
// transpose = transpose.int
// clone = clone.default
// _unsafe_view = _unsafe_view.default
#pragma GCC push_options
#pragma GCC optimize("no-tree-loop-vectorize")
namespace fused_mul_cat_0 {
VECTOR_TYPES(8)
struct Args { f32* p0; f32* p1; f32* p2; };
APART void range(i64 lo, i64 hi, void* data) {
  const Args& args = *(const Args*)data;
  const f32* p0 = args.p0;  // x_1
  const f32* p1 = args.p1;  // y_1
  f32* p2 = args.p2;  // _unsafe_view
  for (i64 x0 = lo; x0 < hi; x0++) {
    auto body = [&](auto full, const i64 x1s0, const int n) __attribute__((always_inline)) {
      const vf32 t1 = ld<vf32>(full, p0 + 41*x0 + x1s0, n);
      const vf32 t2 = ld<vf32>(full, p1 + 41*x0 + x1s0, n);
      const vf32 t3 = t2 * splat<vf32>(2.0f);
      const vf32 t4[] = {t1, t3};
      st_interleaved(full, p2 + 82*x0 + 2*x1s0, t4, n);
    };
    i64 x1s0 = 0; const i64 end = 41;
    for (; x1s0 + W <= end; x1s0 += W) body(Full(), x1s0, W);
    if (x1s0 < end) body(Part(), x1s0, (int)(end - x1s0));
  }
}
static void run(Args args) {
  const i64 total = (6); const i64 work = (41) * 11;
  const i64 grain = 1 + 65536 / (work + 1);
  if (total <= grain) { if (total > 0) range(0, total, &args); }
  else tj_parallel(0, total, grain, range, &args);
}
}
#pragma GCC pop_options
extern "C" void* py_fused_mul_cat_0(void*, void* const* args, i64) {
  fused_mul_cat_0::Args a = {(f32*)py_int(args[0]), (f32*)py_int(args[1]), (f32*)py_int(args[2])};
  void* thread = py_save(); fused_mul_cat_0::run(a); py_restore(thread);
  py_incref(py_none); return py_none;
}

/* host program
# g: 1 kernels, 0 aten calls
def call(x_1, y_1):
    grad = is_grad()
    try:
        no_grad(False)
        _unsafe_view = empty_cpu((6, 82), (82, 1), torch.float32)
        x_1__at = x_1.data_ptr()
        y_1__at = y_1.data_ptr()
        _unsafe_view__at = _unsafe_view.data_ptr()
        fused_mul_cat_0(x_1__at, y_1__at, _unsafe_view__at)
        return [_unsafe_view]
    finally:
        no_grad(grad)
*/

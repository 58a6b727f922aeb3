// mul = mul.Tensor
// mul_1 = mul.Tensor
// sub = sub.Tensor
// mul_2 = mul.Tensor
// mul_3 = mul.Tensor
// add = add.Tensor
// cat = cat.default
namespace fused_mul_sub_add_cat_0 {
VECTOR_TYPES(8)
struct Args { f32* p0; f32* p1; f32* p2; f32* p3; };
APART void range(i64 lo, i64 hi, void* data) {
  const Args& args = *(const Args*)data;
  const f32* p0 = args.p0;  // q_1
  const f32* p1 = args.p1;  // s_1
  const f32* p2 = args.p2;  // d_1
  f32* p3 = args.p3;  // cat
  i64 at = lo;
  const i64 size_x1 = 6; i64 x1 = at % size_x1; at /= size_x1;
  i64 x0 = at;
  for (i64 unit = lo; unit < hi; unit++) {
    auto body = [&](auto full, const i64 x2, const int n) __attribute__((always_inline)) {
      const vf32 t1 = ld<vf32>(full, p0 + 192*x0 + 32*x1 + x2, n);
      const vf32 t2 = ld<vf32>(full, p1 + 16*x1 + x2, n);
      const vf32 t3 = t1 * t2;
      const vf32 t4 = ld<vf32>(full, p0 + 192*x0 + 32*x1 + x2 + 16, n);
      const vf32 t5 = ld<vf32>(full, p2 + 16*x1 + x2, n);
      const vf32 t6 = t4 * t5;
      const vf32 t7 = t3 - t6;
      const vf32 t8 = t1 * t5;
      const vf32 t9 = t4 * t2;
      const vf32 t10 = t8 + t9;
      st(full, p3 + 192*x0 + 32*x1 + x2, t7, n);
      st(full, p3 + 192*x0 + 32*x1 + x2 + 16, t10, n);
    };
    i64 x2 = 0; const i64 end = 16;
    for (; x2 + W <= end; x2 += W) body(Full(), x2, W);
    if (++x1 == size_x1) { x1 = 0; x0++; }
  }
}
static void run(Args args) {
  const i64 total = (3) * (6); const i64 work = (32) * 14;
  const i64 grain = 1 + 65536 / (work + 1);
  if (total <= grain) { if (total > 0) range(0, total, &args); }
  else tj_parallel(0, total, grain, range, &args);
}
}
extern "C" void* py_fused_mul_sub_add_cat_0(void*, void* const* args, i64) {
  fused_mul_sub_add_cat_0::Args a = {(f32*)py_int(args[0]), (f32*)py_int(args[1]), (f32*)py_int(args[2]), (f32*)py_int(args[3])};
  void* thread = py_save(); fused_mul_sub_add_cat_0::run(a); py_restore(thread);
  py_incref(py_none); return py_none;
}

/* host program
# g: 1 kernels, 0 aten calls
def call(q_1, s_1, d_1):
    grad = is_grad()
    try:
        no_grad(False)
        cat = empty_cpu((3, 6, 32), (192, 32, 1), torch.float32)
        q_1__at = q_1.data_ptr()
        s_1__at = s_1.data_ptr()
        d_1__at = d_1.data_ptr()
        cat__at = cat.data_ptr()
        fused_mul_sub_add_cat_0(q_1__at, s_1__at, d_1__at, cat__at)
        return [cat]
    finally:
        no_grad(grad)
*/

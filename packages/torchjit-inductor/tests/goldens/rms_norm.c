// mul = mul.Tensor
// mean = mean.dim
// add = add.Tensor
// rsqrt = rsqrt.default
// mul_1 = mul.Tensor
// mul_2 = mul.Tensor
namespace fused_mul_mean_add_rsqrt_0 {
VECTOR_TYPES(8)
struct Args { f32* p0; f32* p1; f32* p2; };
APART void range(i64 lo, i64 hi, void* data) {
  const Args& args = *(const Args*)data;
  const f32* p0 = args.p0;  // x_1
  const f32* p1 = args.p1;  // w_1
  f32* p2 = args.p2;  // mul_2
  for (i64 x0 = lo; x0 < hi; x0++) {
    f32 t1s = 0.0f;  // sum
     {
      vf32 t1v = splat<vf32>(0.0f);
      auto body = [&](auto full, const i64 r0, const int n) __attribute__((always_inline)) {
        const vf32 t2 = ld<vf32>(full, p0 + r0 + 40*x0, n);
        const vf32 t3 = t2 * t2;
        auto t4 = t1v + t3;
        t1v = select_lanes<vi32>(full, n, t4, t1v);
      };
      i64 r0 = 0; const i64 end = 40;
      for (; r0 + W <= end; r0 += W) body(Full(), r0, W);
      t1s = t1s + fold_lanes(t1v, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
    }
    const f32 t5 = t1s / 4e+01f;
    const f32 t6 = t5 + 1e-06f;
    const f32 t7 = op_rsqrt(t6);
     {
      auto body = [&](auto full, const i64 r0, const int n) __attribute__((always_inline)) {
        const vf32 t8 = ld<vf32>(full, p0 + r0 + 40*x0, n);
        const vf32 t9 = t8 * splat<vf32>(t7);
        const vf32 t10 = ld<vf32>(full, p1 + r0, n);
        const vf32 t11 = t9 * t10;
        st(full, p2 + r0 + 40*x0, t11, n);
      };
      i64 r0 = 0; const i64 end = 40;
      for (; r0 + W <= end; r0 += W) body(Full(), r0, W);
    }
  }
}
static void run(Args args) {
  const i64 total = (6); const i64 work = (40) * 10;
  const i64 grain = 1 + 65536 / (work + 1);
  if (total <= grain) { if (total > 0) range(0, total, &args); }
  else tj_parallel(0, total, grain, range, &args);
}
}
extern "C" void* py_fused_mul_mean_add_rsqrt_0(void*, void* const* args, i64) {
  fused_mul_mean_add_rsqrt_0::Args a = {(f32*)py_int(args[0]), (f32*)py_int(args[1]), (f32*)py_int(args[2])};
  void* thread = py_save(); fused_mul_mean_add_rsqrt_0::run(a); py_restore(thread);
  py_incref(py_none); return py_none;
}

/* host program
# g: 1 kernels, 0 aten calls
def call(x_1, w_1):
    grad = is_grad()
    try:
        no_grad(False)
        mul_2 = empty_cpu((6, 40), (40, 1), torch.float32)
        x_1__at = x_1.data_ptr()
        w_1__at = w_1.data_ptr()
        mul_2__at = mul_2.data_ptr()
        fused_mul_mean_add_rsqrt_0(x_1__at, w_1__at, mul_2__at)
        return [mul_2]
    finally:
        no_grad(grad)
*/

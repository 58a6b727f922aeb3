// native_layer_norm = native_layer_norm.default
namespace fused_native_layer_norm_0 {
VECTOR_TYPES(8)
struct Args { f32* p0; f32* p1; f32* p2; f32* p3; };
APART void range(i64 lo, i64 hi, void* data) {
  const Args& args = *(const Args*)data;
  const f32* p0 = args.p0;  // x_1
  const f32* p1 = args.p1;  // w_1
  const f32* p2 = args.p2;  // b_1
  f32* p3 = args.p3;  // native_layer_norm_0
  for (i64 x0 = lo; x0 < hi; x0++) {
    f32 t1s = 0.0f;  // sum
     {
      vf32 t1v = splat<vf32>(0.0f);
      auto body = [&](auto full, const i64 r0, const int n) __attribute__((always_inline)) {
        const vf32 t2 = ld<vf32>(full, p0 + r0 + 40*x0, n);
        auto t3 = t1v + t2;
        t1v = select_lanes<vi32>(full, n, t3, t1v);
      };
      i64 r0 = 0; const i64 end = 40;
      for (; r0 + W <= end; r0 += W) body(Full(), r0, W);
      t1s = t1s + fold_lanes(t1v, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
    }
    const f32 t4 = t1s / 4e+01f;
    f32 t5s = 0.0f;  // sum
    f32 t6s = 0.0f;  // sum
     {
      vf32 t5v = splat<vf32>(0.0f);
      vf32 t6v = splat<vf32>(0.0f);
      auto body = [&](auto full, const i64 r0, const int n) __attribute__((always_inline)) {
        const vf32 t7 = ld<vf32>(full, p0 + r0 + 40*x0, n);
        const vf32 t8 = t7 - splat<vf32>(t4);
        const vf32 t9 = t8 * t8;
        auto t10 = t5v + t8;
        t5v = select_lanes<vi32>(full, n, t10, t5v);
        auto t11 = t6v + t9;
        t6v = select_lanes<vi32>(full, n, t11, t6v);
      };
      i64 r0 = 0; const i64 end = 40;
      for (; r0 + W <= end; r0 += W) body(Full(), r0, W);
      t5s = t5s + fold_lanes(t5v, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
      t6s = t6s + fold_lanes(t6v, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
    }
    const f32 t12 = t5s / 4e+01f;
    const f32 t13 = t4 + t12;
    const f32 t14 = t12 * t12;
    const f32 t15 = t14 * 4e+01f;
    const f32 t16 = t6s - t15;
    const f32 t17 = t4 * t4;
    const f32 t18 = t17 * 2.9802322e-08f;
    const bool t19 = t6s > t18;
    const f32 t20 = t6s * 4.7683716e-07f;
    const f32 t21 = t19 ? t20 : 0.0f;
    const bool t22 = t16 < t21;
    const f32 t23 = t22 ? 0.0f : t16;
    const f32 t24 = t23 / 4e+01f;
    const f32 t25 = t24 + 1e-05f;
    const f32 t26 = op_rsqrt(t25);
     {
      auto body = [&](auto full, const i64 r0, const int n) __attribute__((always_inline)) {
        const vf32 t27 = ld<vf32>(full, p0 + r0 + 40*x0, n);
        const vf32 t28 = t27 - splat<vf32>(t13);
        const vf32 t29 = t28 * splat<vf32>(t26);
        const vf32 t30 = ld<vf32>(full, p1 + r0, n);
        const vf32 t31 = t29 * t30;
        const vf32 t32 = ld<vf32>(full, p2 + r0, n);
        const vf32 t33 = t31 + t32;
        st(full, p3 + r0 + 40*x0, t33, n);
      };
      i64 r0 = 0; const i64 end = 40;
      for (; r0 + W <= end; r0 += W) body(Full(), r0, W);
    }
  }
}
static void run(Args args) {
  const i64 total = (6); const i64 work = (40) * 23;
  const i64 grain = 1 + 65536 / (work + 1);
  if (total <= grain) { if (total > 0) range(0, total, &args); }
  else tj_parallel(0, total, grain, range, &args);
}
}
extern "C" void* py_fused_native_layer_norm_0(void*, void* const* args, i64) {
  fused_native_layer_norm_0::Args a = {(f32*)py_int(args[0]), (f32*)py_int(args[1]), (f32*)py_int(args[2]), (f32*)py_int(args[3])};
  void* thread = py_save(); fused_native_layer_norm_0::run(a); py_restore(thread);
  py_incref(py_none); return py_none;
}

/* host program
# g: 1 kernels, 0 aten calls
def call(x_1, w_1, b_1):
    grad = is_grad()
    try:
        no_grad(False)
        native_layer_norm_0 = empty_cpu((6, 40), (40, 1), torch.float32)
        x_1__at = x_1.data_ptr()
        w_1__at = w_1.data_ptr()
        b_1__at = b_1.data_ptr()
        native_layer_norm_0__at = native_layer_norm_0.data_ptr()
        fused_native_layer_norm_0(x_1__at, w_1__at, b_1__at, native_layer_norm_0__at)
        return [native_layer_norm_0]
    finally:
        no_grad(grad)
*/

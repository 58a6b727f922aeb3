// var = var.correction
namespace fused_var_0 {
VECTOR_TYPES(8)
struct Args { f32* p0; f32* p1; };
static void range(i64 lo, i64 hi, void* data) {
  const Args& args = *(const Args*)data;
  const f32* p0 = args.p0;  // x_1
  f32* p1 = args.p1;  // var
  for (i64 x0 = lo; x0 < hi; x0++) {
    f32 t1s = 0.0f;  // sum
    f32 t2s = __builtin_inff();  // least
    f32 t3s = -__builtin_inff();  // greatest
     {
      vf32 t1v = splat<vf32>(0.0f);
      vf32 t2v = splat<vf32>(__builtin_inff());
      vf32 t3v = splat<vf32>(-__builtin_inff());
      auto body = [&](auto full, const i64 r0, const int n) __attribute__((always_inline)) {
        const vf32 t4 = ld<vf32>(full, p0 + r0 + 40*x0, n);
        auto t5 = t1v + t4;
        t1v = select_lanes<vi32>(full, n, t5, t1v);
        auto t6 = op_least(t2v, t4);
        t2v = select_lanes<vi32>(full, n, t6, t2v);
        auto t7 = op_greatest(t3v, t4);
        t3v = select_lanes<vi32>(full, n, t7, t3v);
      };
      i64 r0 = 0; const i64 end = 40;
      for (; r0 + W <= end; r0 += W) body(Full(), r0, W);
      t1s = t1s + fold_lanes(t1v, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
      t2s = op_least(t2s, fold_lanes(t2v, [](auto a, auto b) __attribute__((always_inline)) { return op_least(a, b); }));
      t3s = op_greatest(t3s, fold_lanes(t3v, [](auto a, auto b) __attribute__((always_inline)) { return op_greatest(a, b); }));
    }
    const f32 t8 = t1s / 4e+01f;
    const bool t9 = t8 < t2s;
    const f32 t10 = t9 ? t2s : t8;
    const bool t11 = t10 > t3s;
    const f32 t12 = t11 ? t3s : t10;
    f32 t13s = 0.0f;  // sum
     {
      vf32 t13v = splat<vf32>(0.0f);
      auto body = [&](auto full, const i64 r0, const int n) __attribute__((always_inline)) {
        const vf32 t14 = ld<vf32>(full, p0 + r0 + 40*x0, n);
        const vf32 t15 = t14 - splat<vf32>(t12);
        const vf32 t16 = t15 * t15;
        auto t17 = t13v + t16;
        t13v = select_lanes<vi32>(full, n, t17, t13v);
      };
      i64 r0 = 0; const i64 end = 40;
      for (; r0 + W <= end; r0 += W) body(Full(), r0, W);
      t13s = t13s + fold_lanes(t13v, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
    }
    const f32 t18 = 4e+01f - 1.0f;
    const f32 t19 = op_maximum(t18, 0.0f);
    const f32 t20 = t13s / t19;
    p1[x0] = t20;
  }
}
static void run(Args args) {
  const i64 total = (6); const i64 work = 40 * 12;
  const i64 grain = 1 + 65536 / (work + 1);
  if (total <= grain) { if (total > 0) range(0, total, &args); }
  else tj_parallel(0, total, grain, range, &args);
}
}
extern "C" void* py_fused_var_0(void*, void* const* args, i64) {
  fused_var_0::Args a = {(f32*)py_int(args[0]), (f32*)py_int(args[1])};
  void* thread = py_save(); fused_var_0::run(a); py_restore(thread);
  py_incref(py_none); return py_none;
}

/* host program
# g: 1 kernels, 0 aten calls
def call(x_1):
    grad = is_grad()
    no_grad(False)
    try:
        var = empty_cpu((6,), (1,), torch.float32)
        x_1__at = x_1.data_ptr()
        var__at = var.data_ptr()
        fused_var_0(x_1__at, var__at)
        return [var]
    finally:
        no_grad(grad)
*/

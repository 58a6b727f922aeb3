// _log_softmax = _log_softmax.default
namespace fused_log_softmax_0 {
VECTOR_TYPES(8)
struct Args { f32* p0; f32* p1; };
APART void range(i64 lo, i64 hi, void* data) {
  const Args& args = *(const Args*)data;
  const f32* p0 = args.p0;  // x_1
  f32* p1 = args.p1;  // _log_softmax
  for (i64 x0 = lo; x0 < hi; x0++) {
    f32 t1s = -__builtin_inff();  // max
     {
      vf32 t1v = splat<vf32>(-__builtin_inff());
      auto body = [&](auto full, const i64 r0, const int n) __attribute__((always_inline)) {
        const vf32 t2 = ld<vf32>(full, p0 + r0 + 40*x0, n);
        auto t3 = op_maximum(t1v, t2);
        t1v = select_lanes<vi32>(full, n, t3, t1v);
      };
      i64 r0 = 0; const i64 end = 40;
      for (; r0 + W <= end; r0 += W) body(Full(), r0, W);
      t1s = op_maximum(t1s, fold_lanes(t1v, [](auto a, auto b) __attribute__((always_inline)) { return op_maximum(a, b); }));
    }
    f32 t4s = 0.0f;  // sum
     {
      vf32 t4v = splat<vf32>(0.0f);
      auto body = [&](auto full, const i64 r0, const int n) __attribute__((always_inline)) {
        const vf32 t5 = ld<vf32>(full, p0 + r0 + 40*x0, n);
        const vf32 t6 = t5 - splat<vf32>(t1s);
        const vf32 t7 = op_exp(t6);
        auto t8 = t4v + t7;
        t4v = select_lanes<vi32>(full, n, t8, t4v);
      };
      i64 r0 = 0; const i64 end = 40;
      for (; r0 + W <= end; r0 += W) body(Full(), r0, W);
      t4s = t4s + fold_lanes(t4v, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
    }
    const f32 t9 = op_log(t4s);
     {
      auto body = [&](auto full, const i64 r0, const int n) __attribute__((always_inline)) {
        const vf32 t10 = ld<vf32>(full, p0 + r0 + 40*x0, n);
        const vf32 t11 = t10 - splat<vf32>(t1s);
        const vf32 t12 = t11 - splat<vf32>(t9);
        st(full, p1 + r0 + 40*x0, t12, n);
      };
      i64 r0 = 0; const i64 end = 40;
      for (; r0 + W <= end; r0 += W) body(Full(), r0, W);
    }
  }
}
static void run(Args args) {
  const i64 total = (6); const i64 work = (40) * 8;
  const i64 grain = 1 + 65536 / (work + 1);
  if (total <= grain) { if (total > 0) range(0, total, &args); }
  else tj_parallel(0, total, grain, range, &args);
}
}
extern "C" void* py_fused_log_softmax_0(void*, void* const* args, i64) {
  fused_log_softmax_0::Args a = {(f32*)py_int(args[0]), (f32*)py_int(args[1])};
  void* thread = py_save(); fused_log_softmax_0::run(a); py_restore(thread);
  py_incref(py_none); return py_none;
}

/* host program
# g: 1 kernels, 0 aten calls
def call(x_1):
    grad = is_grad()
    try:
        no_grad(False)
        _log_softmax = empty_cpu((6, 40), (40, 1), torch.float32)
        x_1__at = x_1.data_ptr()
        _log_softmax__at = _log_softmax.data_ptr()
        fused_log_softmax_0(x_1__at, _log_softmax__at)
        return [_log_softmax]
    finally:
        no_grad(grad)
*/

// _softmax = _softmax.default
namespace fused_softmax_0 {
VECTOR_TYPES(8)
struct Args { f32* p0; f32* p1; };
APART void range(i64 lo, i64 hi, void* data) {
  const Args& args = *(const Args*)data;
  const f32* p0 = args.p0;  // x_1
  f32* p1 = args.p1;  // _softmax
  for (i64 x0 = lo; x0 < hi; x0++) {
    f32 t1[40] __attribute__((aligned(64)));  // exp, for later passes
    f32 t2s = -__builtin_inff();  // max
     {
      vf32 t2v = splat<vf32>(-__builtin_inff());
      auto body = [&](auto full, const i64 r0, const int n) __attribute__((always_inline)) {
        const vf32 t3 = ld<vf32>(full, p0 + r0 + 40*x0, n);
        auto t4 = op_maximum(t2v, t3);
        t2v = select_lanes<vi32>(full, n, t4, t2v);
      };
      i64 r0 = 0; const i64 end = 40;
      for (; r0 + W <= end; r0 += W) body(Full(), r0, W);
      t2s = op_maximum(t2s, fold_lanes(t2v, [](auto a, auto b) __attribute__((always_inline)) { return op_maximum(a, b); }));
    }
    f32 t5s = 0.0f;  // sum
     {
      vf32 t5v = splat<vf32>(0.0f);
      auto body = [&](auto full, const i64 r0, const int n) __attribute__((always_inline)) {
        const vf32 t6 = ld<vf32>(full, p0 + r0 + 40*x0, n);
        const vf32 t7 = t6 - splat<vf32>(t2s);
        const vf32 t8 = op_exp(t7);
        st(full, t1 + r0, t8, n);
        auto t9 = t5v + t8;
        t5v = select_lanes<vi32>(full, n, t9, t5v);
      };
      i64 r0 = 0; const i64 end = 40;
      for (; r0 + W <= end; r0 += W) body(Full(), r0, W);
      t5s = t5s + fold_lanes(t5v, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
    }
     {
      auto body = [&](auto full, const i64 r0, const int n) __attribute__((always_inline)) {
        const vf32 t10 = ld<vf32>(full, t1 + r0, n);
        const vf32 t11 = ld<vf32>(full, p0 + r0 + 40*x0, n);
        const vf32 t12 = t11 - splat<vf32>(t2s);
        const vf32 t13 = t10 / splat<vf32>(t5s);
        st(full, p1 + r0 + 40*x0, t13, n);
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
extern "C" void* py_fused_softmax_0(void*, void* const* args, i64) {
  fused_softmax_0::Args a = {(f32*)py_int(args[0]), (f32*)py_int(args[1])};
  void* thread = py_save(); fused_softmax_0::run(a); py_restore(thread);
  py_incref(py_none); return py_none;
}

/* host program
# g: 1 kernels, 0 aten calls
def call(x_1):
    grad = is_grad()
    try:
        no_grad(False)
        _softmax = empty_cpu((6, 40), (40, 1), torch.float32)
        x_1__at = x_1.data_ptr()
        _softmax__at = _softmax.data_ptr()
        fused_softmax_0(x_1__at, _softmax__at)
        return [_softmax]
    finally:
        no_grad(grad)
*/

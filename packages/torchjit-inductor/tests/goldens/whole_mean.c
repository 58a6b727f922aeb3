// mean = mean.default
namespace fused_mean_0 {
VECTOR_TYPES(8)
struct Args { f32* p0; f32* p1; };
APART void range(i64 lo, i64 hi, void* data) {
  const Args& args = *(const Args*)data;
  const f32* p0 = args.p0;  // x_1
  f32* p1 = args.p1;  // mean
  f32 t1s = 0.0f;  // sum
   {
    vf32 t1v[4] = {splat<vf32>(0.0f), splat<vf32>(0.0f), splat<vf32>(0.0f), splat<vf32>(0.0f)};
    auto body = [&](auto full, const i64 r1, const int n, const int way = 0) __attribute__((always_inline)) {
      const vf32 t2 = ld<vf32>(full, p0 + r1, n);
      auto t3 = t1v[way] + t2;
      t1v[way] = select_lanes<vi32>(full, n, t3, t1v[way]);
    };
    i64 r1 = 0; const i64 end = 240;
    for (; r1 + 4 * W <= end; r1 += 4 * W) { body(Full(), r1 + 0 * W, W, 0); body(Full(), r1 + 1 * W, W, 1); body(Full(), r1 + 2 * W, W, 2); body(Full(), r1 + 3 * W, W, 3); }
    for (; r1 + W <= end; r1 += W) body(Full(), r1, W);
    for (int k = 1; k < 4; k++) t1v[0] = t1v[0] + t1v[k];
    t1s = t1s + fold_lanes(t1v[0], [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
  }
  const f32 t4 = t1s / 2.4e+02f;
  p1[0] = t4;
}
static void run(Args args) {
  const i64 total = 1; const i64 work = (240) * 5;
  const i64 grain = 1 + 65536 / (work + 1);
  if (total <= grain) { if (total > 0) range(0, total, &args); }
  else tj_parallel(0, total, grain, range, &args);
}
}
extern "C" void* py_fused_mean_0(void*, void* const* args, i64) {
  fused_mean_0::Args a = {(f32*)py_int(args[0]), (f32*)py_int(args[1])};
  void* thread = py_save(); fused_mean_0::run(a); py_restore(thread);
  py_incref(py_none); return py_none;
}

/* host program
# g: 1 kernels, 0 aten calls
def call(x_1):
    grad = is_grad()
    try:
        no_grad(False)
        mean = empty_cpu((), (), torch.float32)
        x_1__at = x_1.data_ptr()
        mean__at = mean.data_ptr()
        fused_mean_0(x_1__at, mean__at)
        return [mean]
    finally:
        no_grad(grad)
*/

// mul = mul.Tensor
namespace fused_mul_0 {
VECTOR_TYPES(8)
struct Args { f32* p0; f32* p1; };
APART void range(i64 lo, i64 hi, void* data) {
  const Args& args = *(const Args*)data;
  const f32* p0 = args.p0;  // x_1
  f32* p1 = args.p1;  // mul
  auto body = [&](auto full, const i64 x1, const int n) __attribute__((always_inline)) {
    const vf32 t1 = ld_strided<2, vf32>(full, p0 + 2*x1 + 1, n);
    const vf32 t2 = t1 * splat<vf32>(2.0f);
    st(full, p1 + x1, t2, n);
  };
  i64 x1 = 0; const i64 end = 120;
  for (; x1 + W <= end; x1 += W) body(Full(), x1, W);
}
static void run(Args args) {
  const i64 total = 1; const i64 work = (120) * 3;
  const i64 grain = 1 + 65536 / (work + 1);
  if (total <= grain) { if (total > 0) range(0, total, &args); }
  else tj_parallel(0, total, grain, range, &args);
}
}
extern "C" void* py_fused_mul_0(void*, void* const* args, i64) {
  fused_mul_0::Args a = {(f32*)py_int(args[0]), (f32*)py_int(args[1])};
  void* thread = py_save(); fused_mul_0::run(a); py_restore(thread);
  py_incref(py_none); return py_none;
}

/* host program
# g: 1 kernels, 0 aten calls
def call(x_1):
    grad = is_grad()
    try:
        no_grad(False)
        mul = empty_cpu((6, 20), (20, 1), torch.float32)
        x_1__at = x_1.data_ptr()
        mul__at = mul.data_ptr()
        fused_mul_0(x_1__at, mul__at)
        return [mul]
    finally:
        no_grad(grad)
*/

// gather = gather.default
namespace fused_gather_0 {
VECTOR_TYPES(4)
struct Args { i64* p0; f32* p1; f32* p2; i64* fault; };
APART void range(i64 lo, i64 hi, void* data) {
  const Args& args = *(const Args*)data;
  const i64* p0 = args.p0;  // i_1
  const f32* p1 = args.p1;  // x_1
  f32* p2 = args.p2;  // gather
  i64* const fault = args.fault;
  for (i64 x0 = lo; x0 < hi; x0++) {
    auto body = [&](auto full, const i64 x1, const int n) __attribute__((always_inline)) {
      const vi64 t1 = ld<vi64>(full, p0 + 3*x0 + x1, n);
      const vi64 t2 = bounded_lanes(t1, n, (i64)(40), false, 1, 2, fault);
      const vf32 t3 = lanes<vf32>(full, [&](int k) { return p1[40*x0 + t2[k]]; }, n);
      st(full, p2 + 3*x0 + x1, t3, n);
    };
    i64 x1 = 0; const i64 end = 3;
    for (; x1 + W <= end; x1 += W) body(Full(), x1, W);
    if (x1 < end) body(Part(), x1, (int)(end - x1));
  }
}
static void run(Args args) {
  const i64 total = (6); const i64 work = (3) * 4;
  const i64 grain = 1 + 65536 / (work + 1);
  if (total <= grain) { if (total > 0) range(0, total, &args); }
  else tj_parallel(0, total, grain, range, &args);
}
}
extern "C" void* py_fused_gather_0(void*, void* const* args, i64) {
  i64 fault[4] = {0, 0, 0, 0};
  fused_gather_0::Args a = {(i64*)py_int(args[0]), (f32*)py_int(args[1]), (f32*)py_int(args[2]), fault};
  void* thread = py_save(); fused_gather_0::run(a); py_restore(thread);
  if (fault[0]) return raise_fault(fault);
  py_incref(py_none); return py_none;
}

/* host program
# g: 1 kernels, 0 aten calls
def call(x_1, i_1):
    grad = is_grad()
    try:
        no_grad(False)
        gather = empty_cpu((6, 3), (3, 1), torch.float32)
        i_1__at = i_1.data_ptr()
        x_1__at = x_1.data_ptr()
        gather__at = gather.data_ptr()
        fused_gather_0(i_1__at, x_1__at, gather__at)
        return [gather]
    finally:
        no_grad(grad)
*/

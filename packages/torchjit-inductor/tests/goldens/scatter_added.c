// scatter_add = scatter_add.default
namespace fused_scatter_add_0 {
VECTOR_TYPES(8)
struct Args { f32* p0; f32* p1; };
APART void range(i64 lo, i64 hi, void* data) {
  const Args& args = *(const Args*)data;
  const f32* p0 = args.p0;  // x_1
  f32* p1 = args.p1;  // scatter_add
  auto body = [&](auto full, const i64 x1, const int n) __attribute__((always_inline)) {
    const vf32 t1 = ld<vf32>(full, p0 + x1, n);
    st(full, p1 + x1, t1, n);
  };
  i64 x1 = 0; const i64 end = 240;
  for (; x1 + W <= end; x1 += W) body(Full(), x1, W);
}
static void run(Args args) {
  const i64 total = 1; const i64 work = (240) * 2;
  const i64 grain = 1 + 65536 / (work + 1);
  if (total <= grain) { if (total > 0) range(0, total, &args); }
  else tj_parallel(0, total, grain, range, &args);
}
}
extern "C" void* py_fused_scatter_add_0(void*, void* const* args, i64) {
  fused_scatter_add_0::Args a = {(f32*)py_int(args[0]), (f32*)py_int(args[1])};
  void* thread = py_save(); fused_scatter_add_0::run(a); py_restore(thread);
  py_incref(py_none); return py_none;
}

// scatter_add = scatter_add.default
namespace fused_scatter_add_1 {
VECTOR_TYPES(4)
struct Args { f32* p0; i64* p1; f32* p2; i64* fault; };
APART void range(i64 lo, i64 hi, void* data) {
  const Args& args = *(const Args*)data;
  const f32* p0 = args.p0;  // s_1
  const i64* p1 = args.p1;  // i_1
  f32* p2 = args.p2;  // scatter_add
  i64* const fault = args.fault;
  for (i64 chunk = lo; chunk < hi; chunk++) {
    const i64 from = chunk * 40, to = imin((chunk + 1) * 40, 40);
     {
      for (i64 x0 = 0; x0 < 4; x0++) {
        auto body = [&](auto full, const i64 x1, const int n) __attribute__((always_inline)) {
          const vf32 t1 = ld<vf32>(full, p0 + 40*x0 + x1, n);
          const vi64 t2 = ld<vi64>(full, p1 + 40*x0 + x1, n);
          const vi64 t3 = bounded_lanes(t2, n, (i64)(6), false, 0, 2, fault);
          const auto t4 = t1;
          each_lane<W>(full, n, [&](int k) { p2[(x1 + k) + 40*t3[k]] = p2[(x1 + k) + 40*t3[k]] + t4[k]; });
        };
        i64 x1 = from; const i64 end = to;
        for (; x1 + W <= end; x1 += W) body(Full(), x1, W);
        if (x1 < end) body(Part(), x1, (int)(end - x1));
      }
    }
  }
}
static void run(Args args) {
  const i64 total = ((40 + 39) / 40); const i64 work = (160) * 4;
  const i64 grain = 1 + 65536 / (work + 1);
  if (total <= grain) { if (total > 0) range(0, total, &args); }
  else tj_parallel(0, total, grain, range, &args);
}
}
extern "C" void* py_fused_scatter_add_1(void*, void* const* args, i64) {
  i64 fault[4] = {0, 0, 0, 0};
  fused_scatter_add_1::Args a = {(f32*)py_int(args[0]), (i64*)py_int(args[1]), (f32*)py_int(args[2]), fault};
  void* thread = py_save(); fused_scatter_add_1::run(a); py_restore(thread);
  if (fault[0]) return raise_fault(fault);
  py_incref(py_none); return py_none;
}

/* host program
# g: 2 kernels, 0 aten calls
def call(x_1, i_1, s_1):
    grad = is_grad()
    try:
        no_grad(False)
        scatter_add = empty_cpu((6, 40), (40, 1), torch.float32)
        x_1__at = x_1.data_ptr()
        scatter_add__at = scatter_add.data_ptr()
        fused_scatter_add_0(x_1__at, scatter_add__at)
        s_1__at = s_1.data_ptr()
        i_1__at = i_1.data_ptr()
        fused_scatter_add_1(s_1__at, i_1__at, scatter_add__at)
        return [scatter_add]
    finally:
        no_grad(grad)
*/

#!/usr/bin/env bash
# The C backend's kernels built under AddressSanitizer and UndefinedBehaviorSanitizer (gcc): its tests, then generated programs.
# Arguments: what pytest shall run (default: the inductor's CPU tests). Slow: most of an hour for the default on two cores.
# PROGRAMS=n in the environment: how many generated programs (default 300), JOBS=n: in how many processes; TESTS=0 runs only these.
set -uo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
real=$(command -v g++)
# The compiler that the backend finds first: the real one with sanitizers. -nostdlib leaves their run time to be preloaded.
# Shifts of negative numbers and casts of floats that are out of range have eager's meaning on this machine: not checked.
cat >"$folder/g++" <<END
#!/bin/sh
echo >>"$folder/files"
exec "$real" "\$@" -g -fsanitize=address,bounds,alignment,null,object-size,integer-divide-by-zero,vla-bound,pointer-overflow
END
chmod +x "$folder/g++"
preload="$("$real" -print-file-name=libasan.so) $("$real" -print-file-name=libubsan.so)"
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(packages/torchjit-inductor/tests -k "not triton and not goldens")
python=$(python -c 'import sys; print(sys.executable)')
# No search for leaks: it would find the interpreter's. Reports go to files, since pytest captures what a test writes.
sanitized() {
  PATH="$folder:$PATH" LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1:log_path="$folder/report" \
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:log_path="$folder/report" OMP_NUM_THREADS=1 PYTHONMALLOC=malloc "$python" "$@"
}
tests=0 programs=0
[ "${TESTS:-1}" = 0 ] || sanitized -m pytest -q -x -p no:cacheprovider "${targets[@]}" || tests=$?
[ "${PROGRAMS:-300}" = 0 ] || sanitized packages/torchjit-inductor/benchmarks/fuzz.py --programs "${PROGRAMS:-300}" --jobs "${JOBS:-1}" --seed 900 || programs=$?
cat "$folder"/report* 2>/dev/null
reports=$(find "$folder" -name 'report*' | wc -l)
echo "sanitizers: $reports reports; exit of the tests $tests, of the generated programs $programs; $(wc -l <"$folder/files" 2>/dev/null || echo 0) runs of the compiler"
[ "$reports" = 0 ] && [ "$tests" = 0 ] && [ "$programs" = 0 ]

/* Running a guard program.
 *
 * A register per access path. Nothing is allocated and no reference is counted until an op has to run Python code
 * (a property, an exotic dict, a predicate): run_own then takes references to what is in the registers, because
 * Python code may drop the objects that they were borrowed from.
 */
#include "group.h"
#include "program.h"
#include "snapshot.h"

enum { STACK_REGS = 256 };

static inline bool raw(PyObject *value) {
    return value == RAW_INT;
}

/* The object in a register; a raw int becomes an object, owned by the run. NULL with an error set. */
PyObject *run_object(Run *run, int reg) {
    PyObject *value = run->regs[reg];
    if (raw(value)) {
        run_own(run);
        value = PyLong_FromLongLong(run->ints[reg]);
        if (value != NULL) {
            run->regs[reg] = value;
        }
    }
    return value;
}

static inline int check_int(Run *run, const Op *op, PyObject *value) {
    if (raw(value)) {
        return run->ints[op->src] == op->imm;
    }
    if (value == op->obj) {
        return 1;
    }
    if (!PyLong_CheckExact(value)) {
        return 0;
    }
    int overflow;
    long long got = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow && got == op->imm;
}

static inline int check_str(const Op *op, PyObject *value) {
    return value == op->obj || (!raw(value) && PyUnicode_CheckExact(value) && PyUnicode_Compare(value, op->obj) == 0);
}

static inline void keep_borrowed(Run *run, int reg, PyObject *value) {
    if (run->owned) {
        Py_INCREF(value);
    }
    run_keep(run, reg, value);
}

static inline void keep_int(Run *run, int reg, int64_t value) {
    run->ints[reg] = value;
    run_keep(run, reg, RAW_INT);
}

/* A size, stride or offset of a plain tensor: 1, or 0 when it has to be asked for. */
static inline int load_raw_int(Run *run, const Op *op, PyObject *base) {
    if (raw(base) || !tensor_layout.ready || !tensor_is_plain(base)) {
        return 0;
    }
    char *impl = tensor_impl(base);
    if (op->code == OP_LOAD_OFFSET) {
        keep_int(run, op->dst, tensor_offset(impl));
        return 1;
    }
    int64_t n = tensor_ndim(impl), dim = op->imm < 0 ? op->imm + n : op->imm;
    if (dim < 0 || dim >= n) {
        return 0;
    }
    keep_int(run, op->dst, (op->code == OP_LOAD_SIZE ? tensor_sizes(impl) : tensor_strides(impl))[dim]);
    return 1;
}

/* A load without Python code: 1, or 0 when load_value has to do it. */
static inline int load_fast(Run *run, Op *op, PyObject *base) {
    PyObject *value = NULL;
    switch (op->code) {
    case OP_LOAD_INSTANCE:
        if (raw(base) || walk_instance(base, op->obj, op->cold->hash, &op->cold->hint, &value) != WALK_FOUND) {
            return 0;
        }
        break;
    case OP_LOAD_ITEM:
        if (raw(base)) {
            return 0;
        }
        if (PyDict_CheckExact(base)) {
            if (walk_dict((PyDictObject *)base, op->obj, op->cold->hash, &op->cold->hint, &value) != WALK_FOUND) {
                return 0;
            }
        }
        else if (op->src2 && PyTuple_CheckExact(base)) {
            Py_ssize_t n = PyTuple_GET_SIZE(base), i = op->imm < 0 ? op->imm + n : op->imm;
            value = i >= 0 && i < n ? PyTuple_GET_ITEM(base, i) : NULL;
        }
        else if (op->src2 && PyList_CheckExact(base)) {
            Py_ssize_t n = PyList_GET_SIZE(base), i = op->imm < 0 ? op->imm + n : op->imm;
            value = i >= 0 && i < n ? PyList_GET_ITEM(base, i) : NULL;
        }
        break;
    case OP_LOAD_ATTR:
        value = op->src2 != 0 && !raw(base) ? walk_field(base, op->src2) : NULL;
        break;
    case OP_LOAD_CELL:
        value = !raw(base) && PyCell_Check(base) ? PyCell_GET(base) : NULL;
        break;
    case OP_LOAD_TYPE:
        value = raw(base) ? (PyObject *)&PyLong_Type : (PyObject *)Py_TYPE(base);
        break;
    case OP_LOAD_REFERENT:
        if (raw(base) || !PyWeakref_CheckRef(base)) {
            return 0;
        }
        value = PyWeakref_GET_OBJECT(base);     /* nothing else runs while it is borrowed */
        value = Py_IsNone(value) ? NULL : value;
        break;
    case OP_LOAD_SIZE:
    case OP_LOAD_STRIDE:
    case OP_LOAD_OFFSET:
        return load_raw_int(run, op, base);
    default:
        return 0;
    }
    if (value == NULL) {
        return 0;
    }
    keep_borrowed(run, op->dst, value);
    return 1;
}

/* A function of libtorch that takes at most one integer (`imm`) and returns one, of `dst` bytes, to be `src2`. */
static inline int check_native(const Op *op) {
    uint64_t got = ((uint64_t (*)(int64_t))op->payload)(op->imm);
    uint64_t mask = op->dst == 1 ? 0xFF : UINT64_MAX;
    return (got & mask) == (uint64_t)op->src2;
}

/* 1: holds. 0: does not. -1: an error is set (run_program decides whether it is a miss). */
static inline int check_one(Run *run, Op *op) {
    PyObject *value = run->regs[op->src];   /* of no meaning to the ops that read other registers */
    switch (op->code) {
    case OP_CHECK_TYPE:
        return (raw(value) ? &PyLong_Type : Py_TYPE(value)) == (PyTypeObject *)op->obj;
    case OP_CHECK_IS:
        return value == op->obj || (raw(value) && run_object(run, op->src) == op->obj);
    case OP_CHECK_INT:
        return check_int(run, op, value);
    case OP_CHECK_STR:
        return check_str(op, value);
    case OP_CHECK_TENSOR:
        return check_tensor(run, op, value);
    case OP_CHECK_CLASS:
        return op->cold->hint.type->tp_version_tag == op->cold->hint.tag && op->cold->hint.tag != 0 ? 1 : check_class(op);
    case OP_CHECK_SAME:
        return value == run->regs[op->src2] && !raw(value) ? 1 : run_object(run, op->src) == run_object(run, op->src2);
    case OP_CHECK_DIFFERENT:
    case OP_CHECK_STORAGES:
        return check_different(run, op);
    case OP_CHECK_CONDITION:
        return check_condition(run, op);
    case OP_CHECK_AMBIENT:
    case OP_CHECK_PREDICATE:
    case OP_CHECK_CALL:
    case OP_CHECK_EQUAL:
        return check_with_python(run, op);
    }
    value = run_object(run, op->src);
    if (value == NULL) {
        return -1;
    }
    switch (op->code) {
    case OP_CHECK_ATOM:
        return atoms_equal(value, op->obj);
    case OP_CHECK_LENGTH:
        return check_length(run, op, value);
    case OP_CHECK_KEYS:
        return check_keys(run, op, value);
    case OP_CHECK_CONTAINS:
        return check_contains(run, op, value);
    case OP_CHECK_LACKS:
        return check_lacks(run, op, value);
    }
    PyErr_Format(PyExc_SystemError, "unknown guard op %d", op->code);
    return -1;
}

/* Run the ops from `from` to before `to`: 1, 0, or -1 with an error set. */
int run_ops(Run *run, Py_ssize_t from, Py_ssize_t to) {
    Program *p = run->program;
    for (Op *op = p->ops + from, *end = p->ops + to; op < end; op++) {
        int ok;
        if (op->code == OP_CHECK_NATIVE) {  /* first: there are a dozen in each program, one after the other */
            if (!check_native(op)) {
                return 0;
            }
            continue;
        }
        if (op->code == OP_GROUP) {
            if (group_skip(run, op)) {
                op += op->imm;
            }
            continue;
        }
        if (op->code == OP_GROUP_END) {
            group_remember(run, op - op->imm);
            continue;
        }
        if (op->code < OP_CHECK_TYPE) {
            PyObject *base = run->regs[op->src];
            ok = load_fast(run, op, base) || load_value(run, op, base);
            if (!ok) {
                return PyErr_Occurred() ? -1 : 0;
            }
        }
        else {
            ok = check_one(run, op);
        }
        if (ok <= 0) {
            return ok;
        }
    }
    return 1;
}

static int gather(Run *run, PyObject **gathered) {
    Program *p = run->program;
    const Snapshot *s = run->snapshot;
    for (Py_ssize_t i = 0; i < p->ngather; i++) {
        if (s != NULL && s->gathered[i] != NULL) {
            gathered[i] = Py_NewRef(s->gathered[i]);
            continue;
        }
        int reg = p->gather[i];
        PyObject *value;
        int64_t number;
        if (s != NULL && !run->filled && reg >= run->nfixed && s->values[reg - run->nfixed] != NULL) {
            value = s->values[reg - run->nfixed];
            number = s->ints[reg - run->nfixed];
        }
        else {
            value = run->regs[reg];
            number = run->ints[reg];
        }
        value = raw(value) ? PyLong_FromLongLong(number) : Py_NewRef(value);
        if (value == NULL) {
            while (i-- > 0) {
                Py_DECREF(gathered[i]);
            }
            return -1;
        }
        gathered[i] = value;
    }
    return 1;
}

/* By the snapshot if the memory that it knows is as it was, else op by op. */
static int run_program(Run *run) {
    Program *p = run->program;
    if (p->snapshot != NULL) {
        bool decided;
        int ok = snapshot_replay(run, &decided);
        if (decided) {
            return ok;
        }
    }
    int ok = run_ops(run, 0, p->nops);
    if (ok > 0) {
        snapshot_consider(run);
    }
    return ok;
}

static PyObject *raised_in_handler; /* says of an exception whether a handler of a signal has raised it */

/* pass_through(function): what is asked about exceptions, which are misses else. */
PyObject *program_pass_through(PyObject *Py_UNUSED(module), PyObject *function) {
    Py_XSETREF(raised_in_handler, Py_NewRef(function));
    Py_RETURN_NONE;
}

/* Is the exception that is set the program's, from a handler of a signal? It says nothing about what a guard asks, and comes out.
 *
 * Such a one has come through a frame; what C code raises about a walk has no traceback, and costs no question. */
bool program_passes_through(void) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (traceback == NULL || raised_in_handler == NULL) {
        PyErr_Restore(type, error, traceback);
        return false;
    }
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(error, traceback);
    }
    PyObject *answer = PyObject_CallOneArg(raised_in_handler, error);
    if (answer == NULL && !PyErr_ExceptionMatches(PyExc_Exception)) {
        Py_DECREF(type);
        Py_DECREF(error);
        Py_XDECREF(traceback);
        return true; /* another one, while we asked */
    }
    bool passes = answer == Py_True;
    Py_XDECREF(answer);
    PyErr_Clear();
    PyErr_Restore(type, error, traceback);
    return passes;
}

/* The capsule's `check`: 1 and new references in `gathered` (may be NULL: only test), 0, or -1 with an error. */
static int program_check(void *self, PyObject *const *slots, Py_ssize_t nslots, PyObject **gathered) {
    Program *p = self;
    if (nslots != p->nslots) {
        PyErr_Format(PyExc_TypeError, "the guard program takes %zd slots, got %zd", p->nslots, nslots);
        return -1;
    }
    PyObject *small[STACK_REGS];
    int64_t small_ints[STACK_REGS];
    int nfixed = (int)(nslots + p->npinned);
    Run run = {.program = p, .slots = slots, .regs = small, .ints = small_ints, .nfixed = nfixed, .nloaded = nfixed};
    void *big = NULL;
    if (p->nregs > STACK_REGS) {
        big = PyMem_Malloc((size_t)p->nregs * (sizeof(PyObject *) + sizeof(int64_t)));
        if (big == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        run.ints = big;
        run.regs = (PyObject **)(run.ints + p->nregs);
    }
    Py_INCREF(self);    /* Python code run by a guard may drop the entry that owns us */
    memcpy(run.regs, slots, (size_t)nslots * sizeof(PyObject *));
    if (p->npinned) {
        memcpy(run.regs + nslots, ((PyTupleObject *)p->pinned)->ob_item, (size_t)p->npinned * sizeof(PyObject *));
    }
    int ok = p->ops == NULL && p->nregs < 0 ? 0 : run_program(&run);
    if (ok < 0 && PyErr_ExceptionMatches(PyExc_Exception) && !program_passes_through()) {
        PyErr_Clear();  /* a walk that fails is a miss; KeyboardInterrupt and its like go on */
        ok = 0;
    }
    if (ok > 0 && gathered != NULL) {
        ok = gather(&run, gathered);
    }
    if (run.owned) {
        PyObject *type, *error, *traceback;     /* what is dropped may run finalisers */
        PyErr_Fetch(&type, &error, &traceback);
        for (int i = run.nfixed; i < run.nloaded; i++) {
            if (!raw(run.regs[i])) {
                Py_XDECREF(run.regs[i]);
            }
        }
        PyErr_Restore(type, error, traceback);
    }
    if (run.held != NULL) {
        snapshot_release(run.held);
    }
    PyMem_Free(big);
    Py_DECREF(self);
    return ok;
}

static PyObject *program_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    Program *p = (Program *)self;
    if (kwnames != NULL && PyTuple_GET_SIZE(kwnames) != 0) {
        PyErr_SetString(PyExc_TypeError, "a guard program takes no keyword arguments");
        return NULL;
    }
    PyObject *result = PyTuple_New(p->ngather);
    if (result == NULL) {
        return NULL;
    }
    if (p->ngather > 0) {
        PyObject_GC_UnTrack(result);    /* guards may run Python code, which must not meet a tuple of NULLs */
    }
    int ok = program_check(p, args, PyVectorcall_NARGS(nargsf), ((PyTupleObject *)result)->ob_item);
    if (p->ngather > 0) {
        PyObject_GC_Track(result);
    }
    if (ok > 0) {
        return result;
    }
    for (Py_ssize_t i = 0; i < Py_SIZE(result); i++) {
        ((PyTupleObject *)result)->ob_item[i] = NULL;   /* a failed gather leaves dropped pointers behind */
    }
    Py_DECREF(result);
    return ok < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *program_check_method(PyObject *self, PyObject *slots) {
    PyObject *sequence = PySequence_Fast(slots, "check(slots) takes a sequence");
    if (sequence == NULL) {
        return NULL;
    }
    int ok = program_check(self, PySequence_Fast_ITEMS(sequence), PySequence_Fast_GET_SIZE(sequence), NULL);
    Py_DECREF(sequence);
    return ok < 0 ? NULL : PyBool_FromLong(ok);
}

static void capsule_free(PyObject *capsule) {
    Py_XDECREF((PyObject *)PyCapsule_GetContext(capsule));
}

/* A capsule that keeps the program alive; made on demand, or program and capsule would own one another. */
static PyObject *program_capsule(PyObject *self, void *Py_UNUSED(closure)) {
    PyObject *capsule = PyCapsule_New(&((Program *)self)->abi, "torchjit.guard.v1", capsule_free);
    if (capsule != NULL && PyCapsule_SetContext(capsule, Py_NewRef(self)) < 0) {
        Py_CLEAR(capsule);
    }
    return capsule;
}

/* Program(nslots, pinned, ops, gather): made by the Python side's lowering, which is the place to read about them. */
static PyObject *program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    Py_ssize_t nslots;
    PyObject *pinned, *ops, *gather_regs;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs) != 0) {
        PyErr_SetString(PyExc_TypeError, "Program takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "nO!O!O!", &nslots, &PyTuple_Type, &pinned, &PyTuple_Type, &ops, &PyTuple_Type,
                          &gather_regs)) {
        return NULL;
    }
    if (nslots < 0 || nslots > INT_MAX / 4 || PyTuple_GET_SIZE(ops) > INT_MAX / 4) {
        PyErr_SetString(PyExc_ValueError, "guard program out of range");
        return NULL;
    }
    Program *p = (Program *)type->tp_alloc(type, 0);
    if (p == NULL) {
        return NULL;
    }
    p->vectorcall = program_vectorcall;
    p->nslots = nslots;
    p->npinned = PyTuple_GET_SIZE(pinned);
    p->pinned = Py_NewRef(pinned);
    p->wait = snapshot_first;
    if (program_fill(p, ops, gather_regs) < 0) {
        Py_DECREF(p);
        return NULL;
    }
    p->abi = (torchjit_guard_v1){1, p, p->ngather, program_check};
    return (PyObject *)p;
}

static int program_traverse(PyObject *self, visitproc visit, void *arg) {
    Program *p = (Program *)self;
    Py_VISIT(p->pinned);
    for (Py_ssize_t i = 0; i < p->nops; i++) {
        Py_VISIT(p->ops[i].obj);
        Py_VISIT(p->ops[i].cold->aux);
    }
    return 0;
}

/* After this the program always misses: nregs < 0 says so. */
static int program_clear(PyObject *self) {
    Program *p = (Program *)self;
    Op *ops = p->ops;
    Py_ssize_t n = p->nops;
    snapshot_drop(p);
    p->ops = NULL;
    p->nops = 0;
    p->npinned = 0;
    p->nregs = -1;
    Py_CLEAR(p->pinned);
    if (ops != NULL) {
        ops_free(ops, n);
    }
    return 0;
}

static void program_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    program_clear(self);
    PyMem_Free(((Program *)self)->gather);
    PyMem_Free(((Program *)self)->cold);
    PyMem_Free(((Program *)self)->strikes);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef program_methods[] = {
    {"check", program_check_method, METH_O, "check(slots) -> bool: do all guards hold?"},
    {NULL, NULL, 0, NULL},
};

/* For tests and the curious: what the snapshot holds, or None. */
static PyObject *program_snapshot(PyObject *self, void *Py_UNUSED(closure)) {
    const Snapshot *s = ((Program *)self)->snapshot;
    if (s == NULL) {
        Py_RETURN_NONE;
    }
    int left = 0;
    for (int i = 0; i < s->nbefore; i++) {
        left += s->before[i].to - s->before[i].from;
    }
    for (int i = 0; i < s->nafter; i++) {
        left += s->after[i].to - s->after[i].from;
    }
    return Py_BuildValue("(iiK)", s->nwords, left, (unsigned long long)s->hits);
}

static PyGetSetDef program_getset[] = {
    {"snapshot", program_snapshot, NULL, "(words of memory compared, ops run besides, hits) or None", NULL},
    {"__torchjit_guard__", program_capsule, NULL, "PyCapsule 'torchjit.guard.v1' that keeps this program alive", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject Program_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "torchjit_guards._c.Program",
    .tp_doc = "Program(nslots, pinned, ops, gather): a compiled list of guards.",
    .tp_basicsize = sizeof(Program),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Program, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = program_new,
    .tp_traverse = program_traverse,
    .tp_clear = program_clear,
    .tp_dealloc = program_dealloc,
    .tp_methods = program_methods,
    .tp_getset = program_getset,
};

/* Launching GPU kernels with little work: `Launcher` objects that take addresses and sizes and call the driver.

   Nothing of CUDA is included or linked: the addresses of cuLaunchKernel and cuLaunchKernelEx come from Python, which loads the driver. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

#define MAX_PARAMETERS 512

/* cuLaunchKernel(function, grid x y z, block x y z, shared bytes, stream, parameters, extra) */
typedef int (*LaunchFn)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                        void **);

/* CUlaunchAttribute and CUlaunchConfig: an attribute's value has 64 bytes. */
typedef struct {
    int id;
    int padding;
    union {
        int on;
        uint64_t words[8];
    } value;
} Attribute;

typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    Attribute *attributes;
    unsigned count;
} Config;

#define PROGRAMMATIC_STREAM_SERIALIZATION 6 /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */

/* cuLaunchKernelEx(config, function, parameters, extra) */
typedef int (*LaunchExFn)(const Config *, void *, void **, void **);

/* cuTensorMapEncodeTiled(map, type, rank, address, sizes, strides, box, element strides, interleave, swizzle, promotion, fill) */
typedef int (*EncodeFn)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *,
                        const uint32_t *, int, int, int, int);

/* What a specialisation relies on: all addresses are multiples of 16, positions need 64 bits, the usual sizes divide. */
#define ALIGNED 1
#define WIDE 2
#define DIVISIBLE 4
#define CODES 8
#define NARROW ((uint64_t)((1ULL << 31) - (1ULL << 20))) /* as `launch.NARROW`: from here on positions need 64 bits */
#define MAX_SIZES 64

#define MAP_BYTES 128
#define MAP_ALIGNMENT 64
#define MAP_PARAMETERS 5     /* the map, two sizes, two strides */
#define MAP_PROMOTION_128 2  /* CU_TENSOR_MAP_L2_PROMOTION_L2_128B */

/* An operand that a kernel reads through a descriptor: a matrix, and the tile that one copy brings. As `Descriptor.packed`. */
typedef struct {
    uint64_t argument, offset /* bytes */, type, rows, columns, step /* elements */, step_bytes, box_rows, box_columns,
        swizzle;
} Matrix;

typedef struct {
    unsigned char map[MAP_BYTES]; /* first: it has to be aligned */
    uint64_t address;             /* that the map was encoded for; 0: none yet */
    Matrix matrix;
    uint32_t sizes[2];
    uint64_t strides[2];
} __attribute__((aligned(MAP_ALIGNMENT))) Described;

/* One specialisation of a kernel: what the driver wants to know. */
typedef struct {
    void *function; /* NULL: not loaded yet */
    unsigned threads, shared;
    Py_ssize_t parameters;
    PyObject *fallback; /* called with (programs, stream, *arguments) when the driver refuses */
    EncodeFn encode;
    Py_ssize_t count;     /* of descriptors */
    Described *described; /* their parameters lie behind the addresses */
} Code;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    LaunchFn launch;
    LaunchExFn early; /* NULL: the kernel begins when all before it has ended; it waits by itself otherwise */
    PyObject *stream; /* function of the device's index: the raw handle of its current stream */
    PyObject *device;
    PyObject *load; /* function of (which): a tuple (function, threads, shared, parameters, fallback, encode, matrices) */
    Py_ssize_t arguments; /* addresses, then `sizes` sizes */
    Py_ssize_t sizes;
    unsigned programs;  /* 0: the call says it, and the extent of what the kernel addresses, behind the arguments */
    uint64_t divisible; /* a bit for each size: those that are multiples of 16 where a specialisation relies on it */
    Code codes[CODES];  /* by what they rely on: ALIGNED | WIDE | DIVISIBLE */
    PyObject *weak; /* references to it */
} Launcher;

/* Room for the descriptors of a kernel. */
static int describe(Launcher *self, Code *code, const char *packed) {
    if (code->count == 0) {
        return 0;
    }
    code->described = aligned_alloc(MAP_ALIGNMENT, (size_t)code->count * sizeof(Described));
    if (code->described == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < code->count; i++) {
        Described *d = &code->described[i];
        memcpy(&d->matrix, packed + i * (Py_ssize_t)sizeof(Matrix), sizeof(Matrix));
        if (d->matrix.argument >= (uint64_t)(self->arguments - self->sizes)) {
            PyErr_SetString(PyExc_ValueError, "a descriptor of an argument that there is not");
            free(code->described);
            return -1;
        }
        d->address = 0;
        d->sizes[0] = (uint32_t)d->matrix.rows;
        d->sizes[1] = (uint32_t)d->matrix.columns;
        d->strides[0] = d->matrix.step;
        d->strides[1] = 1;
    }
    return 0;
}

/* Encode a descriptor for an address, unless that was done last time. */
static int encode(const Code *code, Described *d, uint64_t address) {
    if (d->address == address) {
        return 0;
    }
    const Matrix *m = &d->matrix;
    uint64_t sizes[2] = {m->columns, m->rows}, strides[1] = {m->step_bytes};
    uint32_t box[2] = {(uint32_t)m->box_columns, (uint32_t)m->box_rows}, steps[2] = {1, 1};
    int error = code->encode(d->map, (int)m->type, 2, (void *)(uintptr_t)(address + m->offset), sizes, strides, box,
                             steps, 0, (int)m->swizzle, MAP_PROMOTION_128, 0);
    d->address = error == 0 ? address : 0;
    return error;
}

static int load_code(Launcher *self, int which) {
    PyObject *number = PyLong_FromLong(which);
    PyObject *made = number == NULL ? NULL : PyObject_CallOneArg(self->load, number);
    Py_XDECREF(number);
    if (made == NULL) {
        return -1;
    }
    unsigned long long function, encode;
    const char *packed;
    Py_ssize_t bytes;
    Code code = {0};
    int ok = PyArg_ParseTuple(made, "KIInOKy#", &function, &code.threads, &code.shared, &code.parameters, &code.fallback,
                              &encode, &packed, &bytes);
    code.count = ok ? bytes / (Py_ssize_t)sizeof(Matrix) : 0;
    if (ok && (code.parameters < self->arguments + MAP_PARAMETERS * code.count || code.parameters > MAX_PARAMETERS ||
               function == 0 || (code.count && encode == 0))) {
        PyErr_SetString(PyExc_ValueError, "a kernel with fewer parameters than arguments, or too many");
        ok = 0;
    }
    ok = ok && describe(self, &code, packed) == 0;
    if (ok && self->codes[which].function != NULL) {
        free(code.described); /* `load` ran Python code: another thread was here meanwhile, and its map may be in use */
    } else if (ok) {
        code.function = (void *)(uintptr_t)function;
        code.encode = (EncodeFn)(uintptr_t)encode;
        Py_INCREF(code.fallback);
        self->codes[which] = code;
    }
    Py_DECREF(made);
    return ok ? 0 : -1;
}

/* The driver refused: the Python launcher tries again, knows what to set up, and words the error. */
static PyObject *refused(PyObject *fallback, unsigned programs, unsigned long long stream, const uint64_t *values,
                         Py_ssize_t count) {
    PyObject *args = PyTuple_New(count + 2);
    if (args == NULL) {
        return NULL;
    }
    PyTuple_SET_ITEM(args, 0, PyLong_FromUnsignedLong(programs));
    PyTuple_SET_ITEM(args, 1, PyLong_FromUnsignedLongLong(stream));
    for (Py_ssize_t i = 0; i < count; i++) {
        PyTuple_SET_ITEM(args, i + 2, PyLong_FromUnsignedLongLong(values[i]));
    }
    for (Py_ssize_t i = 0; i < count + 2; i++) {
        if (PyTuple_GET_ITEM(args, i) == NULL) {
            Py_DECREF(args);
            return NULL;
        }
    }
    PyObject *result = PyObject_Call(fallback, args, NULL);
    Py_DECREF(args);
    return result;
}

/* What a call's sizes allow a specialisation to rely on. */
static int chosen_by_sizes(const Launcher *self, const uint64_t *sizes, uint64_t extent) {
    int divide = self->divisible != 0;
    for (Py_ssize_t i = 0; i < self->sizes; i++) {
        divide &= !((self->divisible >> i) & 1) || sizes[i] % 16 == 0;
    }
    return (extent >= NARROW ? WIDE : 0) | (divide ? DIVISIBLE : 0);
}

/* Put a kernel into a stream; the driver's error number. */
static int enqueue(const Launcher *self, const Code *code, unsigned programs, unsigned long long stream, void **pointers) {
    if (self->early == NULL) {
        return self->launch(code->function, programs, 1, 1, code->threads, 1, 1, code->shared,
                            (void *)(uintptr_t)stream, pointers, NULL);
    }
    Attribute attribute = {.id = PROGRAMMATIC_STREAM_SERIALIZATION, .value = {.on = 1}};
    Config config = {{programs, 1, 1}, {code->threads, 1, 1}, code->shared, (void *)(uintptr_t)stream, &attribute, 1};
    return self->early(&config, code->function, pointers, NULL);
}

static PyObject *launcher_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    Launcher *self = (Launcher *)callable;
    Py_ssize_t count = self->arguments, given = PyVectorcall_NARGS(nargsf), wanted = count + (self->programs ? 0 : 2);
    if (given != wanted || (kwnames != NULL && PyTuple_GET_SIZE(kwnames) != 0)) {
        return PyErr_Format(PyExc_TypeError, "the kernel takes %zd arguments, got %zd", wanted, given);
    }
    uint64_t values[MAX_PARAMETERS + 2];
    void *pointers[MAX_PARAMETERS];
    for (Py_ssize_t i = 0; i < given; i++) {
        if (!PyLong_Check(args[i])) {
            return PyErr_Format(PyExc_TypeError, "argument %zd is no address and no size: %R", i, args[i]);
        }
        values[i] = PyLong_AsUnsignedLongLongMask(args[i]);
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    unsigned programs = self->programs;
    int which = 0;
    if (programs == 0) {
        if ((int64_t)values[count] < 1) {
            Py_RETURN_NONE;
        }
        programs = values[count] > UINT32_MAX ? UINT32_MAX : (unsigned)values[count]; /* the driver refuses that many */
        which = chosen_by_sizes(self, &values[count - self->sizes], values[count + 1]);
    }
    uint64_t together = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        together |= i < count - self->sizes ? values[i] : 0;
        pointers[i] = &values[i];
    }
    which |= (together & 15) == 0 ? ALIGNED : 0;
    if (self->codes[which].function == NULL && load_code(self, which) < 0) {
        return NULL;
    }
    PyObject *handle = PyObject_CallOneArg(self->stream, self->device);
    if (handle == NULL) {
        return NULL;
    }
    unsigned long long stream = PyLong_AsUnsignedLongLongMask(handle);
    Py_DECREF(handle);
    if (PyErr_Occurred()) {
        return NULL;
    }
    const Code *code = &self->codes[which];
    Py_ssize_t next = count;
    for (Py_ssize_t i = 0; i < code->count; i++) {
        Described *d = &code->described[i];
        if (encode(code, d, values[d->matrix.argument]) != 0) {
            return refused(code->fallback, programs, stream, values, count); /* it words the error */
        }
        /* The driver copies what these point to. */
        void *parts[MAP_PARAMETERS] = {d->map, &d->sizes[0], &d->sizes[1], &d->strides[0], &d->strides[1]};
        memcpy(&pointers[next], parts, sizeof(parts));
        next += MAP_PARAMETERS;
    }
    for (Py_ssize_t i = next; i < code->parameters; i++) {
        values[i] = 0; /* no scratch memory */
        pointers[i] = &values[i];
    }
    if (enqueue(self, code, programs, stream, pointers) != 0) {
        return refused(code->fallback, programs, stream, values, count);
    }
    Py_RETURN_NONE;
}

static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"launch", "stream", "device", "load", "arguments", "programs", "sizes", "divisible", "early", NULL};
    unsigned long long launch, divisible = 0, early = 0;
    PyObject *stream, *device, *load;
    Py_ssize_t arguments, sizes = 0;
    unsigned programs;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KOOOnI|nKK:Launcher", names, &launch, &stream, &device, &load,
                                     &arguments, &programs, &sizes, &divisible, &early)) {
        return NULL;
    }
    if (launch == 0 || arguments < 0 || sizes < 0 || sizes > MAX_SIZES || arguments + sizes > MAX_PARAMETERS ||
        (programs != 0 && sizes != 0)) {
        PyErr_SetString(PyExc_ValueError, "no function to launch with, too many arguments, or sizes beside a number of programs");
        return NULL;
    }
    Launcher *self = (Launcher *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = launcher_call;
    self->launch = (LaunchFn)(uintptr_t)launch;
    self->early = (LaunchExFn)(uintptr_t)early;
    self->stream = Py_NewRef(stream);
    self->device = Py_NewRef(device);
    self->load = Py_NewRef(load);
    self->arguments = arguments + sizes;
    self->sizes = sizes;
    self->programs = programs;
    self->divisible = divisible;
    return (PyObject *)self;
}

static int launcher_traverse(Launcher *self, visitproc visit, void *arg) {
    Py_VISIT(self->stream);
    Py_VISIT(self->device);
    Py_VISIT(self->load);
    for (int i = 0; i < CODES; i++) {
        Py_VISIT(self->codes[i].fallback);
    }
    return 0;
}

static int launcher_clear(Launcher *self) {
    Py_CLEAR(self->stream);
    Py_CLEAR(self->device);
    Py_CLEAR(self->load);
    for (int i = 0; i < CODES; i++) {
        Py_CLEAR(self->codes[i].fallback);
    }
    return 0;
}

static void launcher_dealloc(Launcher *self) {
    PyObject_GC_UnTrack(self);
    PyObject_ClearWeakRefs((PyObject *)self);
    launcher_clear(self);
    for (int i = 0; i < CODES; i++) {
        free(self->codes[i].described);
    }
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject LauncherType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "torchjit_inductor._c.Launcher",
    .tp_doc = PyDoc_STR("A kernel: call it with addresses; where sizes vary, also with sizes, how many programs run, and an extent."),
    .tp_basicsize = sizeof(Launcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = launcher_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Launcher, vectorcall),
    .tp_weaklistoffset = offsetof(Launcher, weak),
    .tp_traverse = (traverseproc)launcher_traverse,
    .tp_clear = (inquiry)launcher_clear,
    .tp_dealloc = (destructor)launcher_dealloc,
};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "torchjit_inductor._c", .m_size = -1};

PyMODINIT_FUNC PyInit__c(void) {
    if (PyType_Ready(&LauncherType) < 0) {
        return NULL;
    }
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && PyModule_AddObjectRef(made, "Launcher", (PyObject *)&LauncherType) < 0) {
        Py_CLEAR(made);
    }
    return made;
}

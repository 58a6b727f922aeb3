/* The Entry type. Its guard, target and unwrap never change, so an entry that is held can be used without a lock. */
#include "entry.h"

#include <stddef.h>
#include <structmember.h>

#include "hook.h"
#include "thread.h"

static int
find_program(Entry *self)
{
    PyObject *capsule = PyObject_GetAttrString(self->guard, "__torchjit_guard__");
    if (capsule == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        PyErr_Clear();
    }
    else if (PyCapsule_IsValid(capsule, TORCHJIT_GUARD_CAPSULE)) {
        const torchjit_guard_v1 *program = PyCapsule_GetPointer(capsule, TORCHJIT_GUARD_CAPSULE);
        if (program->abi == TORCHJIT_GUARD_ABI && program->check != NULL && program->ngathered >= 0) {
            self->capsule = capsule;
            self->program = program;
            return 0;
        }
        Py_DECREF(capsule);
    }
    else {
        Py_DECREF(capsule);
    }
    if (!PyCallable_Check(self->guard)) {
        PyErr_Format(PyExc_TypeError,
                     "the guard of an Entry must be callable or have a '" TORCHJIT_GUARD_CAPSULE
                     "' capsule as __torchjit_guard__, not '%.200s'",
                     Py_TYPE(self->guard)->tp_name);
        return -1;
    }
    return 0;
}

static PyObject *
entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"guard", "target", "unwrap", "data", "hook", "on_raise", NULL};
    PyObject *guard, *target, *data = Py_None, *hook = Py_None, *on_raise = Py_None;
    Py_ssize_t unwrap = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|nOOO:Entry", keywords, &guard, &target, &unwrap, &data, &hook,
                                     &on_raise)) {
        return NULL;
    }
    if (!PyCallable_Check(target)) {
        PyErr_Format(PyExc_TypeError, "the target of an Entry must be callable, not '%.200s'", Py_TYPE(target)->tp_name);
        return NULL;
    }
    if (unwrap < -1) {
        PyErr_Format(PyExc_ValueError, "unwrap is an item's index, or -1 for the whole result, not %zd", unwrap);
        return NULL;
    }
    if (hook != Py_None && !PyCallable_Check(hook)) {
        PyErr_Format(PyExc_TypeError, "the hook of an Entry must be callable or None, not '%.200s'", Py_TYPE(hook)->tp_name);
        return NULL;
    }
    if (on_raise != Py_None && !PyCallable_Check(on_raise)) {
        PyErr_Format(PyExc_TypeError, "the on_raise of an Entry must be callable or None, not '%.200s'",
                     Py_TYPE(on_raise)->tp_name);
        return NULL;
    }
    Entry *self = (Entry *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->guard = Py_NewRef(guard);
    self->target = Py_NewRef(target);
    self->data = Py_NewRef(data);
    self->on_raise = on_raise == Py_None ? NULL : Py_NewRef(on_raise);
    self->unwrap = unwrap;
    self->enabled = 1;
    self->scope = hook == Py_None ? NULL : hook_scope_of(hook);
    if ((hook != Py_None && self->scope == NULL) || find_program(self) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int
entry_traverse(Entry *self, visitproc visit, void *arg)
{
    Py_VISIT(self->guard);
    Py_VISIT(self->target);
    Py_VISIT(self->data);
    Py_VISIT(self->on_raise);
    Py_VISIT(self->capsule);
    Py_VISIT(self->scope);
    Py_VISIT(self->trial);
    Py_VISIT(self->sizes.object);
    Py_VISIT(self->sizes.capsule);
    return 0;
}

static int
entry_clear(Entry *self)
{
    self->program = NULL;
    Py_CLEAR(self->capsule);
    Py_CLEAR(self->guard);
    Py_CLEAR(self->target);
    Py_CLEAR(self->data);
    Py_CLEAR(self->on_raise);
    Py_CLEAR(self->scope);
    self->detour = self->original != 0;
    Py_CLEAR(self->trial);
    size_reader_clear(&self->sizes);
    return 0;
}

static void
entry_dealloc(Entry *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    entry_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
entry_repr(Entry *self)
{
    return PyUnicode_FromFormat("<Entry target=%R hits=%llu%s>", self->target, self->hits,
                                self->enabled ? "" : " disabled");
}

void
gathered_release(Gathered *gathered)
{
    if (gathered->tuple != NULL) {
        Py_DECREF(gathered->tuple);
        return;
    }
    for (Py_ssize_t i = 0; i < gathered->count; i++) {
        Py_DECREF(gathered->items[i]);
    }
    if (gathered->items != gathered->room + 1) {
        PyMem_Free(gathered->items - 1);
    }
}

static int
check_callable(Entry *entry, PyObject *const *slots, Py_ssize_t nslots, Gathered *gathered)
{
    FrameThread *thread = frame_thread();
    thread->hook_suspended++;
    PyObject *found = PyObject_Vectorcall(entry->guard, slots, (size_t)nslots, NULL);
    thread->hook_suspended--;
    if (found == NULL) {
        return -1;
    }
    if (found == Py_None) {
        Py_DECREF(found);
        return 0;
    }
    if (!PyTuple_Check(found)) {
        PyErr_Format(PyExc_TypeError, "a guard must return a tuple (hit) or None (miss), not '%.200s'",
                     Py_TYPE(found)->tp_name);
        Py_DECREF(found);
        return -1;
    }
    gathered->tuple = found;
    gathered->items = ((PyTupleObject *)found)->ob_item;
    gathered->count = PyTuple_GET_SIZE(found);
    return 1;
}

int
entry_check(Entry *entry, PyObject *const *slots, Py_ssize_t nslots, Gathered *gathered)
{
    const torchjit_guard_v1 *program = entry->program;
    if (program == NULL) {
        return check_callable(entry, slots, nslots, gathered);
    }
    PyObject **room = gathered->room;
    if (program->ngathered > GATHERED_INLINE) {
        room = PyMem_New(PyObject *, (size_t)program->ngathered + 1);
        if (room == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    FrameThread *thread = frame_thread();
    thread->hook_suspended++; /* some guards ask Python, and through it methods of the program's classes */
    int status = program->check(program->self, slots, nslots, room + 1);
    thread->hook_suspended--;
    if (status <= 0) {
        if (room != gathered->room) {
            PyMem_Free(room);
        }
        return status;
    }
    gathered->tuple = NULL;
    gathered->items = room + 1;
    gathered->count = program->ngathered;
    return 1;
}

static PyObject *
take_item(PyObject *result, Py_ssize_t index)
{
    PyObject *item = NULL;
    if (PyTuple_Check(result)) {
        if (index < PyTuple_GET_SIZE(result)) {
            item = PyTuple_GET_ITEM(result, index);
        }
    }
    else if (PyList_Check(result)) {
        if (index < PyList_GET_SIZE(result)) {
            item = PyList_GET_ITEM(result, index);
        }
    }
    else {
        PyErr_Format(PyExc_TypeError,
                     "a compiled graph must return a tuple or list, not '%.200s': a backend returns a function of the "
                     "graph's inputs that gives the sequence of its outputs",
                     Py_TYPE(result)->tp_name);
        Py_DECREF(result);
        return NULL;
    }
    if (item == NULL) {
        PyErr_Format(PyExc_IndexError, "the target of an Entry with unwrap=%zd returned only %zd items", index,
                     Py_SIZE(result));
        Py_DECREF(result);
        return NULL;
    }
    Py_INCREF(item);
    Py_DECREF(result);
    return item;
}

PyObject *
entry_call(Entry *entry, Gathered *gathered)
{
    entry->hits++;
    size_t nargsf = (size_t)gathered->count;
    if (gathered->tuple == NULL) {
        nargsf |= PY_VECTORCALL_ARGUMENTS_OFFSET; /* a tuple has no writable place before its items */
    }
    PyObject *result = call_vector(entry->target, gathered->items, nargsf, NULL);
    gathered_release(gathered);
    if (result != NULL && entry->unwrap >= 0) {
        return take_item(result, entry->unwrap);
    }
    return result;
}

static PyMemberDef entry_members[] = {
    {"guard", T_OBJECT, offsetof(Entry, guard), READONLY, "the test, and what it gathers"},
    {"target", T_OBJECT, offsetof(Entry, target), READONLY, "called with the gathered objects on a hit"},
    {"unwrap", T_PYSSIZET, offsetof(Entry, unwrap), READONLY, "the item of the target's result to return; -1: all of it"},
    {"data", T_OBJECT, offsetof(Entry, data), READONLY, "the maker's own object"},
    {"hits", T_ULONGLONG, offsetof(Entry, hits), READONLY, "calls that it served"},
    {"enabled", T_BOOL, offsetof(Entry, enabled), 0, "a disabled entry is passed over"},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *
entry_hook(Entry *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self->scope == NULL ? Py_None : hook_scope_callback(self->scope));
}

static PyObject *
entry_on_raise(Entry *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self->on_raise == NULL ? Py_None : self->on_raise);
}

static PyObject *
entry_trial(Entry *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self->trial == NULL ? Py_None : self->trial);
}

static int
entry_set_trial(Entry *self, PyObject *value, void *Py_UNUSED(closure))
{
    if (value != NULL && value != Py_None && !PyCallable_Check(value)) {
        PyErr_Format(PyExc_TypeError, "the trial of an Entry must be callable or None, not '%.200s'", Py_TYPE(value)->tp_name);
        return -1;
    }
    PyObject *trial = value == NULL || value == Py_None ? NULL : Py_NewRef(value);
    self->detour = trial != NULL || self->original != 0;
    Py_XSETREF(self->trial, trial);
    return 0;
}

static PyObject *
entry_runs_original(Entry *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(self->original != 0);
}

static int
entry_set_runs_original(Entry *self, PyObject *value, void *Py_UNUSED(closure))
{
    int truth = value == NULL ? 0 : PyObject_IsTrue(value);
    if (truth < 0) {
        return -1;
    }
    self->original = truth ? ~UINT64_C(0) : 0;
    self->detour = truth || self->trial != NULL;
    return 0;
}

static PyObject *
entry_sizes(Entry *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self->sizes.object == NULL ? Py_None : self->sizes.object);
}

static int
entry_set_sizes(Entry *self, PyObject *value, void *Py_UNUSED(closure))
{
    return size_reader_set(&self->sizes, value);
}

static PyObject *
entry_decide(Entry *self, PyObject *args)
{
    int class, original;
    if (!PyArg_ParseTuple(args, "ip:decide", &class, &original)) {
        return NULL;
    }
    if (class < 0 || class >= SIZE_CLASSES) {
        PyErr_Format(PyExc_ValueError, "there are %d classes of sizes, and no %d", SIZE_CLASSES, class);
        return NULL;
    }
    uint64_t bit = UINT64_C(1) << class;
    self->decided |= bit;
    self->original = original ? self->original | bit : self->original & ~bit;
    self->detour = self->trial != NULL || self->original != 0;
    Py_RETURN_NONE;
}

static PyMethodDef entry_methods[] = {
    {"decide", (PyCFunction)entry_decide, METH_VARARGS,
     "decide($self, size_class, runs_original, /)\n--\n\n"
     "Calls of a class of sizes run the original function, or the target, and the trial is not asked about them any more.\n\n"
     "Raises:\n    ValueError: there is no such class."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef entry_getset[] = {
    {"trial", (getter)entry_trial, (setter)entry_set_trial, "what is asked before each call, or None", NULL},
    {"runs_original", (getter)entry_runs_original, (setter)entry_set_runs_original,
     "whether the original function is called in place of the target, in some class of sizes at least; set for all", NULL},
    {"sizes", (getter)entry_sizes, (setter)entry_set_sizes,
     "a guard program that gathers the sizes that vary between calls, at most 16, or None", NULL},
    {"on_raise", (getter)entry_on_raise, NULL, "what is asked about an exception of the target, or None", NULL},
    {"hook", (getter)entry_hook, NULL, "what is asked about functions that the target calls, or None", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject Entry_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "torchjit_frame.Entry",
    .tp_doc = "Entry(guard, target, unwrap=-1, data=None, hook=None, on_raise=None)\n--\n\n"
              "One specialisation of a front door.\n\n"
              "`guard` is called with the slots and returns the gathered objects (a tuple), or None for a miss; a guard with a\n"
              "'torchjit.guard.v1' capsule as `__torchjit_guard__` is checked in C instead. `target(*gathered)` gives the result,\n"
              "or the sequence whose item `unwrap` is the result. With `hook` the target, and the tail calls that it leads to, run in a\n"
              "hook_scope of that callback.\n\n"
              "`on_raise(exception)` is asked when the target (not a tail call) raises. It returns the exception to raise, or a callable:\n"
              "then the original function is called with the arguments of the call, as if the target had not been, and the callable,\n"
              "without arguments, once that has returned. What either of the two raises reaches the caller. The original is no longer\n"
              "in the hook's scope, and the hook is suspended while it runs.\n\n"
              "While its attribute `runs_original` is true, calls that the guard holds for run the original function, with everything that\n"
              "is compiled inside of it eager, too. While `trial` is callable, `trial(entry, product)` says before each call what is to run: None for\n"
              "what runs anyway, or `(runs_original, done)`; then `done(result)` is called behind it, or `done()` if it has raised. The product is\n"
              "that of `sizes`, at most 2**63 - 1, and 0 where there are none; its number of bits is the call's class: see `decide`.\n\n"
              "Raises:\n    TypeError: the guard, the target, the hook or on_raise cannot be called.\n    ValueError: unwrap < -1.",
    .tp_basicsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = entry_new,
    .tp_dealloc = (destructor)entry_dealloc,
    .tp_traverse = (traverseproc)entry_traverse,
    .tp_clear = (inquiry)entry_clear,
    .tp_repr = (reprfunc)entry_repr,
    .tp_members = entry_members,
    .tp_methods = entry_methods,
    .tp_getset = entry_getset,
    .tp_weaklistoffset = offsetof(Entry, weakrefs),
};

/* The FrontDoor type: construction, attributes, methods. */
#include <stddef.h>

#include "door.h"
#include "entry.h"

#include <structmember.h>

/* As functools.WRAPPER_ASSIGNMENTS, of Python 3.12. */
static const char *const copied_names[] = {"__module__",      "__name__",        "__qualname__", "__doc__",
                                           "__annotations__", "__type_params__", NULL};

static int
copy_identity(FrontDoor *self)
{
    self->dict = PyDict_New();
    if (self->dict == NULL) {
        return -1;
    }
    PyObject *own = PyObject_GetAttrString(self->function, "__dict__");
    if (own == NULL) {
        PyErr_Clear(); /* a callable of a type with slots */
    }
    else {
        int status = PyDict_Check(own) && PyFunction_Check(self->function) ? PyDict_Update(self->dict, own) : 0;
        Py_DECREF(own);
        if (status < 0) {
            return -1;
        }
    }
    for (const char *const *name = copied_names; *name != NULL; name++) {
        PyObject *value = PyObject_GetAttrString(self->function, *name);
        if (value == NULL) {
            if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
                return -1;
            }
            PyErr_Clear();
            continue;
        }
        int status = PyDict_SetItemString(self->dict, *name, value);
        Py_DECREF(value);
        if (status < 0) {
            return -1;
        }
    }
    return 0;
}

static int
describe_slots(FrontDoor *self, PyObject *slots)
{
    self->positional_only_call = 1;
    if (slots != Py_None) {
        self->nslots = PyNumber_AsSsize_t(slots, PyExc_OverflowError);
        if (self->nslots == -1 && PyErr_Occurred()) {
            return -1;
        }
        if (self->nslots < 0) {
            PyErr_Format(PyExc_ValueError, "slots must be at least 0, not %zd", self->nslots);
            return -1;
        }
        return 0;
    }
    if (!PyFunction_Check(self->function)) {
        PyErr_Format(PyExc_TypeError, "FrontDoor needs a Python function (or slots=n), not '%.200s'",
                     Py_TYPE(self->function)->tp_name);
        return -1;
    }
    self->code = (PyCodeObject *)Py_NewRef(PyFunction_GET_CODE(self->function));
    signature_of_code(self->code, &self->signature);
    self->nslots = signature_slots(&self->signature);
    self->positional_only_call = self->nslots == self->signature.positional;
    return 0;
}

static int
describe_forwarding(FrontDoor *self, PyObject *forwards)
{
    const Signature *signature = &self->signature;
    if (forwards != Py_None &&
        (self->code == NULL || signature_named(signature) != 1 || !signature->star || !signature->double_star ||
         PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(signature->names, 0), "self") != 0)) {
        PyErr_SetString(PyExc_TypeError, "a FrontDoor that forwards has a function of (self, *args, **kwargs)");
        return -1;
    }
    return forwarding_init(&self->forwards, forwards);
}

static PyObject *
door_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", "on_miss", "slots", "forwards", "leave", "thrown", NULL};
    PyObject *function, *on_miss, *slots = Py_None, *forwards = Py_None, *leave = Py_None;
    int thrown = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$OOOp:FrontDoor", keywords, &function, &on_miss, &slots, &forwards,
                                     &leave, &thrown)) {
        return NULL;
    }
    if (leave != Py_None && (slots == Py_None || !PyCallable_Check(leave))) {
        PyErr_SetString(PyExc_TypeError, "the leave of a FrontDoor is callable, and needs slots=n");
        return NULL;
    }
    if (!PyCallable_Check(function) || !PyCallable_Check(on_miss)) {
        PyErr_Format(PyExc_TypeError, "%s of a FrontDoor must be callable, not '%.200s'",
                     PyCallable_Check(function) ? "on_miss" : "function",
                     Py_TYPE(PyCallable_Check(function) ? on_miss : function)->tp_name);
        return NULL;
    }
    FrontDoor *self = (FrontDoor *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = door_vectorcall;
    self->function = Py_NewRef(function);
    self->on_miss = Py_NewRef(on_miss);
    self->leave = leave == Py_None ? NULL : Py_NewRef(leave);
    self->thrown = (char)thrown;
    self->entries = PyTuple_New(0);
    if (self->entries == NULL || compile_lock_init(&self->lock) < 0 || describe_slots(self, slots) < 0 ||
        describe_forwarding(self, forwards) < 0 || copy_identity(self) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int
door_traverse(FrontDoor *self, visitproc visit, void *arg)
{
    Py_VISIT(self->function);
    Py_VISIT(self->entries);
    Py_VISIT(self->on_miss);
    Py_VISIT(self->leave);
    Py_VISIT(self->dict);
    return forwarding_traverse(&self->forwards, visit, arg);
}

static int
door_tp_clear(FrontDoor *self)
{
    /* A finalizer in the same garbage may still call the door: it finds a plain callable that knows nothing. */
    PyObject *empty = PyTuple_New(0);
    if (empty != NULL) {
        Py_SETREF(self->entries, empty);
    }
    Py_CLEAR(self->dict);
    return 0;
}

static void
door_dealloc(FrontDoor *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    Py_CLEAR(self->entries);
    Py_CLEAR(self->on_miss);
    Py_CLEAR(self->leave);
    Py_CLEAR(self->dict);
    Py_CLEAR(self->code);
    Py_CLEAR(self->function);
    forwarding_clear(&self->forwards);
    compile_lock_destroy(&self->lock);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
door_get(PyObject *self, PyObject *object, PyObject *Py_UNUSED(type))
{
    if (object == NULL || object == Py_None) {
        return Py_NewRef(self);
    }
    return PyMethod_New(self, object);
}

static PyObject *
door_repr(FrontDoor *self)
{
    PyObject *name = self->dict == NULL ? NULL : PyDict_GetItemString(self->dict, "__qualname__");
    Py_ssize_t count = PyTuple_GET_SIZE(self->entries);
    return PyUnicode_FromFormat("<FrontDoor %S at %p, %zd %s>", name == NULL ? self->function : name, (void *)self, count,
                                count == 1 ? "entry" : "entries");
}

static PyObject *
door_entries(FrontDoor *self, PyObject *Py_UNUSED(unused))
{
    return Py_NewRef(self->entries);
}

static PyObject *
none_unless(int failed)
{
    if (failed) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
door_append_method(FrontDoor *self, PyObject *entry)
{
    if (!Entry_Check(entry)) {
        PyErr_Format(PyExc_TypeError, "a front door holds Entry objects, not '%.200s'", Py_TYPE(entry)->tp_name);
        return NULL;
    }
    return none_unless(door_append(self, entry) < 0);
}

static PyObject *
door_remove_method(FrontDoor *self, PyObject *entry)
{
    return none_unless(door_remove(self, entry) < 0);
}

static PyObject *
door_clear_method(FrontDoor *self, PyObject *Py_UNUSED(unused))
{
    return none_unless(door_clear_entries(self) < 0);
}

static PyObject *
bind_vector(FrontDoor *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    Bound bound;
    PyObject *result = NULL;
    int status = door_bind(self, &bound, args, nargs, kwnames);
    if (status > 0) {
        result = PyTuple_New(bound.count);
        for (Py_ssize_t i = 0; result != NULL && i < bound.count; i++) {
            PyTuple_SET_ITEM(result, i, Py_NewRef(bound.slots[i]));
        }
    }
    else if (status == 0) {
        PyErr_Format(PyExc_TypeError, "the arguments do not fit %R", (PyObject *)self);
    }
    bound_release(&bound);
    return result;
}

static PyObject *
door_bind_method(FrontDoor *self, PyObject *args)
{
    PyObject *positional, *keywords = Py_None;
    if (!PyArg_ParseTuple(args, "O!|O:bind", &PyTuple_Type, &positional, &keywords)) {
        return NULL;
    }
    if (keywords != Py_None && !PyDict_Check(keywords)) {
        PyErr_SetString(PyExc_TypeError, "bind takes a tuple of arguments and a dict of keyword arguments (or None)");
        return NULL;
    }
    Py_ssize_t nargs = PyTuple_GET_SIZE(positional);
    Py_ssize_t nkeywords = keywords == Py_None ? 0 : PyDict_GET_SIZE(keywords);
    PyObject **stack = PyMem_New(PyObject *, (size_t)(nargs + nkeywords + 1));
    PyObject *kwnames = PyTuple_New(nkeywords);
    if (stack == NULL || kwnames == NULL) {
        PyMem_Free(stack);
        Py_XDECREF(kwnames);
        return PyErr_NoMemory();
    }
    Py_ssize_t position = 0, count = 0;
    PyObject *key, *value;
    for (; count < nargs; count++) {
        stack[count] = PyTuple_GET_ITEM(positional, count);
    }
    while (nkeywords != 0 && PyDict_Next(keywords, &position, &key, &value)) {
        PyTuple_SET_ITEM(kwnames, count - nargs, Py_NewRef(key));
        stack[count++] = value;
    }
    PyObject *result = bind_vector(self, stack, nargs, kwnames);
    PyMem_Free(stack);
    Py_DECREF(kwnames);
    return result;
}

static PyObject *
door_fallback(FrontDoor *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    Invocation call = {FROM_CALL, args, (size_t)nargs, kwnames, NULL, NULL, 0, 0};
    return door_run_original(self, &call);
}

static PyObject *
door_reduce(FrontDoor *self, PyObject *Py_UNUSED(unused))
{
    return PyObject_GetAttrString((PyObject *)self, "__qualname__");
}

static PyObject *
door_copy(PyObject *self, PyObject *Py_UNUSED(memo))
{
    return Py_NewRef(self);
}

static PyObject *
door_slot_names(FrontDoor *self, void *Py_UNUSED(closure))
{
    if (self->code == NULL) {
        Py_RETURN_NONE;
    }
    return PyTuple_GetSlice(self->code->co_localsplusnames, 0, self->nslots);
}

/* What makes `inspect` take a door for the function that it stands for: is it a coroutine function, which defaults has it? */
static PyObject *
door_of_function(FrontDoor *self, void *name)
{
    return PyObject_GetAttrString(self->function, name);
}

static int
door_set_of_function(FrontDoor *self, PyObject *value, void *name)
{
    return PyObject_SetAttrString(self->function, name, value);
}

static PyMethodDef door_methods[] = {
    {"entries", (PyCFunction)door_entries, METH_NOARGS, "entries()\n--\n\nThe entries, in the order in which they are tried."},
    {"append", (PyCFunction)door_append_method, METH_O,
     "append(entry)\n--\n\nAdd an entry behind the others; one that is there already stays where it is."},
    {"remove", (PyCFunction)door_remove_method, METH_O,
     "remove(entry)\n--\n\nTake an entry out; calls that are inside it finish.\n\nRaises:\n    ValueError: it is not there."},
    {"clear", (PyCFunction)door_clear_method, METH_NOARGS, "clear()\n--\n\nTake every entry out."},
    {"bind", (PyCFunction)door_bind_method, METH_VARARGS,
     "bind(args, kwargs=None)\n--\n\nThe slots of a call with these arguments.\n\nRaises:\n    TypeError: they do not fit."},
    {"fallback", (PyCFunction)(void (*)(void))door_fallback, METH_FASTCALL | METH_KEYWORDS,
     "fallback($self, /, *args, **kwargs)\n--\n\nCall the original function, whatever the entries say."},
    {"enter", (PyCFunction)(void (*)(void))door_enter, METH_FASTCALL,
     "enter($self, /, *slots)\n--\n\nThe call with the slots already bound, *args and **kwargs as a tuple and a dict."},
    {"__reduce__", (PyCFunction)door_reduce, METH_NOARGS, "Pickle by name, as functions are."},
    {"__copy__", door_copy, METH_NOARGS, "The door itself, as functions are copied."},
    {"__deepcopy__", door_copy, METH_O, "The door itself, as functions are copied."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef door_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(FrontDoor, function), READONLY, "the original function"},
    {"on_miss", T_OBJECT, offsetof(FrontDoor, on_miss), READONLY, "called as on_miss(door, slots) when no entry fits"},
    {"nslots", T_PYSSIZET, offsetof(FrontDoor, nslots), READONLY, "number of slots"},
    {"sealed", T_BOOL, offsetof(FrontDoor, sealed), 0, "true: a miss runs the original without asking on_miss"},
    {"misses", T_ULONGLONG, offsetof(FrontDoor, misses), READONLY, "how often on_miss was called"},
    {"stale_entries", T_ULONGLONG, offsetof(FrontDoor, stale_entries), READONLY,
     "how often on_miss returned an entry whose guard did not hold for the very call"},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef door_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"__code__", (getter)door_of_function, NULL, "the original function's", "__code__"},
    {"__defaults__", (getter)door_of_function, (setter)door_set_of_function, "the original function's", "__defaults__"},
    {"__kwdefaults__", (getter)door_of_function, (setter)door_set_of_function, "the original function's",
     "__kwdefaults__"},
    {"slot_names", (getter)door_slot_names, NULL, "the local variables that the slots are; None if slots=n", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject FrontDoor_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "torchjit_frame.FrontDoor",
    .tp_doc = "FrontDoor(function, on_miss, *, slots=None, forwards=None, leave=None, thrown=False)\n--\n\n"
              "Called in place of `function`; binds the arguments to slots and calls the first entry whose guard holds.\n\n"
              "When none does, `on_miss(door, slots)` makes an Entry or returns None, one thread at a time; without an entry the\n"
              "function itself is called with the arguments as they came. With `slots=n` the arguments are the n slots, and\n"
              "`function` is any callable that takes them.\n\n"
              "With `forwards=(method, observers, all_observers)` the function is `f(self, *args, **kwargs)` and passes its\n"
              "arguments on to `self.method`: calls that bind alike there have the same slots, however they are spelled, unless\n"
              "one of the dicts is not empty that are in `all_observers` or the instance's attributes `observers`.\n\n"
              "A door with slots may stand for the rest of code that has begun, in the middle of `try` and `with` blocks. Whatever is\n"
              "raised before anything of that rest has happened is given to `leave(*slots, exception)` (`thrown`: in place of the last slot),\n"
              "which runs these blocks and gives the result of the call: by a guard, on_miss, an entry's target up to the end of its\n"
              "graph (it has no local variable `graph_is_over`), or `function` itself, which then gives no result but a TailCall.\n"
              "An on_miss that returns an exception has seen to that itself; the exception is raised.\n\n"
              "Raises:\n    TypeError: something is not callable, `function` is not a Python function, or there is a leave, and slots is\n"
              "        None, or the function is not of (self, *args, **kwargs) and forwards.\n"
              "    ValueError: slots < 0.",
    .tp_basicsize = sizeof(FrontDoor),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
                Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = door_new,
    .tp_dealloc = (destructor)door_dealloc,
    .tp_traverse = (traverseproc)door_traverse,
    .tp_clear = (inquiry)door_tp_clear,
    .tp_repr = (reprfunc)door_repr,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(FrontDoor, vectorcall),
    .tp_descr_get = door_get,
    .tp_methods = door_methods,
    .tp_members = door_members,
    .tp_getset = door_getset,
    .tp_dictoffset = offsetof(FrontDoor, dict),
    .tp_weaklistoffset = offsetof(FrontDoor, weakrefs),
};

/* The TailCall type. It is made once per graph break and call, so it is small and its constructor is a vectorcall. */
#include "tail_call.h"

#include <stddef.h>
#include <structmember.h>

static PyObject *
tail_call_vectorcall(PyObject *Py_UNUSED(type), PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    if (nargs == 0 || (kwnames != NULL && PyTuple_GET_SIZE(kwnames) != 0)) {
        PyErr_SetString(PyExc_TypeError, "TailCall takes a callable and its positional arguments");
        return NULL;
    }
    if (!PyCallable_Check(args[0]) && !(nargs == 1 && PyExceptionInstance_Check(args[0]))) {
        PyErr_Format(PyExc_TypeError, "a TailCall needs a callable, or an exception alone, not '%.200s'", Py_TYPE(args[0])->tp_name);
        return NULL;
    }
    PyObject *rest = PyTuple_New(nargs - 1);
    if (rest == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 1; i < nargs; i++) {
        PyTuple_SET_ITEM(rest, i - 1, Py_NewRef(args[i]));
    }
    TailCall *self = PyObject_GC_New(TailCall, &TailCall_Type);
    if (self == NULL) {
        Py_DECREF(rest);
        return NULL;
    }
    self->callable = Py_NewRef(args[0]);
    self->args = rest;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static PyObject *
tail_call_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs) != 0) {
        PyErr_SetString(PyExc_TypeError, "TailCall takes no keyword arguments");
        return NULL;
    }
    return tail_call_vectorcall((PyObject *)type, ((PyTupleObject *)args)->ob_item, (size_t)PyTuple_GET_SIZE(args), NULL);
}

static int
tail_call_traverse(TailCall *self, visitproc visit, void *arg)
{
    Py_VISIT(self->callable);
    Py_VISIT(self->args);
    return 0;
}

static int
tail_call_clear(TailCall *self)
{
    Py_CLEAR(self->callable);
    Py_CLEAR(self->args);
    return 0;
}

static void
tail_call_dealloc(TailCall *self)
{
    PyObject_GC_UnTrack(self);
    tail_call_clear(self);
    PyObject_GC_Del(self);
}

static PyMemberDef tail_call_members[] = {
    {"callable", T_OBJECT, offsetof(TailCall, callable), READONLY, "what is called, or the exception that is raised"},
    {"args", T_OBJECT, offsetof(TailCall, args), READONLY, "its arguments"},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject TailCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "torchjit_frame.TailCall",
    .tp_doc = "TailCall(callable, /, *args)\n--\n\n"
              "Returned by the target of an Entry in place of a result: the front door then calls `callable(*args)`, after the\n"
              "target's frame has ended and in the same hook scope, and gives what that returns; `TailCall(exception)` raises it with\n"
              "the traceback that it has. So the rest of a function runs at\n"
              "the depth of the stack at which plain Python runs it, and a loop of them needs no more stack than one.\n\n"
              "Raises:\n    TypeError: there is no callable, or there are keyword arguments.",
    .tp_basicsize = sizeof(TailCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = tail_call_new,
    .tp_vectorcall = tail_call_vectorcall,
    .tp_dealloc = (destructor)tail_call_dealloc,
    .tp_traverse = (traverseproc)tail_call_traverse,
    .tp_clear = (inquiry)tail_call_clear,
    .tp_members = tail_call_members,
};

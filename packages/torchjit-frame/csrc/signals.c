/* Handlers of signals while our own code runs; and calls that the hook lets be.
 *
 * HeardHandler stands in for a handler. It is in C, since a handler in Python is itself interrupted by the signal that it puts off. */
#include "signals.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

#include "entry.h"
#include "thread.h"

/* Seconds: a signal is not put off for ever. */
#define LONGEST_DELAY 60

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *handler;
    PyObject *raised;   /* a list */
    PyObject *names; /* a frozenset of names of functions */
    PyObject *folder; /* the start of the names of files */
    PyObject *until; /* code, of the outermost frame that is looked at */
    time_t first; /* when the signal was put off, or 0 */
} HeardHandler;

/* Does a frame belong to the import system? A module whose import ends behind its last line is taken out of sys.modules again,
 * and what it has registered with others makes each later import of it fail. */
static int
is_import(PyCodeObject *code)
{
    static const char start[] = "<frozen importlib";
    Py_ssize_t size;
    const char *name = PyUnicode_AsUTF8AndSize(code->co_filename, &size);
    if (name == NULL) {
        PyErr_Clear();
        return 0;
    }
    return size >= (Py_ssize_t)sizeof(start) - 1 && memcmp(name, start, sizeof(start) - 1) == 0;
}

/* Is a function active, in which an exception from nowhere does damage? */
static int
must_wait(HeardHandler *self, PyObject *start)
{
    if (!PyFrame_Check(start) || (self->first != 0 && time(NULL) - self->first > LONGEST_DELAY)) {
        return 0;
    }
    int found = 0;
    PyFrameObject *frame = (PyFrameObject *)Py_NewRef(start);
    while (frame != NULL && found == 0) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        int last = (PyObject *)code == self->until;
        if (!last) {
            found = PySet_Contains(self->names, code->co_name);
            if (found == 0) {
                found = (int)PyUnicode_Tailmatch(code->co_filename, self->folder, 0, PY_SSIZE_T_MAX, -1);
            }
            if (found == 0) {
                found = is_import(code);
            }
        }
        Py_DECREF(code);
        PyFrameObject *back = last ? NULL : PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    return found;
}

static PyObject *
heard_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    HeardHandler *self = (HeardHandler *)op;
    if (PyVectorcall_NARGS(nargsf) == 2) {
        int wait = must_wait(self, args[1]);
        if (wait < 0) {
            PyErr_Clear();
        }
        long number = wait > 0 ? PyLong_AsLong(args[0]) : -1;
        if (number > 0) {
            if (self->first == 0) {
                self->first = time(NULL);
            }
            PyErr_SetInterruptEx((int)number); /* the next check calls the handler again */
            Py_RETURN_NONE;
        }
        PyErr_Clear();
    }
    self->first = 0;
    PyObject *result = PyObject_Vectorcall(self->handler, args, nargsf, kwnames);
    if (result != NULL) {
        return result;
    }
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(error, traceback);
    }
    if (PyList_Append(self->raised, error) < 0) {
        PyErr_Clear();
    }
    PyErr_Restore(type, error, traceback);
    return NULL;
}

static PyObject *
heard_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"handler", "raised", "names", "folder", "until", NULL};
    PyObject *handler, *raised, *names, *folder, *until;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O!UO:HeardHandler", keywords, &handler, &PyList_Type, &raised,
                                     &PyFrozenSet_Type, &names, &folder, &until)) {
        return NULL;
    }
    HeardHandler *self = (HeardHandler *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = heard_vectorcall;
        self->handler = Py_NewRef(handler);
        self->raised = Py_NewRef(raised);
        self->names = Py_NewRef(names);
        self->folder = Py_NewRef(folder);
        self->until = Py_NewRef(until);
    }
    return (PyObject *)self;
}

static int
heard_traverse(HeardHandler *self, visitproc visit, void *arg)
{
    Py_VISIT(self->handler);
    Py_VISIT(self->raised);
    Py_VISIT(self->until);
    return 0;
}

static int
heard_clear(HeardHandler *self)
{
    Py_CLEAR(self->handler);
    Py_CLEAR(self->raised);
    Py_CLEAR(self->names);
    Py_CLEAR(self->folder);
    Py_CLEAR(self->until);
    return 0;
}

static void
heard_dealloc(HeardHandler *self)
{
    PyObject_GC_UnTrack(self);
    heard_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef heard_members[] = {
    {"handler", T_OBJECT, offsetof(HeardHandler, handler), READONLY, "the handler that this one stands in for"},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject HeardHandler_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "torchjit_frame.HeardHandler",
    .tp_doc = "HeardHandler(handler, raised, names, folder, until)\n--\n\n"
              "A handler of a signal, for `signal.signal`: calls `handler(number, frame)` and adds what that raises to the list `raised`.\n"
              "While a function is active whose name is in the frozenset `names`, or the name of whose file starts with `folder`, the\n"
              "signal is put off, for a minute at most: the interpreter calls whatever handler there is at its next check for signals.\n"
              "Frames from that of the code `until` outwards do not count.",
    .tp_basicsize = sizeof(HeardHandler),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = heard_new,
    .tp_dealloc = (destructor)heard_dealloc,
    .tp_traverse = (traverseproc)heard_traverse,
    .tp_clear = (inquiry)heard_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(HeardHandler, vectorcall),
    .tp_members = heard_members,
};

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *target;
} Unhooked;

static PyObject *
unhooked_vectorcall(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    FrameThread *thread = frame_thread();
    thread->hook_suspended++;
    PyObject *result = call_vector(((Unhooked *)op)->target, args, nargsf, kwnames);
    thread->hook_suspended--;
    return result;
}

static PyObject *
unhooked_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"target", NULL};
    PyObject *target;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:unhooked", keywords, &target)) {
        return NULL;
    }
    Unhooked *self = (Unhooked *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = unhooked_vectorcall;
        self->target = Py_NewRef(target);
    }
    return (PyObject *)self;
}

static int
unhooked_traverse(Unhooked *self, visitproc visit, void *arg)
{
    Py_VISIT(self->target);
    return 0;
}

static int
unhooked_clear(Unhooked *self)
{
    Py_CLEAR(self->target);
    return 0;
}

static void
unhooked_dealloc(Unhooked *self)
{
    PyObject_GC_UnTrack(self);
    unhooked_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef unhooked_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(Unhooked, target), READONLY, "what is called"},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject Unhooked_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "torchjit_frame.unhooked",
    .tp_doc = "unhooked(target)\n--\n\nCalls `target`, with the frame hook suspended in this thread meanwhile.",
    .tp_basicsize = sizeof(Unhooked),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_new = unhooked_new,
    .tp_dealloc = (destructor)unhooked_dealloc,
    .tp_traverse = (traverseproc)unhooked_traverse,
    .tp_clear = (inquiry)unhooked_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Unhooked, vectorcall),
    .tp_members = unhooked_members,
};

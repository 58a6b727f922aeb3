/* Calls that end in a method of their first argument, as those of nn.Module do in `forward`. */
#include "forwarding.h"

#include <string.h>

/* Methods with more parameters keep their spellings. */
#define MOST_PARAMETERS 64

static int
all_instances(PyObject *tuple, PyTypeObject *type)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        if (!PyObject_TypeCheck(PyTuple_GET_ITEM(tuple, i), type)) {
            PyErr_Format(PyExc_TypeError, "forwards: want '%.100s', not '%.100s'", type->tp_name,
                         Py_TYPE(PyTuple_GET_ITEM(tuple, i))->tp_name);
            return 0;
        }
    }
    return 1;
}

int
forwarding_init(Forwarding *self, PyObject *description)
{
    if (description == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(description)) {
        PyErr_SetString(PyExc_TypeError, "forwards is None or (method, observers, all_observers)");
        return -1;
    }
    PyObject *method, *observers, *all_observers;
    if (!PyArg_ParseTuple(description, "UO!O!;forwards is None or (method, observers, all_observers)", &method,
                          &PyTuple_Type, &observers, &PyTuple_Type, &all_observers) ||
        !all_instances(observers, &PyUnicode_Type) || !all_instances(all_observers, &PyDict_Type)) {
        return -1;
    }
    self->method = Py_NewRef(method);
    self->observers = Py_NewRef(observers);
    self->all_observers = Py_NewRef(all_observers);
    return 0;
}

int
forwarding_traverse(Forwarding *self, visitproc visit, void *arg)
{
    Py_VISIT(self->observers);
    Py_VISIT(self->all_observers);
    return 0;
}

void
forwarding_clear(Forwarding *self)
{
    Py_CLEAR(self->method);
    Py_CLEAR(self->observers);
    Py_CLEAR(self->all_observers);
}

/* Does `object.name` look into the class and the instance, as nobody has told otherwise? -1: an exception is set. */
static int
looks_up_plainly(PyTypeObject *type)
{
    PyObject *name = PyUnicode_InternFromString("__getattribute__");
    if (name == NULL) {
        return -1;
    }
    int plainly = _PyType_Lookup(type, name) == _PyType_Lookup(&PyBaseObject_Type, name);
    Py_DECREF(name);
    return plainly;
}

/* `*found` is the function that the class has under the method's name, borrowed, or NULL. */
static int
find_target(Forwarding *self, PyTypeObject *type, PyFunctionObject **found)
{
    if (type != self->type || type->tp_version_tag != self->version || self->version == 0) {
        int plainly = looks_up_plainly(type);
        if (plainly < 0) {
            return -1;
        }
        PyObject *target = plainly ? _PyType_Lookup(type, self->method) : NULL;
        self->target = target != NULL && PyFunction_Check(target) ? (PyFunctionObject *)target : NULL;
        self->type = type;
        self->version = type->tp_version_tag; /* given by the lookup if the type had none */
    }
    *found = self->target;
    return 0;
}

/* The default of a parameter, borrowed, or NULL. */
static PyObject *
default_of(const Signature *signature, PyFunctionObject *function, Py_ssize_t parameter)
{
    if (parameter >= signature->positional) {
        PyObject *defaults = function->func_kwdefaults;
        return defaults == NULL ? NULL : PyDict_GetItemWithError(defaults, PyTuple_GET_ITEM(signature->names, parameter));
    }
    PyObject *defaults = function->func_defaults;
    Py_ssize_t count = defaults == NULL ? 0 : PyTuple_GET_SIZE(defaults);
    Py_ssize_t from_end = signature->positional - parameter;
    return from_end > count ? NULL : PyTuple_GET_ITEM(defaults, count - from_end);
}

/* Can nobody tell the two apart? No code of the program is asked; numbers and texts are the only ones compared by value. */
static int
is_default(PyObject *given, PyObject *preset)
{
    if (given == preset || preset == NULL) {
        return given == preset;
    }
    if (!Py_IS_TYPE(given, Py_TYPE(preset))) {
        return 0;
    }
    if (PyFloat_CheckExact(given)) {
        return memcmp(&((PyFloatObject *)given)->ob_fval, &((PyFloatObject *)preset)->ob_fval, sizeof(double)) == 0;
    }
    if (PyLong_CheckExact(given) || PyUnicode_CheckExact(given)) {
        return PyObject_RichCompareBool(given, preset, Py_EQ) == 1; /* of these types it cannot fail */
    }
    return 0;
}

/* Does anything see how the call is spelled, or has the instance a method of its own? -1: an exception is set. */
static int
is_observed(Forwarding *self, PyObject *object)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->all_observers); i++) {
        if (PyDict_GET_SIZE(PyTuple_GET_ITEM(self->all_observers, i)) != 0) {
            return 1;
        }
    }
    PyObject *dict = PyObject_GenericGetDict(object, NULL);
    if (dict == NULL) {
        return -1;
    }
    int observed = PyDict_Contains(dict, self->method);
    for (Py_ssize_t i = 0; observed == 0 && i < PyTuple_GET_SIZE(self->observers); i++) {
        PyObject *value = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(self->observers, i));
        if (value == NULL) {
            observed = PyErr_Occurred() ? -1 : 1;
        }
        else {
            observed = !PyDict_Check(value) || PyDict_GET_SIZE(value) != 0;
        }
    }
    Py_DECREF(dict);
    return observed;
}

/* The parameter that a keyword names, or -1. */
static Py_ssize_t
parameter_named(const Signature *signature, PyObject *keyword)
{
    for (Py_ssize_t i = signature->positional_only; i < signature_named(signature); i++) {
        PyObject *name = PyTuple_GET_ITEM(signature->names, i);
        if (name == keyword || PyUnicode_Compare(name, keyword) == 0) {
            return i;
        }
    }
    return -1;
}

/* What a call gives to the method. Everything is borrowed. */
typedef struct {
    PyObject *const *args;
    Py_ssize_t nargs;
    PyObject *kwnames;
    Py_ssize_t extra;                 /* keywords that are none of the method's parameters */
    PyObject *given[MOST_PARAMETERS]; /* NULL: the default */
} Given;

/* 1; 0: the arguments do not fit. */
static int
sort_arguments(const Signature *signature, Given *call)
{
    Py_ssize_t named = signature_named(signature);
    for (Py_ssize_t i = 0; i < named; i++) {
        call->given[i] = i < call->nargs && i < signature->positional ? call->args[i] : NULL;
    }
    Py_ssize_t count = call->kwnames == NULL ? 0 : PyTuple_GET_SIZE(call->kwnames);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *keyword = PyTuple_GET_ITEM(call->kwnames, i);
        if (!PyUnicode_CheckExact(keyword)) {
            return 0; /* a subclass may compare in Python code of its own */
        }
        Py_ssize_t at = parameter_named(signature, keyword);
        /* `self` is what the function itself calls its first argument. The method's first one is given already. */
        if (at != 0 && PyUnicode_CompareWithASCIIString(keyword, "self") == 0) {
            return 0;
        }
        if (at < 0) {
            call->extra++;
        }
        else if (call->given[at] != NULL) {
            return 0;
        }
        else {
            call->given[at] = call->args[call->nargs + i];
        }
    }
    return call->extra == 0 || signature->double_star;
}

/* The positional arguments behind self, a new reference. */
static PyObject *
positional_of(const Signature *signature, PyFunctionObject *target, const Given *call)
{
    Py_ssize_t count = call->nargs;
    if (count <= signature->positional) {
        count = signature->positional;
        while (count > 1 && (call->given[count - 1] == NULL ||
                             is_default(call->given[count - 1], default_of(signature, target, count - 1)))) {
            count--;
        }
    }
    PyObject *tuple = PyTuple_New(count - 1);
    for (Py_ssize_t i = 1; tuple != NULL && i < count; i++) {
        PyObject *value = i >= signature->positional ? call->args[i] : call->given[i];
        PyTuple_SET_ITEM(tuple, i - 1, Py_NewRef(value != NULL ? value : default_of(signature, target, i)));
    }
    return tuple;
}

/* The keyword arguments, a new reference: the method's own, then what its **kwargs takes. */
static PyObject *
keywords_of(const Signature *signature, PyFunctionObject *target, const Given *call)
{
    PyObject *dict = PyDict_New();
    int failed = dict == NULL;
    for (Py_ssize_t i = signature->positional; !failed && i < signature_named(signature); i++) {
        if (call->given[i] != NULL && !is_default(call->given[i], default_of(signature, target, i))) {
            failed = PyDict_SetItem(dict, PyTuple_GET_ITEM(signature->names, i), call->given[i]) < 0;
        }
    }
    for (Py_ssize_t i = 0; !failed && call->extra != 0 && i < PyTuple_GET_SIZE(call->kwnames); i++) {
        PyObject *keyword = PyTuple_GET_ITEM(call->kwnames, i);
        if (parameter_named(signature, keyword) < 0) {
            failed = PyDict_SetItem(dict, keyword, call->args[call->nargs + i]) < 0;
        }
    }
    if (failed) {
        Py_CLEAR(dict);
    }
    return dict;
}

static int
is_complete(const Signature *signature, PyFunctionObject *target, PyObject *const *given)
{
    for (Py_ssize_t i = 0; i < signature_named(signature); i++) {
        if (given[i] == NULL && default_of(signature, target, i) == NULL) {
            return 0;
        }
    }
    return 1;
}

/* Are all keywords for **kwargs, and is nothing at the end a default? */
static int
is_spelled_so(const Signature *signature, PyFunctionObject *target, const Given *call)
{
    Py_ssize_t last = call->nargs - 1;
    Py_ssize_t keywords = call->kwnames == NULL ? 0 : PyTuple_GET_SIZE(call->kwnames);
    return call->extra == keywords &&
           (last >= signature->positional || !is_default(call->args[last], default_of(signature, target, last)));
}

static Py_NO_INLINE int
spell_anew(Forwarding *self, const Signature *signature, PyFunctionObject *target, Given *call, PyObject **slots)
{
    if (!sort_arguments(signature, call) || is_spelled_so(signature, target, call)) {
        return 0;
    }
    if (!is_complete(signature, target, call->given)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    int observed = is_observed(self, call->args[0]);
    if (observed != 0) {
        return observed < 0 ? -1 : 0;
    }
    slots[0] = Py_NewRef(call->args[0]);
    slots[1] = positional_of(signature, target, call);
    slots[2] = slots[1] == NULL ? NULL : keywords_of(signature, target, call);
    return slots[2] == NULL ? -1 : 1;
}

/* Is this parameter positional and has to be given? */
static inline int
has_no_default(PyFunctionObject *function, Py_ssize_t parameter)
{
    PyObject *defaults = function->func_defaults;
    Py_ssize_t count = defaults == NULL ? 0 : PyTuple_GET_SIZE(defaults);
    return parameter < ((PyCodeObject *)PyFunction_GET_CODE(function))->co_argcount - count;
}

int
forwarding_bind(Forwarding *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **slots)
{
    int keywords = kwnames != NULL && PyTuple_GET_SIZE(kwnames) != 0;
    if (self->method == NULL || nargs < 1 || (nargs == 1 && !keywords)) {
        return 0;
    }
    PyFunctionObject *target;
    if (find_target(self, Py_TYPE(args[0]), &target) < 0) {
        return -1;
    }
    if (target == NULL) {
        return 0;
    }
    if (!keywords && has_no_default(target, nargs - 1)) {
        return 0; /* most calls: nothing at the end can be what its default is */
    }
    Signature signature;
    signature_of_code((PyCodeObject *)PyFunction_GET_CODE(target), &signature);
    if (signature.positional < 1 || signature_named(&signature) > MOST_PARAMETERS ||
        (nargs > signature.positional && !signature.star)) {
        return 0;
    }
    Given call;
    call.args = args;
    call.nargs = nargs;
    call.kwnames = kwnames;
    call.extra = 0;
    if (!keywords && is_spelled_so(&signature, target, &call)) {
        return 0;
    }
    return spell_anew(self, &signature, target, &call, slots);
}

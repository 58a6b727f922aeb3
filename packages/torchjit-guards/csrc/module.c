/* The module torchjit_guards._c. */
#include "program.h"
#include "snapshot.h"

static const char *const op_names[] = {
#define X(name) #name,
    GUARD_OPS(X)
#undef X
};

static const char *const condition_names[] = {
#define X(name) #name,
    CONDITION_OPS(X)
#undef X
};

static int add_names(PyObject *module, const char *attribute, const char *const *names, Py_ssize_t n) {
    PyObject *table = PyDict_New();
    for (Py_ssize_t i = 0; table != NULL && i < n; i++) {
        PyObject *number = PyLong_FromSsize_t(i);
        if (number == NULL || PyDict_SetItemString(table, names[i], number) < 0) {
            Py_CLEAR(table);
        }
        Py_XDECREF(number);
    }
    if (table == NULL || PyModule_AddObjectRef(module, attribute, table) < 0) {
        Py_XDECREF(table);
        return -1;
    }
    Py_DECREF(table);
    return 0;
}

static PyObject *dict_tag(PyObject *Py_UNUSED(module), PyObject *d) {
    if (!PyDict_Check(d)) {
        PyErr_SetString(PyExc_TypeError, "dict_tag(d) takes a dict");
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(walk_dict_tag((PyDictObject *)d));
}

static PyObject *trust_tags(PyObject *Py_UNUSED(module), PyObject *args) {
    int dicts, instances;
    if (!PyArg_ParseTuple(args, "pp", &dicts, &instances)) {
        return NULL;
    }
    walk_tags_work = dicts;
    walk_instance_tags_work = dicts && instances;
    Py_RETURN_NONE;
}

static PyObject *snapshot_after(PyObject *Py_UNUSED(module), PyObject *hits) {
    long n = PyLong_AsLong(hits);
    if (n < 0 || n > INT_MAX / 2) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "snapshot_after(hits) takes a small number of hits");
        }
        return NULL;
    }
    int before = snapshot_first;
    snapshot_first = (int)n;
    return PyLong_FromLong(before);
}

static PyMethodDef methods[] = {
    {"snapshot_after", snapshot_after, METH_O,
     "snapshot_after(hits) -> before: new programs take a snapshot after so many hits. For tests."},
    {"dict_tag", dict_tag, METH_O, "dict_tag(d) -> the tag that CPython changes with every change of the dict."},
    {"trust_tags", trust_tags, METH_VARARGS,
     "trust_tags(dicts, instances): may tags vouch for dicts, and for those that share an object's inline values?"},
    {"pass_through", program_pass_through, METH_O,
     "pass_through(function): exceptions in a guard for which this is true come out; others are misses."},
    {"set_tensor_layout", tensor_set_layout, METH_VARARGS,
     "set_tensor_layout(offsets, plain_meta, plain_keys, exact_types, requires_grad, is_leaf), or () to forget it."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_c", "The C part of torchjit_guards.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__c(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) {
        return NULL;
    }
    if (walk_init() < 0 || PyModule_AddType(module, &Program_Type) < 0 ||
        add_names(module, "OPS", op_names, OP_COUNT) < 0 ||
        add_names(module, "CONDITION_OPS", condition_names, COND_COUNT) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}

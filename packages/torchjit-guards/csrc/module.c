/* The module torchjit_guards._c. */
#include "program.h"

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

static PyMethodDef methods[] = {
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

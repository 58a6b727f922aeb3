/* Guard programs for the tests; see csrc/guard_abi.h for the contract. */
#include <Python.h>

/* Holds always; gathers slot i, or None past the slots. */
int
always(void *self, PyObject *const *slots, Py_ssize_t nslots, PyObject **gathered)
{
    Py_ssize_t count = self == (void *)Py_None ? nslots : PyLong_AsSsize_t((PyObject *)self);
    for (Py_ssize_t i = 0; i < count; i++) {
        gathered[i] = Py_NewRef(i < nslots ? slots[i] : Py_None);
    }
    return 1;
}

/* Holds if slot 0 is an exact instance of the type `self`; gathers the slots. */
int
type_is(void *self, PyObject *const *slots, Py_ssize_t nslots, PyObject **gathered)
{
    if (nslots < 1 || (void *)Py_TYPE(slots[0]) != self) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < nslots; i++) {
        gathered[i] = Py_NewRef(slots[i]);
    }
    return 1;
}

/* Calls `self` with the slots: holds if that is true. Gathers the slots. */
int
asks(void *self, PyObject *const *slots, Py_ssize_t nslots, PyObject **gathered)
{
    PyObject *answer = PyObject_Vectorcall((PyObject *)self, slots, (size_t)nslots, NULL);
    int status = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (status == 1) {
        for (Py_ssize_t i = 0; i < nslots; i++) {
            gathered[i] = Py_NewRef(slots[i]);
        }
    }
    return status;
}

/* Fails. */
int
raises(void *self, PyObject *const *slots, Py_ssize_t nslots, PyObject **gathered)
{
    (void)self, (void)slots, (void)nslots, (void)gathered;
    PyErr_SetString(PyExc_LookupError, "from the guard");
    return -1;
}

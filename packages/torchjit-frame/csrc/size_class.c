#include "size_class.h"

int
size_reader_set(SizeReader *reader, PyObject *object)
{
    SizeReader made = {NULL, NULL, NULL};
    if (object != NULL && object != Py_None) {
        PyObject *capsule = PyObject_GetAttrString(object, "__torchjit_guard__");
        if (capsule == NULL) {
            return -1;
        }
        const torchjit_guard_v1 *program =
            PyCapsule_IsValid(capsule, TORCHJIT_GUARD_CAPSULE) ? PyCapsule_GetPointer(capsule, TORCHJIT_GUARD_CAPSULE) : NULL;
        if (program == NULL || program->abi != TORCHJIT_GUARD_ABI || program->check == NULL || program->ngathered < 0 ||
            program->ngathered > MOST_SIZES) {
            Py_DECREF(capsule);
            PyErr_Format(PyExc_ValueError, "want a guard program that gathers at most %d sizes", MOST_SIZES);
            return -1;
        }
        made = (SizeReader){Py_NewRef(object), capsule, program};
    }
    SizeReader old = *reader;
    *reader = made;
    size_reader_clear(&old);
    return 0;
}

void
size_reader_clear(SizeReader *reader)
{
    reader->program = NULL;
    Py_CLEAR(reader->capsule);
    Py_CLEAR(reader->object);
}

int64_t
size_product(const SizeReader *reader, PyObject *const *slots, Py_ssize_t nslots)
{
    const torchjit_guard_v1 *program = reader->program;
    if (program == NULL) {
        return 0;
    }
    PyObject *room[MOST_SIZES], *capsule = Py_NewRef(reader->capsule);
    Py_ssize_t count = program->ngathered;
    int status = program->check(program->self, slots, nslots, room);
    int64_t product = status > 0;
    for (Py_ssize_t i = 0; status > 0 && i < count; i++) {
        int overflow = 0;
        long long size = PyLong_Check(room[i]) ? PyLong_AsLongLongAndOverflow(room[i], &overflow) : 1;
        int64_t factor = overflow > 0 ? INT64_MAX : size < 0 ? 0 : (int64_t)size;
        if (__builtin_mul_overflow(product, factor, &product)) {
            product = INT64_MAX;
        }
        Py_DECREF(room[i]);
    }
    Py_DECREF(capsule);
    return status < 0 ? -1 : product;
}

#include "walk.h"

getter walk_heap_dict_getter;
PyObject *walk_dunder_dict;
PyObject *walk_dunder_getattribute;
PyObject *walk_object_getattribute;

bool walk_tags_work, walk_instance_tags_work;

/* The tag of the dict's state, never 0. The lowest bits belong to watchers: adding one looks like a change. */
uint64_t walk_dict_tag(PyDictObject *d) {
    return d->ma_version_tag;
}

/* Learn the interpreter's own getter of `__dict__` from a fresh class: it has no exported name. */
int walk_init(void) {
    walk_dunder_dict = PyUnicode_InternFromString("__dict__");
    walk_dunder_getattribute = PyUnicode_InternFromString("__getattribute__");
    if (walk_dunder_dict == NULL || walk_dunder_getattribute == NULL) {
        return -1;
    }
    walk_object_getattribute = PyObject_GetAttr((PyObject *)&PyBaseObject_Type, walk_dunder_getattribute);
    PyObject *sample = PyObject_CallFunction((PyObject *)&PyType_Type, "s(){}", "Sample");
    if (walk_object_getattribute == NULL || sample == NULL) {
        Py_XDECREF(sample);
        return -1;
    }
    PyObject *descriptor = _PyType_Lookup((PyTypeObject *)sample, walk_dunder_dict);
    if (descriptor != NULL && Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) {
        walk_heap_dict_getter = ((PyGetSetDescrObject *)descriptor)->d_getset->get;
    }
    Py_DECREF(sample);
    return 0;
}

/* What does `object.__getattribute__(o, "__dict__")` mean for instances of this type?
 *
 * WALK_FOUND: the object's own dict, read directly. WALK_NO_DICT: AttributeError. WALK_ODD: ask the interpreter. */
int walk_dict_kind(PyTypeObject *tp) {
    if (PyType_IsSubtype(tp, &PyType_Type)) {
        return WALK_ODD;
    }
    PyObject *descriptor = _PyType_Lookup(tp, walk_dunder_dict);
    if (descriptor == NULL) {
        return tp->tp_dictoffset == 0 && !(tp->tp_flags & Py_TPFLAGS_MANAGED_DICT) ? WALK_NO_DICT : WALK_ODD;
    }
    if (Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) {
        getter get = ((PyGetSetDescrObject *)descriptor)->d_getset->get;
        return get == PyObject_GenericGetDict || get == walk_heap_dict_getter ? WALK_FOUND : WALK_ODD;
    }
    if (Py_IS_TYPE(descriptor, &PyMemberDescr_Type) && PyType_IsSubtype(tp, &PyModule_Type)) {
        return WALK_FOUND;
    }
    return WALK_ODD;
}

static bool same_text(PyObject *a, PyObject *b) {
    return PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b) && PyUnicode_Compare(a, b) == 0;
}

/* Find `name` among the first `n` keys of a table of str keys. Interned strings differ when their pointers do. */
int walk_keys_scan(PyDictKeysObject *keys, Py_ssize_t n, PyObject *name, Py_hash_t hash, Py_ssize_t *index) {
    PyDictUnicodeEntry *entries = DK_UNICODE_ENTRIES(keys);
    for (Py_ssize_t i = 0; i < n; i++) {
        if (entries[i].me_key == name) {
            *index = i;
            return 1;
        }
    }
    bool interned = PyUnicode_CHECK_INTERNED(name) != 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *key = entries[i].me_key;
        if (key == NULL || (interned && PyUnicode_CHECK_INTERNED(key))) {
            continue;
        }
        if (((PyASCIIObject *)key)->hash == hash && same_text(key, name)) {
            *index = i;
            return 1;
        }
    }
    return 0;
}

/* The hint missed: a real lookup, and a better hint for the next time.
 *
 * Only a table of str keys probed with a str is known to compare without Python code; anything else is WALK_ODD. */
int walk_dict_slow(PyDictObject *d, PyObject *key, Py_hash_t hash, Hint *hint, PyObject **value) {
    if (d->ma_used == 0) {
        return WALK_ABSENT;
    }
    if (!DK_IS_UNICODE(d->ma_keys) || !PyUnicode_CheckExact(key)) {
        return WALK_ODD;
    }
    PyObject *v = _PyDict_GetItem_KnownHash((PyObject *)d, key, hash);
    if (v == NULL) {
        if (PyErr_Occurred()) {
            PyErr_Clear();
            return WALK_ODD;
        }
        return WALK_ABSENT;
    }
    *value = v;
    PyDictUnicodeEntry *entries = DK_UNICODE_ENTRIES(d->ma_keys);
    for (Py_ssize_t i = 0; i < d->ma_keys->dk_nentries; i++) {
        if (entries[i].me_key == key) {
            hint->index = i;
            break;
        }
    }
    return WALK_FOUND;
}

/* Attributes of functions and bound methods that are plain fields: data descriptors, so nothing can hide them. */
static const struct {
    const char *name;
    PyTypeObject *type;
    size_t offset;
    bool none;      /* NULL reads as None */
} fields[] = {
    {"__code__", &PyFunction_Type, offsetof(PyFunctionObject, func_code), false},
    {"__defaults__", &PyFunction_Type, offsetof(PyFunctionObject, func_defaults), true},
    {"__kwdefaults__", &PyFunction_Type, offsetof(PyFunctionObject, func_kwdefaults), true},
    {"__closure__", &PyFunction_Type, offsetof(PyFunctionObject, func_closure), true},
    {"__globals__", &PyFunction_Type, offsetof(PyFunctionObject, func_globals), false},
    {"__func__", &PyMethod_Type, offsetof(PyMethodObject, im_func), false},
    {"__self__", &PyMethod_Type, offsetof(PyMethodObject, im_self), false},
};

enum { NFIELDS = sizeof(fields) / sizeof(fields[0]) };

/* The number of the field of that name, counted from 1; 0: there is none. */
int walk_field_number(PyObject *name) {
    for (int i = 0; i < NFIELDS; i++) {
        if (PyUnicode_CompareWithASCIIString(name, fields[i].name) == 0) {
            return i + 1;
        }
    }
    return 0;
}

/* Where an object of the field's type keeps it. */
PyObject **walk_field_at(PyObject *o, int number) {
    return (PyObject **)((char *)o + fields[number - 1].offset);
}

/* The field, borrowed, when `o` is exactly of a type that has it under this name; else NULL. */
PyObject *walk_field(PyObject *o, int number) {
    if (!Py_IS_TYPE(o, fields[number - 1].type)) {
        return NULL;
    }
    PyObject *value = *walk_field_at(o, number);
    return value == NULL && fields[number - 1].none ? Py_None : value;
}

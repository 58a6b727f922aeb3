/* Reading Python objects without running Python code: dicts, instance attributes, class attributes.
 *
 * Everything here returns borrowed references and never executes Python code; what cannot be answered that way is
 * reported as WALK_ODD, and the caller asks the interpreter with owned references instead.
 */
#ifndef TORCHJIT_WALK_H
#define TORCHJIT_WALK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "internal/pycore_dict.h"
#include "internal/pycore_object.h"

enum { WALK_FOUND = 1, WALK_ABSENT = 0, WALK_NO_DICT = 2, WALK_ODD = -1 };

/* What an op remembers about the last object it saw: always verified before use, so it is only a hint. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  /* ma_version_tag: there up to 3.13 */

typedef struct {
    Py_ssize_t index;       /* entry of the key in the dict's entry array */
    PyTypeObject *type;     /* with `tag`: the answer below holds for this state of this type */
    unsigned int tag;
    int mode;
} Hint;

/* Getters of `__dict__` that return the object's own dict (set at import). */
extern getter walk_heap_dict_getter;
extern PyObject *walk_dunder_dict;          /* interned "__dict__" */
extern PyObject *walk_dunder_getattribute;  /* interned "__getattribute__" */
extern PyObject *walk_object_getattribute;  /* object.__getattribute__, the slot wrapper */

/* Do tags tell every change of a dict, and of one that shares its values with an object? Tested at import, from Python
 * (tags.py): on 3.13.0 writing an attribute leaves the tag of the object's dict alone. */
extern bool walk_tags_work, walk_instance_tags_work;

int walk_init(void);
uint64_t walk_dict_tag(PyDictObject *d);
int walk_field_number(PyObject *name);
PyObject **walk_field_at(PyObject *o, int number);
PyObject *walk_field(PyObject *o, int number);
int walk_dict_kind(PyTypeObject *tp);
int walk_keys_scan(PyDictKeysObject *keys, Py_ssize_t n, PyObject *name, Py_hash_t hash, Py_ssize_t *index);
int walk_dict_slow(PyDictObject *d, PyObject *key, Py_hash_t hash, Hint *hint, PyObject **value);

static inline bool walk_tag_matches(const Hint *hint, PyTypeObject *tp) {
    return tp == hint->type && tp->tp_version_tag == hint->tag && hint->tag != 0;
}

/* Look `key` up in a dict (or the storage of a dict subclass).
 *
 * A live entry under the same key object is the key's entry, wherever the hint came from. */
static inline int walk_dict(PyDictObject *d, PyObject *key, Py_hash_t hash, Hint *hint, PyObject **value) {
    PyDictKeysObject *keys = d->ma_keys;
    Py_ssize_t i = hint->index;
    if (i < keys->dk_nentries) {
        if (DK_IS_UNICODE(keys)) {
            PyDictUnicodeEntry *e = DK_UNICODE_ENTRIES(keys) + i;
            if (e->me_key == key) {
                PyObject *v = d->ma_values ? d->ma_values->values[i] : e->me_value;
                if (v != NULL) {
                    *value = v;
                    return WALK_FOUND;
                }
            }
        }
        else {
            PyDictKeyEntry *e = DK_ENTRIES(keys) + i;
            if (e->me_key == key && e->me_value != NULL) {
                *value = e->me_value;
                return WALK_FOUND;
            }
        }
    }
    return walk_dict_slow(d, key, hash, hint, value);
}

/* The instance's dict if it has been made (else NULL), and its inline values if it has not (else NULL). */
static inline PyDictObject *walk_instance_storage(PyObject *o, PyTypeObject *tp, PyDictValues **values) {
    *values = NULL;
    if (tp->tp_flags & Py_TPFLAGS_MANAGED_DICT) {
#if PY_VERSION_HEX < 0x030C0000
        PyDictValues *v = *_PyObject_ValuesPointer(o);
        if (v != NULL) {
            *values = v;
            return NULL;
        }
        return (PyDictObject *)*_PyObject_ManagedDictPointer(o);
#elif PY_VERSION_HEX < 0x030D0000
        PyDictOrValues dorv = *_PyObject_DictOrValuesPointer(o);
        if (_PyDictOrValues_IsValues(dorv)) {
            *values = _PyDictOrValues_GetValues(dorv);
            return NULL;
        }
        return (PyDictObject *)_PyDictOrValues_GetDict(dorv);
#else
        PyDictObject *d = _PyObject_GetManagedDict(o);
        if (d == NULL && (tp->tp_flags & Py_TPFLAGS_INLINE_VALUES)) {
            PyDictValues *v = _PyObject_InlineValues(o);
            if (v->valid) {
                *values = v;
            }
        }
        return d;
#endif
    }
    if (tp->tp_dictoffset > 0) {
        return *(PyDictObject **)((char *)o + tp->tp_dictoffset);
    }
    if (tp->tp_dictoffset < 0) {
        PyObject **p = _PyObject_GetDictPtr(o);
        return p ? (PyDictObject *)*p : NULL;
    }
    return NULL;
}

/* The dict whose tag says whether anything changed in it, or NULL when there is none to rely on.
 *
 * Keys other than str may be compared by Python code, which can change its mind without a change of the dict. */
static inline PyDictObject *walk_tagged(PyDictObject *d) {
    if (d == NULL || !PyDict_CheckExact(d) || !walk_tags_work || !DK_IS_UNICODE(d->ma_keys) ||
        (d->ma_values != NULL && !walk_instance_tags_work)) {
        return NULL;
    }
    return d;
}

/* `walk_dict_kind`, asked once for each version of the type. */
static inline int walk_dict_mode(PyTypeObject *tp, Hint *hint) {
    if (!walk_tag_matches(hint, tp)) {
        hint->mode = walk_dict_kind(tp);
        hint->type = tp;
        hint->tag = tp->tp_version_tag;
    }
    return hint->mode;
}

static inline PyDictObject *walk_tagged_instance(PyObject *o, Hint *hint) {
    PyTypeObject *tp = Py_TYPE(o);
    if (walk_dict_mode(tp, hint) != WALK_FOUND) {
        return NULL;
    }
    PyDictValues *values;
    return walk_tagged(walk_instance_storage(o, tp, &values));
}

/* `o.__dict__[name]` for an ordinary instance. */
static inline int walk_instance(PyObject *o, PyObject *name, Py_hash_t hash, Hint *hint, PyObject **value) {
    PyTypeObject *tp = Py_TYPE(o);
    if (walk_dict_mode(tp, hint) != WALK_FOUND) {
        return hint->mode;
    }
    PyDictValues *values;
    PyDictObject *d = walk_instance_storage(o, tp, &values);
    if (d != NULL) {
        return PyDict_CheckExact(d) ? walk_dict(d, name, hash, hint, value) : WALK_ODD;
    }
    if (values != NULL) {
        PyDictKeysObject *keys = ((PyHeapTypeObject *)tp)->ht_cached_keys;
        Py_ssize_t i = hint->index;
        if (i >= keys->dk_nentries || DK_UNICODE_ENTRIES(keys)[i].me_key != name) {
            if (!walk_keys_scan(keys, keys->dk_nentries, name, hash, &hint->index)) {
                return WALK_ABSENT;
            }
            i = hint->index;
        }
        *value = values->values[i];
        return *value ? WALK_FOUND : WALK_ABSENT;
    }
    return WALK_ABSENT;
}

#endif

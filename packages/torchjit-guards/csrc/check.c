/* The checks that take more than a compare, and the loads that may run Python code. */
#include "program.h"
#include <math.h>

static PyObject *slots_tuple(Run *run) {
    Py_ssize_t n = run->program->nslots;
    PyObject *slots = PyTuple_New(n);
    for (Py_ssize_t i = 0; slots != NULL && i < n; i++) {
        PyTuple_SET_ITEM(slots, i, Py_NewRef(run->slots[i]));
    }
    return slots;
}

static int truth_of(PyObject *answer) {
    if (answer == NULL) {
        return -1;
    }
    int truth = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return truth;
}

/* Call `function(slots)`: the guard's own definition. */
static int call_with_slots(Run *run, PyObject *function) {
    run_protect(run);
    PyObject *slots = slots_tuple(run);
    if (slots == NULL) {
        return -1;
    }
    PyObject *answer = PyObject_CallOneArg(function, slots);
    Py_DECREF(slots);
    return truth_of(answer);
}

/* Does `==` of these two mean `is`? (True, None, a torch.dtype: whatever inherits object's comparison) */
static bool identity_decides(PyObject *a, PyObject *b) {
    return Py_TYPE(a) == Py_TYPE(b) &&
           (PyBool_Check(a) || Py_TYPE(a)->tp_richcompare == PyBaseObject_Type.tp_richcompare);
}

int check_with_python(Run *run, Op *op) {
    if (op->code == OP_CHECK_CALL) {
        return call_with_slots(run, op->obj);
    }
    if (op->code == OP_CHECK_AMBIENT) {
        run_protect(run);
        PyObject *read = op->obj, *got;
        if (PyCFunction_CheckExact(read) && PyCFunction_GET_FLAGS(read) == METH_NOARGS) {
            got = PyCFunction_GET_FUNCTION(read)(PyCFunction_GET_SELF(read), NULL);
        }
        else {
            got = PyObject_CallNoArgs(read);
        }
        if (got == NULL) {
            return -1;
        }
        /* otherwise no identity shortcut: `check` says `==`, and that is false for a NaN */
        int same = identity_decides(got, op->cold->aux) ? got == op->cold->aux
                                                        : truth_of(PyObject_RichCompare(got, op->cold->aux, Py_EQ));
        Py_DECREF(got);
        return same;
    }
    PyObject *value = run_object(run, op->src);
    if (value == NULL) {
        return -1;
    }
    if (op->code == OP_CHECK_EQUAL) {
        if (value == op->obj || Py_TYPE(value) != Py_TYPE(op->obj)) {
            return value == op->obj;
        }
        run_protect(run);
        return PyObject_RichCompareBool(value, op->obj, Py_EQ);
    }
    run_protect(run);
    return truth_of(PyObject_CallOneArg(op->obj, value));
}

static bool doubles_equal(double a, double b) {
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

/* The comparison of ValueEquals for atoms and nested tuples of them; runs no Python code. */
bool atoms_equal(PyObject *a, PyObject *b) {
    PyTypeObject *tp = Py_TYPE(a);
    if (tp != Py_TYPE(b)) {
        return false;
    }
    if (a == b) {
        return true;
    }
    if (tp == &PyFloat_Type) {
        return doubles_equal(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
    }
    if (tp == &PyComplex_Type) {
        Py_complex x = ((PyComplexObject *)a)->cval, y = ((PyComplexObject *)b)->cval;
        return doubles_equal(x.real, y.real) && doubles_equal(x.imag, y.imag);
    }
    if (tp == &PyTuple_Type) {
        Py_ssize_t n = PyTuple_GET_SIZE(b);
        if (PyTuple_GET_SIZE(a) != n) {
            return false;
        }
        for (Py_ssize_t i = 0; i < n; i++) {
            if (!atoms_equal(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) {
                return false;
            }
        }
        return true;
    }
    if (tp == &PyLong_Type || tp == &PyUnicode_Type || tp == &PyBytes_Type) {
        return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
    }
    return false;   /* None, True, ... are equal only when they are the same object */
}

/* Does `len` of this type read the size that its base class keeps? (A subclass may define __len__.) */
static bool length_is_stored(PyTypeObject *tp, PyTypeObject *base) {
    PySequenceMethods *sequence = tp->tp_as_sequence;
    lenfunc as_sequence = sequence ? sequence->sq_length : NULL;
    lenfunc stored = base->tp_as_sequence->sq_length;
    return as_sequence == stored &&
           (stored != NULL || (tp->tp_as_mapping && tp->tp_as_mapping->mp_length == base->tp_as_mapping->mp_length));
}

int check_length(Run *run, Op *op, PyObject *value) {
    PyTypeObject *tp = Py_TYPE(value);
    Py_ssize_t n;
    if (tp == &PyTuple_Type || tp == &PyList_Type) {
        n = Py_SIZE(value);
    }
    else if (tp == &PyDict_Type || (PyDict_Check(value) && length_is_stored(tp, &PyDict_Type))) {
        n = ((PyDictObject *)value)->ma_used;
    }
    else if ((PyTuple_Check(value) && length_is_stored(tp, &PyTuple_Type)) ||
             (PyList_Check(value) && length_is_stored(tp, &PyList_Type))) {
        n = Py_SIZE(value);
    }
    else {
        run_protect(run);
        n = PyObject_Size(value);
        if (n < 0) {
            return -1;
        }
    }
    return n == op->imm;
}

/* Do the keys match where that can be told without Python code? 1, 0, or -1: `==` of some key has to be asked. */
int keys_match_fast(PyObject *dict, PyObject *want) {
    Py_ssize_t position = 0, i = 0, n = PyTuple_GET_SIZE(want);
    PyObject *key, *value;
    if (PyDict_GET_SIZE(dict) != n) {
        return 0;
    }
    if (n == 0) {
        return 1;   /* the **kwargs of most calls */
    }
    while (PyDict_Next(dict, &position, &key, &value)) {
        PyObject *expected = PyTuple_GET_ITEM(want, i++);
        if (key == expected) {
            continue;
        }
        if (Py_TYPE(key) != Py_TYPE(expected)) {
            return 0;
        }
        if (!PyUnicode_CheckExact(key) && !PyLong_CheckExact(key) && !PyBytes_CheckExact(key)) {
            return -1;
        }
        if (PyObject_RichCompareBool(key, expected, Py_EQ) != 1) {
            return 0;
        }
    }
    return 1;
}

/* The keys of an OrderedDict in its order, which is not that of the table: a new list, or NULL with an error set. */
static PyObject *ordered_keys(PyObject *value) {
    PyObject *method = PyObject_GetAttrString((PyObject *)&PyODict_Type, "keys");
    PyObject *view = method ? PyObject_CallOneArg(method, value) : NULL;
    PyObject *keys = view ? PySequence_List(view) : NULL;
    Py_XDECREF(view);
    Py_XDECREF(method);
    return keys;
}

int check_keys(Run *run, Op *op, PyObject *value) {
    if (!PyDict_Check(value)) {
        return 0;
    }
    bool ordered = !PyDict_CheckExact(value) && PyODict_Check(value);
    int known = ordered ? -1 : keys_match_fast(value, op->obj);
    if (known >= 0) {
        return known;
    }
    run_protect(run);
    PyObject *keys = ordered ? ordered_keys(value) : PyDict_Keys(value);
    if (keys == NULL) {
        return -1;
    }
    int same = PyList_GET_SIZE(keys) == PyTuple_GET_SIZE(op->obj);
    for (Py_ssize_t i = 0; same == 1 && i < PyTuple_GET_SIZE(op->obj) && i < PyList_GET_SIZE(keys); i++) {
        PyObject *a = Py_NewRef(PyList_GET_ITEM(keys, i)), *b = PyTuple_GET_ITEM(op->obj, i);
        same = a == b ? 1 : Py_TYPE(a) != Py_TYPE(b) ? 0 : truth_of(PyObject_RichCompare(a, b, Py_EQ));
        Py_DECREF(a);
    }
    Py_DECREF(keys);
    return same;
}

int check_contains(Run *run, Op *op, PyObject *value) {
    if (!PyDict_Check(value)) {
        return 0;
    }
    PyObject *found;
    int state = walk_dict((PyDictObject *)value, op->obj, op->cold->hash, &op->cold->hint, &found);
    if (state == WALK_ODD) {
        run_protect(run);
        state = PyDict_Contains(value, op->obj);
        if (state < 0) {
            return -1;
        }
    }
    return (state == WALK_FOUND) == (op->imm != 0);
}

/* `o.__dict__` by the interpreter's own rules: a new reference, or NULL with an error set. */
static PyObject *dunder_dict(PyObject *o) {
    return PyObject_GenericGetAttr(o, walk_dunder_dict);
}

int check_lacks(Run *run, Op *op, PyObject *value) {
    PyObject *found;
    switch (walk_instance(value, op->obj, op->cold->hash, &op->cold->hint, &found)) {
    case WALK_FOUND:
        return 0;
    case WALK_ABSENT:
    case WALK_NO_DICT:
        return 1;
    }
    run_protect(run);
    PyObject *members = dunder_dict(value);
    if (members == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError) || program_passes_through()) {
            return -1;
        }
        PyErr_Clear();
        return 1;
    }
    int there = PySequence_Contains(members, op->obj);
    Py_DECREF(members);
    return there < 0 ? -1 : !there;
}

/* The class changed since it was last looked at: look its attributes up again, and trust the new tag if they hold. */
int check_class(Op *op) {
    PyTypeObject *tp = (PyTypeObject *)op->obj;
    op->cold->hint.tag = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(op->cold->aux); i++) {
        PyObject *entry = PyTuple_GET_ITEM(op->cold->aux, i), *name = PyTuple_GET_ITEM(entry, 0);
        PyObject *found = name == Py_None ? tp->tp_mro : _PyType_Lookup(tp, name);
        PyObject *want = PyTuple_GET_SIZE(entry) > 1 ? PyTuple_GET_ITEM(entry, 1) : NULL;
        if (found != want) {
            return 0;
        }
    }
    op->cold->hint.tag = tp->tp_version_tag;
    return 1;
}

enum { TABLE_SIZE = 256 };  /* of the hash table on the stack; at most half of a table is filled */

/* The identity that must differ: the object, or its storage. NULL: none (with or without an error set).
 * `odd` is set when the storage is not read from memory, so that one object might answer with several. */
static void *identity_of(Run *run, int reg, bool storages, bool *odd) {
    PyObject *value = run_object(run, reg);
    if (!storages || value == NULL) {
        return value;
    }
    if (tensor_layout.ready && tensor_is_plain(value)) {
        return tensor_storage(tensor_impl(value));
    }
    *odd = true;
    run_protect(run);
    PyObject *storage = PyObject_CallMethod(value, "untyped_storage", NULL);
    PyObject *address = storage ? PyObject_GetAttrString(storage, "_cdata") : NULL;
    void *identity = address ? PyLong_AsVoidPtr(address) : NULL;
    Py_XDECREF(address);
    Py_XDECREF(storage);
    return identity;
}

/* Are the identities of the registers pairwise different? By open addressing in `table` of `size` (a power of 2). */
static int all_different(Run *run, const int *registers, Py_ssize_t n, bool storages, void **table, size_t size, bool *odd) {
    memset(table, 0, size * sizeof(void *));
    for (Py_ssize_t i = 0; i < n; i++) {
        void *identity = identity_of(run, registers[i], storages, odd);
        if (identity == NULL) {
            return PyErr_Occurred() ? -1 : 0;
        }
        size_t at = ((uintptr_t)identity * 0x9E3779B97F4A7C15u) >> 40 & (size - 1);
        while (table[at] != NULL) {
            if (table[at] == identity) {
                return 0;
            }
            at = (at + 1) & (size - 1);
        }
        table[at] = identity;
    }
    return 1;
}

int check_different(Run *run, Op *op) {
    const int *registers = op->payload;
    Py_ssize_t n = PyTuple_GET_SIZE(op->cold->aux);
    void *small[TABLE_SIZE];
    size_t size = 16;
    while (size < 2 * (size_t)n) {
        size *= 2;
    }
    void **table = size <= TABLE_SIZE ? small : PyMem_Malloc(size * sizeof(void *));
    if (table == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    bool storages = op->code == OP_CHECK_STORAGES, odd = !storages;
    int different = storages ? all_different(run, registers, n, true, table, size, &odd) : 1;
    if (different == 1 && odd) {
        different = all_different(run, registers, n, false, table, size, &odd);
    }
    if (table != small) {
        PyMem_Free(table);
    }
    return different;
}

int check_condition(Run *run, Op *op) {
    int64_t names[CONDITION_MAX_DEPTH];
    PyObject *registers = PyTuple_GET_ITEM(op->cold->aux, 0);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(registers); i++) {
        Py_ssize_t reg = PyLong_AsSsize_t(PyTuple_GET_ITEM(registers, i));
        PyObject *value = run->regs[reg];
        if (value == RAW_INT) {
            names[i] = run->ints[reg];
            continue;
        }
        int overflow = 1;
        if (PyLong_CheckExact(value) || PyBool_Check(value)) {
            names[i] = PyLong_AsLongLongAndOverflow(value, &overflow);
        }
        if (overflow) {
            return call_with_slots(run, op->obj);
        }
    }
    int answer = condition_run(op->payload, names);
    return answer >= 0 ? answer : call_with_slots(run, op->obj);
}

int check_tensor(Run *run, Op *op, PyObject *value) {
    if (value == RAW_INT || Py_TYPE(value) != (PyTypeObject *)op->obj) {
        return 0;
    }
    const TensorSpec *spec = op->payload;
    if (spec == NULL || !tensor_layout.ready || !tensor_is_plain(value)) {
        run_protect(run);
        return truth_of(PyObject_CallOneArg(PyTuple_GET_ITEM(op->cold->aux, 0), value));
    }
    char *impl = tensor_impl(value);
    if (!tensor_matches(impl, spec)) {
        return 0;
    }
    int grad = tensor_requires_grad(impl);
    if (grad < 0) {
        run_protect(run);
        grad = tensor_grad_slow(value, false);
    }
    return grad < 0 ? -1 : grad == spec->requires_grad;
}

/* Would getattr find `name` in the instance's dict and nowhere before it? */
static bool attr_is_in_instance(PyTypeObject *tp, PyObject *name) {
    bool generic = tp->tp_getattro == PyObject_GenericGetAttr || tp == &PyModule_Type ||
                   _PyType_Lookup(tp, walk_dunder_getattribute) == walk_object_getattribute;
    return generic && _PyType_Lookup(tp, name) == NULL && walk_dict_kind(tp) == WALK_FOUND;
}

/* `getattr(base, name)` past a `__getattribute__` in Python: the region followed that one and found the place that
 * the name stands for. Running it again could also lead back here, when it is itself compiled. */
static PyObject *attr_of(PyObject *base, PyObject *name) {
    PyObject *hook = _PyType_Lookup(Py_TYPE(base), walk_dunder_getattribute);
    if (hook == NULL || Py_IS_TYPE(hook, &PyWrapperDescr_Type)) {
        return PyObject_GetAttr(base, name);
    }
    PyTypeObject *past = PyType_Check(base) ? &PyType_Type : PyModule_Check(base) ? &PyModule_Type : &PyBaseObject_Type;
    return past->tp_getattro(base, name);
}

/* A new reference, or a borrowed one (`*borrowed`) when no Python code could run. */
static PyObject *load_attr(Run *run, Op *op, PyObject *base, bool *borrowed) {
    PyTypeObject *tp = Py_TYPE(base);
    if (!walk_tag_matches(&op->cold->hint, tp)) {
        op->cold->hint.mode = attr_is_in_instance(tp, op->obj) ? WALK_FOUND : WALK_ODD;
        op->cold->hint.type = tp;
        op->cold->hint.tag = tp->tp_version_tag;
    }
    if (op->cold->hint.mode == WALK_FOUND) {
        PyObject *value;
        if (walk_instance(base, op->obj, op->cold->hash, &op->cold->hint, &value) == WALK_FOUND) {
            *borrowed = true;
            return value;
        }
        /* (walk_instance's verdict shares the hint: it is FOUND too for this type) */
    }
    run_own(run);
    return attr_of(base, op->obj);
}

static PyObject *load_instance(Run *run, Op *op, PyObject *base) {
    run_own(run);
    PyObject *members = dunder_dict(base);
    PyObject *value = members ? PyObject_GetItem(members, op->obj) : NULL;
    Py_XDECREF(members);
    return value;
}

static PyObject *load_tensor_int(Run *run, Op *op, PyObject *base) {
    run_own(run);
    if (op->code == OP_LOAD_OFFSET) {
        return PyObject_CallMethod(base, "storage_offset", NULL);
    }
    return PyObject_CallMethod(base, op->code == OP_LOAD_SIZE ? "size" : "stride", "L", (long long)op->imm);
}

/* The item that a container stores, past any `__getitem__` of a subclass in Python. */
static PyObject *stored_item(PyObject *base, PyObject *key) {
    if (PyDict_Check(base)) {
        return Py_XNewRef(PyDict_GetItemWithError(base, key));
    }
    if (PyList_Check(base)) {
        return PyList_Type.tp_as_mapping->mp_subscript(base, key);
    }
    if (PyTuple_Check(base)) {
        return PyTuple_Type.tp_as_mapping->mp_subscript(base, key);
    }
    return PyObject_GetItem(base, key);
}

/* The general form of every load: 1, or 0 (with or without an error set). */
int load_value(Run *run, Op *op, PyObject *base) {
    bool borrowed = false;
    PyObject *value = NULL, *found;
    base = run_object(run, op->src);
    if (base == NULL) {
        return 0;
    }
    switch (op->code) {
    case OP_LOAD_INSTANCE:
        if (walk_instance(base, op->obj, op->cold->hash, &op->cold->hint, &found) == WALK_ODD) {
            value = load_instance(run, op, base);
        }
        break;
    case OP_LOAD_ITEM:
        run_own(run);
        value = stored_item(base, op->obj);
        break;
    case OP_LOAD_ATTR:
        value = load_attr(run, op, base, &borrowed);
        break;
    case OP_LOAD_CELL:
        run_own(run);
        value = PyObject_GetAttrString(base, "cell_contents");
        break;
    case OP_LOAD_COMPUTED:
        run_own(run);
        value = PyObject_CallOneArg(op->obj, base);
        break;
    case OP_LOAD_SIZE:
    case OP_LOAD_STRIDE:
    case OP_LOAD_OFFSET:
        value = load_tensor_int(run, op, base);
        break;
    }
    if (value == NULL) {
        return 0;
    }
    if (borrowed && run->owned) {
        Py_INCREF(value);
    }
    if (!borrowed && !run->owned) {
        run_own(run);
    }
    run_keep(run, op->dst, value);
    return 1;
}

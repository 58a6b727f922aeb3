#include "words.h"
#include "group.h"

int notes_init(Notes *notes, Run *run) {
    size_t nregs = (size_t)run->program->nregs + 1;
    *notes = (Notes){.run = run, .room = 256, .size = 1024};
    notes->words = PyMem_Calloc((size_t)notes->room, sizeof(Word));
    notes->owners = PyMem_Calloc((size_t)notes->room, sizeof(int));
    notes->table = PyMem_Calloc(notes->size, sizeof(word_t *));
    notes->known = PyMem_Calloc(nregs, sizeof(bool));
    notes->values = PyMem_Calloc(nregs, sizeof(PyObject *));
    notes->ints = PyMem_Calloc(nregs, sizeof(int64_t));
    bool ok = notes->words && notes->owners && notes->table && notes->known && notes->values && notes->ints;
    if (!ok) {
        notes_free(notes);
    }
    return ok ? 0 : -1;
}

void notes_free(Notes *notes) {
    PyMem_Free(notes->words);
    PyMem_Free(notes->owners);
    PyMem_Free(notes->table);
    PyMem_Free(notes->known);
    PyMem_Free(notes->values);
    PyMem_Free(notes->ints);
}

static size_t place(const Notes *notes, const word_t *at) {
    size_t i = ((uintptr_t)at * 0x9E3779B97F4A7C15u) >> 32 & (notes->size - 1);
    while (notes->table[i] != NULL && notes->table[i] != at) {
        i = (i + 1) & (notes->size - 1);
    }
    return i;
}

static bool grow_table(Notes *notes) {
    const word_t **old = notes->table;
    const word_t **table = PyMem_Calloc(notes->size * 2, sizeof(word_t *));
    if (table == NULL) {
        return false;
    }
    notes->table = table;
    notes->size *= 2;
    for (int i = 0; i < notes->kept; i++) {
        table[place(notes, notes->words[i].at)] = notes->words[i].at;
    }
    PyMem_Free(old);
    return true;
}

static bool grow_words(Notes *notes) {
    size_t room = (size_t)notes->room * 2;
    Word *words = PyMem_Realloc(notes->words, room * sizeof(Word));
    if (words != NULL) {
        notes->words = words;
    }
    int *owners = PyMem_Realloc(notes->owners, room * sizeof(int));
    if (owners != NULL) {
        notes->owners = owners;
    }
    if (words == NULL || owners == NULL) {
        return false;
    }
    notes->room = (int)room;
    return true;
}

/* Note the aligned word that holds the byte at `address`. What else lies in it may make a snapshot end early, and can
 * never make it last too long. */
static void note(Notes *notes, const void *address) {
    const word_t *at = (const word_t *)((uintptr_t)address & ~(uintptr_t)7);
    if (notes->failed || notes->table[place(notes, at)] == at) {
        return;
    }
    for (int i = notes->kept; i < notes->n; i++) {
        if (notes->words[i].at == at) {
            return;
        }
    }
    if (notes->n == notes->room && !grow_words(notes)) {
        notes->failed = true;
        return;
    }
    notes->words[notes->n++] = (Word){at, *at};
}

/* The words noted since the last call are the op's. */
void notes_keep(Notes *notes, int owner) {
    for (; notes->kept < notes->n && !notes->failed; notes->kept++) {
        if ((size_t)notes->kept * 2 + 2 > notes->size && !grow_table(notes)) {
            notes->failed = true;
            return;
        }
        const word_t *at = notes->words[notes->kept].at;
        notes->table[place(notes, at)] = at;
        notes->owners[notes->kept] = owner;
    }
}

static void note_type(Notes *notes, PyObject *o) {
    note(notes, &o->ob_type);
}

/* What `walk_tag_matches` reads: false when the type has no tag that the hint knows. */
static bool note_type_state(Notes *notes, PyObject *o, const Hint *hint) {
    if (!walk_tag_matches(hint, Py_TYPE(o))) {
        return false;
    }
    note_type(notes, o);
    note(notes, &Py_TYPE(o)->tp_version_tag);
    return true;
}

/* The words that `walk_instance_storage` reads, once the type is noted. */
static void note_storage(Notes *notes, PyObject *o) {
    PyTypeObject *tp = Py_TYPE(o);
    if (tp->tp_flags & Py_TPFLAGS_MANAGED_DICT) {
#if PY_VERSION_HEX < 0x030C0000
        if (*_PyObject_ManagedDictPointer(o) == NULL) {
            note(notes, _PyObject_ValuesPointer(o));    /* an object that has a dict has none (_PyObject_GetDictPtr) */
        }
        note(notes, _PyObject_ManagedDictPointer(o));
#elif PY_VERSION_HEX < 0x030D0000
        note(notes, _PyObject_DictOrValuesPointer(o));
#else
        note(notes, _PyObject_ManagedDictPointer(o));
        if (tp->tp_flags & Py_TPFLAGS_INLINE_VALUES) {
            note(notes, &_PyObject_InlineValues(o)->valid);
        }
#endif
        return;
    }
    PyObject **p = _PyObject_GetDictPtr(o);
    if (p != NULL) {
        if (tp->tp_dictoffset < 0) {
            note(notes, &((PyVarObject *)o)->ob_size);
        }
        note(notes, p);
    }
}

/* A table of str keys, and its entry `i`, which is live under this very key object. */
static bool note_key(Notes *notes, PyDictKeysObject *keys, Py_ssize_t i, PyObject *key) {
    if (!DK_IS_UNICODE(keys) || i >= keys->dk_nentries || DK_UNICODE_ENTRIES(keys)[i].me_key != key) {
        return false;
    }
    note(notes, &keys->dk_kind);
    note(notes, &keys->dk_nentries);
    note(notes, &DK_UNICODE_ENTRIES(keys)[i].me_key);
    return true;
}

/* An item found by the hint of a lookup, in a dict that no tag vouches for. */
static bool note_dict_item(Notes *notes, PyDictObject *d, const Op *op, PyObject *want) {
    Py_ssize_t i = op->cold->hint.index;
    note_type(notes, (PyObject *)d);
    note(notes, &d->ma_keys);
    note(notes, &d->ma_values);
    if (!note_key(notes, d->ma_keys, i, op->obj)) {
        return false;
    }
    PyObject **at = d->ma_values ? &d->ma_values->values[i] : &DK_UNICODE_ENTRIES(d->ma_keys)[i].me_value;
    note(notes, at);
    return *at == want;
}

static bool note_instance_item(Notes *notes, PyObject *base, Op *op, PyObject *want) {
    if (!note_type_state(notes, base, &op->cold->hint) || op->cold->hint.mode != WALK_FOUND) {
        return false;
    }
    note_storage(notes, base);
    PyDictValues *values;
    PyDictObject *d = walk_instance_storage(base, Py_TYPE(base), &values);
    if (d != NULL) {
        return PyDict_CheckExact(d) && note_dict_item(notes, d, op, want);
    }
    if (values == NULL) {
        return false;
    }
    PyHeapTypeObject *tp = (PyHeapTypeObject *)Py_TYPE(base);
    Py_ssize_t i = op->cold->hint.index;
    note(notes, &tp->ht_cached_keys);
    if (tp->ht_cached_keys == NULL || !note_key(notes, tp->ht_cached_keys, i, op->obj)) {
        return false;
    }
    note(notes, &values->values[i]);
    return values->values[i] == want;
}

static bool note_sequence_item(Notes *notes, PyObject *base, const Op *op, PyObject *want) {
    bool list = PyList_CheckExact(base);
    if (!op->src2 || !(list || PyTuple_CheckExact(base))) {
        return false;
    }
    Py_ssize_t n = Py_SIZE(base), i = op->imm < 0 ? op->imm + n : op->imm;
    if (i < 0 || i >= n) {
        return false;
    }
    note_type(notes, base);
    note(notes, &((PyVarObject *)base)->ob_size);
    if (list) {
        note(notes, &((PyListObject *)base)->ob_item);
    }
    PyObject **at = (list ? ((PyListObject *)base)->ob_item : ((PyTupleObject *)base)->ob_item) + i;
    note(notes, at);
    return *at == want;
}

/* The dict of a tag: its address follows from words noted before. */
static void note_tagged(Notes *notes, PyDictObject *d) {
    note(notes, &d->ma_version_tag);
}

/* A group that is as it was when it was remembered, and whose values are in the registers: the words that
 * `group_skip` reads. */
bool note_group(Notes *notes, const Op *op) {
    Run *run = notes->run;
    const Group *g = op->payload;
    PyObject *base = run->regs[op->src];
    if (!group_is_unchanged(run, op, g) || !group_subs_are_unchanged(g) ||
        memcmp(g->values, run->regs + g->first, (size_t)g->n * sizeof(PyObject *)) != 0) {
        return false;
    }
    note_type(notes, base);
    if (op->src2 == GROUP_OF_INSTANCE) {
        note(notes, &g->type->tp_version_tag);
        note_storage(notes, base);
    }
    note_tagged(notes, g->dict);
    for (int i = 0; i < g->nsubs; i++) {
        note_tagged(notes, (PyDictObject *)g->values[g->subs[i].index]);
    }
    for (int i = 0; i < g->nlengths; i++) {
        note(notes, &((PyDictObject *)g->values[g->lengths[i].index])->ma_used);
    }
    for (int i = 0; i < g->n; i++) {
        int reg = g->first + i;
        notes->values[reg - run->nfixed] = g->values[i];
        notes->known[reg] = true;
    }
    return true;
}

/* The TensorImpl of a tensor that is read raw, or NULL. */
static char *note_plain(Notes *notes, PyObject *o) {
    if (o == RAW_INT || !tensor_layout.ready || !tensor_is_plain(o)) {
        return NULL;
    }
    note_type(notes, o);
    note(notes, (char *)o + tensor_layout.impl);
    note(notes, tensor_impl(o) + tensor_layout.keys);
    return tensor_impl(o);
}

/* Sizes and strides may lie elsewhere: the words that lead there. */
static void note_dims(Notes *notes, char *impl) {
    note(notes, impl + tensor_layout.ndim);
    if (tensor_ndim(impl) > tensor_layout.inline_dims) {
        note(notes, impl + tensor_layout.sizes);
    }
}

static void note_autograd(Notes *notes, char *impl, bool leaf) {
    char *meta = *(char **)(impl + tensor_layout.autograd);
    note(notes, impl + tensor_layout.autograd);
    if (meta == NULL) {
        return;
    }
    bool flag = *(bool *)(meta + tensor_layout.grad_flag);
    note(notes, meta + tensor_layout.grad_flag);
    if (!flag || leaf) {
        note(notes, meta + tensor_layout.grad_fn);
    }
    if (!flag) {    /* see tensor_requires_grad: the vtable decides when neither does */
        note(notes, meta);
    }
}

static bool note_tensor(Notes *notes, const Op *op, PyObject *value) {
    const TensorSpec *spec = op->payload;
    if (value == RAW_INT || spec == NULL || Py_TYPE(value) != (PyTypeObject *)op->obj) {
        return false;
    }
    char *impl = note_plain(notes, value);
    if (impl == NULL || !tensor_matches(impl, spec) || tensor_requires_grad(impl) != spec->requires_grad) {
        return false;
    }
    note(notes, impl + tensor_layout.dtype);
    note(notes, impl + tensor_layout.device);
    if (spec->offset != TENSOR_FREE) {
        note(notes, impl + tensor_layout.offset);
    }
    note_dims(notes, impl);
    for (int64_t i = 0; i < spec->ndim; i++) {
        if (spec->dims[i] != TENSOR_FREE) {
            note(notes, tensor_sizes(impl) + i);
        }
        if (spec->has_strides && spec->dims[spec->ndim + i] != TENSOR_FREE) {
            note(notes, tensor_strides(impl) + i);
        }
    }
    note_autograd(notes, impl, spec->is_leaf >= 0);
    return true;
}

static bool note_tensor_int(Notes *notes, const Op *op, PyObject *base, int64_t *value) {
    char *impl = note_plain(notes, base);
    if (impl == NULL) {
        return false;
    }
    int64_t *at = (int64_t *)(impl + tensor_layout.offset);
    if (op->code != OP_LOAD_OFFSET) {
        int64_t n = tensor_ndim(impl), dim = op->imm < 0 ? op->imm + n : op->imm;
        if (dim < 0 || dim >= n) {
            return false;
        }
        note_dims(notes, impl);
        at = (op->code == OP_LOAD_SIZE ? tensor_sizes(impl) : tensor_strides(impl)) + dim;
    }
    note(notes, at);
    *value = *at;
    return true;
}

static bool note_length(Notes *notes, const Op *op, PyObject *value) {
    Py_ssize_t *at;
    if (value == RAW_INT) {
        return false;
    }
    if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
        at = &((PyVarObject *)value)->ob_size;
    }
    else if (PyDict_CheckExact(value) || PyODict_CheckExact(value)) {
        at = &((PyDictObject *)value)->ma_used;
    }
    else {
        return false;
    }
    note_type(notes, value);
    note(notes, at);
    return *at == op->imm;
}

/* A load from a known register. */
static bool note_load(Notes *notes, Op *op, PyObject *base) {
    Run *run = notes->run;
    PyObject *want = run->regs[op->dst], *found = NULL;
    int64_t number = 0;
    if (op->code >= OP_LOAD_SIZE) {     /* sizes, strides, offsets */
        if (!note_tensor_int(notes, op, base, &number)) {
            return false;
        }
        found = RAW_INT;
    }
    else if (base == RAW_INT || want == RAW_INT) {
        return false;
    }
    else {
        found = want;
        switch (op->code) {
        case OP_LOAD_INSTANCE:
            if (!note_instance_item(notes, base, op, want)) {
                return false;
            }
            break;
        case OP_LOAD_ITEM:
            if (!(PyDict_CheckExact(base) ? note_dict_item(notes, (PyDictObject *)base, op, want)
                                          : note_sequence_item(notes, base, op, want))) {
                return false;
            }
            break;
        case OP_LOAD_ATTR:
            if (op->src2 == 0 || walk_field(base, op->src2) != want) {
                return false;
            }
            note_type(notes, base);
            note(notes, walk_field_at(base, op->src2));
            break;
        case OP_LOAD_CELL:
            if (!PyCell_Check(base) || PyCell_GET(base) != want) {
                return false;
            }
            note_type(notes, base);
            note(notes, &((PyCellObject *)base)->ob_ref);
            break;
        case OP_LOAD_TYPE:
            note_type(notes, base);
            found = (PyObject *)Py_TYPE(base);
            break;
        default:
            return false;
        }
    }
    notes->values[op->dst - run->nfixed] = found;
    notes->ints[op->dst - run->nfixed] = number;
    notes->known[op->dst] = true;
    return true;
}

static bool note_dict_state(Notes *notes, PyObject *value) {
    if (value == RAW_INT || !PyDict_CheckExact(value) || walk_tagged((PyDictObject *)value) == NULL) {
        return false;
    }
    note_type(notes, value);
    note_tagged(notes, (PyDictObject *)value);
    return true;
}

/* Does `o` have no attribute of its own under this name, by its dict and the dict's tag? */
static bool note_lacks(Notes *notes, Op *op, PyObject *o) {
    PyObject *found;
    if (o == RAW_INT || !note_type_state(notes, o, &op->cold->hint) ||
        walk_instance(o, op->obj, op->cold->hash, &op->cold->hint, &found) != WALK_ABSENT) {
        return false;
    }
    note_storage(notes, o);
    PyDictValues *values;
    PyDictObject *d = walk_instance_storage(o, Py_TYPE(o), &values);
    return walk_tagged(d) != NULL && note_dict_state(notes, (PyObject *)d);
}

/* Is the op, which just held, decided by words of memory? They are noted then (else some may be: see `notes->kept`).
 * Its source registers are known. Runs no Python code. */
bool note_op(Notes *notes, Op *op) {
    Run *run = notes->run;
    PyObject *value = run->regs[op->src], *found;
    bool number = op->src >= run->nfixed && notes->values[op->src - run->nfixed] == RAW_INT;
    if (number) {
        value = RAW_INT;    /* the register may hold an object made of it by now */
    }
    if (op->code < OP_GROUP) {
        return note_load(notes, op, value);
    }
    switch (op->code) {
    case OP_CHECK_TYPE:
        if (number) {
            return op->obj == (PyObject *)&PyLong_Type;
        }
        note_type(notes, value);
        return Py_TYPE(value) == (PyTypeObject *)op->obj;
    case OP_CHECK_INT:
        return number ? notes->ints[op->src - run->nfixed] == op->imm : value == op->obj;
    case OP_CHECK_IS:
    case OP_CHECK_STR:
    case OP_CHECK_ATOM:
        return !number && value == op->obj;     /* the program owns the object: no other gets its address */
    case OP_CHECK_LENGTH:
        return note_length(notes, op, value);
    case OP_CHECK_KEYS:
        return note_dict_state(notes, value) && keys_match_fast(value, op->obj) == 1;
    case OP_CHECK_CONTAINS:
        return note_dict_state(notes, value) && PyUnicode_CheckExact(op->obj) &&
               walk_dict((PyDictObject *)value, op->obj, op->cold->hash, &op->cold->hint, &found) ==
                   (op->imm ? WALK_FOUND : WALK_ABSENT);
    case OP_CHECK_LACKS:
        return note_lacks(notes, op, value);
    case OP_CHECK_CLASS:
        note(notes, &op->cold->hint.type->tp_version_tag);
        return op->cold->hint.type->tp_version_tag == op->cold->hint.tag && op->cold->hint.tag != 0;
    case OP_CHECK_TENSOR:
        return note_tensor(notes, op, value);
    case OP_CHECK_SAME:
        return !number && value == run->regs[op->src2];
    }
    return false;
}

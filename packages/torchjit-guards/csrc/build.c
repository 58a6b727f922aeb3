/* From the tuples that the Python side's lowering makes to ops. */
#include "program.h"

/* Free `n` ops and what they own. */
void ops_free(Op *ops, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_XDECREF(ops[i].obj);
        Py_XDECREF(ops[i].cold->aux);
        if (ops[i].code != OP_CHECK_NATIVE) {
            PyMem_Free(ops[i].payload);
        }
    }
    PyMem_Free(ops);
}

static PyObject *item_of(PyObject *aux, Py_ssize_t i) {
    return PyTuple_Check(aux) && PyTuple_GET_SIZE(aux) > i ? PyTuple_GET_ITEM(aux, i) : NULL;
}

static bool registers_ok(PyObject *registers, Py_ssize_t limit) {
    if (registers == NULL || !PyTuple_Check(registers)) {
        return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(registers); i++) {
        long reg = PyLong_AsLong(PyTuple_GET_ITEM(registers, i));
        if (reg < 0 || reg >= limit) {
            return false;
        }
    }
    return true;
}

/* aux: (first register, count, indices of dicts, ((index, length) ...)) */
static int group_new(Op *op, PyObject *aux, int loaded) {
    int first, n;
    PyObject *subs, *lengths;
    if (!PyArg_ParseTuple(aux, "iiO!O!", &first, &n, &PyTuple_Type, &subs, &PyTuple_Type, &lengths)) {
        return -1;
    }
    size_t nsubs = (size_t)PyTuple_GET_SIZE(subs), nlengths = (size_t)PyTuple_GET_SIZE(lengths);
    if (first != loaded || n < 0 || !registers_ok(subs, n)) {
        PyErr_SetString(PyExc_ValueError, "malformed group");
        return -1;
    }
    Group *g = PyMem_Calloc(1, sizeof(Group) + (size_t)n * sizeof(PyObject *) + nsubs * sizeof(SubDict) +
                                   nlengths * sizeof(SubLength));
    if (g == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    op->payload = g;
    g->first = first;
    g->n = n;
    g->subs = (SubDict *)(g->values + n);
    g->lengths = (SubLength *)(g->subs + nsubs);
    g->nsubs = (int)nsubs;
    g->nlengths = (int)nlengths;
    for (size_t i = 0; i < nsubs; i++) {
        g->subs[i].index = (int)PyLong_AsLong(PyTuple_GET_ITEM(subs, i));
    }
    for (size_t i = 0; i < nlengths; i++) {
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(lengths, i), "in", &g->lengths[i].index, &g->lengths[i].length) ||
            g->lengths[i].index < 0 || g->lengths[i].index >= n) {
            return -1;
        }
    }
    return 0;
}

/* Each GROUP ends at its GROUP_END, groups do not nest, and a group fills just the registers that it says. */
static int groups_ok(Program *p) {
    Op *open = NULL;
    for (Op *op = p->ops; op < p->ops + p->nops; op++) {
        if (op->code == OP_GROUP) {
            if (open != NULL) {
                return 0;
            }
            open = op;
        }
        else if (op->code == OP_GROUP_END) {
            if (open == NULL || op->imm != op - open || open->imm != op->imm) {
                return 0;
            }
            Group *g = open->payload;
            int loads = 0;
            for (Op *inside = open + 1; inside < op; inside++) {
                loads += inside->code < OP_GROUP;
            }
            if (loads != g->n) {
                return 0;
            }
            open = NULL;
        }
    }
    return open == NULL;
}

/* Does the op test or start from the register `src`? */
bool op_reads_src(int code) {
    switch (code) {
    case OP_GROUP_END:
    case OP_CHECK_CLASS:
    case OP_CHECK_DIFFERENT:
    case OP_CHECK_STORAGES:
    case OP_CHECK_CONDITION:
    case OP_CHECK_AMBIENT:
    case OP_CHECK_NATIVE:
    case OP_CHECK_CALL:
        return false;
    default:
        return true;
    }
}

/* Turn one (code, dst, src, src2, obj, aux, imm) into an Op; the registers below `loaded` are filled. */
static int op_parse(Op *op, PyObject *item, int *loaded) {
    int code, dst, src, src2;
    PyObject *obj, *aux;
    long long imm;
    if (!PyArg_ParseTuple(item, "iiiiOOL", &code, &dst, &src, &src2, &obj, &aux, &imm)) {
        return -1;
    }
    bool load = code < OP_GROUP;
    if (code < 0 || code >= OP_COUNT || (op_reads_src(code) && (src < 0 || src >= *loaded)) || (load && dst != *loaded) ||
        (code == OP_CHECK_SAME && (src2 < 0 || src2 >= *loaded))) {
        PyErr_Format(PyExc_ValueError, "malformed guard op %R", item);
        return -1;
    }
    *loaded += load;
    Cold *cold = op->cold;
    *op = (Op){.code = (uint16_t)code, .dst = dst, .src = src, .src2 = src2, .imm = imm, .cold = cold};
    op->obj = Py_NewRef(obj);
    op->cold->aux = Py_NewRef(aux);
    switch (code) {
    case OP_LOAD_INSTANCE:
    case OP_LOAD_ITEM:
    case OP_LOAD_ATTR:
    case OP_CHECK_CONTAINS:
    case OP_CHECK_LACKS:
        if (PyUnicode_CheckExact(obj)) {
            PyUnicode_InternInPlace(&op->obj);  /* keys of dicts mostly are: then pointers tell */
        }
        if (code == OP_LOAD_ATTR) {
            op->src2 = PyUnicode_Check(op->obj) ? walk_field_number(op->obj) : 0;
        }
        op->cold->hash = PyObject_Hash(op->obj);
        return op->cold->hash == -1 ? -1 : 0;
    case OP_CHECK_CLASS:
        if (!PyType_Check(obj) || !PyTuple_Check(aux)) {
            break;
        }
        op->cold->hint.type = (PyTypeObject *)obj;
        return 0;
    case OP_CHECK_TENSOR:
        if (item_of(aux, 0) == NULL || item_of(aux, 1) == NULL) {
            break;
        }
        if (item_of(aux, 1) != Py_None) {
            op->payload = tensor_spec_new(item_of(aux, 1));
            return op->payload == NULL ? -1 : 0;
        }
        return 0;
    case OP_CHECK_CONDITION:
        if (!registers_ok(item_of(aux, 0), *loaded) || item_of(aux, 1) == NULL ||
            PyTuple_GET_SIZE(item_of(aux, 0)) > CONDITION_MAX_DEPTH) {
            break;
        }
        op->payload = condition_new(item_of(aux, 1), PyTuple_GET_SIZE(item_of(aux, 0)));
        return op->payload == NULL ? -1 : 0;
    case OP_GROUP:
        return group_new(op, aux, *loaded);     /* imm: how far the GROUP_END is (groups_ok) */
    case OP_CHECK_DIFFERENT:
    case OP_CHECK_STORAGES:
        if (!registers_ok(aux, *loaded)) {
            break;
        }
        op->payload = PyMem_Calloc((size_t)PyTuple_GET_SIZE(aux) + 1, sizeof(int));
        if (op->payload == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(aux); i++) {
            ((int *)op->payload)[i] = (int)PyLong_AsLong(PyTuple_GET_ITEM(aux, i));
        }
        return 0;
    case OP_CHECK_KEYS:
        if (!PyTuple_Check(obj)) {
            break;
        }
        return 0;
    case OP_CHECK_NATIVE:
        op->payload = PyLong_AsVoidPtr(aux);
        return op->payload == NULL && PyErr_Occurred() ? -1 : 0;
    default:
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "malformed guard op %R", item);
    return -1;
}

/* Fill `ops`, `gather` and the sizes from the arguments of `Program`, checking that the ops can be run: every register
 * is loaded before it is read. 0, or -1 with an error set. */
int program_fill(Program *p, PyObject *ops, PyObject *gather_regs) {
    Py_ssize_t n = PyTuple_GET_SIZE(ops);
    int loaded = (int)(p->nslots + p->npinned);
    p->ops = PyMem_Calloc((size_t)n + 1, sizeof(Op));
    p->cold = PyMem_Calloc((size_t)n + 1, sizeof(Cold));
    p->gather = PyMem_Calloc((size_t)PyTuple_GET_SIZE(gather_regs) + 1, sizeof(int));
    if (p->ops == NULL || p->cold == NULL || p->gather == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        p->ops[i].cold = &p->cold[i];
        p->nops = i + 1;
        if (op_parse(&p->ops[i], PyTuple_GET_ITEM(ops, i), &loaded) < 0) {
            return -1;
        }
    }
    if (!groups_ok(p)) {
        PyErr_SetString(PyExc_ValueError, "malformed groups");
        return -1;
    }
    p->nregs = loaded;
    if (!registers_ok(gather_regs, loaded)) {
        PyErr_SetString(PyExc_ValueError, "gather names a register that is never filled");
        return -1;
    }
    p->ngather = PyTuple_GET_SIZE(gather_regs);
    for (Py_ssize_t i = 0; i < p->ngather; i++) {
        p->gather[i] = (int)PyLong_AsLong(PyTuple_GET_ITEM(gather_regs, i));
    }
    return 0;
}

/* Groups: skipping what dicts that have not changed vouch for (see Group in program.h). */
#ifndef TORCHJIT_GROUP_H
#define TORCHJIT_GROUP_H

#include "program.h"

/* The dict of a group, or NULL when its tag cannot be relied on. */
static inline PyDictObject *group_dict(Run *run, Op *op) {
    PyObject *base = run->regs[op->src];
    if (base == RAW_INT) {
        return NULL;
    }
    if (op->src2 == GROUP_OF_INSTANCE) {
        return walk_tagged_instance(base, &op->cold->hint);
    }
    return PyDict_CheckExact(base) ? walk_tagged((PyDictObject *)base) : NULL;
}

/* Is this the remembered dict in the remembered state? What walk_tagged asks was asked when it was remembered, and
 * cannot have changed: a dict keeps its type, and its kind of keys with its tag. */
static inline bool group_is_unchanged(const Run *run, const Op *op, const Group *g) {
    PyObject *base = run->regs[op->src];
    if (g->dict == NULL || base == RAW_INT) {
        return false;
    }
    if (op->src2 == GROUP_OF_DICT) {
        return base == (PyObject *)g->dict && g->dict->ma_version_tag == g->tag;
    }
    PyTypeObject *tp = Py_TYPE(base);
    if (tp != g->type || tp->tp_version_tag != g->type_tag) {
        return false;
    }
    PyDictValues *values;
    PyDictObject *d = walk_instance_storage(base, tp, &values);
    return d != NULL && d == g->dict && d->ma_version_tag == g->tag;
}

/* The same of the dicts found in it: they are alive, because the dict that holds them is unchanged. */
static inline bool group_subs_are_unchanged(const Group *g) {
    for (int i = 0; i < g->nsubs; i++) {
        if (((PyDictObject *)g->values[g->subs[i].index])->ma_version_tag != g->subs[i].tag) {
            return false;
        }
    }
    for (int i = 0; i < g->nlengths; i++) {
        if (((PyDictObject *)g->values[g->lengths[i].index])->ma_used != g->lengths[i].length) {
            return false;
        }
    }
    return true;
}

/* If the group's dicts are as they were, fill its registers: the group is over. */
static inline bool group_skip(Run *run, Op *op) {
    Group *g = op->payload;
    if (!group_is_unchanged(run, op, g) || !group_subs_are_unchanged(g)) {
        run->group_dict = group_dict(run, op);
        run->group_tag = run->group_dict == NULL ? 0 : run->group_dict->ma_version_tag;
        run->group_python = run->python;
        return false;
    }
    for (int i = 0; i < g->n; i++) {
        run_keep(run, g->first + i, g->values[i]);
    }
    if (run->owned) {
        for (int i = 0; i < g->n; i++) {
            Py_INCREF(g->values[i]);
        }
    }
    return true;
}

/* The group held. Remember it if its dicts can be relied on, and no Python code can have changed them meanwhile. */
static inline void group_remember(Run *run, Op *header) {
    Group *g = header->payload;
    PyDictObject *d = run->group_dict;
    g->dict = NULL;
    if (d == NULL || run->python != run->group_python || d != group_dict(run, header) ||
        d->ma_version_tag != run->group_tag) {
        return;
    }
    for (int i = 0; i < g->nsubs; i++) {
        PyObject *sub = run->regs[g->first + g->subs[i].index];
        if (sub == RAW_INT || !PyDict_CheckExact(sub) || walk_tagged((PyDictObject *)sub) == NULL) {
            return;
        }
        g->subs[i].tag = ((PyDictObject *)sub)->ma_version_tag;
    }
    for (int i = 0; i < g->nlengths; i++) {
        PyObject *sub = run->regs[g->first + g->lengths[i].index];
        if (sub == RAW_INT || !(PyDict_CheckExact(sub) || PyODict_CheckExact(sub))) {
            return;
        }
    }
    memcpy(g->values, run->regs + g->first, (size_t)g->n * sizeof(PyObject *));
    g->tag = run->group_tag;
    g->type = header->cold->hint.type;
    g->type_tag = header->cold->hint.tag;
    g->dict = d;
}

#endif

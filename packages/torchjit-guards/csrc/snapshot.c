#include "snapshot.h"
#include "words.h"

int snapshot_first = 3;

void snapshot_release(Snapshot *s) {
    if (--s->users > 0) {
        return;
    }
    PyMem_Free(s->keys);
    PyMem_Free(s->words);
    PyMem_Free(s->owners);
    PyMem_Free(s->before);
    PyMem_Free(s->after);
    PyMem_Free(s->open);
    PyMem_Free(s->values);
    PyMem_Free(s->ints);
    PyMem_Free(s->gathered);
    PyMem_Free(s);
}

/* The program keeps no snapshot any more; a run that uses it may go on. */
void snapshot_drop(Program *p) {
    Snapshot *s = p->snapshot;
    p->snapshot = NULL;
    if (s != NULL) {
        snapshot_release(s);
    }
}

/* Put the snapshot's values into their registers. Open registers are left alone. */
void snapshot_fill(Run *run) {
    const Snapshot *s = run->snapshot;
    int n = (int)run->program->nregs - run->nfixed;
    if (run->filled) {
        return;
    }
    run->filled = true;
    for (int i = 0; i < n; i++) {
        if (s->values[i] != NULL) {
            run->regs[run->nfixed + i] = s->values[i];
            run->ints[run->nfixed + i] = s->ints[i];
        }
    }
    run->nloaded = (int)run->program->nregs;
}

/* Run by the snapshot: 1, 0, or -1 with an error set. `*decided` is false when its words do not match (any more). */
int snapshot_replay(Run *run, bool *decided) {
    Snapshot *s = run->program->snapshot;
    run->held = s;
    s->users++;
    *decided = true;
    for (int i = 0; i < s->nbefore; i++) {
        int ok = run_ops(run, s->before[i].from, s->before[i].to);
        if (ok <= 0) {
            return ok;
        }
    }
    run->mismatch = snapshot_compare(s, run->slots);
    if (run->mismatch != s->nwords) {
        *decided = false;
        return 0;
    }
    s->hits++;
    run->snapshot = s;
    for (int i = 0; i < s->nopen; i++) {
        run->regs[s->open[i]] = NULL;
    }
    if (s->fills) {
        snapshot_fill(run);
    }
    for (int i = 0; i < s->nafter; i++) {
        int ok = run_ops(run, s->after[i].from, s->after[i].to);
        if (ok <= 0) {
            return ok;
        }
    }
    return 1;
}

/* Does an argument look like one that is given again and again? Tuples, numbers and tensors do not. */
static bool slot_is_stable(const Program *p, int slot, PyObject *o) {
    if (p->strikes != NULL && p->strikes[slot] >= SNAPSHOT_STRIKES) {
        return false;
    }
    if (PyDict_CheckExact(o)) {
        return PyDict_GET_SIZE(o) > 0;
    }
    if (PyFunction_Check(o) || PyModule_Check(o) || PyType_Check(o)) {
        return true;
    }
    return PyType_HasFeature(Py_TYPE(o), Py_TPFLAGS_HEAPTYPE) && !(tensor_layout.ready && tensor_is_plain(o));
}

/* Calls `visit` with each register that the op reads, until it returns false. */
static bool each_source(const Op *op, bool (*visit)(void *, int), void *data) {
    PyObject *list = NULL;
    if (op->code == OP_CHECK_DIFFERENT || op->code == OP_CHECK_STORAGES) {
        list = op->cold->aux;
    }
    else if (op->code == OP_CHECK_CONDITION) {
        list = PyTuple_GET_ITEM(op->cold->aux, 0);
    }
    for (Py_ssize_t i = 0; list != NULL && i < PyTuple_GET_SIZE(list); i++) {
        if (!visit(data, (int)PyLong_AsLong(PyTuple_GET_ITEM(list, i)))) {
            return false;
        }
    }
    return (!op_reads_src(op->code) || visit(data, op->src)) && (op->code != OP_CHECK_SAME || visit(data, op->src2));
}

static bool is_known(void *notes, int reg) {
    return ((Notes *)notes)->known[reg];
}

static bool is_fixed_or_open(void *notes, int reg) {
    Notes *n = notes;
    return reg < n->run->nfixed || !n->known[reg];
}

/* Decide for each op whether words decide it; the others are marked in `left`. */
static void note_all(Notes *notes, const Program *p, bool *left) {
    for (int i = 0; i < p->nslots; i++) {
        notes->known[i] = slot_is_stable(p, i, notes->run->slots[i]);
    }
    for (int i = 0; i < p->npinned; i++) {
        notes->known[p->nslots + i] = true;
    }
    for (int i = 0; i < p->nops && !notes->failed; i++) {
        Op *op = p->ops + i;
        int last = op->code == OP_GROUP ? i + (int)op->imm : i;
        bool tried = each_source(op, is_known, notes) &&
                     (p->strikes == NULL || p->strikes[p->nslots + i] < SNAPSHOT_STRIKES);
        notes->n = notes->kept;
        if (op->code == OP_GROUP_END) {
            continue;
        }
        if (tried && op->code == OP_GROUP && ((Group *)op->payload)->dict == NULL) {
            continue;   /* no tag vouches for the dict: op by op */
        }
        if (tried && (op->code == OP_GROUP ? note_group(notes, op) : note_op(notes, op))) {
            notes_keep(notes, i);
        }
        else {
            memset(left + i, 1, (size_t)(last - i + 1) * sizeof(bool));
        }
        i = last;
    }
    notes->n = notes->kept;
}

/* The spans of the ops in [from, to) that are left over: NULL without memory. */
static Span *spans(const bool *left, int from, int to, int *n) {
    Span *found = PyMem_Calloc((size_t)(to - from) / 2 + 2, sizeof(Span));
    *n = 0;
    for (int i = from; found != NULL && i < to; i++) {
        if (left[i]) {
            int start = i;
            while (i < to && left[i]) {
                i++;
            }
            found[(*n)++] = (Span){start, i};
        }
    }
    return found;
}

static bool walks(const Op *op) {
    return op->code <= OP_GROUP_END || op->code == OP_CHECK_CLASS;
}

/* Move what the notes hold into a snapshot. */
static Snapshot *assemble(Notes *notes, const Program *p, const bool *left) {
    Snapshot *s = PyMem_Calloc(1, sizeof(Snapshot));
    if (s == NULL) {
        return NULL;
    }
    s->users = 1;
    int first = 0, n = (int)p->nregs - notes->run->nfixed;
    while (first < p->nops && !walks(p->ops + first)) {
        first++;
    }
    s->before = spans(left, 0, first, &s->nbefore);
    s->after = spans(left, first, (int)p->nops, &s->nafter);
    s->keys = PyMem_Calloc((size_t)p->nslots + 1, sizeof(SlotKey));
    s->open = PyMem_Calloc((size_t)n + 1, sizeof(int));
    s->gathered = PyMem_Calloc((size_t)p->ngather + 1, sizeof(PyObject *));
    s->words = PyMem_Realloc(notes->words, (size_t)notes->kept * sizeof(Word));
    s->nwords = notes->kept;
    s->owners = notes->owners;
    s->values = notes->values;
    s->ints = notes->ints;
    if (s->words == NULL) {
        s->words = notes->words;
    }
    notes->words = NULL;
    notes->owners = NULL;
    notes->values = NULL;
    notes->ints = NULL;
    if (s->before == NULL || s->after == NULL || s->keys == NULL || s->open == NULL || s->gathered == NULL) {
        snapshot_release(s);
        return NULL;
    }
    for (int i = 0; i < p->nslots; i++) {
        if (notes->known[i]) {
            s->keys[s->nkeys++] = (SlotKey){i, notes->run->slots[i]};
        }
    }
    for (int i = 0; i < n; i++) {
        if (s->values[i] == NULL) {
            s->open[s->nopen++] = notes->run->nfixed + i;
        }
    }
    for (Py_ssize_t i = 0; i < p->ngather; i++) {
        int reg = p->gather[i] - notes->run->nfixed;
        s->gathered[i] = reg < 0 || s->values[reg] == RAW_INT ? NULL : s->values[reg];
    }
    for (int i = 0; i < p->nops; i++) {
        s->fills |= left[i] && !each_source(p->ops + i, is_fixed_or_open, notes);
    }
    return s;
}

/* A snapshot of the hit that the run just had, or NULL. */
static Snapshot *take(Run *run) {
    const Program *p = run->program;
    Notes notes;
    Snapshot *s = NULL;
    bool *left = PyMem_Calloc((size_t)p->nops + 1, sizeof(bool));
    if (left != NULL && notes_init(&notes, run) == 0) {
        note_all(&notes, p, left);
        if (!notes.failed && notes.kept > 0) {
            s = assemble(&notes, p, left);
        }
        notes_free(&notes);
    }
    PyMem_Free(left);
    return s;
}

/* The words of `s` did not match, though the walk found that all guards hold: what differed will do so again. */
static void strike(Program *p, const Snapshot *s, int mismatch) {
    if (p->strikes == NULL) {
        p->strikes = PyMem_Calloc((size_t)(p->nslots + p->nops), 1);
    }
    unsigned char *count = p->strikes == NULL ? NULL
                           : mismatch < 0     ? p->strikes + (-1 - mismatch)
                                              : p->strikes + p->nslots + s->owners[mismatch];
    if (count != NULL && *count < SNAPSHOT_STRIKES) {
        ++*count;
    }
}

/* After a walk that was a hit: take a snapshot, if the program has been hit without one for a while. One that did not
 * match is dropped; if it did not serve for long either, the op that ended it is on its way to be left over for ever. */
void snapshot_consider(Run *run) {
    Program *p = run->program;
    if (run->held != NULL && run->held == p->snapshot) {
        if (run->held->hits < SNAPSHOT_WORTH) {
            strike(p, run->held, run->mismatch);
            p->wait = p->wait < SNAPSHOT_MAX_WAIT ? p->wait * 2 : SNAPSHOT_MAX_WAIT;
        }
        else {
            p->wait = snapshot_first;
        }
        snapshot_drop(p);
        p->walked = 0;
    }
    if (p->snapshot == NULL && p->walked++ >= p->wait) {
        p->walked = 0;
        p->snapshot = take(run);
    }
}

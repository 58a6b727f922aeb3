/* The guard program: a flat array of ops over registers. See program.c for how it runs. */
#ifndef TORCHJIT_PROGRAM_H
#define TORCHJIT_PROGRAM_H

#include "condition.h"
#include "tensor.h"
#include "walk.h"

/* X(NAME): loads fill register `dst` from `src`; checks test `src`. The Python side reads the numbers by name. */
#define GUARD_OPS(X)                                                                                              \
    X(LOAD_INSTANCE) X(LOAD_ITEM) X(LOAD_ATTR) X(LOAD_CELL) X(LOAD_TYPE) X(LOAD_REFERENT)                         \
    X(LOAD_COMPUTED) X(LOAD_SIZE) X(LOAD_STRIDE) X(LOAD_OFFSET)                                                   \
    X(GROUP) X(GROUP_END)                                                                                         \
    X(CHECK_TYPE) X(CHECK_IS) X(CHECK_INT) X(CHECK_STR) X(CHECK_ATOM) X(CHECK_EQUAL) X(CHECK_LENGTH)              \
    X(CHECK_KEYS) X(CHECK_CONTAINS) X(CHECK_LACKS) X(CHECK_CLASS) X(CHECK_TENSOR) X(CHECK_SAME)                   \
    X(CHECK_DIFFERENT) X(CHECK_STORAGES) X(CHECK_CONDITION) X(CHECK_AMBIENT) X(CHECK_NATIVE)                      \
    X(CHECK_PREDICATE) X(CHECK_CALL)

enum {
#define X(name) OP_##name,
    GUARD_OPS(X)
#undef X
    OP_COUNT
};

/* What an op rarely needs, apart, so that the ops of a large program stay in the cache. */
typedef struct {
    PyObject *aux;      /* tuple with what else the op needs (owned) */
    Py_hash_t hash;     /* of obj, when it is a key */
    Hint hint;
} Cold;

typedef struct {
    uint16_t code;
    int dst, src, src2;
    int64_t imm;
    PyObject *obj;      /* key, expected object, class, function ... (owned) */
    void *payload;      /* TensorSpec, Condition, Group ...: freed with the op */
    Cold *cold;
} Op;

typedef struct {
    int index;          /* of the dict among the group's registers */
    uint64_t tag;
} SubDict;

typedef struct {
    int index;          /* likewise: a dict or OrderedDict */
    Py_ssize_t length;
} SubLength;

/* Ops that read one dict (and dicts, tuples and lengths found in it), from a GROUP to its GROUP_END. When the dict is the
 * one seen last, unchanged since (CPython gives a dict a new tag with each change, and never gives a tag twice), and so
 * are the dicts in it, they would do the same again: the registers that they fill are copied and they are skipped. */
typedef struct {
    PyDictObject *dict;     /* not owned: an address, of use only together with the tag; NULL: nothing remembered */
    uint64_t tag;
    int first, n;           /* the registers */
    unsigned int type_tag;  /* of `type`, the class of the object whose dict it is (kind GROUP_OF_INSTANCE) */
    int nsubs, nlengths;
    PyTypeObject *type;
    SubDict *subs;          /* both in this block, behind the values */
    SubLength *lengths;
    PyObject *values[];     /* borrowed from the dicts */
} Group;

enum { GROUP_OF_INSTANCE = 0, GROUP_OF_DICT = 1 };

typedef struct {
    unsigned abi;
    void *self;
    Py_ssize_t ngathered;
    int (*check)(void *self, PyObject *const *slots, Py_ssize_t nslots, PyObject **gathered);
} torchjit_guard_v1;

typedef struct Snapshot Snapshot;

typedef struct {
    PyObject_HEAD
    torchjit_guard_v1 abi;
    vectorcallfunc vectorcall;
    Py_ssize_t nslots, npinned, nregs, nops, ngather;
    Op *ops;
    Cold *cold;
    int *gather;
    PyObject *pinned;   /* tuple */
    Snapshot *snapshot; /* of the last hits, or NULL */
    int walked, wait;   /* hits without a snapshot since the last one, and how many there shall be before the next */
    unsigned char *strikes;     /* how often each slot, then each op, ended a snapshot early; NULL: never yet */
} Program;

/* A register that holds an int in `ints` and no object yet. */
#define RAW_INT ((PyObject *)(uintptr_t)1)

/* One run. Registers [0, nfixed) are slots and pinned objects, kept alive by the caller and by the program. Those
 * after are borrowed until Python code may run; then `run_own` takes references to all of them. */
typedef struct {
    Program *program;
    PyObject *const *slots;
    PyObject **regs;
    int64_t *ints;
    int nfixed, nloaded;
    bool owned;
    PyDictObject *group_dict;   /* of the group being run, when it may be remembered */
    uint64_t group_tag;
    unsigned python;            /* counts the times that Python code may have run */
    unsigned group_python;      /* `python` when the group began */
    Snapshot *held;             /* tried in this run, and kept alive by it */
    Snapshot *snapshot;         /* the same, once its words matched */
    int mismatch;               /* what did not match, if so: see snapshot_compare */
    bool filled;                /* the snapshot's values are in the registers */
} Run;

void snapshot_fill(Run *run);

/* A register's value; whether it is owned is the caller's business. */
static inline void run_keep(Run *run, int reg, PyObject *value) {
    run->regs[reg] = value;
    if (reg >= run->nloaded) {
        run->nloaded = reg + 1;
    }
}

static inline void run_own(Run *run) {
    run->python++;
    if (!run->owned) {
        run->owned = true;
        if (run->snapshot != NULL) {
            snapshot_fill(run);
        }
        for (int i = run->nfixed; i < run->nloaded; i++) {
            if (run->regs[i] != RAW_INT) {
                Py_XINCREF(run->regs[i]);   /* NULL: still open, see snapshot.h */
            }
        }
    }
}

/* Before a check that runs Python code: with nothing borrowed in the registers there is nothing to protect. */
static inline void run_protect(Run *run) {
    run->python++;
    if (run->nloaded > run->nfixed || run->snapshot != NULL) {
        run_own(run);
    }
}

extern PyTypeObject Program_Type;
int run_ops(Run *run, Py_ssize_t from, Py_ssize_t to);
int check_with_python(Run *run, Op *op);
int check_keys(Run *run, Op *op, PyObject *value);
int check_lacks(Run *run, Op *op, PyObject *value);
int check_contains(Run *run, Op *op, PyObject *value);
int check_different(Run *run, Op *op);
int check_condition(Run *run, Op *op);
int check_tensor(Run *run, Op *op, PyObject *value);
int check_class(Op *op);
int check_length(Run *run, Op *op, PyObject *value);
int keys_match_fast(PyObject *dict, PyObject *want);
bool op_reads_src(int code);
bool atoms_equal(PyObject *a, PyObject *b);
int load_value(Run *run, Op *op, PyObject *base);
PyObject *run_object(Run *run, int reg);
PyObject *program_pass_through(PyObject *module, PyObject *function);
bool program_passes_through(void);
int program_fill(Program *p, PyObject *ops, PyObject *gather_regs);
void ops_free(Op *ops, Py_ssize_t n);

#endif

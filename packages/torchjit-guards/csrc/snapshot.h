/* Snapshots: skipping the walk of a program whose last hits read the same memory.
 *
 * A walk is decided by the words of memory that it reads: each address follows from the slots, from what the program
 * owns, and from words read before. A snapshot keeps, in the order of reading, the address and the content of each
 * word that the ops of a hit read. While the slots are the same and every word in turn is as it was, the walk would
 * read the same again, find the same objects, and hold; so its registers are those of the snapshot. A word is read
 * only after all words before it matched, so its address is as valid as in the walk.
 *
 * Ops whose answer is not decided by such words (Python code, ambient state, arguments that differ from call to call,
 * and what is found through them) are left over: they run as ever. */
#ifndef TORCHJIT_SNAPSHOT_H
#define TORCHJIT_SNAPSHOT_H

#include "program.h"

typedef uint64_t __attribute__((may_alias)) word_t;

typedef struct {
    const word_t *at;
    uint64_t want;
} Word;

typedef struct {
    int slot;
    PyObject *object;   /* an address to compare with */
} SlotKey;

typedef struct {
    int from, to;       /* ops */
} Span;

struct Snapshot {
    int users;          /* runs in which it serves, and the program */
    int nkeys, nwords, nbefore, nafter, nopen;
    uint64_t hits;
    bool fills;         /* ops left over read registers of the snapshot */
    SlotKey *keys;
    Word *words;
    int *owners;        /* the op that asked for each word */
    Span *before, *after;   /* ops left over: those that walk nowhere, and the rest */
    int *open;          /* registers that ops left over fill */
    PyObject **values;  /* of the registers behind the fixed ones; borrowed while the words match; NULL: open */
    int64_t *ints;
    PyObject **gathered;    /* what the program gathers, borrowed as `values`; NULL where it differs from call to call */
};

/* How a program decides about snapshots. */
extern int snapshot_first;  /* hits of a new program, or since its last snapshot, before the next */
enum { SNAPSHOT_WORTH = 32, SNAPSHOT_MAX_WAIT = 512, SNAPSHOT_STRIKES = 2 };

/* The number of words that match, in order, or -1 - i for slot i that is another object. */
static inline int snapshot_compare(const Snapshot *s, PyObject *const *slots) {
    for (int i = 0; i < s->nkeys; i++) {
        if (slots[s->keys[i].slot] != s->keys[i].object) {
            return -1 - s->keys[i].slot;
        }
    }
    const Word *words = s->words, *w = words, *end = words + s->nwords;
    for (; end - w >= 4; w += 4) {  /* four at a time: most of what a hit costs is this loop */
        if (*w[0].at != w[0].want || *w[1].at != w[1].want || *w[2].at != w[2].want || *w[3].at != w[3].want) {
            break;
        }
    }
    while (w < end && *w->at == w->want) {
        w++;
    }
    return (int)(w - words);
}

int snapshot_replay(Run *run, bool *decided);
void snapshot_consider(Run *run);
void snapshot_drop(Program *p);
void snapshot_release(Snapshot *s);

#endif

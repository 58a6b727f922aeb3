/* Noting the words of memory that decide an op (see snapshot.h). */
#ifndef TORCHJIT_WORDS_H
#define TORCHJIT_WORDS_H

#include "snapshot.h"

/* What has been noted so far. The words behind `kept` belong to an op that may yet turn out not to be decided by
 * words; a word that is kept is not noted again. */
typedef struct {
    Run *run;
    Word *words;
    int *owners;
    int n, kept, room;
    const word_t **table;   /* addresses of kept words: open addressing, at most half full */
    size_t size;
    bool *known;            /* registers that the words decide */
    PyObject **values;      /* of the registers behind the fixed ones */
    int64_t *ints;
    bool failed;            /* out of memory */
} Notes;

int notes_init(Notes *notes, Run *run);
void notes_free(Notes *notes);
void notes_keep(Notes *notes, int owner);
bool note_group(Notes *notes, const Op *op);
bool note_op(Notes *notes, Op *op);

#endif

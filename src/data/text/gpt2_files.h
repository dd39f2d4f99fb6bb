/* GPT-2's two files, in memory. */
#ifndef TT_DATA_GPT2_FILES_H
#define TT_DATA_GPT2_FILES_H

#include "data/files/whole_file.h"

#include <tutti/datasets.h>

/* tt_gpt2_tokenizer() without the reading; names are for errors. */
tt_tokenizer *tt__gpt2_make(const char *vocab_name, const tt__whole_file *vocab, const char *merges_name,
                            const tt__whole_file *merges);

#endif

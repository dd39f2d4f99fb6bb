/* The command that reaches another host: ssh, or what TUTTI_SSH names in its place, with flags. */
#ifndef TT_LAUNCH_ADAPTERS_SSH_WORDS_H
#define TT_LAUNCH_ADAPTERS_SSH_WORDS_H

#include <tutti/base.h>

enum { TT__SSH_WORDS = 32, TT__SSH_TEXT = 1024 };

typedef struct tt__ssh_words {
    char text[TT__SSH_TEXT]; /* cut into words: */
    char *words[TT__SSH_WORDS];
    int n;
} tt__ssh_words;

/* Cut it into words, to which the host and what is to run there are added. TT_ERR_SYSTEM: there is none. */
tt_status tt__ssh_words_make(tt__ssh_words *ssh);

#endif

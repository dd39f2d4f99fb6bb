#ifndef TT_CLI_SHELL_WORD_H
#define TT_CLI_SHELL_WORD_H

#include <stdio.h>

/* Write a word as a POSIX shell reads it back, in quotes if it needs them. */
void tt__write_shell_word(const char *word, FILE *out);

#endif

#include "cli/shell_word.h"

#include <string.h>

void tt__write_shell_word(const char *word, FILE *out) {
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
    if (*word && !word[strspn(word, safe)]) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word; word++)
        fputs(*word == '\'' ? "'\\''" : (const char[2]){*word, '\0'}, out);
    fputc('\'', out);
}

#include "launch/adapters/ssh_words.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tt_status tt__ssh_words_make(tt__ssh_words *ssh) {
    static const char batch[] = "ssh -T -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15";
    const char *given = secure_getenv("TUTTI_SSH");
    char *rest;
    *ssh = (tt__ssh_words){0};
    snprintf(ssh->text, sizeof ssh->text, "%s", given && *given ? given : batch);
    for (char *word = strtok_r(ssh->text, " \t", &rest); word && ssh->n < TT__SSH_WORDS - 1;
         word = strtok_r(NULL, " \t", &rest))
        ssh->words[ssh->n++] = word;
    return ssh->n ? TT_OK : tt__fail(TT_ERR_SYSTEM, "TUTTI_SSH: expected a command, got blanks");
}

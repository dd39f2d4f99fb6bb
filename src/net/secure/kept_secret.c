#include "net/secure/kept_secret.h"

#include <pthread.h>
#include <string.h>

/* Set by who joins, read by who loads a secret and by the thread of a store. */
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static char kept_text[TT__SECRET_MADE_SIZE], kept_credential[TT__MUNGE_CREDENTIAL_MAX];

void tt__secret_keep(const char text[TT__SECRET_MADE_SIZE], const char *credential) {
    pthread_mutex_lock(&kept_lock);
    memcpy(kept_text, text, sizeof kept_text);
    kept_credential[0] = '\0';
    if (credential)
        memcpy(kept_credential, credential, strlen(credential) + 1);
    pthread_mutex_unlock(&kept_lock);
}

void tt__secret_kept(char text[TT__SECRET_MADE_SIZE]) {
    pthread_mutex_lock(&kept_lock);
    memcpy(text, kept_text, sizeof kept_text);
    pthread_mutex_unlock(&kept_lock);
}

void tt__credential_kept(char credential[TT__MUNGE_CREDENTIAL_MAX]) {
    pthread_mutex_lock(&kept_lock);
    memcpy(credential, kept_credential, sizeof kept_credential);
    pthread_mutex_unlock(&kept_lock);
}

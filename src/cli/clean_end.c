/* An end by a signal that leaves no half-written files and no empty folder. */
#include "cli/cli.h"

#include "base/files/atomic_file.h"
#include "base/files/planted.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* The folder that was made here, if it may still be empty. The lock is held from before it is made until it is noted
 * here: a signal in between would leave the folder. */
static pthread_mutex_t folder_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *made_folder;

static const int ends[] = {SIGINT, SIGTERM, SIGHUP};

/* Signals that the caller ignores (nohup) stay ignored. */
static void add_ends(sigset_t *set) {
    sigemptyset(set);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct sigaction now;
        if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            sigaddset(set, ends[i]);
    }
}

static void remove_made_folder(void) {
    if (made_folder)
        rmdir(made_folder); /* fails if anything is in it */
    made_folder = NULL;
}

/* A handler could interrupt the writer anywhere; this thread waits for the signal instead. */
static void *wait_for_signal(void *user) {
    sigset_t set, one;
    int number;
    (void)user;
    add_ends(&set);
    if (sigwait(&set, &number))
        return NULL;
    tt__atomic_remove_temporaries();
    /* held until the end: a thread that fails because the folder is gone waits here */
    pthread_mutex_lock(&folder_lock);
    remove_made_folder();
    sigemptyset(&one);
    sigaddset(&one, number);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    raise(number);
    return NULL;
}

tt_status tt__cli_make_folder(const char *folder) {
    bool made;
    pthread_mutex_lock(&folder_lock);
    tt_status status = tt__make_folder(folder, &made);
    if (made)
        made_folder = folder;
    pthread_mutex_unlock(&folder_lock);
    return status;
}

void tt__cli_remove_folder(void) {
    pthread_mutex_lock(&folder_lock);
    remove_made_folder();
    pthread_mutex_unlock(&folder_lock);
}

void tt__cli_end_cleanly(void) {
    sigset_t set;
    pthread_t thread;
    add_ends(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pthread_create(&thread, NULL, wait_for_signal, NULL))
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    else
        pthread_detach(thread);
}

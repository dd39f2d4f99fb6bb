/* Uses the C library alone: objects that link nothing else of Tutti's contain this file, too. */
#include "base/files/trusted.h"

#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- where we are ---- */

static char own_file[PATH_MAX];

static void find_own_file(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char *line = NULL;
    size_t room = 0;
    uintptr_t here = (uintptr_t)&find_own_file;
    while (maps && getline(&line, &room, maps) > 0) {
        unsigned long long begin, end;
        const char *path = strchr(line, '/');
        if (sscanf(line, "%llx-%llx", &begin, &end) != 2 || here < begin || here >= end)
            continue;
        if (path && strcspn(path, "\n") < sizeof own_file)
            snprintf(own_file, sizeof own_file, "%.*s", (int)strcspn(path, "\n"), path);
        break;
    }
    free(line);
    if (maps)
        fclose(maps);
}

const char *tt__own_file(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_own_file);
    return own_file;
}

/* ---- whom we trust ---- */

bool tt__is_group_of_one(gid_t group, uid_t owner) {
    char group_room[4096], user_room[4096];
    struct group found, *its = NULL;
    struct passwd user, *his = NULL;
    if (group == 0)
        return true;
    if (getgrgid_r(group, &found, group_room, sizeof group_room, &its) || !its ||
        getpwuid_r(owner, &user, user_room, sizeof user_room, &his) || !his)
        return false;
    for (char **member = its->gr_mem; *member; member++)
        if (strcmp(*member, his->pw_name) != 0)
            return false;
    return !strcmp(its->gr_name, his->pw_name) && his->pw_gid == group;
}

/* Does our own file lie in this folder, or below it? Whoever may write there could exchange us. */
static bool is_above_us(const char *folder) {
    const char *own = tt__own_file();
    size_t n = strlen(folder);
    return *own && (!strcmp(folder, "/") || (!strncmp(own, folder, n) && own[n] == '/'));
}

static bool is_trusted_user(uid_t user) {
    struct stat own;
    return user == 0 || user == geteuid() || (*tt__own_file() && stat(tt__own_file(), &own) == 0 && own.st_uid == user);
}

/* May the file's group write to what is trusted? Only if the owner is its one member, or if it may write to our own
 * file anyway. */
static bool is_trusted_group(const struct stat *info) {
    struct stat own;
    if (*tt__own_file() && stat(tt__own_file(), &own) == 0 && (own.st_mode & S_IWGRP) && own.st_gid == info->st_gid)
        return true;
    return tt__is_group_of_one(info->st_gid, info->st_uid);
}

/* Check the file or one folder above it. In a sticky folder nobody can exchange another user's file. */
static tt_status check_step(const char *at, bool is_file, char *why, size_t size) {
    struct stat info;
    if (lstat(at, &info)) {
        snprintf(why, size, "%s: can't look at it: %s", at, strerror(errno));
        return TT_ERR_IO;
    }
    if (is_file && !S_ISREG(info.st_mode)) {
        snprintf(why, size, "%s: expected a regular file", at);
        return TT_ERR_AUTH;
    }
    if (!is_trusted_user(info.st_uid)) {
        snprintf(why, size, "%s belongs to user %u: code is loaded only from what is root's or this user's (%u)", at,
                 (unsigned)info.st_uid, (unsigned)geteuid());
        return TT_ERR_AUTH;
    }
    if (!is_file && ((info.st_mode & S_ISVTX) || is_above_us(at)))
        return TT_OK;
    if (!(info.st_mode & S_IWOTH) && (!(info.st_mode & S_IWGRP) || is_trusted_group(&info)))
        return TT_OK;
    snprintf(why, size,
             "%s can be written by %s: code is loaded only from where root and this user alone may write (chmod go-w)",
             at, info.st_mode & S_IWOTH ? "everybody" : "its group");
    return TT_ERR_AUTH;
}

tt_status tt__trust(const char *path, char real[PATH_MAX], char *why, size_t size) {
    char at[PATH_MAX];
    if (!realpath(path, real)) {
        snprintf(why, size, "%s: can't find it: %s", path, strerror(errno));
        return TT_ERR_IO;
    }
    snprintf(at, sizeof at, "%s", real);
    for (bool is_file = true;; is_file = false) {
        tt_status status = check_step(at, is_file, why, size);
        if (status || !strcmp(at, "/"))
            return status;
        char *slash = strrchr(at, '/');
        slash[slash == at] = '\0';
    }
}

#include "data/images/folder_list.h"

#include "base/error.h"
#include "base/text/parse.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- texts ---- */

/* Add a text, which is taken over, also on failure. NULL: there was no memory for it. */
static tt_status texts_add(tt__texts *texts, char *text) {
    if (text && texts->count == texts->room) {
        int64_t room = texts->room ? 2 * texts->room : 16;
        char **grown = realloc(texts->text, (size_t)room * sizeof *grown);
        if (grown) {
            texts->text = grown;
            texts->room = room;
        }
    }
    if (!text || texts->count == texts->room) {
        free(text);
        return tt__fail(TT_ERR_MEMORY, "no memory to list files");
    }
    texts->text[texts->count++] = text;
    return TT_OK;
}

static void texts_free(tt__texts *texts) {
    for (int64_t i = 0; i < texts->count; i++)
        free(texts->text[i]);
    free(texts->text);
    *texts = (tt__texts){0};
}

static int text_order(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void texts_sort(tt__texts *texts) {
    if (texts->count)
        qsort(texts->text, (size_t)texts->count, sizeof *texts->text, text_order);
}

/* ---- one folder ---- */

static char *path_in(const char *dir, const char *name) {
    size_t size = strlen(dir) + strlen(name) + 2;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%s", dir, name);
    return path;
}

/* Is the ending a picture's? The name may have nothing else. */
static bool is_picture(const char *name) {
    static const char *const endings[] = {".jpg", ".jpeg", ".png"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (n >= strlen(endings[i]) && tt__equal_ignoring_case(name + n - strlen(endings[i]), endings[i]))
            return true;
    return false;
}

/* Add an entry to `folders` or, if it is a picture and pictures are wanted, `files`. Links are followed. */
static tt_status note_entry(const char *dir, const char *name, tt__texts *folders, tt__texts *files) {
    struct stat info;
    char *path = path_in(dir, name);
    bool there = path && stat(path, &info) == 0; /* a link may lead nowhere */
    if (path && !(there && S_ISDIR(info.st_mode)) && !(files && is_picture(name))) {
        free(path);
        return TT_OK;
    }
    return texts_add(there && S_ISDIR(info.st_mode) ? folders : files ? files : folders, path);
}

static tt_status list_folder(const char *dir, tt__texts *folders, tt__texts *files) {
    DIR *entries = opendir(dir);
    if (!entries)
        return tt__fail_errno(TT_ERR_IO, errno, "%s: can't open the folder", dir);
    tt_status status = TT_OK;
    errno = 0;
    for (struct dirent *entry; !status && (entry = readdir(entries)); errno = 0)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            status = note_entry(dir, entry->d_name, folders, files);
    if (!status && errno)
        status = tt__fail_errno(TT_ERR_IO, errno, "%s: can't read the folder", dir);
    closedir(entries);
    return status;
}

/* ---- a class ---- */

/* List all folders below a class, itself included, as they are found; links may lead in circles. */
static tt_status list_tree(const char *dir, tt__texts *folders) {
    enum { MOST_FOLDERS = 1000000, MOST_PATH = 4000 };
    TT__TRY(texts_add(folders, strdup(dir)));
    for (int64_t i = 0; i < folders->count; i++) {
        if (folders->count > MOST_FOLDERS || strlen(folders->text[i]) > MOST_PATH)
            return tt__fail(TT_ERR_IO, "%s: folders lie in too many others; does a link lead in a circle?", dir);
        TT__TRY(list_folder(folders->text[i], folders, NULL));
    }
    texts_sort(folders);
    return TT_OK;
}

/* Add the pictures of one folder, sorted. */
static tt_status add_pictures(tt__texts *files, const char *dir) {
    tt__texts found = {0}, folders = {0};
    tt_status status = list_folder(dir, &folders, &found);
    texts_sort(&found);
    for (int64_t i = 0; i < found.count && !status; i++) {
        status = texts_add(files, found.text[i]);
        found.text[i] = NULL;
    }
    texts_free(&found);
    texts_free(&folders);
    return status;
}

static tt_status add_class(tt__folder_list *list, const char *dir) {
    tt__texts folders = {0};
    int64_t before = list->files.count;
    tt_status status = list_tree(dir, &folders);
    for (int64_t i = 0; i < folders.count && !status; i++)
        status = add_pictures(&list->files, folders.text[i]);
    texts_free(&folders);
    if (!status && list->files.count == before)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: expected pictures (.jpg, .jpeg, .png) in it or below, found none", dir);
    return status;
}

/* ---- all ---- */

static tt_status list_classes(tt__folder_list *list, const tt__texts *folders, const char *dir) {
    if (!folders->count)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: expected a folder for each class in it, found none", dir);
    list->begins = calloc((size_t)folders->count + 1, sizeof *list->begins);
    if (!list->begins)
        return tt__fail(TT_ERR_MEMORY, "no memory to list %" PRId64 " classes", folders->count);
    for (int64_t i = 0; i < folders->count; i++) {
        TT__TRY(texts_add(&list->classes, strdup(strrchr(folders->text[i], '/') + 1)));
        TT__TRY(add_class(list, folders->text[i]));
        list->begins[i + 1] = list->files.count;
    }
    return TT_OK;
}

tt_status tt__folder_list_make(tt__folder_list *list, const char *who, const char *dir) {
    tt__texts folders = {0};
    *list = (tt__folder_list){.begins = NULL};
    tt_status status = list_folder(dir, &folders, NULL);
    texts_sort(&folders);
    if (!status)
        status = list_classes(list, &folders, dir);
    texts_free(&folders);
    return status ? tt__fail_prefix("%s", who) : TT_OK;
}

void tt__folder_list_free(tt__folder_list *list) {
    texts_free(&list->classes);
    texts_free(&list->files);
    free(list->begins);
    *list = (tt__folder_list){.begins = NULL};
}

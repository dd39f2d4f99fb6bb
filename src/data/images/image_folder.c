/* The data set of the pictures in a folder, which has a folder for each class, in torchvision's order. Pictures are
 * read, decoded and resized one by one, in memory that is used again. */
#include "base/args.h"
#include "base/error.h"
#include "base/text/parse.h"
#include "data/datasets/dataset.h"
#include "data/files/whole_file.h"
#include "data/images/image.h"

#include <tutti/datasets.h>

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Texts that grow one by one. Zeroed = none. */
typedef struct tt__texts {
    char **text;
    int64_t count, room;
} tt__texts;

typedef struct tt__folder_list {
    tt__texts classes, files; /* names; paths */
    int64_t *begins;          /* of each class: its first file; one more: the number of files */
} tt__folder_list;

/* ---- the list of files: texts ---- */

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

/* ---- the list of files: one folder ---- */

static char *path_in(const char *dir, const char *name) {
    size_t size = strlen(dir) + strlen(name) + 2;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%s", dir, name);
    return path;
}

/* Does the name end as a picture's does? It may be the ending alone, as in torchvision. */
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

/* ---- the list of files: a class ---- */

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

/* ---- the list of files: all ---- */

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

/* List a folder. After success or failure folder_list_free() must follow. `who` begins errors. */
static tt_status folder_list_make(tt__folder_list *list, const char *who, const char *dir) {
    tt__texts folders = {0};
    *list = (tt__folder_list){.begins = NULL};
    tt_status status = list_folder(dir, &folders, NULL);
    texts_sort(&folders);
    if (!status)
        status = list_classes(list, &folders, dir);
    texts_free(&folders);
    return status ? tt__fail_prefix("%s", who) : TT_OK;
}

static void folder_list_free(tt__folder_list *list) {
    texts_free(&list->classes);
    texts_free(&list->files);
    free(list->begins);
    *list = (tt__folder_list){.begins = NULL};
}

/* What one thread needs for a picture. */
typedef struct workplace {
    struct workplace *next; /* among those that nobody uses */
    tt__reused_memory file;
    tt__image decoded, resized;
    tt__resizing resizing;
} workplace;

typedef struct image_folder {
    tt__folder_list list;
    int64_t height, width, resize;
    pthread_mutex_t lock;
    workplace *unused;
} image_folder;

/* ---- workplaces ---- */

static workplace *workplace_take(image_folder *f) {
    pthread_mutex_lock(&f->lock);
    workplace *place = f->unused;
    if (place)
        f->unused = place->next;
    pthread_mutex_unlock(&f->lock);
    return place ? place : calloc(1, sizeof *place);
}

static void workplace_give_back(image_folder *f, workplace *place) {
    pthread_mutex_lock(&f->lock);
    place->next = f->unused;
    f->unused = place;
    pthread_mutex_unlock(&f->lock);
}

static void workplaces_free(image_folder *f) {
    for (workplace *place = f->unused, *next; place; place = next) {
        next = place->next;
        tt__reused_memory_free(&place->file);
        tt__reused_memory_free(&place->decoded.pixels);
        tt__resizing_free(&place->resizing);
        tt__reused_memory_free(&place->resized.pixels);
        free(place);
    }
}

/* ---- one picture ---- */

static tt_status read_picture(tt__reused_memory *bytes, size_t *size, const char *path) {
    int fd = -1;
    uint64_t file_size = 0;
    TT__TRY(tt__file_open(&fd, &file_size, path));
    tt_status status = TT_OK;
    if (file_size > TT__IMAGE_FILE_MOST)
        status = tt__fail(TT_ERR_FORMAT, "%s: expected at most %" PRIu64 " bytes, got %" PRIu64, path,
                          TT__IMAGE_FILE_MOST, file_size);
    if (!status)
        status = tt__reused_memory_reserve(bytes, (size_t)file_size + 1, path);
    if (!status)
        status = tt__file_read_at(fd, path, bytes->data, (size_t)file_size, 0, size);
    close(fd);
    return status;
}

/* Return where the middle part begins, as CenterCrop does: Python's round() takes halves to the even number. */
static int64_t crop_begin(int64_t size, int64_t wanted) { return (int64_t)rint((double)(size - wanted) / 2); }

static tt_status resize_and_crop(const image_folder *f, workplace *place, const char *name, uint8_t *x) {
    int64_t height = f->height, width = f->width;
    if (f->resize) { /* the shorter side */
        const tt__image *from = &place->decoded;
        bool upright = from->width <= from->height;
        width = upright ? f->resize : (int64_t)((double)(f->resize * from->width) / (double)from->height);
        height = upright ? (int64_t)((double)(f->resize * from->height) / (double)from->width) : f->resize;
    }
    TT__TRY(tt__image_resize(&place->resized, &place->decoded, height, width, &place->resizing, name));
    tt__image_planes(x, &place->resized, crop_begin(height, f->height), crop_begin(width, f->width), f->height,
                     f->width);
    return TT_OK;
}

/* Return the class of file `index`: the last one that begins at or before it. */
static int64_t class_of_file(const tt__folder_list *list, int64_t index) {
    int64_t low = 0, high = list->classes.count - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (list->begins[middle] <= index)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static int64_t image_folder_size(void *user) { return ((const image_folder *)user)->list.files.count; }

static tt_status image_folder_get(void *user, int64_t index, void *x, void *y) {
    image_folder *f = user;
    const char *path = f->list.files.text[index];
    size_t size;
    workplace *place = workplace_take(f);
    if (!place)
        return tt__fail(TT_ERR_MEMORY, "%s: out of memory", path);
    tt_status status = read_picture(&place->file, &size, path);
    if (!status)
        status = tt__image_decode(&place->decoded, path, place->file.data, size);
    if (!status)
        status = resize_and_crop(f, place, path, x);
    workplace_give_back(f, place);
    if (!status && y)
        *(int64_t *)y = class_of_file(&f->list, index);
    return status;
}

/* ---- the set ---- */

static void image_folder_destroy(void *user) {
    image_folder *f = user;
    workplaces_free(f);
    folder_list_free(&f->list);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

static tt_status check_folder_args(const char *who, const tt_image_folder_args *a) {
    enum { MOST_SIDE = 65535 };
    if (!a->dir)
        return tt__fail(TT_ERR_INVALID, "%s: the directory is NULL", who);
    if (a->height < 1 || a->width < 1 || a->height > MOST_SIDE || a->width > MOST_SIDE)
        return tt__fail(TT_ERR_INVALID, "%s: expected a height and width from 1 to %d, got %" PRId64 " and %" PRId64,
                        who, MOST_SIDE, a->height, a->width);
    if (a->resize && (a->resize < a->height || a->resize < a->width || a->resize > MOST_SIDE))
        return tt__fail(TT_ERR_INVALID,
                        "%s: expected .resize to be 0, or at least height and width (%" PRId64 ", %" PRId64
                        ") and at most %d, got %" PRId64,
                        who, a->height, a->width, MOST_SIDE, a->resize);
    return TT_OK;
}

tt_dataset *tt_image_folder_with(const tt_image_folder_args *args, size_t size) {
    static const char who[] = "tt_image_folder";
    static const tt_dataset_class cls = {.name = "a folder of pictures",
                                         .size = image_folder_size,
                                         .get = image_folder_get,
                                         .destroy = image_folder_destroy};
    tt_image_folder_args a;
    TT__ARGS_COPY(a, args, size);
    if (check_folder_args(who, &a))
        return NULL;
    image_folder *f = calloc(1, sizeof *f);
    if (!f)
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", who);
    f->height = a.height;
    f->width = a.width;
    f->resize = a.resize;
    pthread_mutex_init(&f->lock, NULL);
    if (folder_list_make(&f->list, who, a.dir)) {
        image_folder_destroy(f);
        return NULL;
    }
    tt_dataset *d =
        tt__dataset_new(who, &cls, f, tt_spec(TT_U8, TT_SHAPE(3, a.height, a.width)), tt_spec(TT_I64, TT_SCALAR));
    if (d) {
        d->classes = (const char *const *)f->list.classes.text;
        d->class_count = f->list.classes.count;
    }
    return d;
}

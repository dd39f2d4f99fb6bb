/* Pictures in folders: read, decoded and resized one by one, in memory that is used again. */
#include "base/args.h"
#include "base/error.h"
#include "data/datasets/dataset.h"
#include "data/files/whole_file.h"
#include "data/images/folder_list.h"
#include "data/images/image.h"

#include <tutti/datasets.h>

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

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

/* Cut the middle out, as CenterCrop does: its round() takes halves to the even number. */
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
    tt__folder_list_free(&f->list);
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
    if (tt__folder_list_make(&f->list, who, a.dir)) {
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

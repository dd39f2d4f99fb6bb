#include "data/images/image_load.h"

#include "base/error.h"

#include <dlfcn.h>
#include <pthread.h>

/* Why a library is missing; "": it is there. */
typedef struct absence {
    char why[512];
} absence;

static pthread_once_t jpeg_once = PTHREAD_ONCE_INIT, png_once = PTHREAD_ONCE_INIT;
static tt__jpeg jpeg;
static tt__png png;
static absence no_jpeg, no_png;

static void note_absence(absence *missing) {
    const char *why = dlerror();
    snprintf(missing->why, sizeof missing->why, "%s", why ? why : "no reason given");
}

static void load_jpeg(void) {
    void *library = dlopen(TT__LIBJPEG, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#define FIND(name) (*(void **)&jpeg.name = dlsym(library, #name)) &&
    if (library && TT__JPEG_FUNCTIONS(FIND) true)
        return;
#undef FIND
    note_absence(&no_jpeg);
}

static void load_png(void) {
    void *library = dlopen(TT__LIBPNG, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#define FIND(name) (*(void **)&png.name = dlsym(library, #name)) &&
    if (library && TT__PNG_FUNCTIONS(FIND) true)
        return;
#undef FIND
    note_absence(&no_png);
}

const tt__jpeg *tt__jpeg_get(void) {
    pthread_once(&jpeg_once, load_jpeg);
    if (!*no_jpeg.why)
        return &jpeg;
    return tt__fail_null(TT_ERR_UNSUPPORTED,
                         "JPEG needs libjpeg, which can't be loaded: %s. Tutti was built for " TT__LIBJPEG,
                         no_jpeg.why);
}

const tt__png *tt__png_get(void) {
    pthread_once(&png_once, load_png);
    if (!*no_png.why)
        return &png;
    return tt__fail_null(TT_ERR_UNSUPPORTED,
                         "PNG needs libpng, which can't be loaded: %s. Tutti was built for " TT__LIBPNG, no_png.why);
}

/* A picture as a tensor. */
#include "base/error.h"
#include "data/files/whole_file.h"
#include "data/images/image.h"
#include "tensor/core/tensor.h"

#include <tutti/datasets.h>

static tt_status read_image(tt_tensor **out, const char *path, const tt__whole_file *file, tt__image *image) {
    TT__TRY(tt__image_decode(image, path, file->data, file->size));
    tt_tensor *x = tt_keep(tt__tensor_new("tt_image_read", TT_SHAPE(3, image->height, image->width), TT_U8));
    if (!x)
        return tt__fail_prefix("%s", path);
    tt__image_planes(x->data, image, 0, 0, image->height, image->width);
    *out = x;
    return TT_OK;
}

tt_status tt_image_read(tt_tensor **out, const char *path) {
    if (out)
        *out = NULL;
    if (!out || !path)
        return tt__fail(TT_ERR_INVALID, "tt_image_read: expected a path and where to put the tensor, got NULL");
    tt__whole_file file;
    tt__image image = {0};
    TT__TRY(tt__whole_file_read(&file, path, TT__IMAGE_FILE_MOST));
    tt_status status = read_image(out, path, &file, &image);
    tt__reused_memory_free(&image.pixels);
    tt__whole_file_free(&file);
    return status;
}

#include "data/files/source.h"

#include "base/error.h"
#include "data/files/whole_file.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* ---- packed bytes ---- */

/* Read packed bytes into inflate.next_in if it is empty, unless all are used. */
static tt_status source_fill(tt__source *s) {
    ssize_t n;
    if (s->inflate.avail_in)
        return TT_OK;
    do
        n = read(s->fd, s->buffer, sizeof s->buffer);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return tt__fail_errno(TT_ERR_IO, errno, "%s: reading failed", s->name);
    s->inflate.next_in = s->buffer;
    s->inflate.avail_in = (uInt)n;
    s->packed_read += (uint64_t)n;
    return TT_OK;
}

/* ---- open and close ---- */

static bool is_gzip(const tt__source *s) {
    return s->inflate.avail_in >= 2 && s->inflate.next_in[0] == 0x1f && s->inflate.next_in[1] == 0x8b;
}

static tt_status source_start(tt__source *s) {
    tt_status status = source_fill(s);
    if (!status && is_gzip(s)) {
        if (inflateInit2(&s->inflate, 16 + MAX_WBITS) == Z_OK)
            s->gzip = true;
        else
            status = tt__fail(TT_ERR_MEMORY, "%s: no memory to unpack it", s->name);
    }
    if (status)
        tt__source_close(s);
    return status;
}

tt_status tt__source_open(tt__source *source, const char *path) {
    memset(source, 0, offsetof(tt__source, buffer));
    source->name = path;
    TT__TRY(tt__file_open(&source->fd, &source->packed_size, path));
    return source_start(source);
}

void tt__source_close(tt__source *source) {
    if (source->gzip)
        inflateEnd(&source->inflate);
    close(source->fd);
}

/* ---- reading ---- */

static tt_status read_plain(tt__source *s, uint8_t *out, size_t size, size_t *got) {
    while (*got < size) {
        TT__TRY(source_fill(s));
        size_t n = s->inflate.avail_in, wanted = size - *got;
        if (!n)
            return TT_OK;
        n = n < wanted ? n : wanted;
        memcpy(out + *got, s->inflate.next_in, n);
        s->inflate.next_in += n;
        s->inflate.avail_in -= (uInt)n;
        *got += n;
    }
    return TT_OK;
}

static tt_status source_corrupt(const tt__source *s, const char *what) {
    return tt__fail(TT_ERR_FORMAT, "%s: its gzip stream is corrupt after %" PRIu64 " bytes (%s); get the file again",
                    s->name, s->packed_read - s->inflate.avail_in, what);
}

/* End a member of the gzip file, whose checksum was right. Only another member may follow. */
static tt_status end_member(tt__source *s) {
    TT__TRY(source_fill(s));
    if (!s->inflate.avail_in) {
        s->ended = true;
        return TT_OK;
    }
    if (s->inflate.next_in[0] != 0x1f)
        return tt__fail(TT_ERR_FORMAT, "%s: its gzip stream ends at byte %" PRIu64 ", but other bytes follow", s->name,
                        s->packed_read - s->inflate.avail_in);
    inflateReset(&s->inflate);
    return TT_OK;
}

static tt_status inflate_some(tt__source *s) {
    TT__TRY(source_fill(s));
    if (!s->inflate.avail_in)
        return tt__fail(TT_ERR_FORMAT, "%s: its gzip stream is cut off after %" PRIu64 " bytes; get the file again",
                        s->name, s->packed_read);
    int result = inflate(&s->inflate, Z_NO_FLUSH);
    if (result == Z_STREAM_END)
        return end_member(s);
    if (result == Z_MEM_ERROR)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory to unpack it", s->name);
    if (result != Z_OK && result != Z_BUF_ERROR)
        return source_corrupt(s, s->inflate.msg ? s->inflate.msg : "it needs a dictionary");
    return TT_OK;
}

static tt_status read_gzip(tt__source *s, uint8_t *out, size_t size, size_t *got) {
    while (*got < size && !s->ended) {
        size_t wanted = size - *got < INT_MAX ? size - *got : INT_MAX;
        s->inflate.next_out = out + *got;
        s->inflate.avail_out = (uInt)wanted;
        tt_status status = inflate_some(s);
        *got += wanted - s->inflate.avail_out;
        if (status)
            return status;
    }
    return TT_OK;
}

tt_status tt__source_read(tt__source *source, void *out, size_t size, size_t *got) {
    *got = 0;
    return source->gzip ? read_gzip(source, out, size, got) : read_plain(source, out, size, got);
}

/* Deflate writes at most 258 bytes with 2 bits: 1032 times what it reads. */
uint64_t tt__source_limit(const tt__source *source) {
    uint64_t factor = source->gzip ? 1032 : 1;
    return source->packed_size > UINT64_MAX / factor ? UINT64_MAX : source->packed_size * factor;
}

/* Downloads of files that are known by their checksums. */
#include "cli/data/data.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/files/planted.h"
#include "net/curl_load.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_ROOM = 4096,
    URL_ROOM = 2048,
    SHA256_DIGITS = 64,
    CONNECT_SECONDS = 30,
    STALL_SECONDS = 60, /* without a byte: the connection is dead */
    ATTEMPTS = 5        /* in a row that bring nothing */
};

/* ---- checksums ---- */

static tt_status hash_file(int fd, const char *path, char *digits) {
    unsigned char block[16384], digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    bool ok = hash && EVP_DigestInit_ex(hash, EVP_sha256(), NULL);
    off_t at = 0;
    for (ssize_t n = 1; ok && n; at += n) {
        while ((n = pread(fd, block, sizeof block, at)) < 0 && errno == EINTR)
            ;
        ok = n >= 0 && EVP_DigestUpdate(hash, block, (size_t)n);
    }
    ok = ok && EVP_DigestFinal_ex(hash, digest, &length);
    EVP_MD_CTX_free(hash);
    for (unsigned i = 0; ok && i < length; i++)
        snprintf(digits + 2 * i, 3, "%02x", digest[i]);
    return ok ? TT_OK : tt__fail(TT_ERR_IO, "%s: can't read it for its checksum", path);
}

/* Compare a file's checksum. TT_ERR_FORMAT: it has another one. */
static tt_status check_sum(int fd, const char *path, const tt__remote_file *remote) {
    char digits[SHA256_DIGITS + 1] = "";
    TT__TRY(hash_file(fd, path, digits));
    return strcmp(digits, remote->sha256) == 0
               ? TT_OK
               : tt__fail(TT_ERR_FORMAT, "%s: expected the sha256 checksum %s, got %s", path, remote->sha256, digits);
}

/* Open a file that is there already, unless another user could change it after its checksum was found right. */
static tt_status open_there(int *fd, const char *path) {
    char *leads_to;
    TT__TRY(tt__follow_links(path, &leads_to));
    *fd = tt__fd(open(leads_to, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
    tt_status status =
        *fd < 0 ? tt__fail_errno(TT_ERR_IO, errno, "%s: can't open it", path) : tt__check_taken(*fd, leads_to);
    free(leads_to);
    return status;
}

static tt_status take_there(int *fd, const char *path, const tt__remote_file *remote) {
    tt_status status = open_there(fd, path);
    if (!status)
        status = check_sum(*fd, path, remote);
    return status ? tt__fail_prefix("remove this file to get it again") : TT_OK;
}

/* ---- one transfer ---- */

typedef struct transfer {
    const tt__curl *lib;
    const tt__remote_file *remote;
    const char *path; /* of the .part */
    int fd;
    int64_t size;    /* of the .part */
    int write_error; /* errno */
    bool locked, too_long;
    tt__download_progress progress;
} transfer;

static size_t append_received(char *data, size_t one, size_t n, void *user) {
    transfer *t = user;
    size_t size = one * n, done = 0;
    if ((uint64_t)size > (uint64_t)(t->remote->size - t->size)) {
        t->too_long = true;
        return 0;
    }
    while (done < size) {
        ssize_t written = tt__quiet_write(t->fd, data + done, size - done);
        if (written < 0 && errno != EINTR) {
            t->write_error = errno;
            return 0;
        }
        done += written > 0 ? (size_t)written : 0;
    }
    t->size += (int64_t)size;
    if (t->progress)
        t->progress(t->remote, t->size);
    return size;
}

static bool set_options(transfer *t, CURL *curl, const char *url, char *why) {
    const tt__curl *lib = t->lib;
    return !lib->curl_easy_setopt(curl, CURLOPT_URL, url) &&
           !lib->curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") &&
           !lib->curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https") &&
           !lib->curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L) &&
           !lib->curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 5L) &&
           !lib->curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L) &&
           !lib->curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) &&
           !lib->curl_easy_setopt(curl, CURLOPT_USERAGENT, "tutti") &&
           !lib->curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS) &&
           !lib->curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L) &&
           !lib->curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)STALL_SECONDS) &&
           !lib->curl_easy_setopt(curl, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)t->size) &&
           !lib->curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why) &&
           !lib->curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, append_received) &&
           !lib->curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
}

/* Fetch what is missing, once. Returns what libcurl says. */
static CURLcode fetch_rest(transfer *t, const char *url, char *why) {
    CURL *curl = t->lib->curl_easy_init();
    CURLcode code = CURLE_OUT_OF_MEMORY;
    if (curl && set_options(t, curl, url, why))
        code = t->lib->curl_easy_perform(curl);
    if (code && !*why)
        snprintf(why, CURL_ERROR_SIZE, "%s", t->lib->curl_easy_strerror(code));
    t->lib->curl_easy_cleanup(curl);
    return code;
}

static tt_status start_again(transfer *t) {
    if (ftruncate(t->fd, 0) != 0 || lseek(t->fd, 0, SEEK_SET) != 0)
        return tt__fail_errno(TT_ERR_IO, errno, "%s: can't empty it", t->path);
    t->size = 0;
    return TT_OK;
}

/* May another attempt succeed? */
static bool is_passing(CURLcode code) {
    return code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR ||
           code == CURLE_GOT_NOTHING || code == CURLE_OPERATION_TIMEDOUT || code == CURLE_COULDNT_CONNECT;
}

/* Fetch what is missing, once. TT_OK: all of it, or another attempt may get the rest. */
static tt_status attempt(transfer *t, const char *url, bool is_last) {
    char why[CURL_ERROR_SIZE] = "";
    int64_t before = t->size;
    CURLcode code = fetch_rest(t, url, why);
    if (t->write_error)
        return tt__fail_errno(TT_ERR_IO, t->write_error, "%s: can't write it; what is there is kept", t->path);
    if (t->too_long)
        return tt__fail(TT_ERR_NET, "%s: expected %" PRId64 " bytes, got more", url, t->remote->size);
    if (code == CURLE_RANGE_ERROR && before && !is_last) /* this server knows no ranges */
        return start_again(t);
    if (code && (!is_passing(code) || (is_last && t->size == before)))
        return tt__fail(TT_ERR_NET, "%s: %s", url, why);
    if (!code && t->size < t->remote->size)
        return tt__fail(TT_ERR_NET, "%s: expected %" PRId64 " bytes, got %" PRId64, url, t->remote->size, t->size);
    return TT_OK;
}

/* Fetch from one mirror, in any number of attempts that bring something, and a few in a row that don't. */
static tt_status fetch_all(transfer *t, const char *url) {
    int64_t most = t->size;
    for (int idle = 0; t->size < t->remote->size && idle < ATTEMPTS;) {
        TT__TRY(attempt(t, url, idle == ATTEMPTS - 1));
        idle = t->size > most ? 0 : idle + 1;
        most = t->size > most ? t->size : most;
    }
    return t->size == t->remote->size ? TT_OK : tt__fail(TT_ERR_NET, "%s: the connection breaks too often", url);
}

/* Fetch from a mirror and look at the checksum; a wrong file is dropped. */
static tt_status try_mirror(transfer *t, const char *mirror) {
    char url[URL_ROOM];
    size_t n = strlen(mirror);
    bool slash = n && mirror[n - 1] == '/';
    if (snprintf(url, sizeof url, "%s%s%s", mirror, slash ? "" : "/", t->remote->name) >= (int)sizeof url)
        return tt__fail(TT_ERR_INVALID, "the address of a mirror is too long");
    t->too_long = false;
    tt_status status = fetch_all(t, url);
    if (status) {
        if (t->too_long && start_again(t))
            return tt_last_status();
        return status;
    }
    status = check_sum(t->fd, t->path, t->remote);
    if (status == TT_ERR_FORMAT) {
        char wrong[TT__ERROR_TEXT_SIZE];
        snprintf(wrong, sizeof wrong, "%s", tt_last_error());
        TT__TRY(start_again(t));
        return tt__fail(TT_ERR_FORMAT, "%s: %s", url, wrong);
    }
    return status;
}

/* ---- the whole ---- */

static tt_status try_mirrors(transfer *t, const char *const *mirrors) {
    tt__problem_list problems = {.count = 0};
    for (; *mirrors; mirrors++) {
        tt_status status = try_mirror(t, *mirrors);
        if (status != TT_ERR_NET && status != TT_ERR_FORMAT)
            return status;
        tt__problem_add(&problems, status, "%s", tt_last_error());
    }
    return tt__problems_report(&problems, t->remote->name);
}

/* Give the .part its name. Another user who may write to the folder could have exchanged it. */
static tt_status finish_file(const transfer *t, const char *path) {
    struct stat ours, there;
    if (fsync(t->fd) != 0 || rename(t->path, path) != 0 || fstat(t->fd, &ours) || lstat(path, &there))
        return tt__fail_errno(TT_ERR_IO, errno, "%s: can't put it in place", path);
    return ours.st_ino == there.st_ino && ours.st_dev == there.st_dev
               ? TT_OK
               : tt__fail(TT_ERR_IO, "%s: another file came in the place of what was downloaded; remove it", path);
}

/* Is the .part this user's, without another name? Another owner could change it after its checksum was found right, and
 * we would write into a file that is not ours. */
static tt_status check_part_file(const transfer *t, struct stat *info) {
    if (fstat(t->fd, info) != 0 || !S_ISREG(info->st_mode))
        return tt__fail(TT_ERR_IO, "%s: expected a regular file", t->path);
    if (info->st_uid != geteuid())
        return tt__fail(TT_ERR_IO, "%s: another user's file; remove it, or choose another folder", t->path);
    if (info->st_nlink > 1)
        return tt__fail(TT_ERR_IO, "%s: this file has several names (hard links); remove this one", t->path);
    return TT_OK;
}

/* Open and lock the .part, which may hold what an earlier call got. */
static tt_status open_part(transfer *t) {
    struct stat info;
    t->fd = tt__open_to_append(t->path, false);
    if (t->fd < 0)
        return tt__fail_errno(TT_ERR_IO, errno, "%s: can't open it", t->path);
    TT__TRY(check_part_file(t, &info));
    if (flock(t->fd, LOCK_EX | LOCK_NB) != 0)
        return tt__fail(TT_ERR_IO, "%s: another process writes it; wait until it has ended", t->path);
    TT__TRY(check_part_file(t, &info)); /* again: its size is final now that nobody else writes it */
    t->locked = true;
    t->size = info.st_size;
    return t->size > t->remote->size ? start_again(t) : TT_OK;
}

/* Download to `path`; t->fd is the file then. */
static tt_status fetch_file(transfer *t, const char *const *mirrors, const char *path) {
    t->lib = tt__curl_get("downloads");
    if (!t->lib)
        return tt_last_status();
    tt_status status = open_part(t);
    if (!status)
        status = try_mirrors(t, mirrors);
    if (!status)
        return finish_file(t, path);
    if (t->locked && !t->size)
        unlink(t->path); /* nothing to go on with */
    return status;
}

tt_status tt__download(tt__download_end *end, int *fd, const tt__remote_file *file, const char *const *mirrors,
                       const char *dir, tt__download_progress progress) {
    char path[PATH_ROOM], part[PATH_ROOM + 8];
    struct stat there;
    if (fd)
        *fd = -1;
    if (snprintf(path, sizeof path, "%s/%s", dir, file->name) >= (int)sizeof path)
        return tt__fail(TT_ERR_INVALID, "%s: its path is too long", file->name);
    snprintf(part, sizeof part, "%s.part", path);
    transfer t = {.remote = file, .path = part, .fd = -1, .progress = progress};
    bool was_there = lstat(path, &there) == 0; /* also a link that leads to nothing */
    *end = was_there ? TT__WAS_THERE : TT__DOWNLOADED;
    tt_status status = was_there ? take_there(&t.fd, path, file) : fetch_file(&t, mirrors, path);
    if (!status && fd)
        *fd = t.fd;
    else if (t.fd >= 0)
        close(t.fd);
    return status;
}

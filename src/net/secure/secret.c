#include "net/secure/secret.h"

#include "base/error.h"
#include "base/random_bytes.h"
#include "base/files/fd.h"
#include "net/secure/kept_secret.h"
#include "net/secure/secret_memory.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define HOW "Make one with: openssl rand -hex 32"

static tt__span text_span(const char *text) { return (tt__span){(const uint8_t *)text, strlen(text)}; }

void tt__secret_from(tt__secret *secret, const void *bytes, size_t size) {
    const tt__span shared = {bytes, size}, salt = text_span("tutti job secret 1");
    secret->set = true;
    tt__mac_derive(secret->handshake_key, shared, salt, text_span("handshake"));
    tt__mac_derive(secret->tls_key, shared, salt, text_span("tls psk"));
    tt__mac_derive(secret->store_key, shared, salt, text_span("store"));
    tt__mac_derive(secret->wire_key, shared, salt, text_span("wire"));
}

void tt__secret_wipe(tt__secret *secret) { explicit_bzero(secret, sizeof *secret); }

static tt_status check_size(const char *where, size_t size) {
    if (size >= TT__SECRET_MIN && size <= TT__SECRET_MAX)
        return TT_OK;
    if (size > TT__SECRET_MAX)
        return tt__fail(TT_ERR_INVALID, "%s: expected a job secret of %d to %d bytes, but it is longer. " HOW, where,
                        TT__SECRET_MIN, TT__SECRET_MAX);
    return tt__fail(TT_ERR_INVALID, "%s: expected a job secret of %d to %d bytes, but it has %zu. " HOW, where,
                    TT__SECRET_MIN, TT__SECRET_MAX, size);
}

/* Is the file root's or this user's, and does a list (ACL) let nobody else read it but this user? The mode's middle
 * bits are then no group's, but the most that the list gives: so are systemd's credentials. */
static bool is_lent_to_this_user(int fd, const struct stat *info) {
    enum { VERSION = 2, USER = 2, GROUP_OBJ = 4, GROUP = 8 };
    struct {
        uint32_t version;
        struct {
            uint16_t tag, permissions;
            uint32_t id;
        } entries[16];
    } list;
    ssize_t size = info->st_mode & 007 ? -1 : fgetxattr(fd, "system.posix_acl_access", &list, sizeof list);
    if (size < (ssize_t)sizeof list.version || le32toh(list.version) != VERSION)
        return false;
    for (size_t i = 0; i < ((size_t)size - sizeof list.version) / sizeof *list.entries; i++) {
        unsigned tag = le16toh(list.entries[i].tag), id = le32toh(list.entries[i].id);
        bool other = tag == GROUP_OBJ || tag == GROUP || (tag == USER && id != geteuid() && id != 0);
        if (other && list.entries[i].permissions)
            return false;
    }
    return true;
}

/* Refuse a file that others can read; root can read everything anyway. */
static tt_status check_file(int fd, const char *path) {
    struct stat info;
    if (fstat(fd, &info))
        return tt__fail_errno(TT_ERR_IO, errno, "secret file %s", path);
    if (!S_ISREG(info.st_mode))
        return tt__fail(TT_ERR_IO, "secret file %s: expected a regular file, but it is %s", path,
                        S_ISDIR(info.st_mode) ? "a directory" : "a device, pipe or socket");
    if (info.st_mode & 077 && !is_lent_to_this_user(fd, &info))
        return tt__fail(TT_ERR_IO, "secret file %s: others may read it (mode %03o). Run: chmod 600 %s", path,
                        (unsigned)info.st_mode & 0777, path);
    if (info.st_uid != geteuid() && info.st_uid != 0)
        return tt__fail(TT_ERR_IO, "secret file %s: it belongs to user %u, expected %u or root", path,
                        (unsigned)info.st_uid, (unsigned)geteuid());
    return TT_OK;
}

static tt_status read_secret_text(int fd, const char *path, char text[TT__SECRET_MAX + 1]) {
    char bytes[TT__SECRET_MAX + 3]; /* one too many, and a line break of two characters */
    size_t size = 0;
    ssize_t n;
    while (size < sizeof bytes && (n = read(fd, bytes + size, sizeof bytes - size)) != 0) {
        if (n < 0 && errno != EINTR)
            return tt__fail_errno(TT_ERR_IO, errno, "secret file %s", path);
        size += n > 0 ? (size_t)n : 0;
    }
    while (size && (bytes[size - 1] == '\n' || bytes[size - 1] == '\r'))
        size--;
    char where[300];
    snprintf(where, sizeof where, "secret file %s", path);
    tt_status status = check_size(where, size);
    if (!status && memchr(bytes, '\0', size))
        status = tt__fail(TT_ERR_INVALID, "secret file %s: expected text, but there is a zero byte. " HOW, path);
    if (!status) {
        memcpy(text, bytes, size);
        text[size] = '\0';
    }
    explicit_bzero(bytes, sizeof bytes);
    return status;
}

tt_status tt__secret_read_file(const char *path, char text[TT__SECRET_MAX + 1]) {
    int fd = tt__fd(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd < 0 && errno == ENOENT)
        return tt__fail(
            TT_ERR_IO,
            "secret file %s: there is no such file. Make it with: (umask 077; set -C; openssl rand -hex 32 >FILE)",
            path);
    if (fd < 0)
        return tt__fail_errno(TT_ERR_IO, errno, "secret file %s", path);
    tt_status status = check_file(fd, path);
    if (!status)
        status = read_secret_text(fd, path, text);
    close(fd);
    return status;
}

tt_status tt__secret_make(char text[TT__SECRET_MADE_SIZE]) {
    uint8_t bytes[(TT__SECRET_MADE_SIZE - 1) / 2];
    TT__TRY(tt__random_bytes(bytes, sizeof bytes));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    explicit_bzero(bytes, sizeof bytes);
    return TT_OK;
}

tt_status tt__secret_read(char text[TT__SECRET_MAX + 1]) {
    const char *given = getenv("TT_SECRET"), *path = secure_getenv("TT_SECRET_FILE"), *memory = getenv("TT_SECRET_FD");
    *text = '\0';
    if (given && *given) {
        TT__TRY(check_size("TT_SECRET", strlen(given)));
        memcpy(text, given, strlen(given) + 1);
        return TT_OK;
    }
    if (path && *path)
        return tt__secret_read_file(path, text) ? tt__fail_prefix("TT_SECRET_FILE") : TT_OK;
    if (memory && *memory)
        return tt__secret_memory_read(memory, text);
    tt__secret_kept(text);
    return TT_OK;
}

bool tt__secret_is_named(void) {
    static const char *const names[] = {"TT_SECRET", "TT_SECRET_FILE", "TT_SECRET_FD"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return true;
    }
    return false;
}

tt_status tt__secret_load(tt__secret *secret) {
    char text[TT__SECRET_MAX + 1];
    *secret = (tt__secret){0};
    TT__TRY(tt__secret_read(text));
    if (*text)
        tt__secret_from(secret, text, strlen(text));
    explicit_bzero(text, sizeof text);
    return TT_OK;
}

tt_status tt__secret_choose(tt__secret *secret, const char *given) {
    if (!given)
        return tt__secret_load(secret);
    *secret = (tt__secret){0};
    if (!*given)
        return TT_OK;
    TT__TRY(check_size("the job secret", strlen(given)));
    tt__secret_from(secret, given, strlen(given));
    return TT_OK;
}

#include "net/secure/secret.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/random_bytes.h"
#include "base/text/parse.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ---- the secret that this process has found out ---- */

/* Set by the thread that joins, read by threads that load a secret and by a store's. */
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static char kept_text[TT__SECRET_MADE_SIZE], kept_credential[TT__MUNGE_CREDENTIAL_MAX];

void tt__secret_keep(const char text[TT__SECRET_MADE_SIZE], const char *credential) {
    pthread_mutex_lock(&kept_lock);
    memcpy(kept_text, text, sizeof kept_text);
    kept_credential[0] = '\0';
    if (credential)
        memcpy(kept_credential, credential, strlen(credential) + 1);
    pthread_mutex_unlock(&kept_lock);
}

void tt__secret_kept(char text[TT__SECRET_MADE_SIZE]) {
    pthread_mutex_lock(&kept_lock);
    memcpy(text, kept_text, sizeof kept_text);
    pthread_mutex_unlock(&kept_lock);
}

void tt__credential_kept(char credential[TT__MUNGE_CREDENTIAL_MAX]) {
    pthread_mutex_lock(&kept_lock);
    memcpy(credential, kept_credential, sizeof kept_credential);
    pthread_mutex_unlock(&kept_lock);
}

/* ---- the memfd ---- */

/* Scripts use descriptors up to 9 by number, and shells some from 10 on. */
enum { SECRET_FD = 100, SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

#define WHAT_TO_DO \
    "leave that descriptor open, or start `tutti run` with TT_SECRET_FILE, the path of a file with the secret"

/* Move to SECRET_FD or above, if the limit on descriptors allows. */
static int move_up(int fd) {
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, SECRET_FD);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

tt_status tt__secret_memory_make(int *fd, const char *text) {
    size_t size = strlen(text);
    struct rlimit file;
    *fd = -1;
    if (!getrlimit(RLIMIT_FSIZE, &file) && file.rlim_cur < size) /* the kernel would kill us */
        return tt__fail(TT_ERR_SYSTEM,
                        "the job secret's memory takes %zu bytes; the limit on a file's size (ulimit -f) "
                        "allows %zu: raise it",
                        size, (size_t)file.rlim_cur);
    *fd = move_up(tt__fd(memfd_create("job-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
    if (*fd >= 0 && write(*fd, text, size) == (ssize_t)size && !fcntl(*fd, F_ADD_SEALS, SEALS))
        return TT_OK;
    int errnum = errno;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return tt__fail_errno(TT_ERR_SYSTEM, errnum, "can't make the memory that hands the job secret to the ranks");
}

/* Read `size` bytes from the beginning. */
static bool read_text(int fd, char *text, size_t size) {
    size_t done = 0;
    for (ssize_t n; done < size; done += (size_t)n)
        if ((n = pread(fd, text + done, size - done, (off_t)done)) <= 0)
            return false;
    text[size] = '\0';
    return strlen(text) == size;
}

/* Read the text from descriptor `number`, the value of TT_SECRET_FD; its offset stays as it is. Errors: TT_ERR_INVALID
 * no number; TT_ERR_IO no such descriptor is open, or it is something else. */
static tt_status secret_memory_read(const char *number, char text[TT__SECRET_MAX + 1]) {
    int64_t fd = -1;
    struct stat info;
    TT__TRY(tt__parse_i64("TT_SECRET_FD", number, 0, INT_MAX, &fd));
    if (fstat((int)fd, &info))
        return tt__fail_errno(TT_ERR_IO, errno,
                              "TT_SECRET_FD=%d: the job secret that `tutti run` hands to its ranks is not there: the "
                              "program, or what started it, has closed the descriptor, as Python's subprocess does "
                              "without pass_fds; " WHAT_TO_DO,
                              (int)fd);
    int seals = fcntl((int)fd, F_GET_SEALS); /* of another file: -1, or fewer */
    if (seals < 0 || (seals & SEALS) != SEALS)
        return tt__fail(TT_ERR_IO,
                        "TT_SECRET_FD=%d: expected the sealed memory in which `tutti run` hands the job secret to its "
                        "ranks, but the descriptor is another file: the program, or what started it, has closed it and "
                        "used its number again; " WHAT_TO_DO,
                        (int)fd);
    if (info.st_size < TT__SECRET_MIN || info.st_size > TT__SECRET_MAX ||
        !read_text((int)fd, text, (size_t)info.st_size))
        return tt__fail(TT_ERR_IO,
                        "TT_SECRET_FD=%d: expected %d to %d bytes of text, the job secret, but the sealed memory there "
                        "holds something else (%lld bytes); " WHAT_TO_DO,
                        (int)fd, TT__SECRET_MIN, TT__SECRET_MAX, (long long)info.st_size);
    return TT_OK;
}

/* ---- the secret ---- */

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

/* Does the file have an access control list (ACL) that lets only this user and root read it? systemd's credentials are
 * such files. The mode's group bits then tell the most that the list allows, not what the group may do. */
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
    char bytes[TT__SECRET_MAX + 3]; /* one byte too many, or a line break of two characters */
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
        return secret_memory_read(memory, text);
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

/* ---- the wire ---- */

bool tt__wire_named(const char *name, tt__wire *wire) {
    static const char *const names[] = {
        [TT__WIRE_PLAIN] = "plain", [TT__WIRE_SEALED] = "sealed", [TT__WIRE_TLS] = "tls"};
    for (int i = TT__WIRE_PLAIN; i <= TT__WIRE_TLS; i++)
        if (!strcmp(name, names[i])) {
            *wire = (tt__wire)i;
            return true;
        }
    return false;
}

tt_status tt__wire_asked(tt__wire *wire) {
    const char *name = getenv("TT_WIRE"), *tls = getenv("TT_TLS");
    *wire = TT__WIRE_DEFAULT;
    if (name && *name && !tt__wire_named(name, wire))
        return tt__fail(TT_ERR_INVALID, "TT_WIRE: expected sealed, plain or tls, got \"%.40s\"", name);
    if (!tls || !*tls)
        return TT_OK;
    if (strcmp(tls, "0") != 0 && strcmp(tls, "1") != 0)
        return tt__fail(TT_ERR_INVALID, "TT_TLS: expected 1 or 0, got \"%.40s\"", tls);
    if (*tls == '1' && *wire != TT__WIRE_DEFAULT && *wire != TT__WIRE_TLS)
        return tt__fail(TT_ERR_INVALID, "TT_TLS=1 asks for tls, TT_WIRE=%s for something else: unset one of them",
                        name);
    if (*tls == '1')
        *wire = TT__WIRE_TLS;
    return TT_OK;
}

tt_status tt__wire_check(tt__wire *wire, const tt__secret *secret) {
    TT__TRY(tt__wire_asked(wire));
    if (*wire != TT__WIRE_SEALED || secret->set)
        return TT_OK;
    return tt__fail(TT_ERR_INVALID,
                    "TT_WIRE=sealed needs a job secret: give all processes of the job the same TT_SECRET or "
                    "TT_SECRET_FILE (make one with: openssl rand -hex 32)");
}

tt_status tt__wire_choose(tt__wire *wire, const tt__secret *secret, bool one_host, bool says_so) {
    TT__TRY(tt__wire_check(wire, secret));
    bool asked = *wire != TT__WIRE_DEFAULT;
    if (!asked)
        *wire = secret->set && !one_host ? TT__WIRE_SEALED : TT__WIRE_PLAIN;
    if (*wire == TT__WIRE_PLAIN && says_so && !one_host)
        tt__log(TT_LOG_WARNING,
                asked ? "connections between hosts are plain (TT_WIRE=plain): who can change packets on their way can "
                        "change gradients unnoticed"
                      : "connections between hosts are plain, since the job has no secret: who can change packets on "
                        "their way can change gradients unnoticed (TT_SECRET, TT_SECRET_FILE)");
    return TT_OK;
}

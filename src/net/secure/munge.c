#include "net/secure/munge.h"

#include "base/error.h"
#include "net/net.h"
#include "net/stream.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* libmunge's interface. Its numbers have never changed, so its header is not needed to build. */
enum { OPTION_CIPHER = 0, OPTION_TTL = 4, OPTION_SOCKET = 8, OPTION_UID_RESTRICTION = 9 };
enum { CIPHER_AES128 = 4, TTL_MAXIMUM = -1 };
enum { MUNGE_SUCCESS = 0, MUNGE_EXPIRED = 15, MUNGE_REWOUND = 16, MUNGE_REPLAYED = 17, MUNGE_UNAUTHORIZED = 18 };

typedef struct munge_calls {
    void *(*ctx_create)(void);
    void (*ctx_destroy)(void *context);
    int (*ctx_set)(void *context, int option, ...);
    const char *(*ctx_strerror)(void *context);
    int (*encode)(char **credential, void *context, const void *bytes, int size);
    int (*decode)(const char *credential, void *context, void **bytes, int *size, uid_t *user, gid_t *group);
    const char *(*strerror)(int error);
} munge_calls;

static bool find_call(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found); /* ISO C has no cast from object to function pointers */
    return found != NULL;
}

static tt_status load_munge(munge_calls *calls) {
    void *library = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library && find_call(library, "munge_ctx_create", &calls->ctx_create) &&
        find_call(library, "munge_ctx_destroy", &calls->ctx_destroy) &&
        find_call(library, "munge_ctx_set", &calls->ctx_set) &&
        find_call(library, "munge_ctx_strerror", &calls->ctx_strerror) &&
        find_call(library, "munge_encode", &calls->encode) && find_call(library, "munge_decode", &calls->decode) &&
        find_call(library, "munge_strerror", &calls->strerror))
        return TT_OK;
    const char *why = dlerror();
    return tt__fail(TT_ERR_AUTH, "libmunge can't be loaded (%s)", why ? why : "no reason given");
}

/* Make a context for one call. TT_MUNGE_SOCKET names munged's socket, if that is not where libmunge expects it. */
static tt_status make_context(const munge_calls *calls, void **context) {
    const char *path = secure_getenv("TT_MUNGE_SOCKET");
    *context = calls->ctx_create();
    if (!*context)
        return tt__fail(TT_ERR_MEMORY, "out of memory");
    if (!path || !*path || calls->ctx_set(*context, OPTION_SOCKET, path) == MUNGE_SUCCESS)
        return TT_OK;
    calls->ctx_destroy(*context);
    return tt__fail(TT_ERR_AUTH, "libmunge takes no TT_MUNGE_SOCKET=%.200s", path);
}

static tt_status munge_failed(const munge_calls *calls, void *context, int error, const char *what) {
    const char *more = calls->ctx_strerror(context);
    bool clocks = error == MUNGE_EXPIRED || error == MUNGE_REWOUND;
    return tt__fail(TT_ERR_AUTH, "munge can't %s: %s%s", what, more ? more : calls->strerror(error),
                    clocks                        ? ": this host's clock is far from that of rank 0's, or rank 0 has "
                                                    "waited longer than munged lets a credential live"
                    : error == MUNGE_UNAUTHORIZED ? ": it was made for another user than this process's"
                                                  : "");
}

tt_status tt__munge_seal(char credential[TT__MUNGE_CREDENTIAL_MAX], const char *text) {
    munge_calls calls;
    void *context;
    char *made = NULL;
    TT__TRY(load_munge(&calls));
    TT__TRY(make_context(&calls, &context));
    int error = calls.ctx_set(context, OPTION_UID_RESTRICTION, geteuid());
    if (!error)
        error = calls.ctx_set(context, OPTION_CIPHER, (int)CIPHER_AES128);
    if (!error)
        error = calls.ctx_set(context, OPTION_TTL, (int)TTL_MAXIMUM);
    if (!error)
        error = calls.encode(&made, context, text, (int)strlen(text));
    tt_status status = error ? munge_failed(&calls, context, error, "seal the job secret") : TT_OK;
    calls.ctx_destroy(context);
    if (!status && strlen(made) >= TT__MUNGE_CREDENTIAL_MAX)
        status = tt__fail(TT_ERR_AUTH, "munge made a credential of %zu bytes; expected fewer than %d", strlen(made),
                          (int)TT__MUNGE_CREDENTIAL_MAX);
    if (!status)
        memcpy(credential, made, strlen(made) + 1);
    free(made);
    return status;
}

/* Take the payload out of a decoded credential, and wipe it: a credential that was refused has one, too. */
static tt_status take_payload(char text[TT__MUNGE_PAYLOAD_MAX], tt_status status, void *bytes, int size, uid_t user) {
    if (!status && user != geteuid())
        status = tt__fail(TT_ERR_AUTH, "the credential was made by user %u, expected %u, this process's",
                          (unsigned)user, (unsigned)geteuid());
    if (!status && (size < 0 || size >= TT__MUNGE_PAYLOAD_MAX))
        status = tt__fail(TT_ERR_AUTH, "the credential holds %d bytes, expected at most %d", size,
                          (int)TT__MUNGE_PAYLOAD_MAX - 1);
    if (!status) {
        if (size)
            memcpy(text, bytes, (size_t)size);
        text[size] = '\0';
    }
    if (bytes && size > 0)
        explicit_bzero(bytes, (size_t)size);
    free(bytes);
    return status;
}

tt_status tt__munge_open(const char *credential, char text[TT__MUNGE_PAYLOAD_MAX]) {
    munge_calls calls;
    void *context, *bytes = NULL;
    int size = 0;
    uid_t user = (uid_t)-1;
    gid_t group;
    TT__TRY(load_munge(&calls));
    TT__TRY(make_context(&calls, &context));
    int error = calls.decode(credential, context, &bytes, &size, &user, &group);
    tt_status status = error && error != MUNGE_REPLAYED
                           ? munge_failed(&calls, context, error, "open the credential of the job secret")
                           : TT_OK;
    calls.ctx_destroy(context);
    return take_payload(text, status, bytes, size, user);
}

/* ---- asking for the credential ---- */

size_t tt__asking_answer(uint8_t answer[TT__ASKING_ANSWER_MAX]) {
    char credential[TT__MUNGE_CREDENTIAL_MAX];
    tt__credential_kept(credential);
    size_t size = strlen(credential);
    const uint8_t header[TT__ASKING_HEADER] = {TT__ASKING_FIRST_BYTE, TT__ASKING_VERSION, (uint8_t)size,
                                               (uint8_t)(size >> 8)};
    memcpy(answer, header, sizeof header);
    memcpy(answer + sizeof header, credential, size);
    return sizeof header + size;
}

static tt_status read_asked(tt__stream *stream, char credential[TT__MUNGE_CREDENTIAL_MAX], int64_t deadline_ms) {
    static const uint8_t question[TT__ASKING_HEADER] = {TT__ASKING_FIRST_BYTE, TT__ASKING_VERSION};
    uint8_t header[TT__ASKING_HEADER];
    TT__TRY(tt__stream_write_full(stream, question, sizeof question, deadline_ms));
    TT__TRY(tt__stream_read_full(stream, header, sizeof header, deadline_ms));
    size_t size = header[2] | (size_t)header[3] << 8;
    if (header[0] != TT__ASKING_FIRST_BYTE || header[1] != TT__ASKING_VERSION || size >= TT__MUNGE_CREDENTIAL_MAX)
        return tt__fail(TT_ERR_PROTOCOL,
                        "who listens there knows nothing of job secrets. Is it rank 0's store, and of this version?");
    if (!size)
        return tt__fail(TT_ERR_AUTH, "the store there has no job secret by MUNGE. Is it rank 0's of this job, and has "
                                     "that host TT_SECRET or TT_SECRET_FILE that this one lacks?");
    TT__TRY(tt__stream_read_full(stream, credential, size, deadline_ms));
    credential[size] = '\0';
    return memchr(credential, '\0', size) ? tt__fail(TT_ERR_PROTOCOL, "what the store there sent is no credential")
                                          : TT_OK;
}

tt_status tt__asking_ask(char credential[TT__MUNGE_CREDENTIAL_MAX], const char *host, int port, int64_t deadline_ms) {
    int fd;
    tt__stream stream;
    TT__TRY(tt__net_connect(&fd, host, port, deadline_ms));
    tt__stream_open(&stream, fd, NULL, false);
    tt_status status = read_asked(&stream, credential, deadline_ms);
    tt__stream_close(&stream);
    return status;
}

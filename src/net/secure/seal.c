#include "net/secure/seal.h"

#include "base/error.h"
#include "net/net.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    RECORD = TT__SEAL_HEAD + TT__SEAL_PIECE + TT__SEAL_TAG,
    BATCH = 3,             /* records sent together: they fit in a second-level cache */
    AHEAD = 256,           /* also read behind a record: the size of the next, or small ones before that */
    FIRST = 8 << 10,       /* read while the next record's size is not known */
    ROOM = RECORD + FIRST, /* bytes of the buffer `came` */
    SMALL = 1024,          /* a record of at most so many bytes ends before a large piece */
    LARGE = 8 << 10,       /* at least so many are a large piece, which is received straight into the caller's memory */
    PARTS = 8              /* the most of the caller's pieces in a record */
};

/* One direction. */
typedef struct direction {
    EVP_CIPHER_CTX *context;
    uint8_t *key; /* in memory that is not dumped */
    uint64_t number, rekey_every;
    bool begun; /* OpenSSL has the nonce of the next record */
} direction;

struct tt__seal {
    direction out, in;
    void *key_page;
    size_t page_size;
    bool broken, held;

    uint8_t *unsent; /* (BATCH, RECORD): of records that were taken, but not wholly sent */
    size_t unsent_at, unsent_end;

    uint8_t *came; /* (ROOM) */
    size_t at, end;
    size_t checked; /* bytes from `at` on that were checked, before a tag */
    bool drained;   /* the last read brought less than it could */
    bool borrows;   /* tt__stream_borrow(): a read that moved nothing keeps the memory that it was given */
    /* The caller's memory, which has the first record's bytes from `direct_from` on, each in its place; NULL: all are
     * in `came`. */
    uint8_t *direct;
    size_t direct_from;
};

/* ---- keys */

static bool use_key(direction *d) { return EVP_EncryptInit_ex(d->context, NULL, NULL, d->key, NULL) == 1; }

static bool begin_direction(direction *d, uint8_t *key, const uint8_t from[TT__MAC_SIZE]) {
    d->context = EVP_CIPHER_CTX_new();
    d->key = key;
    d->rekey_every = TT__SEAL_RECORDS;
    memcpy(key, from, TT__MAC_SIZE);
    return d->context && EVP_EncryptInit_ex(d->context, EVP_aes_256_gcm(), NULL, NULL, NULL) == 1 && use_key(d);
}

static bool next_key(direction *d) {
    static const uint8_t next[] = "next";
    uint8_t key[TT__MAC_SIZE];
    tt__mac_derive(key, (tt__span){d->key, TT__MAC_SIZE}, (tt__span){NULL, 0}, (tt__span){next, sizeof next - 1});
    memcpy(d->key, key, sizeof key);
    OPENSSL_cleanse(key, sizeof key);
    return use_key(d);
}

static bool make_key_page(tt__seal *seal) {
    seal->page_size = (size_t)sysconf(_SC_PAGESIZE);
    seal->key_page = mmap(NULL, seal->page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (seal->key_page == MAP_FAILED) {
        seal->key_page = NULL;
        return false;
    }
    /* Both only make it harder to find a key, so streams are sealed even if the system refuses. */
    (void)madvise(seal->key_page, seal->page_size, MADV_DONTDUMP);
    (void)mlock(seal->key_page, seal->page_size);
    return true;
}

tt_status tt__seal_new(tt__seal **out, const tt__seal_keys *keys) {
    tt__seal *seal = *out = calloc(1, sizeof *seal);
    if (seal) {
        seal->unsent = malloc(BATCH * (size_t)RECORD);
        seal->came = malloc(ROOM);
    }
    tt_status status = TT_OK;
    if (!seal || !seal->unsent || !seal->came || !make_key_page(seal))
        status = tt__fail(TT_ERR_MEMORY, "out of memory for a sealed connection");
    else if (!begin_direction(&seal->out, seal->key_page, keys->send) ||
             !begin_direction(&seal->in, (uint8_t *)seal->key_page + TT__MAC_SIZE, keys->receive))
        status = tt__fail(TT_ERR_SYSTEM, "OpenSSL has no AES-256-GCM: connections can't be sealed (TT_WIRE=plain)");
    if (status) {
        tt__seal_free(seal);
        *out = NULL;
    }
    return status;
}

void tt__seal_free(tt__seal *seal) {
    if (!seal)
        return;
    EVP_CIPHER_CTX_free(seal->out.context); /* this overwrites its copy of the key */
    EVP_CIPHER_CTX_free(seal->in.context);
    if (seal->key_page) {
        OPENSSL_cleanse(seal->key_page, 2 * TT__MAC_SIZE);
        munmap(seal->key_page, seal->page_size);
    }
    free(seal->unsent);
    free(seal->came);
    free(seal);
}

void tt__seal_rekey_every(tt__seal *seal, uint64_t records) { seal->out.rekey_every = seal->in.rekey_every = records; }

/* ---- tags */

/* Feed the parts of a record to OpenSSL, small ones together, because each call is costly. */
static bool feed_parts(EVP_CIPHER_CTX *context, const struct iovec *parts, int n) {
    uint8_t small[TT__SEAL_HEAD + SMALL];
    size_t total = 0, at = 0;
    int size;
    for (int i = 0; i < n; i++)
        total += parts[i].iov_len;
    if (n > 1 && total <= sizeof small) {
        for (int i = 0; i < n; at += parts[i++].iov_len)
            memcpy(small + at, parts[i].iov_base, parts[i].iov_len);
        return EVP_EncryptUpdate(context, NULL, &size, small, (int)total) == 1;
    }
    bool good = true;
    for (int i = 0; good && i < n; i++)
        good = EVP_EncryptUpdate(context, NULL, &size, parts[i].iov_base, (int)parts[i].iov_len) == 1;
    return good;
}

/* Give OpenSSL the next record's nonce, early if there is time. */
static bool begin_record(direction *d) {
    uint8_t nonce[12] = {0};
    if (d->begun)
        return true;
    if (d->number && d->number % d->rekey_every == 0 && !next_key(d))
        return false;
    if (d->number == UINT64_MAX)
        return false;
    for (int i = 0; i < 8; i++)
        nonce[4 + i] = (uint8_t)(d->number >> 8 * i);
    d->number++;
    return d->begun = EVP_EncryptInit_ex(d->context, NULL, NULL, NULL, nonce) == 1;
}

/* Compute the tag of the next record, which consists of `parts`. */
static bool tag_record(direction *d, const struct iovec *parts, int n, uint8_t tag[TT__SEAL_TAG]) {
    uint8_t none[16];
    int size;
    bool begun = begin_record(d);
    d->begun = false;
    return begun && feed_parts(d->context, parts, n) && EVP_EncryptFinal_ex(d->context, none, &size) == 1 &&
           EVP_CIPHER_CTX_ctrl(d->context, EVP_CTRL_AEAD_GET_TAG, TT__SEAL_TAG, tag) == 1;
}

static tt__io fail_broken(tt__seal *seal) {
    seal->broken = true;
    tt__fail(TT_ERR_AUTH, "what came was not sealed by the other side: somebody changes what is on its way");
    return TT__IO_FAILED;
}

static bool record_is_good(tt__seal *seal, const void *head, const void *bytes, size_t size, const uint8_t *tag) {
    uint8_t own[TT__SEAL_TAG];
    bool whole = bytes == (const uint8_t *)head + TT__SEAL_HEAD; /* one part */
    const struct iovec parts[2] = {{(void *)(uintptr_t)head, TT__SEAL_HEAD + (whole ? size : 0)},
                                   {(void *)(uintptr_t)bytes, size}};
    return tag_record(&seal->in, parts, whole ? 1 : 2, own) && !CRYPTO_memcmp(own, tag, sizeof own);
}

/* ---- writing */

static tt__io send_parts(int fd, const struct iovec *parts, int n, size_t *sent) {
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)n};
    ssize_t put;
    *sent = 0;
    while ((put = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)) < 0 && errno == EINTR)
        ;
    if (put >= 0) {
        *sent = (size_t)put;
        return TT__IO_DONE;
    }
    if (tt__net_would_block(errno))
        return TT__IO_WANT_WRITE;
    tt__fail_errno(TT_ERR_NET, errno, "writing to the connection");
    return TT__IO_FAILED;
}

tt__io tt__seal_flush(tt__seal *seal, int fd) {
    while (tt__seal_unsent(seal)) {
        size_t sent;
        const struct iovec rest = {seal->unsent + seal->unsent_at, seal->unsent_end - seal->unsent_at};
        tt__io io = send_parts(fd, &rest, 1, &sent);
        if (io != TT__IO_DONE)
            return io;
        seal->unsent_at += sent;
    }
    return TT__IO_DONE;
}

bool tt__seal_unsent(const tt__seal *seal) { return seal->unsent_at < seal->unsent_end; }

/* Keep what is left of records after their first `sent` bytes. */
static void keep_rest(tt__seal *seal, const struct iovec *parts, int n, size_t sent) {
    seal->unsent_at = seal->unsent_end = 0;
    for (int i = 0; i < n; i++) {
        size_t skip = sent < parts[i].iov_len ? sent : parts[i].iov_len, left = parts[i].iov_len - skip;
        memcpy(seal->unsent + seal->unsent_end, (const uint8_t *)parts[i].iov_base + skip, left);
        seal->unsent_end += left;
        sent -= skip;
    }
}

/* Where a run of pieces stands. */
typedef struct cursor {
    const struct iovec *pieces;
    int n;
    size_t skip; /* bytes of the first piece that were taken */
} cursor;

/* Take the next record's parts; returns how many, 0 at the end. */
static int take_parts(cursor *c, struct iovec *parts, size_t *size) {
    int n = 0;
    *size = 0;
    while (c->n && n < PARTS && *size < TT__SEAL_PIECE) {
        size_t left = c->pieces->iov_len - c->skip, room = TT__SEAL_PIECE - *size;
        if (*size && *size <= SMALL && left >= LARGE)
            break;
        size_t taken = left < room ? left : room;
        if (taken)
            parts[n++] = (struct iovec){(char *)c->pieces->iov_base + c->skip, taken};
        *size += taken;
        c->skip += taken;
        if (c->skip == c->pieces->iov_len) {
            c->pieces++;
            c->n--;
            c->skip = 0;
        }
    }
    return n;
}

/* Records that are sent together. */
typedef struct batch {
    struct iovec parts[BATCH * (PARTS + 2)];
    int n, records;
    size_t size, bytes; /* of the records; of the pieces in them */
    uint8_t heads[BATCH][TT__SEAL_HEAD], tags[BATCH][TT__SEAL_TAG];
} batch;

/* Seal as much of the remaining pieces as may be sent together. */
static bool fill_batch(tt__seal *seal, batch *b, cursor *c) {
    size_t size;
    b->n = b->records = 0;
    b->size = b->bytes = 0;
    for (int count; b->records < BATCH && (count = take_parts(c, b->parts + b->n + 1, &size)) > 0; b->records++) {
        uint8_t *head = b->heads[b->records], *tag = b->tags[b->records];
        struct iovec *parts = b->parts + b->n;
        for (int i = 0; i < TT__SEAL_HEAD; i++)
            head[i] = (uint8_t)(size >> 8 * i);
        parts[0] = (struct iovec){head, TT__SEAL_HEAD};
        if (!tag_record(&seal->out, parts, count + 1, tag))
            return false;
        parts[count + 1] = (struct iovec){tag, TT__SEAL_TAG};
        b->n += count + 2;
        b->size += TT__SEAL_HEAD + size + TT__SEAL_TAG;
        b->bytes += size;
    }
    return true;
}

tt__io tt__seal_write(tt__seal *seal, int fd, const struct iovec *pieces, int n, size_t *put) {
    batch b;
    cursor c = {pieces, n, 0};
    size_t sent;
    *put = 0;
    tt__io io = tt__seal_flush(seal, fd);
    while (io == TT__IO_DONE && !tt__seal_unsent(seal)) {
        if (!fill_batch(seal, &b, &c)) {
            tt__fail(TT_ERR_SYSTEM, "OpenSSL can't seal what is to be sent");
            return TT__IO_FAILED;
        }
        if (!b.records)
            break;
        io = send_parts(fd, b.parts, b.n, &sent);
        if (io != TT__IO_FAILED && sent < b.size)
            keep_rest(seal, b.parts, b.n, sent);
        if (io != TT__IO_FAILED)
            *put += b.bytes;
    }
    if (*put)
        (void)begin_record(&seal->out); /* while the peer works; what fails here fails again when it is needed */
    return io == TT__IO_FAILED ? io : *put ? TT__IO_DONE : io;
}

/* ---- reading */

/* Receive into `parts`; *got = 0 unless done. A short read makes the next one wait for the socket. */
static tt__io receive_parts(tt__seal *seal, int fd, struct iovec *parts, int n, size_t *got) {
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)n};
    size_t want = 0;
    ssize_t came;
    *got = 0;
    if (seal->held || seal->drained) {
        seal->drained = false;
        return TT__IO_WANT_READ;
    }
    for (int i = 0; i < n; i++)
        want += parts[i].iov_len;
    while ((came = recvmsg(fd, &message, MSG_DONTWAIT)) < 0 && errno == EINTR)
        ;
    if (came > 0) {
        *got = (size_t)came;
        seal->drained = *got < want;
        return TT__IO_DONE;
    }
    if (came == 0)
        return TT__IO_END;
    if (tt__net_would_block(errno)) {
        (void)begin_record(&seal->in); /* as in tt__seal_write() */
        return TT__IO_WANT_READ;
    }
    tt__fail_errno(TT_ERR_NET, errno, "reading from the connection");
    return TT__IO_FAILED;
}

/* Move what has come to the front of the buffer. */
static void move_to_front(tt__seal *seal) {
    if (seal->at)
        memmove(seal->came, seal->came + seal->at, seal->end - seal->at);
    seal->end -= seal->at;
    seal->at = 0;
}

static size_t record_size(const uint8_t *head) {
    return head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
}

void tt__seal_borrow(tt__seal *seal) { seal->borrows = true; }

void tt__seal_let_go(tt__seal *seal) {
    if (!seal->direct)
        return;
    size_t have = seal->end - TT__SEAL_HEAD, size = record_size(seal->came);
    have = have < size ? have : size;
    memcpy(seal->came + TT__SEAL_HEAD + seal->direct_from, seal->direct + seal->direct_from, have - seal->direct_from);
    seal->direct = NULL;
}

/* Receive the rest of a record of `size` bytes straight to `data`, and what follows it to where it would be if the
 * buffer held all of the record. *got is 0 while not all has come. */
static tt__io read_direct(tt__seal *seal, int fd, uint8_t *data, size_t size, size_t *got) {
    uint8_t *bytes = seal->came + TT__SEAL_HEAD, *tag = bytes + size;
    size_t n;
    if (!seal->direct) {
        move_to_front(seal);
        seal->direct = data;
        seal->direct_from = seal->end - TT__SEAL_HEAD;
    }
    size_t have = seal->end - TT__SEAL_HEAD, of_bytes = have < size ? have : size, of_tag = have - of_bytes;
    struct iovec parts[2] = {{data + of_bytes, size - of_bytes}, {tag + of_tag, TT__SEAL_TAG - of_tag + AHEAD}};
    tt__io io = receive_parts(seal, fd, parts, 2, &n);
    seal->end += n;
    if (seal->end < TT__SEAL_HEAD + size + TT__SEAL_TAG) {
        if (!seal->borrows)
            tt__seal_let_go(seal);
        return io;
    }
    seal->direct = NULL;
    memcpy(data, bytes, seal->direct_from);
    if (!record_is_good(seal, seal->came, data, size, tag))
        return fail_broken(seal);
    seal->at = TT__SEAL_HEAD + size + TT__SEAL_TAG;
    *got = size;
    return TT__IO_DONE;
}

/* Receive more into the buffer, of which the record at its beginning needs `whole` bytes; 0: not known. */
static tt__io read_more(tt__seal *seal, int fd, size_t whole) {
    size_t n, want = whole ? whole - (seal->end - seal->at) + AHEAD : FIRST;
    if (seal->at == seal->end || ROOM - seal->end < want)
        move_to_front(seal);
    struct iovec part = {seal->came + seal->end, ROOM - seal->end < want ? ROOM - seal->end : want};
    tt__io io = receive_parts(seal, fd, &part, 1, &n);
    seal->end += n;
    return io;
}

/* Give out bytes that were checked. */
static size_t take_checked(tt__seal *seal, void *data, size_t size) {
    size_t n = seal->checked < size ? seal->checked : size;
    memcpy(data, seal->came + seal->at, n);
    seal->at += n;
    seal->checked -= n;
    if (!seal->checked)
        seal->at += TT__SEAL_TAG;
    return n;
}

/* Take one step towards the next checked bytes; *got > 0: they went straight to `data`. */
static tt__io seal_read_step(tt__seal *seal, int fd, void *data, size_t room, size_t *got) {
    size_t have = seal->end - seal->at;
    uint8_t *record = seal->came + seal->at;
    if (have < TT__SEAL_HEAD)
        return read_more(seal, fd, 0);
    size_t size = record_size(record), whole = TT__SEAL_HEAD + size + TT__SEAL_TAG;
    if (!size || size > TT__SEAL_PIECE)
        return fail_broken(seal);
    if (have < whole) {
        bool direct = seal->direct || (size >= LARGE && size <= room && have < TT__SEAL_HEAD + size);
        return direct ? read_direct(seal, fd, data, size, got) : read_more(seal, fd, whole);
    }
    if (!record_is_good(seal, record, record + TT__SEAL_HEAD, size, record + TT__SEAL_HEAD + size))
        return fail_broken(seal);
    seal->at += TT__SEAL_HEAD;
    seal->checked = size;
    return TT__IO_DONE;
}

tt__io tt__seal_read(tt__seal *seal, int fd, void *data, size_t size, size_t *got) {
    tt__io io = TT__IO_DONE;
    *got = 0;
    if (seal->broken)
        return fail_broken(seal);
    if (seal->direct && (seal->direct != data || size < record_size(seal->came)))
        tt__seal_let_go(seal);
    while (io == TT__IO_DONE && size && !*got) {
        if (seal->checked)
            *got = take_checked(seal, data, size);
        else
            io = seal_read_step(seal, fd, data, size, got);
    }
    return io;
}

bool tt__seal_pending(const tt__seal *seal) { return seal->at < seal->end; }

void tt__seal_hold(tt__seal *seal, bool on) { seal->held = on; }

/* Calls into the system that fail: the nth of a join, for every n until it succeeds. Rank 1 must end with an error or do without, rank 0 must not
 * hang, and both must give everything back. Strangers who call in the middle of it are hung up on. */
#include "support/ranks.h"

#include "comm/group.h"
#include "comm/rendezvous/rendezvous.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

static volatile long fail_after = -1;

/* The functions below stand in front of the C library's, for this program's own code. A sanitizer has its own there. */
#if !defined(SANITIZED)
static bool refused(int code) {
    if (fail_after < 0 || fail_after-- != 0)
        return false;
    errno = code;
    return true;
}

#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

void *calloc(size_t n, size_t size) {
    extern void *__libc_calloc(size_t n, size_t size);
    return refused(ENOMEM) ? NULL : __libc_calloc(n, size);
}

int memfd_create(const char *name, unsigned flags) { return refused(EMFILE) ? -1 : REAL(memfd_create)(name, flags); }

int ftruncate(int fd, off_t size) { return refused(EINVAL) ? -1 : REAL(ftruncate)(fd, size); }

int fallocate(int fd, int mode, off_t offset, off_t size) {
    return refused(ENOSPC) ? -1 : REAL(fallocate)(fd, mode, offset, size);
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    return refused(ENOMEM) ? MAP_FAILED : REAL(mmap)(at, size, protection, flags, fd, offset);
}

int socket(int domain, int type, int protocol) { return refused(EMFILE) ? -1 : REAL(socket)(domain, type, protocol); }

int listen(int fd, int backlog) { return refused(EADDRINUSE) ? -1 : REAL(listen)(fd, backlog); }

int connect(int fd, const struct sockaddr *address, socklen_t size) {
    return refused(ECONNREFUSED) ? -1 : REAL(connect)(fd, address, size);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    return refused(EPIPE) ? -1 : REAL(sendmsg)(fd, message, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    return refused(ECONNRESET) ? -1 : REAL(recvmsg)(fd, message, flags);
}
#endif

static int descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;
    CHECK(folder);
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

static bool maps_shared_memory(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    bool found = false;
    CHECK(maps);
    while (fgets(line, sizeof line, maps))
        found |= strstr(line, "memfd:tutti") != NULL;
    fclose(maps);
    return found;
}

/* One join in which rank 1's nth call fails. Returns whether it came that far. */
static bool join_with_refusal(int port, int rank, long n) {
    tt_store *store = NULL, *round = NULL;
    tt_group *group = NULL;
    char prefix[32];
    snprintf(prefix, sizeof prefix, "round/%ld", n);
    CHECK_OK(tt_tcp_store(&store, "127.0.0.1", port));
    CHECK_OK(tt_prefix_store(&round, prefix, store));
    tt_clear_error();
    fail_after = rank == 1 ? n : -1;
    tt_status status = tt_init_process_group(&group, .store = round, .rank = rank, .world_size = 2, .timeout_ms = 400);
    bool came = rank == 1 && fail_after < 0;
    fail_after = -1;
    CHECK((status == TT_OK) == (group != NULL));
    CHECK(status == tt_last_status() || !status);
    CHECK(!status || tt_last_error()[0]);
    tt_destroy_process_group(group);
    tt_store_free(round);
    tt_store_free(store);
    return came;
}

static int refusals_body(tt_store *store, int rank, int world, void *arg) {
    (void)world;
    (void)arg;
    int before = descriptors();
    for (long n = 0;; n++) {
        char key[32];
        tt_store_value value;
        bool came = join_with_refusal(tt_store_port(store), rank, n);
        CHECK(descriptors() == before);
        CHECK(!maps_shared_memory());
        snprintf(key, sizeof key, "came/%ld", n);
        if (rank == 1)
            CHECK_OK(tt_store_set(store, key, came ? "y" : "n", 1));
        CHECK_OK(tt_store_get(store, key, &value));
        came = *(const char *)value.data == 'y';
        tt_store_value_free(&value);
        if (!came)
            return n > 10 ? 0 : 1; /* 0: the stand-ins were really called */
    }
}

static void every_refusal_ends_well(void **state) {
    (void)state;
#if defined(SANITIZED)
    print_message("the C library's functions can't be replaced under a sanitizer\n");
    skip();
#endif
    with_ranks(2, refusals_body, NULL);
}

static void call_as_stranger(const char *name, const void *words, size_t size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path + 1, name, strlen(name));
    CHECK(s >= 0);
    CHECK(!connect(s, (struct sockaddr *)&address,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))));
    CHECK(!size || send(s, words, size, MSG_NOSIGNAL) == (ssize_t)size);
    close(s);
}

/* Rank 1 first calls rank 0 with what no rank says, then joins as it should. */
static int strangers_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    if (rank == 1) {
        tt_store_value card;
        char name[64], garbage[45] = "tutti-1";
        CHECK_OK(tt_store_get(store, "tutti/0/1/rank/0", &card));
        CHECK(sscanf(card.data, "tutti %*d %*d %*d %*s %*s %*s %63s", name) == 1);
        tt_store_value_free(&card);
        call_as_stranger(name, NULL, 0);
        call_as_stranger(name, "hello", 5);
        call_as_stranger(name, garbage, sizeof garbage);
    }
    tt_group *group = join_group(store, rank, world);
    CHECK_OK(tt_barrier(group));
    tt_destroy_process_group(group);
    return 0;
}

static void strangers_are_hung_up_on(void **state) {
    (void)state;
    with_ranks(2, strangers_body, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_refusal_ends_well),
        cmocka_unit_test(strangers_are_hung_up_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

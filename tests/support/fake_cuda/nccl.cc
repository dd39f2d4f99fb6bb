/* The life of a communicator. */
#include "nccl_comm.h"
#include "settings.h"
#include "stream.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

static std::mutex mutex;
static std::set<ncclComm_t> alive;
static std::map<int, int> threads_on; /* a device */

fake_core::~fake_core() {
    if (area)
        munmap(area, sizeof *area);
}

bool fake_nccl_is(const char *variable, const char *name, int rank) {
    const char *text = getenv(variable), *at = text ? strchr(text, '@') : nullptr;
    return at && !strncmp(text, name, (size_t)(at - text)) && strlen(name) == (size_t)(at - text) &&
           atoi(at + 1) == rank;
}

ncclResult_t fake_misuse(const char *name, const char *what) {
    fprintf(stderr, "fake NCCL: nccl%s(): %s\n", name, what);
    return ncclInvalidUsage;
}

fake_call::fake_call(ncclComm_t c, const char *name) : comm(c), result(ncclSuccess) {
    std::lock_guard<std::mutex> held(mutex);
    if (!alive.count(comm)) {
        comm = nullptr;
        result = fake_misuse(name, "there is no such communicator");
        return;
    }
    bool looks = !strcmp(name, "CommGetAsyncError") || !strcmp(name, "GetLastError");
    if (comm->threads++ || threads_on[comm->device]++)
        result = fake_misuse(name, "two threads at once");
    else if (looks)
        return;
    else if (comm->state == ncclInProgress)
        result = fake_misuse(name, "another call is in progress");
    else if (fake_context_device() != comm->device)
        result = fake_misuse(name, "the current context is not the communicator's");
    else if (comm->state != ncclSuccess)
        result = comm->state;
    else if (fake_nccl_is("FAKE_NCCL_FAIL", name, comm->core->rank))
        result = ncclSystemError;
}

fake_call::~fake_call() {
    if (!comm)
        return;
    std::lock_guard<std::mutex> held(mutex);
    comm->threads--;
    threads_on[comm->device]--;
}

/* ---- progress */

static void proceed(ncclComm_t comm) {
    if (comm->state != ncclInProgress || comm->looks-- > 0 || (comm->ready && !comm->ready()))
        return;
    comm->state = ncclSuccess;
    comm->ready = nullptr;
    std::function<void()> then = std::move(comm->then);
    comm->then = nullptr;
    if (then)
        then();
}

ncclResult_t fake_proceed(ncclComm_t comm, std::function<bool()> ready, std::function<void()> then) {
    long seed = fake_setting("FAKE_NCCL_SEED", 1);
    comm->state = ncclInProgress;
    comm->looks = seed && comm->draws() % 2 ? (int)(comm->draws() % 8) : 0;
    comm->ready = std::move(ready);
    comm->then = std::move(then);
    proceed(comm);
    return comm->state;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    fake_call call(comm, "CommGetAsyncError");
    if (call.result)
        return call.result;
    proceed(comm);
    *error = comm->state;
    return ncclSuccess;
}

const char *ncclGetLastError(ncclComm_t comm) {
    fake_call call(comm, "GetLastError");
    return call.result ? "" : comm->last_error.c_str();
}

const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return texts[result];
}

ncclResult_t ncclGetVersion(int *version) {
    *version = (int)fake_setting("FAKE_NCCL_VERSION", 22809);
    return ncclSuccess;
}

/* ---- areas */

static int make_area(char place[64]) {
    int fd = memfd_create("fake-nccl", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(fake_area)))
        abort();
    snprintf(place, 64, "%d %d", (int)getpid(), fd);
    return fd;
}

static fake_area *open_area(const char *place) {
    int pid = 0, number = -1;
    char path[64];
    sscanf(place, "%d %d", &pid, &number);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, number);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *p = fd < 0 ? MAP_FAILED : mmap(nullptr, sizeof(fake_area), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return p == MAP_FAILED ? nullptr : (fake_area *)p;
}

static void close_own_file(ncclComm_t comm) {
    if (comm->own_file >= 0)
        close(comm->own_file);
    comm->own_file = -1;
}

static ncclComm_t make_comm(int rank, int size, int device, const char *place) {
    fake_area *area = open_area(place);
    if (!area)
        return nullptr;
    ncclComm_t comm = new ncclComm;
    comm->core->rank = rank;
    comm->core->size = size;
    comm->core->area = area;
    comm->device = device;
    comm->draws.seed((unsigned)(fake_setting("FAKE_NCCL_SEED", 1) * 100 + rank));
    std::lock_guard<std::mutex> held(mutex);
    alive.insert(comm);
    return comm;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    if (fake_nccl_is("FAKE_NCCL_FAIL", "GetUniqueId", 0))
        return ncclSystemError;
    make_area(id->internal);
    return ncclSuccess;
}

/* Two ranks on one device are an error of all. */
static void check_devices(ncclComm_t comm) {
    const fake_core &core = *comm->core;
    close_own_file(comm);
    for (int a = 0; a < core.size; a++)
        for (int b = 0; b < a; b++)
            if (core.area->devices[a] == core.area->devices[b]) {
                comm->state = ncclInvalidUsage;
                comm->last_error = "Duplicate GPU detected";
            }
}

static bool config_is_right(const nccl_config *config) {
    return config && config->magic == 0xcafebeef && config->size >= sizeof *config && config->blocking == 0;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank, ncclConfig_t *config) {
    const char *name = "CommInitRankConfig";
    int pid = 0, fd = -1;
    if (!config_is_right((const nccl_config *)config) || size > FAKE_RANKS || rank < 0 || rank >= size)
        return fake_misuse(name, "a wrong configuration or rank");
    if (fake_context_device() < 0)
        return fake_misuse(name, "there is no current context");
    if (fake_nccl_is("FAKE_NCCL_FAIL", name, rank))
        return ncclSystemError;
    ncclComm_t comm = make_comm(rank, size, fake_context_device(), id.internal);
    if (!comm)
        return ncclSystemError;
    sscanf(id.internal, "%d %d", &pid, &fd);
    comm->own_file = pid == (int)getpid() ? fd : -1;
    *out = comm;
    fake_area *area = comm->core->area;
    if (fake_nccl_is("FAKE_NCCL_HANG", name, rank))
        return fake_proceed(
            comm, [] { return false; }, nullptr);
    area->devices[rank] = fake_physical_device(comm->device);
    area->arrived++;
    return fake_proceed(
        comm, [=] { return area->arrived == size; }, [=] { check_devices(comm); });
}

/* ---- splitting */

/* The ranks of this one's color, by key and rank. */
static std::vector<int> split_members(const fake_core &core, int color) {
    std::vector<std::pair<int, int>> found;
    for (int r = 0; r < core.size; r++)
        if (core.area->splits[r].color == color)
            found.push_back({core.area->splits[r].key, r});
    std::set<std::pair<int, int>> sorted(found.begin(), found.end());
    std::vector<int> members;
    for (const std::pair<int, int> &one : sorted)
        members.push_back(one.second);
    return members;
}

static void finish_split(ncclComm_t comm, ncclComm_t *made, const std::vector<int> &members, int fd) {
    int rank = 0, size = (int)members.size();
    while (members[(size_t)rank] != comm->core->rank)
        rank++;
    *made = make_comm(rank, size, comm->device, comm->core->area->splits[members[0]].place);
    if (!*made) {
        comm->state = ncclSystemError;
        return;
    }
    ncclComm_t child = *made;
    fake_area *area = child->core->area;
    child->own_file = fd;
    area->arrived++;
    fake_proceed(
        child, [=] { return area->arrived == size; }, [=] { close_own_file(child); });
}

/* All ranks give their color; then the first of each color makes an area for it. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config) {
    fake_call call(comm, "CommSplit");
    if (call.result)
        return call.result;
    if (!config_is_right((const nccl_config *)config))
        return fake_misuse("CommSplit", "a wrong configuration");
    if (comm->core->queued)
        return fake_misuse("CommSplit", "operations are under way");
    if (fake_nccl_is("FAKE_NCCL_HANG", "CommSplit", comm->core->rank))
        return fake_proceed(
            comm, [] { return false; }, nullptr);
    fake_core *core = comm->core.get();
    auto *own = &core->area->splits[core->rank];
    int round = ++comm->splits;
    std::shared_ptr<int> fd = std::make_shared<int>(-1);
    *made = nullptr;
    own->color = color;
    own->key = key;
    own->round = round;
    auto ready = [=] {
        for (int r = 0; r < core->size; r++)
            if (core->area->splits[r].round < round)
                return false;
        if (color == NCCL_SPLIT_NOCOLOR)
            return true;
        int first = split_members(*core, color)[0];
        if (first == core->rank && own->answer < round) {
            *fd = make_area(own->place);
            own->answer = round;
        }
        return core->area->splits[first].answer >= round;
    };
    return fake_proceed(comm, ready, [=] {
        if (color != NCCL_SPLIT_NOCOLOR)
            finish_split(comm, made, split_members(*core, color), *fd);
    });
}

/* ---- the end */

static std::atomic<unsigned long> cut;

unsigned long fake_nccl_cut(void) { return cut; }

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    fake_call call(comm, "CommFinalize");
    if (call.result)
        return call.result;
    if (comm->finalized)
        return fake_misuse("CommFinalize", "it was finalized before");
    comm->finalized = true;
    std::shared_ptr<fake_core> core = comm->core;
    bool hangs = fake_nccl_is("FAKE_NCCL_HANG", "CommFinalize", core->rank);
    return fake_proceed(
        comm, [=] { return !hangs && !core->queued; }, nullptr);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    {
        std::lock_guard<std::mutex> held(mutex);
        if (!alive.erase(comm))
            return fake_misuse("CommAbort", "there is no such communicator");
        if (comm->threads)
            fake_misuse("CommAbort", "another call of it has not returned");
    }
    comm->core->aborted = true;
    while (comm->core->running || fake_nccl_is("FAKE_NCCL_HANG", "CommAbort", comm->core->rank))
        usleep(1000);
    cut += !comm->finalized;
    close_own_file(comm);
    fake_windows_end(comm);
    delete comm;
    return ncclSuccess;
}

#include "mutant.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

static const char *const names[] = {"stream_wait", "event_record", "event_sync", "event_query", "stream_sync"};

static const std::string &mutant() {
    static const std::string text = getenv("FAKE_CUDA_MUTANT") ? getenv("FAKE_CUDA_MUTANT") : "";
    return text;
}

bool fake_has_mutant() { return !mutant().empty(); }
bool fake_overtakes() { return mutant() == "order stream"; }

/* "event_record libtutti-cuda.so+0x12345": the same in each process. */
static std::string name_of(fake_call call, void *place) {
    Dl_info info;
    if (!dladdr(place, &info))
        return names[call];
    const char *slash = strrchr(info.dli_fname, '/');
    char offset[32];
    snprintf(offset, sizeof offset, "+0x%zx", (size_t)((char *)place - (char *)info.dli_fbase));
    return std::string(names[call]) + " " + (slash ? slash + 1 : info.dli_fname) + offset;
}

static void list(const std::string &name, const char *path) {
    static std::mutex mutex;
    static std::set<std::string> known;
    std::lock_guard<std::mutex> held(mutex);
    if (!known.insert(name).second)
        return;
    const std::string line = name + "\n";
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || write(file, line.data(), line.size()) != (ssize_t)line.size())
        abort(); /* a list that lacks places would prove too little */
    close(file);
}

bool fake_is_planted(fake_call call, void *place) {
    static const char *const path = getenv("FAKE_CUDA_PLACES");
    if (!path && mutant().empty())
        return false;
    const std::string name = name_of(call, place);
    if (path && call != FAKE_EVENT_RECORD)
        list(name, path);
    return name == mutant();
}

void fake_note_recorded(void *place) {
    static const char *const path = getenv("FAKE_CUDA_PLACES");
    if (path && place)
        list(name_of(FAKE_EVENT_RECORD, place), path);
}

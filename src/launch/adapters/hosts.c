#include "launch/adapters/hosts.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/text/parse.h"
#include "base/text/plain_text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENTRY_SIZE = 512, FILE_MAX_BYTES = 1 << 20 };

/* Refuse what ssh would take for a flag, or a shell for more than a word. */
static bool is_host_name(const char *name) {
    if (!*name || *name == '-')
        return false;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        if (*c < 0x80 && !isalnum(*c) && !strchr("-_.@:%[]", *c))
            return false;
    return true;
}

static tt_status add_host(tt__hosts *hosts, const char *name, int slots) {
    for (int i = 0; i < hosts->n; i++)
        if (!strcmp(hosts->of[i].name, name))
            return tt__fail(TT_ERR_INVALID, "host %s is listed twice: give it all its slots at once, as %s:4", name,
                            name);
    if (hosts->n == TT__HOSTS_MAX)
        return tt__fail(TT_ERR_INVALID, "more than %d hosts", TT__HOSTS_MAX);
    tt__host *grown = realloc(hosts->of, (size_t)(hosts->n + 1) * sizeof *grown);
    char *copy = strdup(name);
    hosts->of = grown ? grown : hosts->of;
    if (!grown || !copy) {
        free(copy);
        return tt__fail(TT_ERR_MEMORY, "no memory for a list of hosts");
    }
    hosts->of[hosts->n++] = (tt__host){copy, slots};
    return TT_OK;
}

/* Find where the ":SLOTS" of an entry begins, or its end. The colons of a bare IPv6 address don't count. */
static char *find_slots(char *entry) {
    char *bracket = strchr(entry, ']'), *first = strchr(bracket ? bracket : entry, ':');
    bool is_one = first && first == strrchr(entry, ':');
    return is_one ? first : entry + strlen(entry);
}

/* Read "a" or "a:4". slots: the number from elsewhere, or NULL. */
static tt_status read_host_entry(tt__hosts *hosts, const char *entry, const char *slots) {
    char name[ENTRY_SIZE];
    int64_t n = 0;
    snprintf(name, sizeof name, "%s", entry);
    char *colon = find_slots(name);
    if (*colon && !slots)
        slots = colon + 1;
    if (slots)
        TT__TRY(tt__parse_i64("slots of a host", slots, 1, TT__SLOTS_MAX, &n));
    *colon = 0;
    if (!is_host_name(name) || strlen(entry) >= sizeof name)
        return tt__fail(TT_ERR_INVALID, "expected HOST or HOST:SLOTS, got \"%.200s\"", tt__make_printable(entry).text);
    return add_host(hosts, name, (int)n);
}

tt_status tt__hosts_from_list(tt__hosts *hosts, const char *list) {
    *hosts = (tt__hosts){0};
    for (const char *at = list;; at++) {
        char entry[ENTRY_SIZE];
        size_t n = strcspn(at, ",");
        snprintf(entry, sizeof entry, "%.*s", n < sizeof entry ? (int)n : (int)sizeof entry - 1, at);
        TT__TRY(read_host_entry(hosts, entry, NULL));
        at += n;
        if (!*at)
            return TT_OK;
    }
}

/* ---- files */

/* A line: a host, and perhaps "slots=4"; what else Open MPI knows there (max_slots=8) is passed over. */
static tt_status read_hosts_line(tt__hosts *hosts, char *line) {
    char *rest, *slots = NULL;
    line[strcspn(line, "#")] = 0;
    char *host = strtok_r(line, " \t\r\n", &rest);
    for (char *word; host && (word = strtok_r(NULL, " \t\r\n", &rest));) {
        if (!strncmp(word, "slots=", 6))
            slots = word + 6;
        else if (!strchr(word, '='))
            return tt__fail(TT_ERR_INVALID, "expected HOST slots=N, got \"%.200s\" behind the host",
                            tt__make_printable(word).text);
    }
    return host ? read_host_entry(hosts, host, slots) : TT_OK;
}

static tt_status read_hosts(tt__hosts *hosts, FILE *file, const char *path) {
    char *line = NULL;
    size_t room = 0, total = 0;
    tt_status status = TT_OK;
    int number = 0;
    for (ssize_t n; !status && (n = getline(&line, &room, file)) > 0;) {
        number++;
        total += (size_t)n;
        status = total > FILE_MAX_BYTES ? tt__fail(TT_ERR_INVALID, "more than %d bytes", FILE_MAX_BYTES)
                                        : read_hosts_line(hosts, line);
        if (status)
            tt__fail_prefix("%.400s, line %d", path, number);
    }
    free(line);
    if (!status && ferror(file))
        return tt__fail_errno(TT_ERR_IO, errno, "%s", path);
    return status || hosts->n ? status : tt__fail(TT_ERR_INVALID, "%s: expected a host a line, found none", path);
}

tt_status tt__hosts_from_file(tt__hosts *hosts, const char *path) {
    struct stat info;
    *hosts = (tt__hosts){0};
    int fd = tt__fd(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    bool is_file = fd >= 0 && !fstat(fd, &info) && S_ISREG(info.st_mode);
    FILE *file = is_file ? fdopen(fd, "r") : NULL;
    int errnum = errno;
    if (!file && fd >= 0)
        close(fd);
    if (fd >= 0 && !is_file)
        return tt__fail(TT_ERR_INVALID, "%s: can't be read: expected a file, got a folder, a pipe or a device", path);
    if (!file)
        return tt__fail_errno(TT_ERR_IO, errnum, "%s: can't be read", path);
    tt_status status = read_hosts(hosts, file, path);
    fclose(file);
    return status;
}

/* ---- */

const char *tt__host_address(const tt__host *host, char *bare, size_t size) {
    const char *at = strrchr(host->name, '@'), *name = at ? at + 1 : host->name;
    size_t n = strlen(name);
    bool bracketed = *name == '[' && name[n - 1] == ']';
    snprintf(bare, size, "%.*s", (int)(n - 2 * bracketed), name + bracketed);
    return bare;
}

void tt__hosts_free(tt__hosts *hosts) {
    for (int i = 0; i < hosts->n; i++)
        free(hosts->of[i].name);
    free(hosts->of);
    *hosts = (tt__hosts){0};
}

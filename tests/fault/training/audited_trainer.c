/* examples/mnist_trainer.c for test_chaos.py: before each step it notes in a common file what it is about to train on,
 * at its end it leaves its parameters in final.RANK. A step takes A_PACE_MS at least, until a file "end" says after how
 * many epochs the training ends; ranks may be silent for A_HEARTBEAT_MS. With A_STOPS=1 it stops itself (SIGSTOP) when
 * it has joined and read its data, but has none of the job's state. */
#include "fault/elastic/told_end.h"

#include <tutti/tutti.h>

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct Audit {
    tt_elastic *elastic;
    tt_loader *loader; /* of training */
    const int64_t *epoch;
    int file;
    char final_path[64];
    void *parameters;
    size_t size;
} Audit;

static Audit audit = {.file = -1};

static int64_t audit_number(const char *name) {
    const char *text = getenv(name);
    return text ? atoll(text) : 0;
}

static int audit_round(void) {
    const tt_elastic_change *change = tt_elastic_changed(audit.elastic);
    return change ? change->round : (int)audit_number("TT_ROUND");
}

/* "COMMIT ROUND RANK EPOCH: indices", in one write. */
static void audit_batch(const tt_batch *b) {
    char line[512];
    int n = snprintf(line, sizeof line, "%lld %d %d %lld:", (long long)tt_elastic_commits(audit.elastic) + 1,
                     audit_round(), tt_get_rank(tt_elastic_group(audit.elastic)), (long long)*audit.epoch);
    for (int64_t i = 0; i < b->size && n < (int)sizeof line - 32; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, " %lld", (long long)b->indices[i]);
    line[n++] = '\n';
    if (write(audit.file, line, (size_t)n) != n)
        abort();
}

static int audited_next(tt_loader *loader, tt_batch *b);

static tt_status audited_add_loader(tt_elastic *elastic, const char *name, tt_loader *loader) {
    audit.elastic = elastic;
    if (!audit.loader && audit_number("A_STOPS"))
        raise(SIGSTOP);
    if (!audit.loader)
        audit.loader = loader;
    return tt_elastic_add_loader(elastic, name, loader);
}

static tt_status audited_add(tt_elastic *elastic, const char *name, int64_t *value, size_t size) {
    audit.epoch = value;
    return tt_elastic_add(elastic, name, value, size);
}

/* Keep the model's parameters; the trainer frees its parts in the order in which they hang on each other. */
static void audited_free(tt_module *model) {
    const tt_named_tensors *list = model ? tt_module_parameters(model) : NULL;
    free(audit.parameters);
    audit.parameters = NULL;
    audit.size = 0;
    for (int64_t i = 0; list && i < list->count; i++) {
        size_t size = tt_dtype_size(TT_F32) * (size_t)tt_tensor_numel(list->tensors[i]);
        char *all = realloc(audit.parameters, audit.size + size);
        if (!all)
            abort();
        memcpy(all + audit.size, tt_tensor_data(list->tensors[i]), size);
        audit.parameters = all;
        audit.size += size;
    }
    tt_module_free(model);
}

static void audited_free_elastic(tt_elastic *elastic) {
    snprintf(audit.final_path, sizeof audit.final_path, "final.%d",
             elastic ? tt_get_rank(tt_elastic_group(elastic)) : (int)audit_number("RANK"));
    tt_elastic_free(elastic);
}

#undef tt_elastic_new
#define tt_elastic_new(...) \
    tt_elastic_new_with(    \
        TT_ARGS(tt_elastic_new_args, .out = __VA_ARGS__, .heartbeat_ms = audit_number("A_HEARTBEAT_MS")))
#undef tt_loader_next
#define tt_loader_next audited_next
#define tt_elastic_add_loader audited_add_loader
#define tt_elastic_add audited_add
#define tt_module_free audited_free
#define tt_elastic_free audited_free_elastic
#define main trainer_main
int trainer_main(int argc, char **argv);
#include "../../../examples/mnist_trainer.c"
#undef main
#undef tt_loader_next

static int audited_next(tt_loader *loader, tt_batch *b) {
    const struct timespec pace = {.tv_nsec = audit_number("A_PACE_MS") * 1000000};
    int more = tt_loader_next_with(loader, b, sizeof *b);
    if (loader != audit.loader || more <= 0)
        return more;
    Trainer *t = (Trainer *)(uintptr_t)((const char *)audit.epoch - offsetof(Trainer, progress.epoch));
    audit_batch(b);
    if (!told_end(&t->epochs, t->progress.epoch))
        nanosleep(&pace, NULL);
    return more;
}

int main(int argc, char **argv) {
    audit.file = open("audit", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int code = trainer_main(argc, argv);
    if (code)
        return code;
    FILE *f = fopen(audit.final_path, "wb");
    if (!f || fwrite(audit.parameters, 1, audit.size, f) != audit.size || fclose(f))
        abort();
    free(audit.parameters);
    close(audit.file);
    return 0;
}

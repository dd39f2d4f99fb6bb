/* Draws what each line of stdin asks for, one line of output each, for comparison with torch:
 *   sampler N WORLD RANK SEED EPOCH SHUFFLE DROP_LAST     indices
 *   LAYOUT DTYPE DISTRIBUTION A B ROWS COLUMNS SEED       bits in hex, in the order of memory; LAYOUT contiguous,
 *                                                         transposed or narrowed (columns 1 to COLUMNS-2), DTYPE f32
 *                                                         or f64, DISTRIBUTION uniform or normal
 *   normalize MEAN STD                                    bits of the 256 values that u8 inputs become */
#include <tutti/data.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, tt_last_error());
    exit(1);
}

static void print_bits(const void *data, int64_t n, size_t size) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = 0;
        memcpy(&bits, (const char *)data + (size_t)i * size, size); /* little-endian hosts only, as the vectors */
        printf("%" PRIx64 " ", bits);
    }
    putchar('\n');
}

static void sampler(const char *line) {
    int64_t n, epoch;
    int world, rank, shuffle, drop_last;
    uint64_t seed;
    if (sscanf(line, "sampler %" SCNd64 " %d %d %" SCNu64 " %" SCNd64 " %d %d", &n, &world, &rank, &seed, &epoch,
               &shuffle, &drop_last) != 7)
        die(line);
    tt_sampler *s = tt_distributed_sampler(n, .num_replicas = world, .rank = rank, .no_shuffle = !shuffle, .seed = seed,
                                           .drop_last = drop_last);
    if (!s)
        die(line);
    tt_sampler_set_epoch(s, epoch);
    for (int64_t i = 0; i < tt_sampler_size(s); i++)
        printf("%" PRId64 " ", tt_sampler_indices(s)[i]);
    putchar('\n');
    tt_sampler_free(s);
}

static void tensor(const char *line) {
    TT_AUTO_SCOPE;
    char layout[16], dtype[8], distribution[16];
    double a, b;
    int64_t rows, columns;
    uint64_t seed;
    if (sscanf(line, "%15s %7s %15s %lf %lf %" SCNd64 " %" SCNd64 " %" SCNu64, layout, dtype, distribution, &a, &b,
               &rows, &columns, &seed) != 8)
        die(line);
    tt_tensor *whole = tt_zeros(TT_SHAPE(rows, columns), strcmp(dtype, "f32") ? TT_F64 : TT_F32), *x = whole;
    if (!strcmp(layout, "transposed"))
        x = tt_transpose(whole, 0, 1);
    else if (!strcmp(layout, "narrowed"))
        x = tt_narrow(whole, 1, 1, columns - 2);
    tt_manual_seed(seed);
    if (strcmp(distribution, "uniform") ? tt_normal_(x, a, b, NULL) : tt_uniform_(x, a, b, NULL))
        die(line);
    print_bits(tt_tensor_data(whole), rows * columns, tt_dtype_size(tt_tensor_dtype(whole)));
}

static void normalize(const char *line) {
    double mean, std;
    uint8_t all[256];
    tt_batch batch;
    for (int i = 0; i < 256; i++)
        all[i] = (uint8_t)i;
    tt_dataset *d = tt_tensor_dataset(tt_from_data(all, TT_SHAPE(1, 256), TT_U8), NULL);
    if (sscanf(line, "normalize %lf %lf", &mean, &std) != 2 || tt_dataset_normalize(d, mean, std))
        die(line);
    tt_loader *loader = tt_loader_new(d, 1);
    if (!tt_loader_next(loader, &batch))
        die(line);
    print_bits(tt_tensor_data(batch.x), 256, 4);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

int main(void) {
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "sampler", 7))
            sampler(line);
        else if (!strncmp(line, "normalize", 9))
            normalize(line);
        else
            tensor(line);
    }
    return 0;
}

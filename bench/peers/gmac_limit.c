/* Limit of sealed connections: what OpenSSL alone takes, on one core, to make the tags of so many bytes (AES-256-GMAC,
 * records of 128 KiB). Build: gcc -O2 gmac_limit.c -lcrypto; run: ./gmac_limit BYTES... */
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RECORD = 128 << 10, BLOCKS = 9 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int seal_record(EVP_CIPHER_CTX *context, const unsigned char *data, int n, unsigned long number) {
    unsigned char nonce[12] = {0}, tag[16];
    int size;
    memcpy(nonce, &number, sizeof number);
    return EVP_EncryptInit_ex(context, NULL, NULL, NULL, nonce) == 1 &&
           EVP_EncryptUpdate(context, NULL, &size, data, n) == 1 && EVP_EncryptFinal_ex(context, tag, &size) == 1 &&
           EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, sizeof tag, tag) == 1;
}

/* Seal all of `data` so many times; returns whether OpenSSL could. */
static int seal_all(EVP_CIPHER_CTX *context, const unsigned char *data, long bytes, long calls) {
    static unsigned long number;
    for (long i = 0; i < calls; i++)
        for (long at = 0; at < bytes; at += RECORD)
            if (!seal_record(context, data + at, (int)(bytes - at < RECORD ? bytes - at : RECORD), number++))
                return 0;
    return 1;
}

static int measure(EVP_CIPHER_CTX *context, long bytes) {
    long calls = (long)(3e8 / ((double)bytes + 2000));
    calls = calls < 1 ? 1 : calls > 50000 ? 50000 : calls;
    unsigned char *data = malloc((size_t)bytes);
    double seconds[BLOCKS];
    if (data)
        memset(data, 1, (size_t)bytes);                   /* zeros would all be one page */
    int good = data && seal_all(context, data, bytes, 1); /* warms up */
    for (int block = 0; block < BLOCKS && good; block++) {
        double start = now();
        good = seal_all(context, data, bytes, calls);
        seconds[block] = (now() - start) / (double)calls;
    }
    free(data);
    if (!good)
        return 0;
    qsort(seconds, BLOCKS, sizeof *seconds, by_value);
    printf("{\"bench\":\"gmac\",\"peer\":\"openssl\",\"bytes\":%ld,\"usec_median\":%.3f,\"usec_min\":%.3f}\n", bytes,
           seconds[BLOCKS / 2] * 1e6, seconds[0] * 1e6);
    return 1;
}

int main(int argc, char **argv) {
    static const unsigned char key[32] = "any key takes the same time";
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    int good = context && EVP_EncryptInit_ex(context, EVP_aes_256_gcm(), NULL, key, NULL) == 1;
    for (int i = 1; i < argc && good; i++)
        good = measure(context, atol(argv[i]));
    EVP_CIPHER_CTX_free(context);
    return good ? 0 : 1;
}

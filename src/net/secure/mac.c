/* SHA-256 is OpenSSL's. Its older functions are used rather than EVP, which first looks for providers and reads a
 * configuration file: a millisecond of every rank's start. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "net/secure/mac.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <string.h>

enum { BLOCK = SHA256_CBLOCK };

static void hash_spans(uint8_t digest[TT__MAC_SIZE], const uint8_t block[BLOCK], const tt__span *spans, size_t n) {
    SHA256_CTX context;
    SHA256_Init(&context);
    SHA256_Update(&context, block, BLOCK);
    for (size_t i = 0; i < n; i++)
        SHA256_Update(&context, spans[i].data, spans[i].size);
    SHA256_Final(digest, &context);
    OPENSSL_cleanse(&context, sizeof context);
}

static void key_block(uint8_t block[BLOCK], tt__span key, uint8_t pad) {
    memset(block, 0, BLOCK);
    if (key.size > BLOCK) {
        SHA256_CTX context;
        SHA256_Init(&context);
        SHA256_Update(&context, key.data, key.size);
        SHA256_Final(block, &context);
        OPENSSL_cleanse(&context, sizeof context);
    } else if (key.size) {
        memcpy(block, key.data, key.size);
    }
    for (int i = 0; i < BLOCK; i++)
        block[i] ^= pad;
}

void tt__mac(uint8_t mac[TT__MAC_SIZE], tt__span key, const tt__span *spans, size_t n) {
    uint8_t block[BLOCK], inner[TT__MAC_SIZE];
    key_block(block, key, 0x36);
    hash_spans(inner, block, spans, n);
    key_block(block, key, 0x5c);
    hash_spans(mac, block, &(tt__span){inner, sizeof inner}, 1);
    OPENSSL_cleanse(block, sizeof block);
}

void tt__mac_derive(uint8_t key[TT__MAC_SIZE], tt__span secret, tt__span salt, tt__span purpose) {
    static const uint8_t first = 1; /* the number of the output's block */
    uint8_t extracted[TT__MAC_SIZE];
    tt__mac(extracted, salt, &secret, 1);
    tt__mac(key, (tt__span){extracted, sizeof extracted}, (const tt__span[]){purpose, {&first, 1}}, 2);
    OPENSSL_cleanse(extracted, sizeof extracted);
}

bool tt__mac_equal(const uint8_t a[TT__MAC_SIZE], const uint8_t b[TT__MAC_SIZE]) {
    return CRYPTO_memcmp(a, b, TT__MAC_SIZE) == 0;
}

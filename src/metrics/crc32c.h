/* The checksum of event files. */
#ifndef TT_METRICS_CRC32C_H
#define TT_METRICS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32C (Castagnoli) of `size` bytes: "123456789" gives E3069283. */
uint32_t tt__crc32c(const void *data, size_t size);

/* As a TFRecord stores it: rotated and shifted, so that the checksum of data that holds checksums stays good. */
uint32_t tt__crc32c_masked(const void *data, size_t size);

#endif

/* Drawing one digit of the built-in data set. */
#ifndef TT_DATA_DIGITS_H
#define TT_DATA_DIGITS_H

#include <stdint.h>

enum { TT__DIGIT_SIDE = 28 };

/* Draw example number `index` of the set with this seed: pixels (SIDE,SIDE), 0 background to 255 ink. Returns the
 * digit, 0..9. The same on every machine: of floating point it uses only what IEEE 754 rounds correctly (+ - * / and
 * square root). */
int tt__digit_draw(uint8_t *pixels, uint64_t seed, int64_t index);

#endif

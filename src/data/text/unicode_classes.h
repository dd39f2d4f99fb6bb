/* Classes of characters, as Unicode has them: \p{L}, \p{N}, White_Space. */
#ifndef TT_DATA_UNICODE_CLASSES_H
#define TT_DATA_UNICODE_CLASSES_H

#include <stdbool.h>
#include <stdint.h>

bool tt__is_letter(uint32_t c);
bool tt__is_number(uint32_t c);
bool tt__is_space(uint32_t c);

#endif

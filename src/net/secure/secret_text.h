/* How long the text of a job secret may be. */
#ifndef TT_NET_SECURE_SECRET_TEXT_H
#define TT_NET_SECURE_SECRET_TEXT_H

#include <tutti/base.h>

enum { TT__SECRET_MIN = 16, TT__SECRET_MAX = 1024, TT__SECRET_MADE_SIZE = 65 /* with the NUL */ };

#endif

/* Which sanitizers this is compiled for: 1 or 0. gcc tells by macros, clang by __has_feature(). */
#ifndef TT_BASE_SANITIZERS_H
#define TT_BASE_SANITIZERS_H

#ifndef __has_feature
#define __has_feature(name) 0
#endif

#if defined __SANITIZE_ADDRESS__ || __has_feature(address_sanitizer)
#define TT__ASAN 1
#else
#define TT__ASAN 0
#endif

#if defined __SANITIZE_THREAD__ || __has_feature(thread_sanitizer)
#define TT__TSAN 1
#else
#define TT__TSAN 0
#endif

#endif

/* Which sanitizers this is compiled for: 1 or 0. gcc tells by macros, clang by __has_feature(). */
#ifndef TT_BASE_SANITIZERS_H
#define TT_BASE_SANITIZERS_H

#ifdef __has_feature
#define TT__ASAN __has_feature(address_sanitizer)
#define TT__TSAN __has_feature(thread_sanitizer)
#else
#ifdef __SANITIZE_ADDRESS__
#define TT__ASAN 1
#else
#define TT__ASAN 0
#endif
#ifdef __SANITIZE_THREAD__
#define TT__TSAN 1
#else
#define TT__TSAN 0
#endif
#endif

#endif

/* How this build differs from a plain one: its sanitizers, and bugs that were planted in it. */
#ifndef TT_BASE_BUILD_H
#define TT_BASE_BUILD_H

/* Sanitizers: 1 or 0. gcc tells by macros, clang by __has_feature(). */
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

/* Planted bugs test the tests: in a source that is compiled with TT_MUTANTS, the header of a list, TT__MUTANT(name) is
 * true in the run that has chosen this bug. In all other builds it is 0, and leaves no code. The list:
 * tests/sim/mutants.def. */
#ifdef TT_MUTANTS
#include TT_MUTANTS
#define TT__MUTANT(name) (sim_mutant == SIM_MUTANT_##name)
#else
#define TT__MUTANT(name) 0
#endif

#endif

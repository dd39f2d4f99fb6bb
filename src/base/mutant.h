/* Planted bugs. A test that looks for bugs is tested itself by programs that have some: compiled with TT_MUTANTS, a
 * source is wrong where the mutant of that name is chosen. In all other builds TT__MUTANT() is 0, and no trace of it is
 * left. tests/sim/mutants.def lists the names. */
#ifndef TT_BASE_MUTANT_H
#define TT_BASE_MUTANT_H

#ifdef TT_MUTANTS
#include "sim/mutants.h"
#define TT__MUTANT(name) (sim_mutant == SIM_MUTANT_##name)
#else
#define TT__MUTANT(name) 0
#endif

#endif

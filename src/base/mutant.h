/* Planted bugs. A test that looks for bugs is tested itself by programs that have some: compiled with TT_MUTANTS, which
 * names the header of a list, a source is wrong where the mutant of that name is chosen. In all other builds
 * TT__MUTANT() is 0, and no trace of it is left. The list: tests/sim/mutants.def. */
#ifndef TT_BASE_MUTANT_H
#define TT_BASE_MUTANT_H

#ifdef TT_MUTANTS
#include TT_MUTANTS
#define TT__MUTANT(name) (sim_mutant == SIM_MUTANT_##name)
#else
#define TT__MUTANT(name) 0
#endif

#endif

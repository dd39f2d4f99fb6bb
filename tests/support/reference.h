/* Tolerances for PyTorch's recorded sums of parameters. */
#ifndef TESTS_SUPPORT_REFERENCE_H
#define TESTS_SUPPORT_REFERENCE_H

#include "base/machine/cpu.h"

/* Factor of the tolerances: the reference was computed with AVX-512. Elsewhere oneDNN's products add in another order,
 * which alone comes to as much. */
static inline double reference_slack(void) { return tt__cpu_level_get() == TT__CPU_AVX512 ? 1 : 2; }

#endif

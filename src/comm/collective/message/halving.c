/* Which unit holds what in vector halving with distance doubling. */
#include "comm/collective/message/halving.h"

tt__halving tt__halving_of(int rank, int ranks) {
    tt__halving h = {.units = 1};
    for (; 2 * h.units <= ranks; h.levels++)
        h.units *= 2;
    h.folded = ranks - h.units;
    h.gives = rank < 2 * h.folded && rank % 2;
    h.unit = rank < 2 * h.folded ? rank / 2 : rank - h.folded;
    return h;
}

int tt__halving_first(const tt__halving *h, int unit, int k) {
    int first = 0;
    for (int level = 0; level < k; level++)
        if (unit >> level & 1)
            first += h->units >> (level + 1);
    return first;
}

int tt__halving_unit_of(const tt__halving *h, int position) {
    int unit = 0;
    for (int level = 0; level < h->levels; level++)
        unit |= (position >> (h->levels - 1 - level) & 1) << level;
    return unit;
}

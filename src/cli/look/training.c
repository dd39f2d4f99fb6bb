#include "cli/look/training.h"

#include "base/text/format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void tt__training_add(tt__training *all, const tt__progress *p, double rate) {
    if (!all->ranks++ || p->epoch < all->slowest.epoch ||
        (p->epoch == all->slowest.epoch && p->step < all->slowest.step))
        memcpy((void *)&all->slowest, (const void *)p, sizeof *p);
    all->samples_per_s += rate;
    all->loss += isfinite(p->loss) ? p->loss : 0;
    all->losses += isfinite(p->loss) != 0;
}

const char *tt__training_text(const tt__training *all, char *text, size_t size) {
    const tt__progress *p = &all->slowest;
    char number[48];
    int n = 0;
    if (p->epoch)
        n += snprintf(text, size, "epoch %s, ", tt__training_part(p->epoch, p->epochs, number, sizeof number));
    n += snprintf(text + n, size - (size_t)n, "step %s", tt__training_part(p->step, p->steps, number, sizeof number));
    if (all->losses)
        n += tt__format(text + n, size - (size_t)n, ", loss %.4g", all->loss / all->losses);
    if (all->samples_per_s > 0)
        snprintf(text + n, size - (size_t)n, ", %s samples/s",
                 tt__short_number(all->samples_per_s, number, sizeof number));
    return text;
}

const char *tt__training_part(int64_t number, int64_t all, char *text, size_t size) {
    if (all)
        snprintf(text, size, "%lld/%lld", (long long)number, (long long)all);
    else
        snprintf(text, size, "%lld", (long long)number);
    return text;
}

const char *tt__short_number(double x, char *text, size_t size) {
    static const char suffixes[] = " kMGT";
    int i = 0;
    for (; x >= 999.5 && i < 4; i++)
        x /= 1000;
    if (i == 0)
        tt__format(text, size, "%.0f", x);
    else
        tt__format(text, size, "%.*f%c", x < 99.5 ? 1 : 0, x, suffixes[i]);
    return text;
}

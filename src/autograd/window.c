#include "autograd/window.h"

#include <inttypes.h>

bool tt__pair_get(const char *who, const tt__pair *pair, int64_t *out) {
    bool two = pair->hw[0] != 0 || pair->hw[1] != 0;
    if (two && pair->both != 0) {
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected .%s or .%s_hw, got both", who, pair->name, pair->name);
        return false;
    }
    for (int d = 0; d < 2; d++) {
        out[d] = two ? pair->hw[d] : pair->both ? pair->both : pair->unset;
        if (out[d] < pair->least || out[d] > INT32_MAX) {
            tt__tensor_fail(TT_ERR_INVALID, "%s: expected %s from %" PRId64 " to %d, got %" PRId64, who, pair->name,
                            pair->least, INT32_MAX, out[d]);
            return false;
        }
    }
    return true;
}

int64_t tt__window_count(int64_t size, int64_t window, int64_t stride, int64_t padding, bool up) {
    int64_t room = size + 2 * padding - window;
    if (room < 0 && (!up || room + stride <= 0))
        return 0;
    int64_t count = (room + (up ? stride - 1 : 0)) / stride + 1;
    return up && (count - 1) * stride >= size + padding ? count - 1 : count; /* the last one would begin outside */
}

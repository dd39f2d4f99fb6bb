"""Independent re-implementation of torch's CPU generator and samplers (no torch import).

make_torch_rng_vectors.py compares each entry of torch-rng.json with it.  `caps` selects what torch was compiled for:
  "avx2"    - AVX2 or AVX512 machine (every current x86-64 server): fused multiply-add, polynomial log/sincos
  "default" - torch run with ATEN_CPU_CAPABILITY=default: no FMA, libm logf/cosf/sinf
numpy is used for array speed only; libm is reached through ctypes (fmaf, fma, logf, ...).
"""
import ctypes, ctypes.util, math
import numpy as np

_m = ctypes.CDLL("libm.so.6")
_cache = {}


def _fn(name, ct, n):
    key = name
    if key not in _cache:
        f = getattr(_m, name)
        f.restype = ct
        f.argtypes = [ct] * n
        _cache[key] = f
    return _cache[key]


def fmaf(a, b, c): return np.float32(_fn("fmaf", ctypes.c_float, 3)(a, b, c))
def fma64(a, b, c): return _fn("fma", ctypes.c_double, 3)(a, b, c)
def logf(a): return np.float32(_fn("logf", ctypes.c_float, 1)(a))
def cosf(a): return np.float32(_fn("cosf", ctypes.c_float, 1)(a))
def sinf(a): return np.float32(_fn("sinf", ctypes.c_float, 1)(a))


def vfma32(a, b, c):
    """exact float32 fma on arrays (or scalars)"""
    a, b, c = np.broadcast_arrays(np.float32(a), np.float32(b), np.float32(c))
    out = np.empty(a.shape, np.float32)
    f = _fn("fmaf", ctypes.c_float, 3)
    fo, fa, fb, fc = out.reshape(-1), a.reshape(-1), b.reshape(-1), c.reshape(-1)
    for i in range(fo.size):
        fo[i] = f(float(fa[i]), float(fb[i]), float(fc[i]))
    return out


class Generator:
    """mt19937, seeded with the low 32 bits of the seed"""

    def __init__(self, seed=0, caps="avx2"):
        self.caps = caps
        self.manual_seed(seed)

    def manual_seed(self, seed):
        s = seed & 0xFFFFFFFF
        mt = [s]
        for i in range(1, 624):
            s = (1812433253 * (s ^ (s >> 30)) + i) & 0xFFFFFFFF
            mt.append(s)
        self.mt, self.idx, self.next_normal = mt, 624, None
        return self

    def random(self):
        if self.idx == 624:
            mt = self.mt
            for i in range(624):
                y = (mt[i] & 0x80000000) | (mt[(i + 1) % 624] & 0x7FFFFFFF)
                mt[i] = mt[(i + 397) % 624] ^ (y >> 1) ^ (0x9908B0DF if y & 1 else 0)
            self.idx = 0
        y = self.mt[self.idx]
        self.idx += 1
        y ^= y >> 11
        y ^= (y << 7) & 0x9D2C5680
        y ^= (y << 15) & 0xEFC60000
        return y ^ (y >> 18)

    def random64(self):
        hi = self.random()
        return (hi << 32) | self.random()

    # ---- uniform -------------------------------------------------------------------------
    def _u24(self): return np.float32((self.random() & 0xFFFFFF) * 2.0 ** -24)
    def _u53(self): return (self.random64() & ((1 << 53) - 1)) * 2.0 ** -53

    def uniform_f32(self, n, lo=0.0, hi=1.0):
        lo, hi = np.float32(lo), np.float32(hi)
        w = np.float32(hi - lo)
        x = np.array([self._u24() for _ in range(n)], np.float32)
        if self.caps == "default":
            return np.float32(np.float32(x * w) + lo)
        return vfma32(x, w, lo)

    def uniform_f64(self, n, lo=0.0, hi=1.0):
        w = hi - lo
        if self.caps == "default":
            return np.array([self._u53() * w + lo for _ in range(n)])
        return np.array([fma64(self._u53(), w, lo) for _ in range(n)])

    # ---- normal --------------------------------------------------------------------------
    def _normal_scalar(self, mean, std):
        if self.next_normal is not None:
            v, self.next_normal = self.next_normal, None
        else:
            u1 = self._u53()
            u2 = self._u53()
            r = math.sqrt(-2.0 * math.log1p(-u2))
            th = 2.0 * math.pi * u1
            self.next_normal = r * math.sin(th)
            v = r * math.cos(th)
        return v * std + mean if self.caps == "default" else fma64(v, std, mean)

    def _fill16_f32(self, d, mean, std):
        u1, u2 = np.float32(np.float32(1) - d[:8]), d[8:16].copy()
        mean, std = np.float32(mean), np.float32(std)
        if self.caps == "default":
            for j in range(8):
                r = np.float32(np.sqrt(np.float32(np.float32(-2) * logf(u1[j]))))
                th = np.float32(2.0 * math.pi * float(u2[j]))
                d[j] = np.float32(np.float32(r * cosf(th)) * std) + mean
                d[j + 8] = np.float32(np.float32(r * sinf(th)) * std) + mean
            return
        r = np.sqrt(np.float32(np.float32(-2) * log_ps(u1)))
        s, c = sincos_ps(np.float32(np.float32(2.0 * math.pi) * u2))
        d[:8] = vfma32(np.float32(r * c), std, mean)
        d[8:16] = vfma32(np.float32(r * s), std, mean)

    def _fill16_f64(self, d, mean, std):
        for j in range(8):
            u1, u2 = 1.0 - d[j], d[j + 8]
            r = math.sqrt(-2.0 * math.log(u1))
            th = 2.0 * math.pi * u2
            for k, t in ((j, math.cos(th)), (j + 8, math.sin(th))):
                v = r * t
                d[k] = v * std + mean if self.caps == "default" else fma64(v, std, mean)

    def normal(self, n, mean=0.0, std=1.0, dtype=np.float32):
        """torch.randn / Tensor.normal_ on a contiguous tensor"""
        f32 = dtype == np.float32
        if n < 16:
            return np.array([self._normal_scalar(mean, std) for _ in range(n)], dtype)
        draw = (lambda: self._u24()) if f32 else self._u53
        fill = self._fill16_f32 if f32 else self._fill16_f64
        d = np.array([draw() for _ in range(n)], dtype)
        for i in range(0, n - 15, 16):
            fill(d[i:i + 16], mean, std)
        if n % 16:
            d[n - 16:] = [draw() for _ in range(16)]
            fill(d[n - 16:], mean, std)
        return d

    # ---- integers ------------------------------------------------------------------------
    def randint(self, lo, hi, n, wide_from=1 << 32):
        """wide_from: 2**32 in torch 1.13..2.6, 2**28 in the newest (2.14)"""
        r = hi - lo
        return [lo + (self.random64() if r >= wide_from else self.random()) % r for _ in range(n)]

    def random_i64(self):
        """torch.empty((), dtype=torch.int64).random_()"""
        return self.random64() & ((1 << 63) - 1)

    def randperm(self, n):
        a = list(range(n))
        for i in range(n - 1):
            z = self.random() % (n - i)
            a[i], a[i + z] = a[i + z], a[i]
        return a

    def bernoulli(self, n, p):
        return np.array([1.0 if self._u53() < p else 0.0 for _ in range(n)], np.float32)

    def dropout(self, x, p):
        keep = 1.0 - p
        noise = self.bernoulli(x.size, keep)
        if p == 1.0:
            noise = np.zeros_like(noise)
        else:
            noise = np.float32(noise / np.float32(keep))
        return np.float32(x * noise.reshape(x.shape))

    # ---- nn initialisation ---------------------------------------------------------------
    def _affine(self, wshape, fan_in, nbias):
        gain = math.sqrt(2.0 / (1 + math.sqrt(5) ** 2))
        std = gain / math.sqrt(fan_in)
        b = math.sqrt(3.0) * std
        w = self.uniform_f32(int(np.prod(wshape)), -b, b).reshape(wshape)
        if not nbias:
            return w, None
        b = 1 / math.sqrt(fan_in)
        return w, self.uniform_f32(nbias, -b, b)

    def linear(self, nin, nout, bias=True):
        return self._affine((nout, nin), nin, nout if bias else 0)

    def conv2d(self, cin, cout, kh, kw, groups=1, bias=True):
        fan = cin // groups * kh * kw
        return self._affine((cout, cin // groups, kh, kw), fan, cout if bias else 0)


# ---- float32 polynomial log / sincos used by the AVX2 normal kernel (Cephes coefficients) ----
F = np.float32


def log_ps(x):
    b = x.view(np.int32)
    e = F((b >> 23) - 127) + F(1)
    m = ((b & 0x007FFFFF) | 0x3F000000).view(np.float32)      # mantissa scaled to [0.5, 1)
    low = m < F(0.707106781186547524)
    e = F(e - low.astype(np.float32))
    t = F(F(m - F(1)) + np.where(low, m, F(0)))
    z = F(t * t)
    y = np.full_like(t, F(7.0376836292E-2))
    for c in (-1.1514610310E-1, 1.1676998740E-1, -1.2420140846E-1, 1.4249322787E-1,
              -1.6668057665E-1, 2.0000714765E-1, -2.4999993993E-1, 3.3333331174E-1):
        y = vfma32(y, t, F(c))
    y = F(y * t)
    y = vfma32(y, z, F(e * F(-2.12194440e-4)))       # y*z is the fused product, e*c is rounded first
    y = vfma32(z, F(-0.5), y)
    r = F(t + y)
    return vfma32(e, F(0.693359375), r)


def sincos_ps(x):
    sign_s = np.signbit(x)
    x = np.abs(x)
    j = F(x * F(1.27323954473516)).astype(np.int32)
    j = (j + 1) & ~1
    y = j.astype(np.float32)
    sign_s = sign_s ^ ((j & 4) != 0)
    sign_c = (((j - 2) & 4) == 0)
    use_sin = (j & 2) == 0
    for d in (-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8):
        x = vfma32(y, F(d), x)
    z = F(x * x)
    c = np.full_like(x, F(2.443315711809948E-005))
    c = vfma32(c, z, F(-1.388731625493765E-003))
    c = vfma32(c, z, F(4.166664568298827E-002))
    c = F(c * z)
    c = vfma32(c, z, F(-F(z * F(0.5))))
    c = F(c + F(1))
    s = np.full_like(x, F(-1.9515295891E-4))
    s = vfma32(s, z, F(8.3321608736E-3))
    s = vfma32(s, z, F(-1.6666654611E-1))
    s = F(s * z)
    s = vfma32(s, x, x)
    ps, pc = np.where(use_sin, s, c), np.where(use_sin, c, s)
    return np.where(sign_s, -ps, ps), np.where(sign_c, -pc, pc)


/* A cart with a pole that is to be balanced: gym's CartPole-v1. */
#ifndef EXAMPLES_CART_POLE_H
#define EXAMPLES_CART_POLE_H

#include <math.h>
#include <tutti/tutti.h>

typedef struct CartPole {
    double position, speed, angle, turning;
} CartPole;

/* Stand near the middle, nearly upright. */
static inline tt_status reset_cart(CartPole *c, tt_generator *random) {
    TT_AUTO_SCOPE;
    const float *x = tt_tensor_f32(tt_rand(TT_SHAPE(4), random));
    if (!x)
        return tt_last_status();
    *c = (CartPole){(double)x[0] * 0.1 - 0.05, (double)x[1] * 0.1 - 0.05, (double)x[2] * 0.1 - 0.05,
                    (double)x[3] * 0.1 - 0.05};
    return TT_OK;
}

/* Push it for 0.02 s, to the left or to the right. */
static inline void push_cart(CartPole *c, bool right) {
    const double gravity = 9.8, cart = 1.0, pole = 0.1, half_length = 0.5, force = right ? 10.0 : -10.0, tau = 0.02;
    double mass = cart + pole, moment = pole * half_length, cosine = cos(c->angle), sine = sin(c->angle);
    double push = (force + moment * c->turning * c->turning * sine) / mass;
    double turn = (gravity * sine - cosine * push) / (half_length * (4.0 / 3.0 - pole * cosine * cosine / mass));
    double acceleration = push - moment * turn * cosine / mass;
    c->position += tau * c->speed;
    c->speed += tau * acceleration;
    c->angle += tau * c->turning;
    c->turning += tau * turn;
}

/* It has left the track, or the pole is more than 12 degrees off. */
static inline bool cart_is_lost(const CartPole *c) {
    return fabs(c->position) > 2.4 || fabs(c->angle) > 12 * 2 * 3.141592653589793 / 360;
}

#endif

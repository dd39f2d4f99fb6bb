/* Answers to health checks (Kubernetes' probes, load balancers): HTTP on a port of the launcher's, served from its
 * loop without ever waiting for a client. A probe needs little of HTTP: one request, of which only the method
 * matters, and one answer, after which the connection ends. A server library would bring threads or a loop of its
 * own into every job that has a port. */
#ifndef TT_LAUNCH_LOCAL_HEALTH_H
#define TT_LAUNCH_LOCAL_HEALTH_H

#include <tutti/base.h>

/* How many clients at a time, and the descriptors that they and this take. */
enum { TT__HEALTH_BODY = 2048, TT__HEALTH_CLIENTS = 16, TT__HEALTH_DESCRIPTORS = TT__HEALTH_CLIENTS + 1 };

typedef struct tt__health tt__health;

/* Write the node's state as a line of JSON, without its line end. False: it is not healthy. */
typedef bool tt__health_look(void *user, char body[TT__HEALTH_BODY]);

/* Serve `listener`, a non-blocking socket that listens, which this takes over, also on failure. */
tt_status tt__health_open(tt__health **out, int listener, tt__health_look *look, void *user);
void tt__health_free(tt__health *health); /* NULL is allowed */

/* Readable when tt__health_serve() has something to do; *timeout_ms is lowered to when it must be called at the
 * latest. */
int tt__health_poll(const tt__health *health, int *timeout_ms);

/* Do what can be done without waiting. */
void tt__health_serve(tt__health *health);

#endif

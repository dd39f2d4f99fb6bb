/* The result of a read or a write that never waits. */
#ifndef TT_NET_SECURE_IO_H
#define TT_NET_SECURE_IO_H

typedef enum tt__io {
    TT__IO_DONE,       /* bytes were moved, or the step is over */
    TT__IO_WANT_READ,  /* nothing was moved: try again when the socket is readable */
    TT__IO_WANT_WRITE, /* nothing was moved: try again when the socket is writable */
    TT__IO_END,        /* of a read: the other side has closed the connection */
    TT__IO_FAILED      /* the error is recorded: TT_ERR_NET, TT_ERR_AUTH (TLS refused), TT_ERR_PROTOCOL */
} tt__io;

#endif

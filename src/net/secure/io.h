/* What a read or a write that never waits comes to. */
#ifndef TT_NET_SECURE_IO_H
#define TT_NET_SECURE_IO_H

typedef enum tt__io {
    TT__IO_DONE,       /* something was moved, or the step is over */
    TT__IO_WANT_READ,  /* nothing: again when the socket can be read from */
    TT__IO_WANT_WRITE, /* nothing: again when it can be written to */
    TT__IO_END,        /* of a read: the other side closed the connection */
    TT__IO_FAILED      /* recorded: TT_ERR_NET, TT_ERR_AUTH (TLS refused), TT_ERR_PROTOCOL */
} tt__io;

#endif

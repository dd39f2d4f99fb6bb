#include "launch/local/pty.h"

#include "base/files/fd.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

/* Open the writing end. It can't be read: a program that asks its user there would wait for ever. By its number in this
 * file system, not by a name, which may be another terminal in a container. */
static int open_writer(int reader) {
    struct termios settings;
    int writer = tt__fd(ioctl(reader, TIOCGPTPEER, O_WRONLY | O_NOCTTY | O_CLOEXEC));
    if (writer < 0)
        return -1;
    if (tcgetattr(writer, &settings) == 0) {
        cfmakeraw(&settings);
        if (tcsetattr(writer, TCSANOW, &settings) == 0 && fchmod(writer, 0600) == 0) /* no write(1) by others */
            return writer;
    }
    close(writer);
    return -1;
}

bool tt__pty_open(int like, int ends[2]) {
    if (!isatty(like))
        return false;
    ends[0] = tt__fd(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
    if (ends[0] < 0)
        return false;
    ends[1] = grantpt(ends[0]) || unlockpt(ends[0]) ? -1 : open_writer(ends[0]);
    if (ends[1] < 0) {
        close(ends[0]);
        return false;
    }
    tt__pty_resize(ends[0], like);
    return true;
}

bool tt__pty_resize(int reader, int like) {
    struct winsize own, wanted;
    return ioctl(like, TIOCGWINSZ, &wanted) == 0 && ioctl(reader, TIOCGWINSZ, &own) == 0 &&
           memcmp(&own, &wanted, sizeof own) != 0 && ioctl(reader, TIOCSWINSZ, &wanted) == 0;
}

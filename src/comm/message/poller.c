#include "comm/message/poller.h"

#include "base/error.h"
#include "base/files/fd.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

tt_status tt__poller_open(tt__messages *messages) {
    if (messages->epoll >= 0)
        return TT_OK;
    messages->epoll = tt__fd(epoll_create1(EPOLL_CLOEXEC));
    messages->wakeup = tt__fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    struct epoll_event event = {.events = EPOLLIN};
    if (messages->epoll < 0 || messages->wakeup < 0 ||
        epoll_ctl(messages->epoll, EPOLL_CTL_ADD, messages->wakeup, &event))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't watch connections (epoll)");
    return TT_OK;
}

void tt__poller_close(tt__messages *messages) {
    if (messages->epoll >= 0)
        close(messages->epoll);
    if (messages->wakeup >= 0)
        close(messages->wakeup);
}

tt_status tt__poller_add(tt__link *link) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    if (epoll_ctl(link->messages->epoll, EPOLL_CTL_ADD, link->transport.stream.fd, &event))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't watch the connection to rank %d", link->peer);
    return TT_OK;
}

tt_status tt__poller_watch(tt__messages *messages, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = messages};
    if (epoll_ctl(messages->epoll, EPOLL_CTL_ADD, fd, &event))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't watch for new connections (epoll)");
    return TT_OK;
}

void tt__poller_watch_writes(tt__link *link, bool wanted) {
    if (!link->tcp || link->ended || wanted == link->wants_write || link->messages->epoll < 0)
        return;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = link};
    if (!epoll_ctl(link->messages->epoll, EPOLL_CTL_MOD, link->transport.stream.fd, &event))
        link->wants_write = wanted;
}

void tt__poller_wake(tt__messages *messages) {
    ssize_t ignored = write(messages->wakeup, &(uint64_t){1}, sizeof(uint64_t));
    (void)ignored; /* a full counter wakes as well */
}

void tt__poller_woken(tt__messages *messages) {
    uint64_t count;
    ssize_t ignored = read(messages->wakeup, &count, sizeof count);
    (void)ignored; /* another thread may have read it */
}

void tt__poller_sleep(tt__messages *messages, int64_t ms) {
    struct epoll_event event;
    epoll_wait(messages->epoll, &event, 1, ms > INT32_MAX ? INT32_MAX : ms < 0 ? 0 : (int)ms);
}

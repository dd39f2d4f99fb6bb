#include "net/job/asking.h"

#include "base/error.h"
#include "net/net.h"
#include "net/stream.h"

#include <string.h>

size_t tt__asking_answer(uint8_t answer[TT__ASKING_ANSWER_MAX]) {
    char credential[TT__MUNGE_CREDENTIAL_MAX];
    tt__credential_kept(credential);
    size_t size = strlen(credential);
    const uint8_t header[TT__ASKING_HEADER] = {TT__ASKING_FIRST_BYTE, TT__ASKING_VERSION, (uint8_t)size,
                                               (uint8_t)(size >> 8)};
    memcpy(answer, header, sizeof header);
    memcpy(answer + sizeof header, credential, size);
    return sizeof header + size;
}

static tt_status read_asked(tt__stream *stream, char credential[TT__MUNGE_CREDENTIAL_MAX], int64_t deadline_ms) {
    static const uint8_t question[TT__ASKING_HEADER] = {TT__ASKING_FIRST_BYTE, TT__ASKING_VERSION};
    uint8_t header[TT__ASKING_HEADER];
    TT__TRY(tt__stream_write_full(stream, question, sizeof question, deadline_ms));
    TT__TRY(tt__stream_read_full(stream, header, sizeof header, deadline_ms));
    size_t size = header[2] | (size_t)header[3] << 8;
    if (header[0] != TT__ASKING_FIRST_BYTE || header[1] != TT__ASKING_VERSION || size >= TT__MUNGE_CREDENTIAL_MAX)
        return tt__fail(TT_ERR_PROTOCOL,
                        "who listens there knows nothing of job secrets. Is it rank 0's store, and of this version?");
    if (!size)
        return tt__fail(TT_ERR_AUTH, "the store there has no job secret by MUNGE. Is it rank 0's of this job, and has "
                                     "that host TT_SECRET or TT_SECRET_FILE that this one lacks?");
    TT__TRY(tt__stream_read_full(stream, credential, size, deadline_ms));
    credential[size] = '\0';
    return memchr(credential, '\0', size) ? tt__fail(TT_ERR_PROTOCOL, "what the store there sent is no credential")
                                          : TT_OK;
}

tt_status tt__asking_ask(char credential[TT__MUNGE_CREDENTIAL_MAX], const char *host, int port, int64_t deadline_ms) {
    int fd;
    tt__stream stream;
    TT__TRY(tt__net_connect(&fd, host, port, deadline_ms));
    tt__stream_open(&stream, fd, NULL, false);
    tt_status status = read_asked(&stream, credential, deadline_ms);
    tt__stream_close(&stream);
    return status;
}

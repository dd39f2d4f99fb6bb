/* Conversations between a client and a store, byte for byte.
 *
 * A line is "> bytes" (the client sends) or "< bytes" (the server answers; "< closed" ends the conversation). Bytes are
 * hex pairs, "00*7" for seven of them, or text in single quotes. The 2.x lines up to "queue that nobody pushes to"
 * were recorded from PyTorch. */
#ifndef TESTS_STORE_TRANSCRIPT_H
#define TESTS_STORE_TRANSCRIPT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct transcript {
    const char *name;
    const char *lines[24];
} transcript;

#define HELLO_SENT "00 CE F7 85 3C 0D 90 3E 00 00"
#define HELLO_HEARD "90 3E 00 00"
#define HELLO "> " HELLO_SENT, "< " HELLO_HEARD

static const transcript transcripts[] = {
    {"handshake", {HELLO}},
    {"set and get",
     {HELLO, "> 01 02 00*7 2F 6B 02 00*7 76 76", "> 06 01 00*7 02 00*7 2F 6B", "< 00", "> 03 02 00*7 2F 6B",
      "< 02 00*7 76 76"}},
    {"add",
     {HELLO, "> 04 02 00*7 2F 6E 05 00*7", "< 05 00*7", "> 04 02 00*7 2F 6E F9 FF*7", "< FE FF*7", "> 03 02 00*7 2F 6E",
      "< 02 00*7 '-2'"}},
    {"delete",
     {HELLO, "> 01 02 00*7 2F 6B 02 00*7 76 76", "> 08 02 00*7 2F 6B", "< 01 00*7", "> 08 02 00*7 2F 6B", "< 00*8"}},
    {"check",
     {HELLO, "> 01 02 00*7 2F 6B 02 00*7 76 76", "> 05 02 00*7 02 00*7 2F 6B 03 00*7 2F 7A 7A", "< 01",
      "> 05 01 00*7 02 00*7 2F 6B", "< 00"}},
    {"wait cancelled", {HELLO, "> 06 01 00*7 08 00*7 '/missing'", "> 0C", "< 01", "> 0C", "< 01"}},
    {"barrier of one", {HELLO, "> 12 03 00*7 2F 62 6B 01 00*7", "< 00"}},
    {"queue",
     {HELLO, "> 0E 02 00*7 2F 71 01 00*7 61", "> 0E 02 00*7 2F 71 01 00*7 62", "> 10 02 00*7 2F 71", "< 02 00*7",
      "> 06 01 00*7 02 00*7 2F 71", "< 00", "> 0F 02 00*7 2F 71", "< 02 00*7 01 00*7 61", "> 0F 02 00*7 2F 71",
      "< 01 00*7 01 00*7 62", "> 0F 02 00*7 2F 71", "< 00*8", "> 10 02 00*7 2F 71", "< 00*8"}},
    {"queue that nobody pushes to", {HELLO, "> 06 01 00*7 03 00*7 2F 71 33", "> 0C", "< 01"}},
    {"queue and key of one name",
     {HELLO, "> 0E 01 00*7 'q' 01 00*7 'x'", "> 11 07", "< 00*16", "> 08 01 00*7 'q' 03 01 00*7 'q'", "< 00*16",
      "> 05 01 00*7 01 00*7 'q'", "< 00", "> 01 01 00*7 'q' 01 00*7 'v'", "> 03 01 00*7 'q' 10 01 00*7 'q'",
      "< 01 00*7 'v' 01 00*7", "> 08 01 00*7 'q' 0F 01 00*7 'q'", "< 01 00*7 01 00*7 01 00*7 'x'",
      "> 05 01 00*7 01 00*7 'q'", "< 01"}},
    {"wait for nothing", {HELLO, "> 06 00*8", "< 00"}},
    {"missing key reads as empty",
     {HELLO, "> 03 02 00*7 2F 6B", "< 00*8", "> 0A 02 00*7 01 00*7 'x' 01 00*7 'y'", "< 00*16"}},
    {"compare_set",
     {HELLO, "> 02 01 00*7 'c' 01 00*7 'x' 01 00*7 'n'", "< 01 00*7 'x'", "> 02 01 00*7 'c' 00*8 01 00*7 'n'",
      "< 01 00*7 'n'", "> 02 01 00*7 'c' 01 00*7 'x' 01 00*7 'm'", "< 01 00*7 'n'",
      "> 02 01 00*7 'c' 01 00*7 'n' 02 00*7 'mm'", "< 02 00*7 'mm'"}},
    {"append, multi_set, multi_get",
     {HELLO, "> 09 01 00*7 'a' 02 00*7 'xy'", "> 09 01 00*7 'a' 01 00*7 'z'",
      "> 0B 02 00*7 01 00*7 'b' 00*8 01 00*7 'c' 02 00*7 FF 00", "> 0A 03 00*7 01 00*7 'a' 01 00*7 'b' 01 00*7 'c'",
      "< 03 00*7 'xyz' 00*8 02 00*7 FF 00", "> 07", "< 03 00*7"}},
    {"list_keys",
     {HELLO, "> 11", "< 00*8", "> 04 05 00*7 'init/' 01 00*7", "< 01 00*7", "> 11", "< 01 00*7 05 00*7 'init/'"}},
    {"keys and values of any bytes",
     {HELLO, "> 01 03 00*7 00 FF 0A 01 00*7 00", "> 03 03 00*7 00 FF 0A", "< 01 00*7 00", "> 01 00*8 01 00*7 'e'",
      "> 03 00*8", "< 01 00*7 'e'"}},
    {"1.13 set and get",
     {"> 00 02 00*7 2F 6B 02 00*7 76 76", "> 05 01 00*7 02 00*7 2F 6B", "< 00", "> 02 02 00*7 2F 6B",
      "< 02 00*7 76 76"}},
    {"1.13 the rest",
     {"> 03 05 00*7 'init/' 01 00*7", "< 01 00*7", "> 04 01 00*7 05 00*7 'init/'", "< 00", "> 06", "< 01 00*7",
      "> 01 01 00*7 'c' 00*8 01 00*7 'n'", "< 01 00*7 'n'", "> 08 01 00*7 'c'", "< 01 00*7"}},
    {"1.13 watch",
     {"> 07 01 00*7 'w'", "< 03", "> 00 01 00*7 'w' 01 00*7 '1'", "< 01 01 00*7 'w' 00*8 01 00*7 '1'",
      "> 03 01 00*7 'w' 02 00*7", "< 00 01 00*7 'w' 01 00*7 '1' 01 00*7 '3' 03 00*7",
      "> 01 01 00*7 'w' 01 00*7 'x' 01 00*7 'y'", "< 01 00*7 '3'", "> 01 01 00*7 'w' 01 00*7 '3' 01 00*7 'y'",
      "< 00 01 00*7 'w' 01 00*7 '3' 01 00*7 'y' 01 00*7 'y'", "> 08 01 00*7 'w'",
      "< 02 01 00*7 'w' 01 00*7 'y' 00*8 01 00*7"}},
    /* what closes the connection */
    {"wrong magic", {"> 00 11 22 33 44 0D 90 3E 00 00", "< closed"}},
    {"second VALIDATE", {HELLO, "> 00 CE F7 85 3C", "< closed"}},
    {"unknown opcode", {HELLO, "> FF", "< closed"}},
    {"1.13 unknown opcode", {"> F5", "< closed"}},
    {"an opcode that queues don't have in 1.13", {"> 0E 01 00*7 'q'", "< closed"}},
    {"key beyond 8 KiB", {HELLO, "> 03 01 20 00*6", "< closed"}},
    {"key length of all ones", {HELLO, "> 03 FF*8", "< closed"}},
    {"giant known by its upper half", {HELLO, "> 01 01 00*7 'k' 00*4 01", "< closed"}},
    {"value beyond 64 MiB", {HELLO, "> 01 01 00*7 'k' 01 00*2 04 00*4", "< closed"}},
    {"more than 131072 keys", {HELLO, "> 06 01 00 02 00*5", "< closed"}},
    {"add to no number", {HELLO, "> 01 01 00*7 'k' 01 00*7 'x'", "> 04 01 00*7 'k' 01 00*7", "< closed"}},
    {"add to an empty value", {HELLO, "> 01 01 00*7 'k' 00*8", "> 04 01 00*7 'k' 01 00*7", "< closed"}},
    {"add to a number of seventy digits",
     {HELLO, "> 01 01 00*7 'k' 46 00*7 30*70", "> 04 01 00*7 'k' 01 00*7", "< closed"}},
    {"add beyond 64 bits", {HELLO, "> 04 01 00*7 'k' FF*7 7F", "< FF*7 7F", "> 04 01 00*7 'k' 01 00*7", "< closed"}},
    {"earned before the end", {HELLO, "> 07 FF", "< 00*8", "< closed"}},
};

enum { TRANSCRIPTS = sizeof transcripts / sizeof *transcripts, TRANSCRIPT_MAX = 512 };

/* The bytes of one line's text; how many. */
static inline size_t transcript_bytes(const char *text, uint8_t out[TRANSCRIPT_MAX]) {
    size_t n = 0;
    while (*text) {
        if (*text == ' ') {
            text++;
        } else if (*text == '\'') {
            for (text++; *text != '\''; text++)
                out[n++] = (uint8_t)*text;
            text++;
        } else {
            char pair[3] = {text[0], text[1], 0};
            uint8_t byte = (uint8_t)strtoul(pair, NULL, 16);
            unsigned long times = 1;
            text += 2;
            if (*text == '*')
                times = strtoul(text + 1, (char **)&text, 10);
            while (times--)
                out[n++] = byte;
        }
    }
    return n;
}

#endif

/* A cubin and its PTX as a file for the server, named by size and checksum of the cubin. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit.h"

/* zlib's crc32. */
static uint32_t checksum(const uint8_t *bytes, size_t count) {
    static uint32_t table[256];
    if (!table[1])
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; bit++) value = value & 1 ? 0xEDB88320u ^ (value >> 1) : value >> 1;
            table[i] = value;
        }
    uint32_t sum = ~0u;
    for (size_t i = 0; i < count; i++) sum = table[(sum ^ bytes[i]) & 255] ^ (sum >> 8);
    return ~sum;
}

static int write_all(int file, const void *from, size_t bytes) {
    const char *at = from;
    while (bytes) {
        ssize_t written = write(file, at, bytes);
        if (written <= 0) return 0;
        at += written;
        bytes -= (size_t)written;
    }
    return 1;
}

void note_ptx(const void *cubin, size_t cubin_bytes, const struct text *texts, size_t count) {
    const char *folder = getenv("WEFT_DRIVER_NOTES");
    char path[4096], unfinished[4096 + 32];
    if (!folder || !*folder || !count) return;
    int length = snprintf(path, sizeof path, "%s/%zu-%08x", folder, cubin_bytes, checksum(cubin, cubin_bytes));
    if (length < 0 || (size_t)length >= sizeof path || access(path, F_OK) == 0) return;
    snprintf(unfinished, sizeof unfinished, "%s.%d", path, (int)getpid());
    int file = open(unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) return; /* the PTX inside the cubin is used, without source lines */
    int written = write_all(file, cubin, cubin_bytes);
    for (size_t i = 0; written && i < count; i++) written = write_all(file, texts[i].bytes, texts[i].size) && write_all(file, "", 1);
    close(file);
    if (!written || rename(unfinished, path) != 0) unlink(unfinished);
}

/* Images of modules as the program passes them: their size, and the logs of their compilation. */
#include <stdio.h>
#include <string.h>

#include "module.h"

#define FATBIN "\x50\xED\x55\xBA"
#define WRAPPER "\xB1\x43\x62\x46"

enum option { INFO_LOG = 3, INFO_LOG_SIZE, ERROR_LOG, ERROR_LOG_SIZE };

static int starts_with(const uint8_t *bytes, const char *magic) {
    for (int i = 0; i < 4; i++) /* stops at the NUL of a text that is shorter */
        if (bytes[i] != (uint8_t)magic[i]) return 0;
    return 1;
}

size_t image_bytes(const void **image) {
    if (starts_with(*image, WRAPPER)) {
        const struct { uint32_t magic, version; const void *data; } *wrapper = *image;
        *image = wrapper->data;
    }
    const uint8_t *bytes = *image;
    if (starts_with(bytes, FATBIN)) {
        uint16_t head;
        uint64_t payload;
        memcpy(&head, bytes + 6, sizeof head);
        memcpy(&payload, bytes + 8, sizeof payload);
        return head + payload;
    }
    if (!starts_with(bytes, "\177ELF")) return strlen((const char *)bytes);
    uint64_t segments, sections, end = 64;
    uint16_t segment_size, segment_count, section_size, section_count;
    memcpy(&segments, bytes + 32, 8);
    memcpy(&sections, bytes + 40, 8);
    memcpy(&segment_size, bytes + 54, 2);
    memcpy(&segment_count, bytes + 56, 2);
    memcpy(&section_size, bytes + 58, 2);
    memcpy(&section_count, bytes + 60, 2);
    if (segments + (uint64_t)segment_size * segment_count > end) end = segments + (uint64_t)segment_size * segment_count;
    if (sections + (uint64_t)section_size * section_count > end) end = sections + (uint64_t)section_size * section_count;
    for (uint16_t number = 0; number < section_count && section_size >= 64; number++) {
        const uint8_t *section = bytes + sections + (uint64_t)number * section_size;
        uint32_t type;
        uint64_t at, size;
        memcpy(&type, section + 4, 4);
        memcpy(&at, section + 24, 8);
        memcpy(&size, section + 32, 8);
        if (type != 8 && at + size > end) end = at + size; /* 8: a section without bytes in the file */
    }
    return end;
}

void write_logs(unsigned count, const int *options, void **values, const char *text) {
    char *logs[2] = {NULL, NULL};
    size_t room[2] = {0, 0};
    for (unsigned i = 0; options && values && i < count; i++) {
        if (options[i] == INFO_LOG || options[i] == ERROR_LOG) logs[options[i] == ERROR_LOG] = values[i];
        if (options[i] == INFO_LOG_SIZE || options[i] == ERROR_LOG_SIZE) room[options[i] == ERROR_LOG_SIZE] = (size_t)(unsigned)(uintptr_t)values[i];
    }
    for (int which = 0; which < 2; which++) {
        size_t written = 0;
        if (logs[which] && room[which]) {
            int length = snprintf(logs[which], room[which], "%s", which ? text : "");
            written = length < 0 ? 0 : (size_t)length < room[which] ? (size_t)length : room[which] - 1;
        }
        for (unsigned i = 0; options && values && i < count; i++)
            if (options[i] == (which ? ERROR_LOG_SIZE : INFO_LOG_SIZE)) values[i] = (void *)(uintptr_t)written;
    }
}

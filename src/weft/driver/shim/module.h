/* What the files about modules share: image.c, module.c, function.c. */
#ifndef WEFT_MODULE_H
#define WEFT_MODULE_H

#include "shim.h"

struct module {
    char *names; /* of the kernels, each ended by a NUL */
    size_t bytes;
    uint32_t kernels;
    int device;
    int library; /* of no context: it is loaded on each device that uses it */
};

/* Returns the size of an image, which the API does not pass: of a fatbin and an ELF file by their heads, of PTX by its
 * NUL. `*image` is changed to the data where a wrapper was given. */
size_t image_bytes(const void **image);
/* Writes the server's message to the program's error log, if it gave one, and an empty text to the other. */
void write_logs(unsigned count, const int *options, void **values, const char *text);

#endif

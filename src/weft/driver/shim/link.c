/* cuLink*: the images are collected and sent together; the result is PTX again, which cuModuleLoadData takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

struct link {
    uint8_t *images; /* of each: kind, bytes, data */
    size_t bytes;
    void *result;
};

EXPORT int cuLinkCreate_v2(unsigned count, int *options, void **values, struct handle **made) {
    CALL(CURRENT, count, options, values, made);
    if (!made) RETURN(INVALID_VALUE);
    struct handle *handle = new_handle(LINK);
    if (!handle || !(handle->data = calloc(1, sizeof(struct link)))) RETURN(OUT_OF_MEMORY);
    *made = handle;
    RETURN(SUCCESS);
}

static int add_image(struct handle *handle, int kind, const void *data, size_t bytes) {
    struct link *link = handle->data;
    uint8_t *larger = realloc(link->images, link->bytes + 16 + bytes);
    if (!larger) return OUT_OF_MEMORY;
    uint64_t head[2] = {(uint64_t)kind, bytes};
    memcpy(larger + link->bytes, head, sizeof head);
    memcpy(larger + link->bytes + 16, data, bytes);
    link->images = larger;
    link->bytes += 16 + bytes;
    return SUCCESS;
}

EXPORT int cuLinkAddData_v2(struct handle *handle, int kind, void *data, size_t bytes, const char *name, unsigned count, int *options, void **values) {
    CALL(CURRENT, handle, kind, data, bytes, name, count, options, values);
    if (!is_handle(handle, LINK)) RETURN(INVALID_HANDLE);
    RETURN(data && bytes ? add_image(handle, kind, data, bytes) : INVALID_VALUE);
}

EXPORT int cuLinkAddFile_v2(struct handle *handle, int kind, const char *path, unsigned count, int *options, void **values) {
    CALL(CURRENT, handle, kind, path, count, options, values);
    if (!is_handle(handle, LINK)) RETURN(INVALID_HANDLE);
    FILE *file = path ? fopen(path, "rb") : NULL;
    if (!file) RETURN(301);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = size > 0 ? malloc((size_t)size) : NULL;
    int code = text && fread(text, 1, (size_t)size, file) == (size_t)size ? add_image(handle, kind, text, (size_t)size) : INVALID_VALUE;
    free(text);
    fclose(file);
    RETURN(code);
}

EXPORT int cuLinkComplete(struct handle *handle, void **image, size_t *bytes) {
    CALL(CURRENT, handle, image, bytes);
    if (!is_handle(handle, LINK)) RETURN(INVALID_HANDLE);
    struct link *link = handle->data;
    if (!image || link->result || !link->bytes) RETURN(INVALID_VALUE);
    struct answer answer = ask((struct request){.kind = LINK_IMAGES, .blob_bytes = link->bytes}, link->images, &link->result);
    if (answer.code != SUCCESS) RETURN((int)answer.code);
    *image = link->result;
    if (bytes) *bytes = answer.blob_bytes + 1; /* with the NUL that ends the PTX */
    RETURN(SUCCESS);
}

EXPORT int cuLinkDestroy(struct handle *handle) {
    CALL(INITIALISED, handle);
    if (!is_handle(handle, LINK)) RETURN(INVALID_HANDLE);
    struct link *link = handle->data;
    free(link->images);
    free(link->result);
    free_handle(handle);
    RETURN(SUCCESS);
}

/* Symbols of files, which tell where the functions of a static runtime are, and of loaded libraries. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit.h"

static int in_file(const struct file_symbols *file, uint64_t at, uint64_t bytes) {
    return at <= file->mapped_bytes && bytes <= file->mapped_bytes - at;
}

static int find_table(struct file_symbols *file) {
    const uint8_t *bytes = file->mapped;
    const Elf64_Ehdr *head = file->mapped;
    if (!in_file(file, 0, sizeof *head) || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_ident[EI_CLASS] != ELFCLASS64) return 0;
    if (head->e_shentsize != sizeof(Elf64_Shdr) || !in_file(file, head->e_shoff, (uint64_t)head->e_shnum * sizeof(Elf64_Shdr))) return 0;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(bytes + head->e_shoff);
    for (unsigned i = 0; i < head->e_shnum; i++) {
        const Elf64_Shdr *table = &sections[i];
        if (table->sh_type != SHT_SYMTAB || table->sh_link >= head->e_shnum) continue;
        const Elf64_Shdr *names = &sections[table->sh_link];
        if (!in_file(file, table->sh_offset, table->sh_size) || !in_file(file, names->sh_offset, names->sh_size) || !names->sh_size) return 0;
        file->symbols = (const Elf64_Sym *)(bytes + table->sh_offset);
        file->count = table->sh_size / sizeof(Elf64_Sym);
        file->names = (const char *)bytes + names->sh_offset;
        file->names_bytes = names->sh_size;
        return file->names[file->names_bytes - 1] == 0;
    }
    return 0;
}

int open_symbols(const char *path, struct file_symbols *found) {
    memset(found, 0, sizeof *found);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat facts;
    if (file < 0) return 0;
    if (fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size > 0) {
        found->mapped_bytes = (size_t)facts.st_size;
        found->mapped = mmap(NULL, found->mapped_bytes, PROT_READ, MAP_PRIVATE, file, 0);
        if (found->mapped == MAP_FAILED) found->mapped = NULL;
    }
    close(file);
    if (found->mapped && find_table(found)) return 1;
    close_symbols(found);
    return 0;
}

void close_symbols(struct file_symbols *symbols) {
    if (symbols->mapped) munmap(symbols->mapped, symbols->mapped_bytes);
    memset(symbols, 0, sizeof *symbols);
}

/* ---- exported names of a library in memory, by its GNU hash table ---- */

static uintptr_t dynamic_value(const struct link_map *map, int64_t tag) {
    for (const Elf64_Dyn *entry = map->l_ld; entry && entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == tag) {
            uintptr_t value = entry->d_un.d_ptr;
            return value < map->l_addr ? value + map->l_addr : value; /* the linker writes the address into most tables */
        }
    return 0;
}

static uint32_t gnu_hash(const char *name) {
    uint32_t hash = 5381;
    for (; *name; name++) hash = hash * 33 + (uint8_t)*name;
    return hash;
}

uintptr_t exported_function(const struct link_map *map, const char *name) {
    const uint32_t *table = (const uint32_t *)dynamic_value(map, DT_GNU_HASH);
    const Elf64_Sym *symbols = (const Elf64_Sym *)dynamic_value(map, DT_SYMTAB);
    const char *names = (const char *)dynamic_value(map, DT_STRTAB);
    if (!table || !symbols || !names || !table[0]) return 0;
    uint32_t buckets = table[0], first = table[1], words = table[2], hash = gnu_hash(name);
    const uint32_t *bucket = table + 4 + 2 * (size_t)words, *chain = bucket + buckets;
    uint32_t at = bucket[hash % buckets];
    if (at < first) return 0;
    for (;; at++) {
        uint32_t value = chain[at - first];
        const Elf64_Sym *symbol = &symbols[at];
        int is_function = ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx != SHN_UNDEF;
        if ((value | 1) == (hash | 1) && is_function && strcmp(names + symbol->st_name, name) == 0) return map->l_addr + symbol->st_value;
        if (value & 1) return 0;
    }
}

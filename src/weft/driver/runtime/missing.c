/* Entry points of the runtime without implementation: each is a function that refuses by its name. */
#include "runtime.h"

static int missing(const char *name) { return done(weftRefuse(name, "this entry point of the CUDA runtime has no implementation")); }

#define MISSING(name)                                                                                                \
    EXPORT int name(void);                                                                                           \
    int name(void) { return missing(#name); }
#define MISSING_PTSZ(name)                                                                                           \
    MISSING(name)                                                                                                    \
    PER_THREAD(name, _ptsz);
#define MISSING_PTDS(name)                                                                                           \
    MISSING(name)                                                                                                    \
    PER_THREAD(name, _ptds);
#include "missing.h"

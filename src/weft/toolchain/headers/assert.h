// assert is built into NVRTC, but not its absence under NDEBUG.
#ifdef NDEBUG
#undef assert
#define assert(condition) ((void)0)
#endif

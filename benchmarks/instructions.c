/* Tells callgrind from within a program which part of it to count; without callgrind both do nothing. */
#include <valgrind/callgrind.h>

void begin_part(void)
{
    CALLGRIND_START_INSTRUMENTATION; /* once: to stop and start again takes longer than what is in between */
    CALLGRIND_ZERO_STATS;
}

void end_part(const char *name) { CALLGRIND_DUMP_STATS_AT(name); }

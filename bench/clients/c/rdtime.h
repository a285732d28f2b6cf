/* Stands in for librdkafka's private header of this name: microseconds that never go back. */
#ifndef FOREBAY_BENCH_RDTIME_H
#define FOREBAY_BENCH_RDTIME_H
#include "rd.h"
static inline rd_ts_t rd_clock(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (rd_ts_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
#endif

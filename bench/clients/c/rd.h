/* Stands in for librdkafka's private header of this name: what its example program takes from it. */
#ifndef FOREBAY_BENCH_RD_H
#define FOREBAY_BENCH_RD_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
typedef int64_t rd_ts_t;
#define RD_MIN(a, b) ((a) < (b) ? (a) : (b))
#define RD_MAX(a, b) ((a) > (b) ? (a) : (b))
#define rd_snprintf snprintf
#endif

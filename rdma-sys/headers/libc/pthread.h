/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#pragma once
/*
 * Stand-in: see ../README.md. The sizes are those of x86_64; the Rust side is
 * libc::pthread_mutex_t and libc::pthread_cond_t, right on every target.
 */
#include <time.h>
typedef union {
	char size[40];
	long align;
} pthread_mutex_t;
typedef union {
	char size[48];
	long long align;
} pthread_cond_t;
int pthread_mutex_init(pthread_mutex_t *mutex, const void *attr);
int pthread_cond_init(pthread_cond_t *cond, const void *attr);

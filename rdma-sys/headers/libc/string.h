/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#pragma once
/* Stand-in: see ../README.md. */
#include <stddef.h>
void *memset(void *s, int c, size_t n);

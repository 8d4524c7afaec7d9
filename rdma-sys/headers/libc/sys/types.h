/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#pragma once
/* Stand-in: see ../../README.md. */
#include <stddef.h>
typedef __INTPTR_TYPE__ ssize_t;

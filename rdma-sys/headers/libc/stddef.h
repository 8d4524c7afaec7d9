/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#pragma once
/* Stand-in: see ../README.md. */
typedef __SIZE_TYPE__ size_t;
#define NULL ((void *)0)
#define offsetof(type, member) __builtin_offsetof(type, member)

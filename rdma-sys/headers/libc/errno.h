/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#pragma once
/* Stand-in: see ../README.md. Only inline bodies use these; none is generated. */
extern int errno;
#define EPERM 1
#define EINVAL 22
#define ENOSYS 38
#define EOPNOTSUPP 95

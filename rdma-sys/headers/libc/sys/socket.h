/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#pragma once
/* Stand-in: see ../../README.md. The Rust side is libc's. */
#include <sys/types.h>
typedef unsigned int socklen_t;
struct sockaddr {
	unsigned short sa_family;
	char sa_data[14];
};
struct sockaddr_storage {
	unsigned short ss_family;
	char data[118];
	unsigned long align;
};

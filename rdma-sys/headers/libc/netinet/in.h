/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#pragma once
/* Stand-in: see ../../README.md. The Rust side is libc's. */
#include <stdint.h>
#include <sys/socket.h>
struct sockaddr_in {
	unsigned short sin_family;
	uint16_t sin_port;
	uint32_t sin_addr;
	unsigned char sin_zero[8];
};
struct sockaddr_in6 {
	unsigned short sin6_family;
	uint16_t sin6_port;
	uint32_t sin6_flowinfo;
	uint32_t sin6_addr[4];
	uint32_t sin6_scope_id;
};

/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#pragma once
/* Stand-in: see ../README.md. The Rust side is libc::timespec. */
struct timespec {
	long tv_sec;
	long tv_nsec;
};

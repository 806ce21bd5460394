/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tp_size.h - Checked arithmetic, big- and little-endian access, rounding, sizes and durations as text */
#ifndef TP_SIZE_H
#define TP_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline bool tp_add(uint64_t a, uint64_t b, uint64_t *sum)
{
	return !__builtin_add_overflow(a, b, sum);
}

static inline bool tp_mul(uint64_t a, uint64_t b, uint64_t *product)
{
	return !__builtin_mul_overflow(a, b, product);
}

static inline uint64_t tp_div_up(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

#define TP_ENDIAN(bits) \
static inline uint##bits##_t tp_be##bits(const void *p) \
{ \
	uint##bits##_t v; \
	memcpy(&v, p, sizeof(v)); \
	return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? v : __builtin_bswap##bits(v); \
} \
static inline uint##bits##_t tp_le##bits(const void *p) \
{ \
	uint##bits##_t v; \
	memcpy(&v, p, sizeof(v)); \
	return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? __builtin_bswap##bits(v) : v; \
} \
static inline void tp_put_be##bits(void *p, uint##bits##_t v) \
{ \
	v = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? v : __builtin_bswap##bits(v); \
	memcpy(p, &v, sizeof(v)); \
} \
static inline void tp_put_le##bits(void *p, uint##bits##_t v) \
{ \
	v = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? __builtin_bswap##bits(v) : v; \
	memcpy(p, &v, sizeof(v)); \
}
TP_ENDIAN(16)
TP_ENDIAN(32)
TP_ENDIAN(64)
#undef TP_ENDIAN

/* "4G", "512M", "100" (bytes), "1T"; binary units K M G T, optional "iB"/"B". */
bool tp_size_parse(const char *text, uint64_t *bytes);
/* "90", "90s", "5m", "1h30m", "0.5"; seconds. */
bool tp_duration_parse(const char *text, double *seconds);
#define TP_SIZE_TEXT 24
/* "1.4 GiB", "512 MiB", "17 B" into buf[TP_SIZE_TEXT]; returns buf. */
const char *tp_size_format(uint64_t bytes, char *buf);

#endif

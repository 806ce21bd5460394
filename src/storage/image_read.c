/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_read.c - Open and check a sealed memory image, decode its frames
 *
 * Opening trusts nothing: header and footer by their checksums and by each
 * other, all lengths by the file's, then the index by the footer
 * (image_index.c). A frame is decoded whole, into exactly its raw length, and
 * its checksum verified, before anybody sees a byte of it.
 */
#include "image_read.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/tp_cleanup.h"
#include "base/tp_size.h"
#include "image_format.h"
#include "image_priv.h"

#define CHECKSUM_FLAG 0x04	/* in zstd's frame header descriptor, byte 4 of a frame */
#define DICTIONARY_MASK 0x03

struct image_decoder {
	ZSTD_DCtx *ctx;
	uint8_t *buf;
	size_t cap;
};

static bool get(int fd, void *data, size_t n, uint64_t at, const char *what, struct tp_error *err)
{
	uint8_t *p = data;

	while (n) {
		ssize_t done = pread(fd, p, n, (off_t)at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return tp_fail_sys(err, errno, "read of %s at offset %llu", what,
					   (unsigned long long)at);
		if (!done)
			return tp_fail(err, TP_ECORRUPT, "the image ends inside %s, at offset %llu", what,
				       (unsigned long long)at);
		p += done;
		n -= (size_t)done;
		at += (uint64_t)done;
	}
	return true;
}

/* ---- header and footer */

static bool check_features(uint64_t bits, struct tp_error *err)
{
	if (bits & IMAGE_FEATURE_ENCRYPTED)
		return tp_fail(err, TP_EUNSUPPORTED, "the image is encrypted, which this version cannot read");
	if (bits & IMAGE_FEATURE_PARENTS)
		return tp_fail(err, TP_EUNSUPPORTED,
			       "the image is incremental, which this version cannot read");
	if (bits & IMAGE_FEATURE_RAW_FILES)
		return tp_fail(err, TP_EUNSUPPORTED,
			       "the image keeps guest memory in raw files, which this version cannot read");
	if (bits & ~(uint64_t)IMAGE_FEATURES_READABLE)
		return tp_fail(err, TP_EUNSUPPORTED,
			       "the image uses features 0x%llx of a newer format", (unsigned long long)bits);
	return true;
}

static bool check_header(const struct image_header *h, struct image_info *info,
			 struct tp_error *err)
{
	if (le32toh(h->skip_magic) != IMAGE_SKIPPABLE ||
	    memcmp(h->magic, IMAGE_HEADER_MAGIC, IMAGE_MAGIC_SIZE))
		return tp_fail(err, TP_ECORRUPT, "this is no torpor memory image");
	if (le64toh(h->checksum) != XXH64(h, offsetof(struct image_header, checksum), 0))
		return tp_fail(err, TP_ECORRUPT, "the image's header is damaged (checksum at offset 504)");
	info->major = le16toh(h->major);
	info->minor = le16toh(h->minor);
	if (info->major != IMAGE_MAJOR)
		return tp_fail(err, TP_EUNSUPPORTED,
			       "the image has the newer format %u.%u, this version reads %u.x", info->major,
			       info->minor, IMAGE_MAJOR);
	info->features = le64toh(h->incompatible);
	if (!check_features(info->features, err))
		return false;
	if (le32toh(h->codec) != IMAGE_CODEC_ZSTD)
		return tp_fail(err, TP_EUNSUPPORTED, "the image uses codec %u of a newer format",
			       le32toh(h->codec));
	if (le32toh(h->skip_length) != IMAGE_HEADER_SIZE - 8 ||
	    le32toh(h->header_size) != IMAGE_HEADER_SIZE)
		return tp_fail(err, TP_ECORRUPT, "the image's header is damaged (size)");
	memcpy(info->uuid, h->uuid, sizeof(info->uuid));
	info->created_us = le64toh(h->created_us);
	info->frame_target = le32toh(h->frame_target);
	return true;
}

/* No checksum is over them: what is not as it was written is found by its not being zero. */
static bool check_rest(int fd, struct tp_error *err)
{
	uint8_t rest[IMAGE_HEADER_SIZE - sizeof(struct image_header)];

	if (!get(fd, rest, sizeof(rest), sizeof(struct image_header), "the header", err))
		return false;
	for (size_t i = 0; i < sizeof(rest); i++)
		if (rest[i])
			return tp_fail(err, TP_ECORRUPT, "the image's header is damaged (byte %zu, behind its fields, "
				       "is not zero)", sizeof(struct image_header) + i);
	return true;
}

static bool check_size(int fd, uint64_t sealed, struct image_info *info, struct tp_error *err)
{
	struct stat st;
	uint64_t size;

	if (fstat(fd, &st))
		return tp_fail_sys(err, errno, "image file");
	if (!sealed)
		return tp_fail(err, TP_ECORRUPT, "the image was never completed: its writer stopped before the end");
	size = S_ISBLK(st.st_mode) ? (uint64_t)lseek(fd, 0, SEEK_END) : (uint64_t)st.st_size;
	if (sealed > size)
		return tp_fail(err, TP_ECORRUPT, "the image is cut: %llu of %llu bytes are there",
			       (unsigned long long)size, (unsigned long long)sealed);
	if (sealed < size && !S_ISBLK(st.st_mode))
		return tp_fail(err, TP_ECORRUPT, "the image has %llu bytes behind its end at offset %llu",
			       (unsigned long long)(size - sealed), (unsigned long long)sealed);
	if (sealed < IMAGE_HEADER_SIZE + IMAGE_FOOTER_SIZE + sizeof(struct image_index_head))
		return tp_fail(err, TP_ECORRUPT, "the image's header is damaged (sealed size)");
	info->file_bytes = sealed;
	return true;
}

static bool footer_damaged(struct tp_error *err, const char *what)
{
	return tp_fail(err, TP_ECORRUPT, "the image's footer is damaged (%s)", what);
}

static bool check_footer(struct image *img, const struct image_footer *f, struct tp_error *err)
{
	struct image_info *i = &img->info;

	if (le32toh(f->skip_magic) != IMAGE_SKIPPABLE ||
	    le32toh(f->skip_length) != IMAGE_FOOTER_SIZE - 8 ||
	    memcmp(f->magic, IMAGE_FOOTER_MAGIC, IMAGE_MAGIC_SIZE))
		return footer_damaged(err, "magic");
	i->footer_checksum = le64toh(f->checksum);
	if (i->footer_checksum != XXH64(f, offsetof(struct image_footer, checksum), 0))
		return footer_damaged(err, "checksum");
	if (memcmp(f->uuid, i->uuid, sizeof(i->uuid)))
		return footer_damaged(err, "it belongs to another image");
	i->index_offset = le64toh(f->index_offset);
	i->index_bytes = le64toh(f->index_length);
	i->frames = le64toh(f->frames);
	i->raw_bytes = le64toh(f->raw_bytes);
	i->pages = le64toh(f->pages);
	i->pages_data = le64toh(f->pages_data);
	i->pages_zero = le64toh(f->pages_zero);
	i->page_bits = f->page_bits;
	i->stream_kind = f->stream_kind;
	i->blocks = le16toh(f->blocks);
	img->frames_checksum = le64toh(f->frames_checksum);
	if (i->index_offset < IMAGE_HEADER_SIZE || i->index_offset > i->file_bytes ||
	    i->index_bytes < sizeof(struct image_index_head) ||
	    i->index_bytes != i->file_bytes - IMAGE_FOOTER_SIZE - i->index_offset)
		return footer_damaged(err, "place of the index");
	if (!i->frames || i->frames > IMAGE_FRAMES_MAX || i->pages > IMAGE_PAGES_MAX ||
	    i->frames > i->index_offset || i->stream_kind > IMAGE_BACKGROUND)
		return footer_damaged(err, "a number is out of bounds");
	return true;
}

/* ---- index */

static bool decode_body(const uint8_t *stored, size_t n, uint8_t *body, uint64_t length,
			struct tp_error *err)
{
	ZSTD_DCtx *ctx = ZSTD_createDCtx();
	size_t done;

	if (!ctx)
		return tp_fail_nomem(err);
	ZSTD_DCtx_setParameter(ctx, ZSTD_d_windowLogMax, IMAGE_WINDOW_LOG_MAX);
	done = ZSTD_decompressDCtx(ctx, body, length, stored, n);
	ZSTD_freeDCtx(ctx);
	if (ZSTD_isError(done) || done != length)
		return tp_fail(err, TP_ECORRUPT, "the image's index is damaged: it does not decode");
	return true;
}

static bool parse_index(struct image *img, const struct image_index_head *head,
			const uint8_t *stored, uint64_t n, struct tp_error *err)
{
	const struct image_info *i = &img->info;
	struct image_claims claims = {
		.frames = i->frames, .raw_bytes = i->raw_bytes,
		.frame_bytes = i->index_offset - IMAGE_HEADER_SIZE, .pages = i->pages,
		.pages_data = i->pages_data, .pages_zero = i->pages_zero,
		.page_bits = i->page_bits, .blocks = i->blocks,
	};
	uint64_t length = le64toh(head->body_length);
	uint8_t *body;
	bool ok;

	if (length > image_index_body_max(&claims) || ZSTD_getFrameContentSize(stored, n) != length)
		return tp_fail(err, TP_ECORRUPT, "the image's index is damaged: impossible length");
	body = malloc(length + 1);
	if (!body)
		return tp_fail_nomem(err);
	ok = decode_body(stored, n, body, length, err) &&
	     image_index_parse(body, length, &claims, &img->x, err);
	free(body);
	return ok;
}

static bool load_index(struct image *img, uint64_t checksum, struct tp_error *err)
{
	const struct image_info *i = &img->info;
	uint64_t n = i->index_bytes - sizeof(struct image_index_head);
	struct image_index_head head;
	uint8_t *stored;
	bool ok;

	if (n > IMAGE_INDEX_STORED_MAX)
		return footer_damaged(err, "size of the index");
	if (!get(img->fd, &head, sizeof(head), i->index_offset, "the index", err))
		return false;
	if (le32toh(head.skip_magic) != IMAGE_SKIPPABLE ||
	    le32toh(head.skip_length) != i->index_bytes - 8 ||
	    memcmp(head.magic, IMAGE_INDEX_MAGIC, IMAGE_MAGIC_SIZE) ||
	    le64toh(head.stored_length) != n || le64toh(head.checksum) != checksum)
		return tp_fail(err, TP_ECORRUPT, "the image's index is damaged: its head at offset %llu",
			       (unsigned long long)i->index_offset);
	stored = malloc(n + 1);
	if (!stored)
		return tp_fail_nomem(err);
	ok = get(img->fd, stored, n, i->index_offset + sizeof(head), "the index", err);
	if (ok && XXH64(stored, n, 0) != checksum)
		ok = tp_fail(err, TP_ECORRUPT, "the image's index is damaged: checksum");
	ok = ok && parse_index(img, &head, stored, n, err);
	free(stored);
	return ok;
}

/* ---- opening */

static bool open_image(struct image *img, struct tp_error *err)
{
	struct image_header h;
	struct image_footer f;

	return get(img->fd, &h, sizeof(h), 0, "the header", err) &&
	       check_header(&h, &img->info, err) &&
	       check_size(img->fd, le64toh(h.sealed_size), &img->info, err) && check_rest(img->fd, err) &&
	       get(img->fd, &f, sizeof(f), img->info.file_bytes - sizeof(f), "the footer", err) &&
	       check_footer(img, &f, err) && load_index(img, le64toh(f.index_checksum), err);
}

struct image *image_open(int fd, struct tp_error *err)
{
	struct image *img = calloc(1, sizeof(*img));

	if (!img) {
		tp_fail_nomem(err);
		return NULL;
	}
	img->fd = fd;
	if (!open_image(img, err)) {
		image_close(img);
		return NULL;
	}
	return img;
}

void image_close(struct image *img)
{
	if (!img)
		return;
	image_index_free(&img->x);
	free(img);
}

const struct image_info *image_info(const struct image *img)
{
	return &img->info;
}

const struct image_block *image_block(const struct image *img, unsigned n)
{
	return &img->x.blocks[n];
}

bool image_range(const struct image *img, uint32_t kind, unsigned nth, uint64_t *raw_offset,
		 uint64_t *length)
{
	for (unsigned i = 0; i < img->x.nspans; i++) {
		const struct image_span *s = &img->x.spans[i];

		if (s->kind != kind || nth-- > 0)
			continue;
		*raw_offset = s->offset;
		*length = s->length;
		return true;
	}
	return false;
}

/* ---- frames */

struct image_decoder *image_decoder_new(struct tp_error *err)
{
	struct image_decoder *d = calloc(1, sizeof(*d));

	if (d)
		d->ctx = ZSTD_createDCtx();
	if (!d || !d->ctx) {
		image_decoder_free(d);
		tp_fail_nomem(err);
		return NULL;
	}
	ZSTD_DCtx_setParameter(d->ctx, ZSTD_d_windowLogMax, IMAGE_WINDOW_LOG_MAX);
	return d;
}

void image_decoder_free(struct image_decoder *d)
{
	if (!d)
		return;
	ZSTD_freeDCtx(d->ctx);
	free(d->buf);
	free(d);
}

uint64_t image_frame_stored(const struct image *img, uint64_t frame)
{
	return img->x.stored_at[frame + 1] - img->x.stored_at[frame];
}

void image_frames_forget(const struct image *img, uint64_t from, uint64_t to)
{
	uint64_t at = img->x.stored_at[from], end = img->x.stored_at[to];

	if (end > at)
		posix_fadvise(img->fd, (off_t)(IMAGE_HEADER_SIZE + at), (off_t)(end - at), POSIX_FADV_DONTNEED);
}

uint32_t image_frame_raw(const struct image *img, uint64_t frame)
{
	return (uint32_t)(img->x.raw_at[frame + 1] - img->x.raw_at[frame]);
}

static bool decoder_room(struct image_decoder *d, size_t n, struct tp_error *err)
{
	uint8_t *buf;

	if (n <= d->cap)
		return true;
	buf = realloc(d->buf, n);
	if (!buf)
		return tp_fail_nomem(err);
	d->buf = buf;
	d->cap = n;
	return true;
}

/* What the format asks of a frame beyond zstd's own rules. */
static const char *frame_fault(const uint8_t *p, size_t n, uint32_t raw)
{
	if (n < 9 || tp_le32(p) != IMAGE_ZSTD_MAGIC)
		return "it is no zstd frame";
	if (!(p[4] & CHECKSUM_FLAG) || (p[4] & DICTIONARY_MASK))
		return "it has no checksum or needs a dictionary";
	if (ZSTD_getFrameContentSize(p, n) != raw)
		return "its raw length contradicts the index";
	if (ZSTD_findFrameCompressedSize(p, n) != n)
		return "its length contradicts the index";
	return NULL;
}

static const char medium_fault[] = "the medium cannot read it";

/* What the medium cannot read is damaged; other troubles are not the image's. */
static bool read_stored(const struct image *img, uint64_t frame, uint8_t *buf, size_t n,
			const char **fault, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;

	if (get(img->fd, buf, n, IMAGE_HEADER_SIZE + img->x.stored_at[frame], "a frame", &why))
		return true;
	if (why.code == TP_ECORRUPT)
		*fault = "the file ends in it";
	else if (why.sys == EIO)
		*fault = medium_fault;
	else
		tp_fail_sys(err, why.sys, "read of frame %llu", (unsigned long long)frame);
	return false;
}

static const char *decode_fault(size_t done)
{
	if (!ZSTD_isError(done))
		return "it is too short";
	if (ZSTD_getErrorCode(done) == ZSTD_error_checksum_wrong)
		return "its checksum is not that of what it holds";
	return ZSTD_getErrorName(done);
}

bool image_frame_decode(const struct image *img, struct image_decoder *d, uint64_t frame, void *buf,
			uint32_t *checksum, const char **fault, struct tp_error *err)
{
	size_t n = image_frame_stored(img, frame), done;
	uint32_t raw = image_frame_raw(img, frame);

	*fault = NULL;
	if (!decoder_room(d, n, err) || !read_stored(img, frame, d->buf, n, fault, err))
		return false;
	*fault = frame_fault(d->buf, n, raw);
	if (*fault)
		return false;
	done = ZSTD_decompressDCtx(d->ctx, buf, raw, d->buf, n);
	if (ZSTD_isError(done) || done != raw) {
		*fault = decode_fault(done);
		return false;
	}
	if (checksum)
		*checksum = tp_le32(d->buf + n - 4);
	return true;
}

bool image_frame_read(const struct image *img, struct image_decoder *d, uint64_t frame, void *buf,
		      uint32_t *checksum, struct tp_error *err)
{
	char where[IMAGE_WHERE];
	const char *fault;

	if (image_frame_decode(img, d, frame, buf, checksum, &fault, err))
		return true;
	/* To who needs all of it now it is the medium's trouble: it may be over later. */
	if (fault == medium_fault)
		return tp_fail_sys(err, EIO, "read of %s", image_where(img, frame, where));
	return fault && tp_fail(err, TP_ECORRUPT, "%s is damaged: %s", image_where(img, frame, where), fault);
}

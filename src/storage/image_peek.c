/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * image_peek.c - Is a file a sealed memory image, and which: from header and footer alone
 *
 * For the catalogue, which looks at each image of a pool: 640 bytes read instead of the index.
 */
#include "image_peek.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/tp_fs.h"
#include "base/tp_size.h"
#include "image_format.h"

static bool header_ok(const struct image_header *h, uint64_t length, struct tp_error *err)
{
	if (tp_le32(&h->skip_magic) != IMAGE_SKIPPABLE ||
	    memcmp(h->magic, IMAGE_HEADER_MAGIC, IMAGE_MAGIC_SIZE) != 0)
		return tp_fail(err, TP_ECORRUPT, "header: not a memory image");
	if (tp_le64(&h->checksum) != XXH64(h, offsetof(struct image_header, checksum), 0))
		return tp_fail(err, TP_ECORRUPT, "header: checksum does not match");
	if (tp_le16(&h->major) != IMAGE_MAJOR)
		return tp_fail(err, TP_EUNSUPPORTED, "newer format: version %u.%u", tp_le16(&h->major),
			       tp_le16(&h->minor));
	if (tp_le32(&h->skip_length) != IMAGE_HEADER_SIZE - 8 ||
	    tp_le32(&h->header_size) != IMAGE_HEADER_SIZE)
		return tp_fail(err, TP_ECORRUPT, "header: size of %u bytes", tp_le32(&h->header_size));
	if (tp_le64(&h->incompatible) & ~(uint64_t)IMAGE_FEATURES_READABLE)
		return tp_fail(err, TP_EUNSUPPORTED, "newer format: features 0x%llx",
			       (unsigned long long)tp_le64(&h->incompatible));
	if (tp_le64(&h->sealed_size) == 0)
		return tp_fail(err, TP_ECORRUPT, "header: the image was never completed");
	if (tp_le64(&h->sealed_size) != length)
		return tp_fail(err, TP_ECORRUPT, "header: %llu bytes expected, the file has %llu",
			       (unsigned long long)tp_le64(&h->sealed_size),
			       (unsigned long long)length);
	return true;
}

static bool footer_ok(const struct image_footer *f, const struct image_header *h,
		      struct tp_error *err)
{
	if (tp_le32(&f->skip_magic) != IMAGE_SKIPPABLE ||
	    tp_le32(&f->skip_length) != IMAGE_FOOTER_SIZE - 8 ||
	    memcmp(f->magic, IMAGE_FOOTER_MAGIC, IMAGE_MAGIC_SIZE) != 0)
		return tp_fail(err, TP_ECORRUPT, "footer: there is none");
	if (tp_le64(&f->checksum) != XXH64(f, offsetof(struct image_footer, checksum), 0))
		return tp_fail(err, TP_ECORRUPT, "footer: checksum does not match");
	if (memcmp(f->uuid, h->uuid, sizeof(f->uuid)) != 0)
		return tp_fail(err, TP_ECORRUPT, "footer: belongs to another image");
	return true;
}

bool image_peek(int fd, struct image_peek *found, struct tp_error *err)
{
	struct image_header h;
	struct image_footer f;
	struct stat st;

	if (fstat(fd, &st) != 0)
		return tp_fail_sys(err, errno, "image");
	if (!S_ISREG(st.st_mode))
		return tp_fail(err, TP_ECORRUPT, "not a regular file");
	if (st.st_size < (off_t)(IMAGE_HEADER_SIZE + IMAGE_FOOTER_SIZE))
		return tp_fail(err, TP_ECORRUPT, "%lld bytes are no whole image",
			       (long long)st.st_size);
	if (!tp_pread_all(fd, &h, sizeof(h), 0, err) || !header_ok(&h, (uint64_t)st.st_size, err) ||
	    !tp_pread_all(fd, &f, sizeof(f), st.st_size - (off_t)sizeof(f), err) ||
	    !footer_ok(&f, &h, err))
		return false;
	*found = (struct image_peek){
		.footer_checksum = tp_le64(&f.checksum), .file_bytes = (uint64_t)st.st_size,
		.raw_bytes = tp_le64(&f.raw_bytes),
	};
	memcpy(found->uuid, f.uuid, sizeof(f.uuid));
	return true;
}

bool image_footer_peek(int fd, uint64_t *footer_checksum, uint8_t uuid[16], struct tp_error *err)
{
	struct image_peek found = { .file_bytes = 0 };

	if (!image_peek(fd, &found, err))
		return false;
	*footer_checksum = found.footer_checksum;
	memcpy(uuid, found.uuid, sizeof(found.uuid));
	return true;
}

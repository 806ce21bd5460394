/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* page_out.c - The page server's outgoing bytes: records of pages, and what the socket did not take */
#include "page_out.h"

#include <errno.h>
#include <sys/socket.h>

#include "storage/image_page.h"
#include "stream_write.h"

void page_out_begin(struct page_out *o)
{
	o->buf.len = 0;
	o->from = 0;
	o->open = false;
	o->block = -1;
}

/* One section for all pages of a connection: QEMU does not wait for a section's end. */
static bool open_section(struct page_out *o)
{
	o->open = o->open || stream_write_part(&o->buf, o->section, false);
	return o->open;
}

bool page_out_page(struct page_out *o, const struct image *img, uint64_t page, const void *data)
{
	const struct image_info *info = image_info(img);
	int block = (int)image_page_block(img, page);
	const struct image_block *b = image_block(img, (unsigned)block);
	const char *id = block == o->block ? NULL : b->id;
	uint64_t address = (page - b->first_page) << info->page_bits;

	if (!open_section(o))
		return false;
	if (data ? !stream_write_page(&o->buf, id, address, data, (size_t)1 << info->page_bits) :
		   !stream_write_zero(&o->buf, id, address))
		return false;
	o->block = block;
	return true;
}

bool page_out_finish(struct page_out *o)
{
	return (!o->open || stream_write_end(&o->buf, o->section)) &&
	       stream_write_part(&o->buf, o->section, true) &&
	       stream_write_end(&o->buf, o->section) && stream_write_eof(&o->buf);
}

enum page_flush page_out_flush(struct page_out *o, int fd)
{
	while (page_out_waiting(o) > 0) {
		ssize_t n = send(fd, o->buf.data + o->from, page_out_waiting(o),
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == ENOBUFS ? FLUSH_SOME : FLUSH_GONE;
		o->from += (size_t)n;
		o->sent += (uint64_t)n;
	}
	o->buf.len = 0;
	o->from = 0;
	return FLUSH_ALL;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fuzz_qcow2.c - qcow2 headers, snapshot tables and bitmap directories from anywhere */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "storage/qcow2.h"

#define INPUT_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tp_error err = TP_ERROR_INIT;
	struct qcow2_sums sums, again;
	struct qcow2 q;
	int fd;

	if (size > INPUT_MAX)
		return 0;
	fd = memfd_create("qcow2", MFD_CLOEXEC);
	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	if (qcow2_read(fd, &q, &err) && qcow2_sums(fd, &q, &sums, &err)) {
		assert(qcow2_probe(fd));
		assert(strlen(q.backing) <= QCOW2_NAME_MAX && strlen(q.data_file) <= QCOW2_NAME_MAX);
		/* What was read once reads the same again. */
		assert(qcow2_sums(fd, &q, &again, &err));
		assert(memcmp(&sums, &again, sizeof(sums)) == 0);
	} else {
		assert(err.code == TP_ECORRUPT || err.code == TP_EUNSUPPORTED);
	}
	close(fd);
	return 0;
}

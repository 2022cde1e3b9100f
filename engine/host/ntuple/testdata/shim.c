// This library is preloaded into ethtool(8). It answers SIOCETHTOOL for a card that does not exist, and writes the
// bytes of commands that change the card to file descriptor 3. With the environment variable SPECIAL, the driver
// chooses the locations of rules. With OLD, it does not support ETHTOOL_GRSSH.
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static int record(const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		dprintf(3, "%02x", ((const unsigned char *)p)[i]);
	dprintf(3, "\n");
	return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	va_start(ap, request);
	struct ifreq *r = va_arg(ap, void *);
	va_end(ap);
	if (request != SIOCETHTOOL) {
		errno = ENOTTY;
		return -1;
	}
	struct ethtool_rxnfc *n = (void *)r->ifr_data;
	struct ethtool_rxfh *h = (void *)r->ifr_data;
	struct ethtool_rxfh_indir *x = (void *)r->ifr_data;
	switch (n->cmd) {
	case ETHTOOL_GRXRINGS:
		n->data = 8;
		return 0;
	case ETHTOOL_GRXCLSRLCNT:
		n->rule_cnt = 1;
		n->data = getenv("SPECIAL") ? RX_CLS_LOC_SPECIAL : 0;
		return 0;
	case ETHTOOL_GRXCLSRLALL: // the last of 16 locations has a rule
		n->rule_cnt = 1;
		n->data = 16;
		n->rule_locs[0] = 15;
		return 0;
	case ETHTOOL_SRXCLSRLINS:
	case ETHTOOL_SRXCLSRLDEL:
		return record(n, sizeof *n);
	case ETHTOOL_GRSSH:
		if (getenv("OLD"))
			break;
		h->indir_size = 8;
		h->key_size = 40;
		return 0;
	case ETHTOOL_SRSSH:
		record(h, sizeof *h + h->indir_size * 4);
		h->rss_context = 1;
		return 0;
	case ETHTOOL_GRXFHINDIR:
		x->size = 8;
		return 0;
	case ETHTOOL_SRXFHINDIR:
		return record(x, sizeof *x + x->size * 4);
	}
	errno = EOPNOTSUPP;
	return -1;
}

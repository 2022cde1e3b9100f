package endpoint

import (
	"crypto/sha256"
	"fmt"
	"net/netip"

	"xwarp/engine/esp"
	"xwarp/engine/host/xfrm"
	"xwarp/engine/ipsec"
	"xwarp/engine/xdp"
)

// protect returns the IPsec configuration of an end, with keys that the other end derives, too.
func protect(local, remote netip.Addr, bits int) *xdp.IPsecConfig {
	sa := func(from, to netip.Addr) *xfrm.SA {
		key := sha256.Sum256(fmt.Appendf(nil, "xwarp bench from %s to %s", from, to))
		spi := uint32(0x1001)
		if to.Less(from) {
			spi = 0x2001
		}
		keymat := append(key[:bits/8:bits/8], "salt"...)
		return &xfrm.SA{SA: esp.SA{SPI: spi, ESN: true, Keymat: keymat}, Src: from, Dst: to}
	}
	return &xdp.IPsecConfig{Rules: []ipsec.Rule{{Mode: esp.Transport}},
		Follow: xfrm.Static(&xfrm.State{Outbound: []*xfrm.SA{sa(local, remote)},
			Inbound: []*xfrm.SA{sa(remote, local)}})}
}

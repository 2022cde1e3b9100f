package ports

import (
	"net/netip"
	"testing"
)

// TestEphemeral: the port of a socket that asked for any is one of the kernel's range, those of services are not.
func TestEphemeral(t *testing.T) {
	r, err := Reserve(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if port := r.Addr().Port(); !IsEphemeral(port) {
		t.Errorf("port %d is not in the range", port)
	}
	for _, port := range []uint16{0, 1, 22, 1023} {
		if IsEphemeral(port) {
			t.Errorf("port %d is in the range", port)
		}
	}
}

package interop

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
)

// pinged checks the captured traffic of n iterations of rping with size bytes. Each iteration has two Sends in each
// direction, a Read of size bytes, and a Write of the bytes that were read. It does not rely on either end's output.
func (s *session) pinged(n, size int) error {
	var read, written []byte
	requests, sends := 0, 0
	for i := range s.half {
		for _, f := range s.half[i].fpdus {
			switch opcodes[f.opcode] {
			case "Read Request":
				if size := binary.BigEndian.Uint32(f.ulpdu[30:]); size > 0 { // of size 0 is xwarp's RTR message
					requests++
				}
			case "Read Response":
				read = append(read, f.ulpdu[14:]...)
			case "Write":
				written = append(written, f.ulpdu[14:]...)
			case "Send":
				if sends++; len(f.ulpdu) != 18+16 {
					return fmt.Errorf("Send %d has a ULPDU of %d bytes", sends, len(f.ulpdu))
				}
			}
		}
	}
	var errs []error
	if requests != n || sends != 4*n {
		errs = append(errs, fmt.Errorf("%d Read Requests and %d Sends, want %d and %d", requests,
			sends, n, 4*n))
	}
	if len(read) != n*size || !bytes.Equal(read, written) {
		errs = append(errs, fmt.Errorf("%d bytes were read, and %d written, equal: %v; want %d "+
			"each and equal", len(read), len(written), bytes.Equal(read, written), n*size))
	}
	for i := 0; i < n && (i+1)*size <= len(read); i++ {
		if head := fmt.Sprintf("rdma-ping-%d: ", i); !bytes.HasPrefix(read[i*size:], []byte(head)) {
			errs = append(errs, fmt.Errorf("iteration %d begins with %q", i,
				read[i*size:][:len(head)]))
			break
		}
	}
	return errors.Join(errs...)
}

// sums counts the FPDUs whose CRC field is right, those where it is zero, and all others.
func (s *session) sums() (right, zero, other int) {
	for i := range s.half {
		h := &s.half[i]
		for _, f := range h.fpdus {
			b := h.stream[f.off:][:f.n]
			switch binary.LittleEndian.Uint32(b[f.n-4:]) {
			case crc32.Checksum(b[:f.n-4], castagnoli):
				right++
			case 0:
				zero++
			default:
				other++
			}
		}
	}
	return right, zero, other
}

// TestPinged checks that pinged accepts a good capture and detects faults.
func TestPinged(t *testing.T) {
	file, _ := fixture(t, "rping-ipv4-4096")
	list, err := readCapture(file)
	if err != nil || len(list) != 1 {
		t.Fatal(len(list), err)
	}
	s := list[0]
	if err := s.pinged(10, 4096); err != nil {
		t.Error(err)
	}
	if right, zero, other := s.sums(); right != len(s.half[0].fpdus)+len(s.half[1].fpdus) ||
		zero+other != 0 {
		t.Errorf("%d right CRCs, %d of zero, %d others", right, zero, other)
	}
	if err := s.pinged(11, 4096); err == nil ||
		!strings.Contains(err.Error(), "10 Read Requests and 40 Sends") {
		t.Errorf("one iteration more: %v", err)
	}
	for i := range s.half {
		for _, f := range s.half[i].fpdus {
			if opcodes[f.opcode] != "Write" || len(f.ulpdu) == 14 {
				continue
			}
			f.ulpdu[14] ^= 1
			if err := s.pinged(10, 4096); err == nil ||
				!strings.Contains(err.Error(), "equal: false") {
				t.Errorf("another byte written: %v", err)
			}
			return
		}
	}
	t.Error("no Write")
}

package interop

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
)

// decoded is what tshark found in a file.
type decoded struct {
	fpdus, good, bad int            // all FPDUs, those with a right CRC, and with a wrong one; 0 without CRC
	opcodes          map[string]int // number of FPDUs by tshark's name of the opcode
	complaints       []string       // reports of malformed packets, and expert information of level error
}

// tsharkArgs make tshark 4.0 find MPA on any port. They also keep it from decoding the payload of Sends: the 16 bytes
// of rping look like the start of RPC-over-RDMA, and the 4 bytes of rsockets are too short for that protocol.
var tsharkArgs = []string{"-n", "-o", "tcp.try_heuristic_first:TRUE", "--disable-protocol",
	"rpcordma", "--disable-protocol", "smb_direct",
	"-V", "-O", "iwarp_mpa,iwarp_ddp_rdmap"}

var (
	crcLine    = regexp.MustCompile(`^\s+CRC check: 0x[0-9a-f]{8} \((Good|Bad) CRC32`)
	opcodeLine = regexp.MustCompile(`= OpCode: (.*) \(0x([0-9a-f])\)$`)
)

// tshark decodes a file with tshark, which reads at most limit frames; 0 means all.
func tshark(file string, limit int) (d decoded, err error) {
	args := append([]string{"-r", file}, tsharkArgs...)
	if limit > 0 {
		args = append(args, "-c", fmt.Sprint(limit))
	}
	cmd := exec.Command("tshark", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return d, err
	}
	if err := cmd.Start(); err != nil {
		return d, fmt.Errorf("%w (apt-get install tshark)", err)
	}
	readErr := d.read(out)
	if err := errors.Join(readErr, cmd.Wait()); err != nil {
		return d, fmt.Errorf("tshark %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return d, nil
}

// read adds up the packet details that tshark prints.
func (d *decoded) read(r io.Reader) error {
	d.opcodes = map[string]int{}
	frame := ""
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "Frame "):
			frame, _, _ = strings.Cut(line, ":")
		case strings.Contains(line, "ULPDU length: "):
			d.fpdus++
		case strings.Contains(line, "Malformed") || strings.Contains(line, "(Error/"):
			if len(d.complaints) < 10 {
				d.complaints = append(d.complaints, frame+": "+strings.TrimSpace(line))
			}
		default:
			if m := crcLine.FindStringSubmatch(line); m != nil {
				if m[1] == "Good" {
					d.good++
				} else {
					d.bad++
				}
			} else if m := opcodeLine.FindStringSubmatch(line); m != nil {
				// tshark 4.0 has no name for Immediate Data.
				if n := strings.Index("0123456789abcdef", m[2]); m[1] == "Unknown" {
					m[1] = opcodes[n]
				}
				d.opcodes[m[1]]++
			}
		}
	}
	return lines.Err()
}

// judge decodes a capture with the reader of this package and with tshark, and compares the results. Exactly the
// opcodes of want must occur.
//
// tshark 4.0 reads captured streams without markers, also if a segment holds several FPDUs, or if an FPDU is spread
// over several segments and begins at the start of a segment. With markers it has four faults, because it assumes that
// a segment is an FPDU:
//
//   - It counts the markers of an FPDU over the whole segment. With two FPDUs in a segment it finds neither.
//   - It counts a marker that is due exactly at the segment's end, although that belongs to the next FPDU.
//   - If an FPDU is spread over several segments, it counts markers in the last segment only.
//   - If one side asked for markers, it looks for them in both directions.
//
// After the first such fault it finds no more FPDUs and shows the rest as "TCP segment of a reassembled PDU". It also
// finds no FPDU of a connection that has the same addresses and ports as an earlier, rejected one. And it counts a
// segment twice that TCP retransmitted. In all these cases judge gives tshark the file that recut writes to scratch:
// the same bytes at the same sequence numbers, with one FPDU in each segment. That file lacks FPDUs that are
// unreadableByTshark, 1 of 128, which only this package's reader checks.
func judge(file, scratch string, want ...string) error {
	list, err := readCapture(file)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return fmt.Errorf("%s holds no MPA connection", file)
	}
	all, expected, left := 0, decoded{opcodes: map[string]int{}}, 0
	cut, rejected := false, map[string]bool{} // by addresses and ports
	for _, s := range list {
		ends := fmt.Sprint(s.conn.Client, s.conn.Server)
		cut, rejected[ends] = cut || rejected[ends], s.rejected()
		if s.half[0].markers != s.half[1].markers && !s.rejected() {
			return fmt.Errorf("%s: markers in one direction only, which tshark 4.0 cannot read",
				file)
		}
		for i := range s.half {
			cut = cut || s.half[i].markers && !s.rejected() || s.hasRetransmission()
			for _, f := range s.half[i].fpdus {
				all++
				if unreadableByTshark(&s.half[i], f) {
					left++
					continue
				}
				expected.fpdus++
				expected.opcodes[opcodes[f.opcode]]++
				if s.crc {
					expected.good++
				}
			}
		}
	}
	if cut {
		file = scratch
		if err := recut(list, file); err != nil {
			return err
		}
	}
	got, err := tshark(file, 0)
	if err != nil {
		return err
	}
	var errs []error
	if len(got.complaints) > 0 || got.bad > 0 {
		errs = append(errs, fmt.Errorf("tshark found %d bad CRCs and reported:\n%s", got.bad,
			strings.Join(got.complaints, "\n")))
	}
	if got.fpdus != expected.fpdus || got.good != expected.good ||
		fmt.Sprint(got.opcodes) != fmt.Sprint(expected.opcodes) {
		errs = append(errs, fmt.Errorf("tshark decodes %d FPDUs, %d with a good CRC, %v; want "+
			"%d, %d, %v",
			got.fpdus, got.good, got.opcodes, expected.fpdus, expected.good, expected.opcodes))
	}
	if left*20 > all {
		errs = append(errs, fmt.Errorf("%d of %d FPDUs are such that tshark cannot read them", left,
			all))
	}
	return errors.Join(append(errs, onlyThese(list, want))...)
}

// onlyThese checks that the opcodes in list are exactly those in want.
func onlyThese(list []*session, want []string) error {
	seen := map[string]int{}
	for _, s := range list {
		for op, n := range s.count() {
			seen[op] += n
		}
	}
	for _, op := range want {
		if seen[op] == 0 {
			return fmt.Errorf("no %s among %v", op, seen)
		}
		delete(seen, op)
	}
	if len(seen) > 0 {
		return fmt.Errorf("opcodes that do not belong here: %v", seen)
	}
	return nil
}

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
	fpdus, good, bad int            // with a right CRC, with a wrong one; others are not judged, when MPA does without
	opcodes          map[string]int // by tshark's names
	complaints       []string       // malformed, and expert information of level error
}

// tsharkArgs make tshark 4.0 find MPA on any port, and keep it from decoding the payload of Sends: 16 bytes of rping
// look like the start of RPC-over-RDMA, and the 4 of rsockets are then too short for it.
var tsharkArgs = []string{"-n", "-o", "tcp.try_heuristic_first:TRUE", "--disable-protocol",
	"rpcordma", "--disable-protocol", "smb_direct",
	"-V", "-O", "iwarp_mpa,iwarp_ddp_rdmap"}

var (
	crcLine    = regexp.MustCompile(`^\s+CRC check: 0x[0-9a-f]{8} \((Good|Bad) CRC32`)
	opcodeLine = regexp.MustCompile(`= OpCode: (.*) \(0x([0-9a-f])\)$`)
)

// tshark decodes a file, of which it reads at most limit frames; 0 is all.
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

// read takes the packet details.
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
				// 4.0 has no name for Immediate Data
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
// tshark 4.0 reads streams without markers as they were captured, also when a segment holds several FPDUs or
// an FPDU is spread over several segments (as long as it begins with the header of a segment). With markers
// it has four faults, all from one assumption of its source, that a segment is an FPDU:
//
//   - It counts the markers of an FPDU over the whole segment. With two FPDUs in a segment it finds neither.
//   - It counts a marker that is due exactly at the segment's end, which belongs to the next FPDU.
//   - It counts over the last segment only when an FPDU is spread over several.
//   - When one side asked for markers it looks for them in both directions.
//
// After the first of them it silently loses the stream: the rest is "TCP segment of a reassembled PDU". It also reads
// no FPDU of a connection between the ports of one that was rejected. In these cases judge gives tshark a file with the
// same bytes at the same sequence numbers and one FPDU for each segment. It leaves out the FPDUs of blind, 1 of 128,
// which only this package's reader judges. It does the same if TCP retransmitted a segment, which tshark would count
// twice.
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
			cut = cut || s.half[i].markers && !s.rejected() || s.again()
			for _, f := range s.half[i].fpdus {
				all++
				if blind(&s.half[i], f) {
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

// onlyThese checks the opcodes that occur.
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

package xdp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net"
	"net/netip"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
	"xwarp/mpa/startup"
	"xwarp/mpa/ulpdu"
)

// TestKernelPeerEndsWithCutFPDU: a program on a kernel socket writes its last message in pieces and closes the socket.
// The message is its first or its second. In whatever way it is cut, a Send completes a receive, a Write changes
// memory, and the connection ends without an error. A Terminate ends the connection with the peer's error.
//
//req:rfc9293-3.10.7.4-7 rfc5044-A.4-1
func TestKernelPeerEndsWithCutFPDU(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	tn, err := topo.New(topo.Options{IPv4Only: true, OffloadsA: topo.NoOffloads})
	if err != nil {
		t.Fatal(err)
	}
	defer tn.Close()
	p := kernelPeer{t: t, host: tn.A}
	if err := tn.B.Do(func() (err error) {
		p.dev, err = xdp.Open(xdp.Config{Interface: tn.B.Link.Name})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer p.dev.Close()
	p.l, err = p.dev.Listen(netip.AddrPortFrom(tn.B.Addr4.Addr(), 7174),
		verbs.ListenConfig{MPA: &verbs.MPAConfig{Markers: verbs.MarkersOff}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.l.Close()
	short := []byte("the last message")
	long := bytes.Repeat(short, 300) // of several segments
	for _, op := range []rdmap.Opcode{rdmap.OpSend, rdmap.OpWrite, rdmap.OpTerminate} {
		for _, first := range []bool{true, false} {
			for cut := range 50 {
				p.end(op, first, short, cut)
				p.end(op, first, short, cut, cut+1)
			}
			p.end(op, first, short, 1, 2, 3, 4, 10, 11, 20, 21, 22, 30)
			for _, cuts := range [][]int{nil, {1}, {2}, {2000}, {1, 2, 3000}, {1500, 4000}} {
				p.end(op, first, long, cuts...)
			}
		}
	}
	totals, err := p.dev.Totals()
	if err != nil || totals.MPA.Spanning == 0 {
		t.Errorf("%d FPDUs arrived in pieces, %v: this test does not test", totals.MPA.Spanning,
			err)
	}
}

// kernelPeer connects kernel sockets of host to the listener l of dev.
type kernelPeer struct {
	t    *testing.T
	host *topo.Host
	dev  *xdp.Device
	l    verbs.Listener
}

// end makes a connection whose peer sends a message of the given kind, cut at the given offsets, and closes. If first
// is false, the peer sends another message before it. end checks what the device received, and how the connection ends.
func (p *kernelPeer) end(op rdmap.Opcode, first bool, message []byte, cuts ...int) {
	t := p.t
	t.Helper()
	e := verbstest.New(t, p.dev, 8192)
	defer e.Close()
	receives := 0
	receive := func() {
		if err := e.QP.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{e.MR.SGE(0, 8192)}}); err != nil {
			t.Fatal(err)
		}
		receives++
	}
	var out [][]byte
	if !first {
		receive()
		out = append(out, sendFPDU(1, []byte("another message")))
	}
	var last []byte
	switch op {
	case rdmap.OpSend:
		receive()
		last = sendFPDU(ddp.MSN(receives), message)
	case rdmap.OpWrite:
		last = sealFPDU(append(ddp.AppendTagged(nil, ddp.Tagged{
			Control: ddp.MakeControl(true, true, ddp.IETF), ULP: rdmapIETF | uint8(op),
			STag: e.MR.STag()}), message...))
	default:
		last = sealFPDU(rdmap.AppendTerminateULPDU(nil,
			&rdmap.Terminate{Cause: rdmap.CauseStreamFatal}, ddp.IETF))
	}
	from := 0
	for _, cut := range append(cuts, len(last)) {
		if cut = min(cut, len(last)); from < cut {
			out = append(out, last[from:cut])
			from = cut
		}
	}
	sock := p.dial(e)
	for _, b := range out {
		if _, err := sock.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := sock.Close(); err != nil {
		t.Fatal(err)
	}
	for range receives {
		e.Wait()
	}
	select {
	case <-e.QP.Done():
	case <-time.After(20 * time.Second):
		t.Fatalf("%v cut at %v: the connection does not end", op, cuts)
	}
	var said *ulpdu.Error
	switch err := e.QP.Err(); {
	case op == rdmap.OpTerminate:
		if c := rdmap.CauseStreamFatal; !errors.As(err, &said) || said.Layer != c.Layer() ||
			said.Type != c.Type() || said.Code != c.Code() {
			t.Errorf("Terminate cut at %v, the first FPDU %v: %v", cuts, first, err)
		}
	case err != nil || !bytes.Equal(e.Mem[:len(message)], message):
		t.Errorf("%v of %d bytes cut at %v, the first FPDU %v: %v, memory %.20q", op, len(message),
			cuts, first, err, e.Mem)
	}
}

// dial connects a kernel socket to e, and starts MPA as initiator.
func (p *kernelPeer) dial(e *verbstest.End) net.Conn {
	t := p.t
	t.Helper()
	accepted := make(chan error, 1)
	go func() { accepted <- e.Accept(t.Context(), p.l, nil) }()
	sock, err := p.host.Dial(t.Context(), netip.AddrPort{}, p.l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	var ini startup.Initiator
	if err := ini.Init(startup.Config{Revision: startup.RevIETF}); err != nil {
		t.Fatal(err)
	}
	if _, err := sock.Write(ini.Output()); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	for ini.Stage() != startup.StageEstablished {
		if _, err := sock.Read(b); err != nil {
			t.Fatal(err)
		}
		if _, err := ini.Input(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	return sock
}

const rdmapIETF = 1 << 6 // RDMAP's control byte without the opcode

func sendFPDU(msn ddp.MSN, b []byte) []byte {
	return sealFPDU(append(ddp.AppendUntagged(nil, ddp.Untagged{
		Control: ddp.MakeControl(false, true, ddp.IETF), ULP: rdmapIETF | uint8(rdmap.OpSend),
		MSN: msn}), b...))
}

// sealFPDU returns the FPDU of a ULPDU, without markers.
func sealFPDU(u []byte) []byte {
	b := append(binary.BigEndian.AppendUint16(nil, uint16(len(u))), u...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

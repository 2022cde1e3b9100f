package sockets

import (
	"encoding/binary"
	"hash/crc32"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/ddp/rdmap"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
	"xwarp/tcp/tick"
)

// TestStoppedProcessReadsFirst: the rest of an FPDU arrives while the process is stopped for longer than FPDUTimeout.
// The process must read it before it checks the deadline, so that the stream does not fail.
func TestStoppedProcessReadsFirst(t *testing.T) {
	const early = 7
	fpdu := make([]byte, 16, 20)
	copy(fpdu, "\x00\x0e\xc1\x40") // a Write of no bytes
	crc := crc32.Checksum(fpdu, crc32.MakeTable(crc32.Castagnoli))
	fpdu = binary.LittleEndian.AppendUint32(fpdu, crc)
	more, sent, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
	defer close(end)
	peer := answerMPA(t, func(sock net.Conn) {
		sock.Write(fpdu[:early])
		<-more
		sock.Write(fpdu[early:])
		close(sent)
		<-end
	})
	d, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	pd, _ := d.AllocPD()
	cq, _ := d.CreateCQ(16)
	v, err := d.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	q := v.(*core.QP)
	if err := d.Dial(t.Context(), peer, q, verbs.DialConfig{MPA: &verbs.MPAConfig{
		Markers: verbs.MarkersOff, ClientServer: true}}); err != nil {
		t.Fatal(err)
	}
	core, below := core.Below(q)
	kc := below.(*conn)
	for waits, turns := false, 0; !waits; turns++ {
		if turns == 1<<20 {
			t.Fatal("no wait for the rest of the FPDU")
		}
		kc.worker.shard.Call(func() { waits = kc.iw.Deadline() != tick.Never })
	}
	kc.worker.shard.Call(func() {
		close(more)
		<-sent
		kc.call(func(fd uintptr) {
			unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
		})
		kc.step(kc.iw.Deadline())
		s, deadline := kc.iw.Stats(), kc.iw.Deadline()
		if core.State() != rdmap.RTS || s.FPDUs != 1 || deadline != tick.Never {
			t.Errorf("%v, %v, deadline %v, %+v", core.State(), core.Err(), deadline, s)
		}
	})
}

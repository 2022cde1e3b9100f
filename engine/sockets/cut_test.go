package sockets

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"xwarp/engine/verbs"
	"xwarp/mpa/ulpdu"
)

// TestKernelCutByFIN: the peer of a socket ends its stream inside an FPDU. It must get a Terminate of MPA's error 1
// before our FIN, which this side can still send (RFC 5044, 8).
//
//req:rfc5044-8-1
func TestKernelCutByFIN(t *testing.T) {
	got := make(chan []byte, 1)
	peer := answerMPA(t, func(sock net.Conn) {
		sock.Write([]byte("\x00\x0e\xc1\x40\x00"))
		sock.(*net.TCPConn).CloseWrite()
		sock.SetReadDeadline(time.Now().Add(10 * time.Second))
		b, err := io.ReadAll(sock)
		if err != nil {
			b = append(b, err.Error()...)
		}
		got <- b
	})
	d, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	pd, _ := d.AllocPD()
	cq, _ := d.CreateCQ(16)
	q, err := d.CreateQP(verbs.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Dial(t.Context(), peer, q, verbs.DialConfig{MPA: &verbs.MPAConfig{
		Markers: verbs.MarkersOff, ClientServer: true}}); err != nil {
		t.Fatal(err)
	}
	if b := <-got; len(b) < 24 || b[3] != 0x47 || !bytes.Equal(b[20:22], []byte{0x20, 0x01}) {
		t.Errorf("the peer got % x, want a Terminate 2/0/01 and FIN", b)
	}
	var e *ulpdu.Error
	if err := q.Err(); !errors.As(err, &e) || e.Layer != ulpdu.MPA || e.Code != ulpdu.CodeClosed {
		t.Errorf("the queue pair says %v", err)
	}
}

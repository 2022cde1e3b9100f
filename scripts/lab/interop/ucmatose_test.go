package interop

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
	"xwarp/mpa/startup"
	"xwarp/scripts/lab/vm"
)

// ucmatose plays one side of rdma-core's ucmatose over xwarp: the server sends count messages, then the client does,
// then the server closes.
type ucmatose struct {
	*peer
	mr    verbs.MR
	size  int // bytes of a message
	count int // messages in each direction
	got   int // messages received
	wrong error
}

func newUcmatose(t *testing.T, dev *sockets.Device, count, size int) *ucmatose {
	u := &ucmatose{peer: newPeer(t, dev, count+1), size: size, count: count}
	u.mr = u.register(make([]byte, size), verbs.LocalWrite)
	u.received = func(c verbs.Completion) {
		u.got++
		if int(c.ByteLen) != size {
			u.wrong = fmt.Errorf("message %d has %d bytes, want %d", u.got, c.ByteLen, size)
		}
	}
	for range count + 1 { // one receive more than messages: its flush shows the end of the connection
		if err := u.qp.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{u.mr.SGE(0, size)}}); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

func (u *ucmatose) send() error {
	for range u.count {
		if err := u.post(verbs.SendWR{Op: rdmap.WRSend,
			SGL: []verbs.SGE{u.mr.SGE(0, u.size)}}); err != nil {
			return err
		}
	}
	return nil
}

func (u *ucmatose) receive(ctx context.Context) error {
	if err := u.until(ctx, func() bool { return u.got == u.count && u.busy == 0 }); err != nil {
		return err
	}
	return u.wrong
}

// TestUcmatose runs unmodified ucmatose in the machine against xwarp's side. As a client, ucmatose sends nothing before
// the server has sent. But MPA forbids the server to send first (RFC 5044, 7.1.2, rule 3), unless the client's stack
// announces an RTR message. siw does so with peer_to_peer=1. This machine has that setting, and also mpa_crc_required=1
// and mpa_crc_strict=1. Two siw ends do not need it, because siw ignores the rule.
func TestUcmatose(t *testing.T) {
	b := need(t, vm.Siw{PeerToPeer: true, CRC: true, CRCStrict: true})
	for _, transport := range []string{"xdp", "kernel"} {
		t.Run(transport, func(t *testing.T) {
			d := b.device(t, transport)
			for _, tc := range []struct {
				name        string
				v6          bool
				count, size int
			}{
				{"IPv4", false, 100, 2000},
				{"IPv6", true, 10, 60000},
			} {
				ours, theirs, bind := vm.PeerAddr4, b.vm.Addr4, ""
				if tc.v6 {
					ours, theirs, bind = vm.PeerAddr6, b.vm.Addr6, fmt.Sprintf(" -b %v", b.vm.Addr6)
				}
				args := fmt.Sprintf("timeout 170 ucmatose -c 1 -C %d -S %d", tc.count, tc.size)
				t.Run("our client, "+tc.name, func(t *testing.T) {
					ctx, port, u := limited(t, 3*time.Minute), port(), newUcmatose(t, d, tc.count,
						tc.size)
					b.captured(t, port, func() error {
						s, err := b.vm.Spawn(fmt.Sprintf("%s -p %d%s", args, port, bind))
						if err != nil {
							return err
						}
						defer s.Kill()
						if err := b.vm.Listening(port, time.Minute); err != nil {
							return err
						}
						if err := d.Dial(ctx, netip.AddrPortFrom(theirs, port), u.qp,
							verbs.DialConfig{
								MPA: &verbs.MPAConfig{RTR: startup.RTRWrite}}); err != nil {
							return err
						}
						if err := firstError(u.receive(ctx), u.send, func() error {
							return u.gone(ctx)
						}); err != nil {
							return fmt.Errorf("%w\n%s", err, s.Output())
						}
						return ended(s.Wait(time.Minute))(s.Output())
					}, "Write", "Send")
				})
				t.Run("our server, "+tc.name, func(t *testing.T) {
					ctx, port, u := limited(t, 3*time.Minute), port(), newUcmatose(t, d, tc.count,
						tc.size)
					b.captured(t, port, func() error {
						var c *vm.Process
						_, err := u.serve(ctx, netip.AddrPortFrom(ours, port), nil,
							func() (err error) {
								c, err = b.vm.Spawn(fmt.Sprintf("%s -p %d -s %v", args, port, ours))
								return err
							})
						if c != nil {
							defer c.Kill()
						}
						if err := firstError(err, u.send, func() error {
							return u.receive(ctx)
						}, func() error { return u.disconnect(ctx) }); err != nil {
							return err
						}
						return ended(c.Wait(time.Minute))(c.Output())
					}, "Read Request", "Read Response", "Send")
				})
			}
		})
	}
}

// firstError returns err if it is not nil. Otherwise it runs the steps until one fails, and returns that step's error.
func firstError(err error, steps ...func() error) error {
	for _, s := range steps {
		if err != nil {
			return err
		}
		err = s()
	}
	return err
}

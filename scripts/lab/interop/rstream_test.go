package interop

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"xwarp/scripts/lab/vm"
)

// counter makes and checks the data of rstream -T v: each byte is one more than the byte before, through all messages
// of a direction.
type counter struct{ out, in byte }

func (c *counter) fill(b []byte) []byte {
	for i := range b {
		b[i] = c.out
		c.out++
	}
	return b
}

func (c *counter) check(b []byte) error {
	for i := range b {
		if b[i] != c.in {
			return fmt.Errorf("byte %d of a message of %d is %d, want %d", i, len(b), b[i], c.in)
		}
		c.in++
	}
	return nil
}

// rtest is a run of rstream or riostream.
type rtest struct {
	size, count, iterations int
	client                  bool // xwarp is the client
}

// rstream plays xwarp's side of rstream: 16 bytes in each direction, then, iterations times, count messages in each
// direction. The client begins.
func (x rtest) rstream(ctx context.Context, r *rsocket) error {
	r.expect, r.unit = 16+x.iterations*x.count*x.size, x.size
	var c counter
	send := func(n int) error { return r.send(ctx, c.fill(make([]byte, n))) }
	recv := func(n int) error {
		b, err := r.recv(ctx, n)
		if err == nil {
			err = c.check(b)
		}
		return err
	}
	first, second := recv, send
	if x.client {
		first, second = send, recv
	}
	all := func(step func(int) error) error {
		for i := range x.count {
			if err := step(x.size); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
		return nil
	}
	err := firstError(first(16), func() error { return second(16) })
	for range x.iterations {
		err = firstError(err, func() error {
			return all(first)
		}, func() error { return all(second) })
	}
	return err
}

// riostream plays xwarp's side of riostream: 16 bytes in each direction, then Writes into the other side's iomap. The
// last byte of a transfer is its number.
func (x rtest) riostream(ctx context.Context, r *rsocket) error {
	var c counter
	mem := r.iomem.Bytes()
	mem[x.size-1] = 0xff
	sync := func(out bool) error {
		if out {
			return r.send(ctx, make([]byte, 16))
		}
		_, err := r.recv(ctx, 16)
		return err
	}
	marker := byte(0)
	send := func() error {
		if err := r.until(ctx, func() bool { return r.ioKnown }); err != nil {
			return err
		}
		b := make([]byte, x.size)
		for i := range x.count {
			copy(b, mem) // the data of the last transfer; only the last Write has new data and a new number
			if i == x.count-1 {
				c.fill(b[:x.size-1])
				b[x.size-1] = marker
				marker++
			}
			if err := firstError(r.write(b, r.ioTarget.addr, r.ioTarget.key), func() error {
				return r.settle(ctx)
			}); err != nil {
				return err
			}
		}
		return nil
	}
	recv := func() error {
		for mem[x.size-1] != marker {
			// A Write makes no completion here. Info asks the worker, which orders its writes before this read.
			if _, err := r.qp.Info(); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return fmt.Errorf("the last byte is %d, want %d: %w", mem[x.size-1], marker,
					ctx.Err())
			}
		}
		marker++
		return c.check(mem[:x.size-1])
	}
	first, second := recv, send
	if x.client {
		first, second = send, recv
	}
	err := firstError(sync(x.client), func() error { return sync(!x.client) })
	for range x.iterations {
		err = firstError(err, first, second)
	}
	return err
}

// TestRsockets runs unmodified rstream and riostream in the machine against xwarp's side. Both sides check the data.
func TestRsockets(t *testing.T) {
	b := need(t, vm.Siw{})
	d := b.device(t, "xdp")
	for _, tool := range []string{"rstream", "riostream"} {
		for _, x := range []rtest{
			{size: 1200, count: 2, iterations: 2}, {size: 1200, count: 2, iterations: 2,
				client: true},
			{size: 5000, count: 300, iterations: 2}, {size: 5000, count: 300, iterations: 2,
				client: true},
		} {
			if tool == "riostream" {
				x.count = min(x.count, 20)
			}
			side := "server"
			if x.client {
				side = "client"
			}
			t.Run(fmt.Sprintf("%s, our %s, %d x %d", tool, side, x.count, x.size),
				func(t *testing.T) {
					ctx, port := limited(t, 3*time.Minute), port()
					r := newRsocket(t, d, map[string]int{"riostream": x.size}[tool])
					run := x.rstream
					if tool == "riostream" {
						run = x.riostream
					}
					args := fmt.Sprintf("timeout 170 %s -T v -I %d -C %d -S %d -p %d", tool,
						x.iterations, x.count, x.size, port)
					opcodes := []string{"Write", "Send"}
					if x.client {
						opcodes = append(opcodes, "Read Request", "Read Response") // xwarp's RTR message is a Read
					}
					b.captured(t, port, func() error {
						var p *vm.Process
						spawn := func(more string) (err error) {
							p, err = b.vm.Spawn(args + more)
							return err
						}
						var err error
						if x.client {
							err = firstError(spawn(""), func() error {
								return b.vm.Listening(port, time.Minute)
							},
								func() error {
									return r.connect(ctx, netip.AddrPortFrom(b.vm.Addr4, port))
								})
						} else {
							var private []byte
							at := netip.AddrPortFrom(vm.PeerAddr4, port)
							private, err = r.serve(ctx, at, r.private(), func() error {
								return spawn(fmt.Sprintf(" -s %v", vm.PeerAddr4))
							})
							err = firstError(err, func() error { return r.meet(private) })
						}
						if p != nil {
							defer p.Kill()
						}
						err = firstError(err, func() error {
							return run(ctx, r)
						}, func() error { return r.shut(ctx) })
						if err != nil && p != nil {
							return fmt.Errorf("%w\n%s", err, p.Output())
						}
						return firstError(err, func() error {
							return ended(p.Wait(time.Minute))(p.Output())
						})
					}, opcodes...)
				})
		}
	}
}

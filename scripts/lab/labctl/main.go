// Command labctl boots lab machines for scripts and manual use.
//
//	go run ./scripts/lab/labctl [flags] [where: command]...
//
// Each argument runs a shell command in machine 0, 1, ... ("0: ibv_devinfo") or in the peer namespace ("peer:
// ping -c1 10.77.0.10"). A command for a machine that ends in & runs in the background; at the end it is killed and its
// output printed. labctl stops at the first command that fails and exits with its code. With -hold the lab stays until
// SIGINT or SIGTERM, and labctl reads more commands from standard input, one per line.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"xwarp/scripts/lab/vm"
)

func main() {
	var l lab
	count := flag.Int("vms", 1, "machines to boot")
	mtu := flag.Int("mtu", vm.DefaultMTU, "MTU of all links")
	hold := flag.Bool("hold", false,
		"stay until interrupted, and read commands from standard input")
	flag.DurationVar(&l.timeout, "timeout", 2*time.Minute, "how long one command may take")
	capture := flag.String("capture", "", "write what crosses machine 0's link to this pcap file")
	var siw vm.Siw
	flag.BoolVar(&siw.CRC, "crc", false, "siw asks for CRC")
	flag.BoolVar(&siw.PeerToPeer, "p2p", false, "siw asks for an RTR")
	flag.IntVar(&siw.Revision, "rev", 2, "MPA revision of siw's Requests")
	flag.BoolVar(&siw.Stock, "stock", false, "siw exactly as Linux has it (see vm.Siw)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := l.runTests(ctx, *count, *mtu, siw, *capture, *hold)
	if err != nil {
		fmt.Fprintln(os.Stderr, "labctl:", err)
		code = 1
	}
	os.Exit(code)
}

type lab struct {
	net        *vm.Network
	vms        []*vm.VM
	background []*vm.Process
	timeout    time.Duration
}

func (l *lab) runTests(ctx context.Context, count, mtu int, siw vm.Siw, capture string,
	hold bool) (code int, err error) {
	defer func() { err = errors.Join(err, l.close()) }()
	if l.net, err = vm.NewNetwork(mtu); err != nil {
		return 1, err
	}
	for range count {
		v, err := vm.Start(ctx, vm.Options{Network: l.net, Siw: siw})
		if err != nil {
			return 1, err
		}
		l.vms = append(l.vms, v)
		fmt.Printf("# %d: %v %v\n", v.Number, v.Addr4, v.Addr6)
	}
	fmt.Printf("# peer: %v %v on %s; nsenter --net=%s COMMAND\n", vm.PeerAddr4, vm.PeerAddr6,
		vm.PeerLink, l.net.Peer.Path())
	if capture != "" && count > 0 {
		c, err := l.vms[0].Capture(capture, "")
		if err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, c.Stop()) }()
	}
	for _, command := range flag.Args() {
		if code, err := l.command(command); code != 0 || err != nil {
			return code, err
		}
	}
	if hold {
		l.servePeer(ctx)
	}
	return 0, nil
}

// servePeer runs commands from standard input until ctx ends, even after the end of the input.
func (l *lab) servePeer(ctx context.Context) {
	lines := make(chan string)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case line := <-lines:
			if strings.TrimSpace(line) == "" {
				continue
			}
			if code, err := l.command(line); code != 0 || err != nil {
				fmt.Printf("# exit code %d, error %v\n", code, err)
			}
		}
	}
}

// command runs a command of the form "where: command" and prints its output.
func (l *lab) command(text string) (code int, err error) {
	where, command, ok := strings.Cut(text, ":")
	command = strings.TrimSpace(command)
	if !ok || command == "" {
		return 1, fmt.Errorf("%q is not of the form where: command", text)
	}
	fmt.Printf("# %s: %s\n", where, command)
	var out string
	if where == "peer" {
		out, code, err = l.net.Peer.Run(l.timeout, "/bin/sh", "-c", command)
		fmt.Print(out)
		return code, err
	}
	n, err := strconv.Atoi(where)
	if err != nil || n < 0 || n >= len(l.vms) {
		return 1, fmt.Errorf("%q: where must be peer or a machine, 0 to %d", text, len(l.vms)-1)
	}
	if before, ok := strings.CutSuffix(command, "&"); ok {
		p, err := l.vms[n].Spawn(before)
		if err != nil {
			return 1, err
		}
		l.background = append(l.background, p)
		return 0, nil
	}
	out, code, err = l.vms[n].Run(command, l.timeout)
	fmt.Print(out)
	return code, err
}

func (l *lab) close() error {
	var errs []error
	for i, p := range l.background {
		// A background command may be about to end by itself, because the other side has just ended.
		if _, err := p.Wait(time.Second); err != nil {
			errs = append(errs, p.Kill())
		}
		fmt.Printf("# background %d:\n%s", i, p.Output())
	}
	for _, v := range l.vms {
		errs = append(errs, v.Close())
	}
	if l.net != nil {
		errs = append(errs, l.net.Close())
	}
	return errors.Join(errs...)
}

// Command pinger is one end of rping for tests in virtual machines: it uses xwarpd through its control socket.
//
//	pinger SOCKET server ADDRESS:PORT
//	pinger SOCKET client ADDRESS:PORT SIZE COUNT    COUNT 0: until the connection ends
package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"time"

	"xwarp/engine/daemon/client"
	"xwarp/engine/testkit/rping"
	"xwarp/engine/verbs"
)

// limit is the maximum time of a client with a COUNT.
const limit = 40 * time.Second

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: pinger SOCKET server|client ADDRESS:PORT [SIZE COUNT]")
		os.Exit(2)
	}
	res, err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "pinger:", err)
		os.Exit(1)
	}
	fmt.Printf("%d iterations\n", res.Iterations)
}

func run(socket, role, address string, numbers []string) (res rping.Result, err error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return res, err
	}
	dev, err := client.Open(socket)
	if err != nil {
		return res, err
	}
	defer dev.Close()
	ctx := context.Background()
	var cfg rping.Config
	if role == "server" {
		l, err := dev.Listen(at, verbs.ListenConfig{})
		if err != nil {
			return res, err
		}
		defer l.Close()
		return rping.Serve(ctx, dev, l)
	}
	for i, n := range []*int{&cfg.Size, &cfg.Count} {
		if i < len(numbers) {
			if *n, err = strconv.Atoi(numbers[i]); err != nil {
				return res, err
			}
		}
	}
	if cfg.Count > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return rping.Client(ctx, dev, at, cfg)
}

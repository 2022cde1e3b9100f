package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"xwarp/bench/demo"
)

func newDemo(g *global) *cobra.Command {
	cfg := demo.Config{Size: demo.DefaultSize, Timeout: demo.DefaultTimeout}
	asJSON := false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Move data between two hosts on this machine by every verb, and compare every byte",
		Long: `demo makes two hosts, each a network namespace, joins them by a veth pair, starts an engine on AF_XDP in each, and
moves data by RDMA Write, RDMA Read and Send. It compares the SHA-256 of source and target memory and prints what
happened. The exit status is 0 only if every byte is right.

With --loss, --reorder, --duplicate, --corrupt or --resegment a third namespace stands between the hosts, with a relay
that mistreats the frames of both directions. Fractions are of packets: 2 % is 0.02.

It needs root, four times --size of memory, and leaves nothing behind.`,
		Example: `  sudo xwarp demo
  sudo xwarp demo --loss 0.02 --reorder 0.05 --duplicate 0.01 --corrupt 0.001
  sudo xwarp demo --ipsec --loss 0.02 --reorder 0.05  # encrypted, and still placed on arrival
  sudo xwarp demo --resegment --mtu 9000 --ipv6
  sudo xwarp demo --loss 0.02 --markers=false         # compare "placed on arrival" with and without markers
  sudo xwarp demo --size 8MiB --pcap demo.pcapng && tshark -r demo.pcapng
  sudo xwarp demo --json | jq .verbs                  # keys: xwarp help json`,
		Args: noArgs,
	}
	f := cmd.Flags()
	f.Var((*size)(&cfg.Size), "size", "bytes moved by each verb, such as 64MiB")
	f.IntVar(&cfg.MTU, "mtu", 1500, "of every link")
	f.BoolVar(&cfg.IPv6, "ipv6", false, "IPv6 instead of IPv4")
	f.BoolVar(&cfg.Markers, "markers", true, "MPA markers in both directions")
	f.BoolVar(&cfg.CRC, "crc", true, "CRC32C in every FPDU")
	f.BoolVar(&cfg.IPsec, "ipsec", false, "encrypt everything: IPsec ESP with a key made for this "+
		"run")
	f.Float64Var(&cfg.Loss, "loss", 0, "fraction of packets that are dropped")
	f.Float64Var(&cfg.Reorder, "reorder", 0, "fraction of packets that later ones overtake")
	f.Float64Var(&cfg.Duplicate, "duplicate", 0, "fraction of packets that arrive twice")
	f.Float64Var(&cfg.Corrupt, "corrupt", 0, "fraction of data segments that are changed, with a "+
		"right TCP checksum")
	f.BoolVar(&cfg.Resegment, "resegment", false,
		"re-cut and merge TCP segments, as some middleboxes do")
	f.Uint64Var(&cfg.Seed, "seed", 0, "repeat the data and the relay's choices of an earlier run "+
		"(default: random, printed)")
	f.StringVar(&cfg.Capture, "pcap", "", "write what host A sends and receives to a pcapng `FILE`")
	f.DurationVar(&cfg.Timeout, "timeout", cfg.Timeout, "give up after this long")
	f.BoolVarP(&asJSON, "json", "j", false, "print one JSON object instead of a table")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !f.Changed("seed") {
			cfg.Seed = uint64(rand.Uint32())
		}
		cfg.Log = g.logger(cmd)
		return runDemo(cmd, cfg, asJSON)
	}
	return cmd
}

func runDemo(cmd *cobra.Command, cfg demo.Config, asJSON bool) error {
	if err := cfg.Complete(); err != nil {
		return err
	}
	for _, w := range cfg.Warnings() {
		say(cmd, "warning: %s", w)
	}
	bar := newBar(cmd.ErrOrStderr())
	bar.every = 10 * time.Second
	cfg.Progress = bar.show
	res, err := demo.Run(cmd.Context(), cfg)
	bar.clear()
	if asJSON {
		return errors.Join(err, printJSON(cmd, res))
	}
	if err == nil || len(res.Verbs) > 0 {
		err = errors.Join(err, res.WriteTable(cmd.OutOrStdout()))
	}
	if err == nil {
		fmt.Fprintf(cmd.OutOrStdout(), "\nevery byte is right\n")
	} else if !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w\nto repeat it: add --seed %d", err, cfg.Seed)
	}
	return err
}

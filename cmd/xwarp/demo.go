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
		Short: "Transfer data between two network namespaces and verify it",
		Long: `demo creates two network namespaces joined by a veth pair, starts an engine on AF_XDP in each, and transfers data by
RDMA Write, RDMA Read and Send. It compares the SHA-256 of source and target memory and prints statistics. The exit
status is 0 only if every byte matches.

--loss, --reorder, --duplicate, --corrupt and --resegment insert a third namespace between the two, with a relay that
impairs both directions. Fractions are of packets: 0.02 is 2%.

demo needs root and four times --size of memory, 1 GiB by default. It takes some 15 seconds, and minutes with --loss.
It writes nothing to the disk, except the file of --pcap, which has about three times --size. It removes the namespaces
when it exits.`,
		Example: `  sudo xwarp demo
  sudo xwarp demo --loss 0.02 --reorder 0.05 --duplicate 0.01 --corrupt 0.001
  sudo xwarp demo --ipsec --loss 0.02 --reorder 0.05  # encrypted by IPsec ESP
  sudo xwarp demo --resegment --mtu 9000 --ipv6
  sudo xwarp demo --loss 0.02 --markers=false         # out-of-order placement without markers
  sudo xwarp demo --size 8MiB --markers=false --pcap /tmp/demo.pcapng && tshark -r /tmp/demo.pcapng
  sudo xwarp demo --json | jq .verbs                  # keys: xwarp help json`,
		Args: noArgs,
	}
	f := cmd.Flags()
	f.Var((*size)(&cfg.Size), "size", "bytes to transfer with each verb, such as 64MiB")
	f.IntVar(&cfg.MTU, "mtu", 1500, "MTU of every link")
	f.BoolVar(&cfg.IPv6, "ipv6", false, "use IPv6 instead of IPv4")
	f.BoolVar(&cfg.Markers, "markers", true, "MPA markers in both directions")
	f.BoolVar(&cfg.CRC, "crc", true, "CRC32C in every FPDU")
	f.BoolVar(&cfg.IPsec, "ipsec", false, "encrypt all traffic by IPsec ESP with a random key")
	f.Float64Var(&cfg.Loss, "loss", 0, "fraction of packets to drop")
	f.Float64Var(&cfg.Reorder, "reorder", 0, "fraction of packets to reorder")
	f.Float64Var(&cfg.Duplicate, "duplicate", 0, "fraction of packets to duplicate")
	f.Float64Var(&cfg.Corrupt, "corrupt", 0, "fraction of data segments to corrupt, with a "+
		"correct TCP checksum")
	f.BoolVar(&cfg.Resegment, "resegment", false,
		"split and merge TCP segments, as some middleboxes do")
	f.Uint64Var(&cfg.Seed, "seed", 0, "seed of the data and of the relay, to repeat a run "+
		"(default: random, printed)")
	f.StringVar(&cfg.Capture, "pcap", "", "capture the frames of host A to a pcapng `FILE`")
	f.DurationVar(&cfg.Timeout, "timeout", cfg.Timeout, "give up after this time")
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
		fmt.Fprintf(cmd.OutOrStdout(), "\nall bytes match\n")
	} else if !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w\nto repeat this run, add --seed %d", err, cfg.Seed)
	}
	return err
}

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"xwarp/cmd/xwarp/explain"
)

// explanation is the output of explain --json.
type explanation struct {
	document
	Query   string          `json:"query" doc:"the arguments; empty with --list"`
	Entries []explain.Entry `json:"entries" doc:"matching entries, best match first"`
}

func newExplain(*global) *cobra.Command {
	list := false
	cmd := &cobra.Command{
		Use:   "explain CODE",
		Short: "Explain an error code or a log message",
		Long: `explain prints the meaning, the usual causes and the remedy of an error code or log message. CODE is

  a Terminate         layer/type/code (2/0/02), or the bytes of its header (20 02, 0x2002, 20020000)
  an MPA error        2/0/CODE, or its number
  a completion status WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR, or its number in enum ibv_wc_status
  an RDMA_CM event    RDMA_CM_EVENT_REJECTED, rejected
  a TCP error         ECONNRESET, or the text of the error
  a drop cause        checksum, kernel_rx_ring_full, as shown by status and top
  a log message       its msg, or the whole line
  any words           crc mismatch, bounds`,
		Example: `  xwarp explain 2/0/02
  xwarp explain 20 02
  xwarp explain WR_FLUSH_ERR
  xwarp explain --list`,
	}
	cmd.Flags().BoolVar(&list, "list", false, "list all codes")
	asJSON := jsonFlag(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if list == (len(args) > 0) {
			return usagef("need either CODE or --list")
		}
		return nil
	}
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string,
		cobra.ShellCompDirective) {
		return mapSlice(explain.All(), func(e *explain.Entry) string {
			return e.Code + "\t" + e.Name
		}), noFiles
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		query := strings.Join(args, " ")
		entries := explain.All()
		if !list {
			entries = explain.Find(query)
		}
		if len(entries) == 0 {
			return usagef("unknown code %q (see: xwarp explain --list)", query)
		}
		text := listCodes(entries)
		if !list {
			text = strings.Join(mapSlice(entries, entryText), "\n")
		}
		return printOne(cmd, *asJSON, explanation{document{1, "explain"}, query, entries}, text)
	}
	return cmd
}

// mapSlice converts each element of a list. The result is never nil.
func mapSlice[T, R any](list []T, convert func(*T) R) []R {
	all := make([]R, len(list))
	for i := range list {
		all[i] = convert(&list[i])
	}
	return all
}

// listCodes formats one line per code, grouped by kind.
func listCodes(entries []explain.Entry) string {
	var b strings.Builder
	var kind explain.Kind
	for _, e := range entries {
		if e.Kind != kind {
			if kind != "" {
				b.WriteByte('\n')
			}
			kind = e.Kind
			fmt.Fprintf(&b, "%s\n", kind)
		}
		fmt.Fprintf(&b, "  %-30s %s\n", e.Code, e.Name)
	}
	return b.String()
}

// explainWidth is the maximum length of a line in characters.
const explainWidth = 100

func entryText(e *explain.Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", e.Kind, e.Code)
	if e.Bytes != "" {
		fmt.Fprintf(&b, " (bytes %s)", e.Bytes)
	}
	fmt.Fprintf(&b, ": %s\n\n", e.Name)
	wrap(&b, e.Meaning, "", "")
	for _, part := range []struct {
		title string
		items []string
	}{{"Usual causes", e.Causes}, {"What to do", e.Remedy}} {
		if len(part.items) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n", part.title)
		for _, item := range part.items {
			wrap(&b, item, "  - ", "    ")
		}
	}
	if e.Note != "" {
		b.WriteByte('\n')
		wrap(&b, "Note: "+e.Note, "", "")
	}
	if e.Spec != "" {
		fmt.Fprintf(&b, "\n%s\n", e.Spec)
	}
	return b.String()
}

// wrap writes text in lines of at most explainWidth. head starts the first line, tail the others.
func wrap(b *strings.Builder, text, head, tail string) {
	line := head
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > explainWidth && len(line) > len(tail) {
			b.WriteString(line + "\n")
			line = tail
		}
		if len(line) > len(tail) {
			line += " "
		}
		line += word
	}
	b.WriteString(line + "\n")
}

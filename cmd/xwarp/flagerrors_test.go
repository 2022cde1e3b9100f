package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestFlagErrors gives each flag of each command values that its parser refuses. The error says what the flag needs,
// not which function of Go failed.
func TestFlagErrors(t *testing.T) {
	wrong := []string{"2%", "", "5", "maybe", "1e400", "99999999999999999999", "-1", "12:x", "1x"}
	refused := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, set := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) {
				for _, v := range wrong {
					err := set.Set(f.Name, v)
					if err == nil {
						continue
					}
					refused++
					text := c.FlagErrorFunc()(c, err).Error()
					for _, raw := range []string{"strconv", "time:", "parsing", "syntax", "Parse"} {
						if strings.Contains(text, raw) {
							t.Errorf("%s --%s=%q: %s", c.CommandPath(), f.Name, v, text)
						}
					}
				}
			})
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(newRoot())
	if refused < 100 {
		t.Errorf("only %d values were refused", refused)
	}
}

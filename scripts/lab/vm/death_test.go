package vm

import (
	"strings"
	"testing"
	"time"
)

// TestDeathIsExplained ends a machine while a command runs in it, in two ways. The errors of the running command, of
// WaitOutput and of Close must give the cause.
func TestDeathIsExplained(t *testing.T) {
	Need(t)
	for _, tc := range []struct {
		name string
		end  func(v *VM) error
		want []string
	}{
		{"panic of the kernel", func(v *VM) error {
			_, err := v.Spawn("echo c > /proc/sysrq-trigger")
			return err
		}, []string{"Kernel panic - not syncing: sysrq triggered crash", "Call Trace:",
			"sysrq_handle_crash", "write_sysrq_trigger", "(qemu: exit status 0)"}},
		{"end of the emulator", func(v *VM) error { return v.cmd.Process.Kill() },
			[]string{"(qemu: signal: killed)"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v, err := Start(t.Context(), Options{NoSiw: true})
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			p, err := v.Spawn("echo at work; sleep 600")
			if err != nil {
				t.Fatal(err)
			}
			if err := p.WaitOutput("at work", time.Minute); err != nil {
				t.Fatal(err)
			}
			if err := tc.end(v); err != nil {
				t.Logf("the machine's error: %v", err)
			}
			_, ofCommand := p.Wait(time.Minute)
			for what, err := range map[string]error{
				"the command that ran": ofCommand,
				"WaitOutput":           p.WaitOutput("finished", time.Minute),
				"Close":                v.Close(),
			} {
				if err == nil {
					t.Errorf("%s has no error", what)
					continue
				}
				for _, want := range append(tc.want, `it ran "echo at work; sleep 600"`,
					`printed "at work\n"`) {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("the error of %s lacks %q:\n%v", what, want, err)
					}
				}
			}
		})
	}
}

package bpf

import "testing"

// TestModeText checks that each mode is read back from its name, and that other names are errors.
func TestModeText(t *testing.T) {
	for _, want := range []Mode{ModeAuto, ModeNative, ModeGeneric} {
		text, err := want.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		got := want + 1
		if err := got.UnmarshalText(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "Native", "offload", "mode(3)"} {
		m := ModeNative
		if err := m.UnmarshalText([]byte(text)); err == nil || m != ModeNative {
			t.Errorf("%q is mode %v, %v", text, m, err)
		}
	}
}

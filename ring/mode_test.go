package ring

import "testing"

func TestModeText(t *testing.T) {
	for _, m := range []Mode{ModeAuto, ModeCopy, ModeZeroCopy} {
		text, err := m.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var got Mode
		if err := got.UnmarshalText(text); err != nil || got != m {
			t.Errorf("%s: read as %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "zerocopy", "Mode(3)"} {
		var m Mode
		if err := m.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken for %v", text, m)
		}
	}
}

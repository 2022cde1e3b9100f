package plain

import "testing"

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "64KiB": 64 << 10, "1 GiB": 1 << 30, "10MB": 10e6, "3k": 3 << 10,
		"8191TiB": 8191 << 40, "7B": 7, " 5 ": 5,
	} {
		if n, err := ParseSize(text); n != want || err != nil {
			t.Errorf("%q: %d, %v; want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"", "-1", "1g", "1.5GiB", "GiB", "9999999TiB", "1 parsec"} {
		if n, err := ParseSize(text); err == nil {
			t.Errorf("%q is %d", text, n)
		}
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[uint64][2]string{
		0: {"0", "0 B"}, 1023: {"1023", "1023 B"}, 1 << 10: {"1KiB", "1.00 KiB"},
		64 << 20: {"64MiB", "64.0 MiB"}, 1<<30 + 1: {"1073741825", "1.00 GiB"},
		1000 << 20: {"1000MiB", "1000 MiB"},
	} {
		if got := [2]string{ExactSize(int64(n)), Size(n)}; got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

package bench

import (
	"strings"
	"testing"
)

// TestParseFigureOfPerftest reads what perftest and xwarp bench print.
func TestParseFigureOfPerftest(t *testing.T) {
	for _, tc := range []struct {
		out    string
		column int
		want   float64
	}{
		{"\n #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]\n" +
			" 64      10000          3.50           412.32       4.25     \t       4.70\n---\n", 4, 4.25},
		{" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n" +
			" 1048576    400              806.32             703.99\t\t   0.000704\n", 3, 703.99},
	} {
		if got, err := parseFigure(tc.out, tc.column); err != nil || got != tc.want {
			t.Errorf("%v, %v; want %v", got, err, tc.want)
		}
	}
	if _, err := parseFigure("Unable to connect 1 2 3", 3); err == nil {
		t.Error("a figure where there is none")
	}
}

// TestRatioWithinRounds works out ratios by rounds, not by medians.
func TestRatioWithinRounds(t *testing.T) {
	table := LibraryTable{LibraryFigure: libraryFigures[0], Rows: []LibraryRow{
		{viaLibrary, []float64{2, 6, 4}}, {viaGoClient, []float64{1, 2, 8}}, {viaEngine,
			[]float64{1, 1, 1}},
	}}
	if m, low, high := table.Ratio(viaGoClient); m != 2 || low != 0.5 || high != 3 {
		t.Errorf("%v, %v to %v", m, low, high)
	}
	var b strings.Builder
	if err := writeLibraryTables(&b, []LibraryTable{table}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| the library of xwarp run | 4.00 | 2.00 – 6.00 | 1.000 | 1.000 – 1.000 |",
		"| the daemon's client in Go | 2.00 | 1.00 – 8.00 | 2.000 | 0.500 – 3.000 |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, b.String())
		}
	}
}
